//! `peek` and `get`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use wire::ndn::lp::LpHeader;
use wire::ndn::name::Name;
use wire::ndn::{Data, DigestSigner, Interest, InterestFields, SignatureType, Tlv, types};

use super::args::{Get, Peek};
use super::client::{Connection, Outcome, Received, encode};
use super::no_data;
use crate::cli::Global;
use crate::exit::{Exit, Failure};
use crate::output;

/// Keyword of the name of an object's metadata (RDR).
const METADATA: &[u8] = b"metadata";
/// Interests in flight at the start.
const WINDOW_START: f64 = 16.0;
/// The shortest time after which a segment is asked for again.
const RTO_MIN: Duration = Duration::from_millis(200);

pub(super) fn peek(global: &Global, client: &mut Connection, args: &Peek) -> Result<(), Failure> {
    let start = Instant::now();
    let fields = InterestFields {
        can_be_prefix: args.prefix,
        must_be_fresh: args.fresh,
        lifetime_ms: Some(args.lifetime),
        hop_limit: args.hop_limit,
        ..InterestFields::new(args.name.as_ref())
    };
    let packet = match client.express(&fields)? {
        Outcome::Data(packet) => packet,
        Outcome::Nack(reason) => {
            return Err(no_data(args.name.as_ref(), &format!("Nack {reason:?}")));
        }
        Outcome::Timeout => return Err(no_data(args.name.as_ref(), "nobody answered in time")),
    };
    let data = Data::parse(&packet).map_err(|error| malformed(error.text()))?;
    if global.json {
        return output::print_json(&json!({
            "name": data.name.to_string(),
            "content_type": data.meta.content_type,
            "freshness_ms": data.meta.freshness_ms,
            "content_bytes": data.content.len(),
            "content": String::from_utf8_lossy(data.content),
            "signature_type": data.signature_info.signature_type.number(),
            "rtt_us": start.elapsed().as_micros() as u64,
        }));
    }
    let bytes = if args.packet { &packet } else { data.content };
    let mut stdout = std::io::stdout().lock();
    output::finish(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

fn malformed(text: &str) -> Failure {
    Failure::message(Exit::Failed, format!("the Data is malformed: {text}"))
}

/// Finds the name of the object's newest version.
fn discover(client: &mut Connection, args: &Get) -> Result<Name, Failure> {
    let name = args.name.as_ref();
    if name
        .last()
        .is_some_and(|last| last.component_type == types::VERSION)
    {
        return Ok(args.name.clone());
    }
    let metadata = args.name.with_keyword(METADATA);
    let ask = |name| InterestFields {
        can_be_prefix: true,
        must_be_fresh: true,
        lifetime_ms: Some(args.lifetime),
        ..InterestFields::new(name)
    };
    if let Outcome::Data(packet) = client.express(&ask(metadata.as_ref()))? {
        let data = Data::parse(&packet).map_err(|error| malformed(error.text()))?;
        let found = Tlv::read(data.content).and_then(|name| Name::from_value(name.value));
        return found.map_err(|error| malformed(error.text()));
    }
    // Who serves without metadata.
    match client.express(&ask(name))? {
        Outcome::Data(packet) => {
            let data = Data::parse(&packet).map_err(|error| malformed(error.text()))?;
            let is_segment = |name: wire::ndn::NameRef<'_>| {
                name.last()
                    .is_some_and(|last| last.component_type == types::SEGMENT)
            };
            match data.name.parent() {
                Some(parent) if is_segment(data.name) => Ok(Name::from(parent)),
                _ => Err(no_data(
                    name,
                    "the object has no segments; use `tidegate ndn peek`",
                )),
            }
        }
        Outcome::Nack(reason) => Err(no_data(name, &format!("Nack {reason:?}"))),
        Outcome::Timeout => Err(no_data(name, "nobody answered in time")),
    }
}

/// A segment on its way.
#[derive(Debug)]
struct Asked {
    nonce: [u8; 4],
    sent: Instant,
    tries: u32,
}

/// A fetch of segments with a window that grows until something is lost (AIMD, as TCP Reno), and a timeout that
/// follows the round-trip time (RFC 6298).
struct Fetch<'a> {
    client: &'a mut Connection,
    prefix: Name,
    lifetime: u64,
    retries: u32,
    window: f64,
    window_max: f64,
    threshold: f64,
    /// The window is not cut again before this segment is there.
    recover: u64,
    next: u64,
    last: Option<u64>,
    asked: HashMap<u64, Asked>,
    /// Segments by the order in which they were asked for, for timeouts.
    order: VecDeque<(u64, Instant)>,
    /// Segments that came before their turn.
    early: BTreeMap<u64, Vec<u8>>,
    written: u64,
    bytes: u64,
    srtt: Option<f64>,
    rttvar: f64,
    rto: Duration,
    timeouts: u64,
    marks: u64,
}

