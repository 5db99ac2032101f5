//! `poke` and `put`.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use wire::ndn::name::Name;
use wire::ndn::{Data, DataFields, DigestSigner, Interest, NameRef, PACKET_BYTES_MAX, types};

use super::args::{Poke, Put};
use super::client::{Connection, unix_ms};
use super::no_data;
use crate::exit::{Exit, Failure};

/// How long an answer about the newest version counts as fresh (ms).
const METADATA_FRESHNESS_MS: u64 = 10;

/// Encodes a packet that is signed with a digest.
pub(super) fn encode(fields: &DataFields<'_>) -> Result<Vec<u8>, Failure> {
    let mut packet = vec![0; PACKET_BYTES_MAX];
    let length = fields.encode(&DigestSigner, &mut packet).map_err(|_| {
        Failure::message(Exit::Usage, "name and content make more than 8800 bytes")
            .remedy("serve it in segments: `tidegate ndn put`")
    })?;
    packet.truncate(length);
    Ok(packet)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let result = if path.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| ())
    } else {
        std::fs::read(path).map(|read| bytes = read)
    };
    result.map_err(|error| {
        let context = format!("cannot read {}", path.display());
        Failure::new(
            Exit::of_file(&error),
            anyhow::Error::from(error).context(context),
        )
    })?;
    Ok(bytes)
}

pub(super) fn poke(client: &mut Connection, args: &Poke) -> Result<(), Failure> {
    let content = read(Path::new("-"))?;
    let packet = encode(&DataFields {
        freshness_ms: args.freshness,
        ..DataFields::new(args.name.as_ref(), &content)
    })?;
    if args.unsolicited {
        return client.send(&packet);
    }
    client.register(&args.name)?;
    let timeout = args.timeout.map(Duration::from_millis);
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let data = Data::parse(&packet).map_err(|error| Failure::message(Exit::Usage, error.text()))?;
    while let Some(received) = client.receive(deadline)? {
        let Ok(interest) = Interest::parse(&received.packet) else {
            continue;
        };
        if received.nack.is_none() && interest.matches_data(&data.name, || data.implicit_digest()) {
            client.answer(&received, &packet)?;
            return client.flush();
        }
    }
    Err(no_data(args.name.as_ref(), "nobody asked in time"))
}

/// A segmented object, encoded.
struct Object {
    name: Name,
    versioned: Name,
    segments: Vec<Vec<u8>>,
    is_served: Vec<bool>,
    left: usize,
}

impl Object {
    fn new(args: &Put, content: &[u8]) -> Result<Self, Failure> {
        let name = args.name.as_ref();
        let has_version = name
            .last()
            .is_some_and(|last| last.component_type == types::VERSION);
        let (name, versioned) = if has_version {
            let parent = name.parent().unwrap_or(name);
            (Name::from(parent), args.name.clone())
        } else {
            (args.name.clone(), args.name.with_version(unix_ms()))
        };
        let count = content.len().div_ceil(args.size as usize).max(1);
        let last = versioned.with_segment(count as u64 - 1);
        let final_block = last.components().last();
        let mut segments = Vec::with_capacity(count);
        for number in 0..count {
            let start = number * args.size as usize;
            let end = (start + args.size as usize).min(content.len());
            let name = versioned.with_segment(number as u64);
            segments.push(encode(&DataFields {
                freshness_ms: args.freshness,
                final_block,
                ..DataFields::new(name.as_ref(), &content[start..end])
            })?);
        }
        Ok(Self {
            name,
            versioned,
            is_served: vec![false; count],
            left: count,
            segments,
        })
    }

    /// Answers with the object's newest version (RDR): a fresh packet whose content is the versioned name.
    fn metadata(&self) -> Result<Vec<u8>, Failure> {
        let name = self
            .name
            .with_keyword(b"metadata")
            .with_version(unix_ms())
            .with_segment(0);
        let mut content = vec![0; self.versioned.value().len() + 16];
        let mut writer = wire::ndn::Writer::new(&mut content);
        let fits = writer.element(types::NAME, self.versioned.value());
        let length = writer.len();
        fits.map_err(|_| Failure::message(Exit::Usage, "the name is too long"))?;
        let last = Name::new().with_segment(0);
        encode(&DataFields {
            freshness_ms: METADATA_FRESHNESS_MS,
            final_block: last.components().last(),
            ..DataFields::new(name.as_ref(), &content[..length])
        })
    }

    /// Returns the number of the segment that an Interest asks for.
    fn segment_of(&self, interest: &Interest<'_>) -> Option<usize> {
        let (stem, _) = interest.name.split_implicit_digest();
        let is_exact =
            stem.len() == self.versioned.len() + 1 && self.versioned.as_ref().is_prefix_of(&stem);
        if is_exact {
            let number = stem.last()?.number_of(types::SEGMENT)?;
            return usize::try_from(number)
                .ok()
                .filter(|n| *n < self.segments.len());
        }
        let covers = |name: NameRef<'_>| name.is_prefix_of(&self.versioned.as_ref());
        (interest.can_be_prefix && covers(stem)).then_some(0)
    }
}

pub(super) fn put(client: &mut Connection, args: &Put) -> Result<(), Failure> {
    let content = read(&args.file)?;
    let mut object = Object::new(args, &content)?;
    drop(content);
    client.register(&object.name)?;
    eprintln!(
        "serving {} in {} segments",
        object.versioned.as_ref(),
        object.segments.len()
    );
    let metadata = object.name.with_keyword(b"metadata");
    while !args.once || object.left > 0 {
        if !client.has_packet() {
            client.flush()?;
        }
        let Some(received) = client.receive(None)? else {
            continue;
        };
        if received.nack.is_some() {
            continue;
        }
        let Ok(interest) = Interest::parse(&received.packet) else {
            continue;
        };
        if metadata.as_ref().is_prefix_of(&interest.name) {
            let packet = object.metadata()?;
            client.answer(&received, &packet)?;
        } else if let Some(number) = object.segment_of(&interest) {
            client.answer(&received, &object.segments[number])?;
            if !core::mem::replace(&mut object.is_served[number], true) {
                object.left -= 1;
            }
        }
    }
    client.flush()
}