pub(super) fn get(global: &Global, client: &mut Connection, args: &Get) -> Result<(), Failure> {
    let start = Instant::now();
    let prefix = discover(client, args)?;
    let mut out = open(&args.output)?;
    let mut fetch = Fetch {
        client,
        prefix,
        lifetime: args.lifetime,
        retries: args.retries,
        window: WINDOW_START.min(args.window as f64).max(1.0),
        window_max: args.window.max(1) as f64,
        threshold: f64::MAX,
        recover: 0,
        next: 0,
        last: None,
        asked: HashMap::new(),
        order: VecDeque::new(),
        early: BTreeMap::new(),
        written: 0,
        bytes: 0,
        srtt: None,
        rttvar: 0.0,
        rto: Duration::from_secs(1),
        timeouts: 0,
        marks: 0,
    };
    fetch.run(&mut out)?;
    output::finish(out.flush())?;
    let seconds = start.elapsed().as_secs_f64();
    let report = json!({
        "name": fetch.prefix.as_ref().to_string(),
        "segments": fetch.written,
        "bytes": fetch.bytes,
        "seconds": seconds,
        "goodput_bps": fetch.bytes as f64 * 8.0 / seconds,
        "timeouts": fetch.timeouts,
        "congestion_marks": fetch.marks,
        "srtt_us": (fetch.srtt.unwrap_or(0.0) * 1e6) as u64,
    });
    if global.json && args.output.as_os_str() != "-" {
        return output::print_json(&report);
    }
    eprintln!(
        "{} in {} segments, {:.3} s, {}, {} asked for again",
        output::bytes(fetch.bytes),
        fetch.written,
        seconds,
        output::bits_per_second(fetch.bytes as f64 / seconds),
        fetch.timeouts,
    );
    Ok(())
}

fn open(path: &Path) -> Result<Box<dyn Write>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdout().lock()));
    }
    let file = File::create(path).map_err(|error| {
        let context = format!("cannot write {}", path.display());
        Failure::new(Exit::Failed, anyhow::Error::from(error).context(context))
    })?;
    Ok(Box::new(std::io::BufWriter::new(file)))
}

impl Fetch<'_> {
    fn run(&mut self, out: &mut dyn Write) -> Result<(), Failure> {
        while self.last.is_none_or(|last| self.written <= last) {
            self.ask()?;
            let deadline = self.oldest().map(|sent| sent + self.rto);
            match self.client.receive(deadline)? {
                Some(received) => self.take(received, out)?,
                None => self.time_out()?,
            }
            while self.client.has_packet() {
                if let Some(received) = self.client.receive(None)? {
                    self.take(received, out)?;
                }
            }
        }
        Ok(())
    }

    /// Asks for as much as the window lets.
    fn ask(&mut self) -> Result<(), Failure> {
        while self.asked.len() < self.window as usize {
            if self.last.is_some_and(|last| self.next > last) {
                break;
            }
            self.next += 1;
            self.send(self.next - 1, 0)?;
        }
        self.client.flush()
    }

    fn send(&mut self, segment: u64, tries: u32) -> Result<(), Failure> {
        let name = self.prefix.with_segment(segment);
        let fields = InterestFields {
            lifetime_ms: Some(self.lifetime),
            ..InterestFields::new(name.as_ref())
        };
        let packet = encode(&fields, &mut self.client.rng, None::<&DigestSigner>)?;
        let nonce = Interest::parse(&packet).ok().and_then(|i| i.nonce);
        self.client.queue(&LpHeader::default(), &packet)?;
        let sent = Instant::now();
        let asked = Asked {
            nonce: nonce.unwrap_or_default(),
            sent,
            tries,
        };
        self.asked.insert(segment, asked);
        self.order.push_back((segment, sent));
        Ok(())
    }

    /// Returns when the segment was asked for that waits longest.
    fn oldest(&mut self) -> Option<Instant> {
        while let Some(&(segment, sent)) = self.order.front() {
            if self
                .asked
                .get(&segment)
                .is_some_and(|asked| asked.sent == sent)
            {
                return Some(sent);
            }
            self.order.pop_front();
        }
        None
    }

    fn take(&mut self, received: Received, out: &mut dyn Write) -> Result<(), Failure> {
        if let Some(reason) = received.nack {
            let Ok(interest) = Interest::parse(&received.packet) else {
                return Ok(());
            };
            let segment = interest
                .name
                .last()
                .and_then(|last| last.number_of(types::SEGMENT));
            let Some(segment) = segment else {
                return Ok(());
            };
            let is_ours = self
                .asked
                .get(&segment)
                .is_some_and(|asked| interest.nonce == Some(asked.nonce));
            if !is_ours {
                return Ok(());
            }
            if reason != wire::ndn::lp::NackReason::Congestion {
                return Err(no_data(interest.name, &format!("Nack {reason:?}")));
            }
            self.cut(segment);
            return self.again(segment);
        }
        let Ok(data) = Data::parse(&received.packet) else {
            return Ok(());
        };
        let is_ours = data
            .name
            .parent()
            .is_some_and(|parent| parent == self.prefix.as_ref());
        let segment = data
            .name
            .last()
            .and_then(|last| last.number_of(types::SEGMENT));
        let (true, Some(segment)) = (is_ours, segment) else {
            return Ok(());
        };
        let Some(asked) = self.asked.remove(&segment) else {
            return Ok(());
        };
        if data.signature_info.signature_type == SignatureType::DigestSha256
            && !data.digest_signature_holds()
        {
            return Err(malformed("its digest is another"));
        }
        if let Some(last) = data
            .meta
            .final_block
            .and_then(|block| block.number_of(types::SEGMENT))
            && self.last != Some(last)
        {
            self.last = Some(last);
            self.asked.retain(|segment, _| *segment <= last);
        }
        if asked.tries == 0 {
            self.measure(asked.sent.elapsed().as_secs_f64());
        }
        if received.congestion_mark > 0 {
            self.marks += 1;
            self.cut(segment);
        } else if self.window < self.threshold {
            self.window += 1.0;
        } else {
            self.window += 1.0 / self.window;
        }
        self.window = self.window.min(self.window_max);
        self.bytes += data.content.len() as u64;
        if segment != self.written {
            self.early.insert(segment, data.content.to_vec());
            return Ok(());
        }
        output::finish(out.write_all(data.content))?;
        self.written += 1;
        while let Some(content) = self.early.remove(&self.written) {
            output::finish(out.write_all(&content))?;
            self.written += 1;
        }
        Ok(())
    }

    fn measure(&mut self, rtt: f64) {
        match self.srtt {
            None => {
                self.srtt = Some(rtt);
                self.rttvar = rtt / 2.0;
            }
            Some(srtt) => {
                self.rttvar += ((srtt - rtt).abs() - self.rttvar) / 4.0;
                self.srtt = Some(srtt + (rtt - srtt) / 8.0);
            }
        }
        let rto = self.srtt.unwrap_or(rtt) + 4.0 * self.rttvar;
        let lifetime = Duration::from_millis(self.lifetime);
        self.rto = Duration::from_secs_f64(rto).clamp(RTO_MIN, lifetime.max(RTO_MIN));
    }

    /// Halves the window, once for all that was lost in it.
    fn cut(&mut self, segment: u64) {
        if segment >= self.recover {
            self.recover = self.next;
            self.threshold = (self.window / 2.0).max(2.0);
            self.window = self.threshold;
        }
    }

    fn time_out(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        let mut late: Vec<u64> = Vec::new();
        while let Some(sent) = self.oldest() {
            if sent + self.rto > now {
                break;
            }
            late.extend(self.order.pop_front().map(|(segment, _)| segment));
        }
        for segment in late {
            self.timeouts += 1;
            self.cut(segment);
            self.again(segment)?;
        }
        self.rto = (self.rto * 2).min(Duration::from_millis(self.lifetime).max(RTO_MIN));
        Ok(())
    }

    /// Asks for a segment again, at once.
    fn again(&mut self, segment: u64) -> Result<(), Failure> {
        let tries = self.asked.get(&segment).map_or(0, |asked| asked.tries);
        if self.last.is_some_and(|last| segment > last) {
            self.asked.remove(&segment);
            return Ok(());
        }
        if tries >= self.retries {
            let name = self.prefix.with_segment(segment);
            return Err(no_data(name.as_ref(), "asked for too often"));
        }
        self.send(segment, tries + 1)?;
        self.client.flush()
    }
}
