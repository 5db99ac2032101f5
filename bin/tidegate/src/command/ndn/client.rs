//! A connection to a forwarder, as an application has it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ndn::link::{LinkConfig, LinkService};
use ndn::mgmt::ControlParameters;
use ndn::mgmt::read::Response;
use ndn::{FaceConfig, Rng};
use wire::ndn::lp::{LpHeader, NackReason};
use wire::ndn::name::Name;
use wire::ndn::{Data, DecodeError, DigestSigner, Interest, InterestFields, Tlv, Writer};

use crate::exit::{Exit, Failure};

/// Where a forwarder's Unix socket is: since NFD 24.07, and before.
const SOCKETS: [&str; 2] = ["/run/nfd/nfd.sock", "/run/nfd.sock"];
/// The port of NDN over UDP and TCP.
const PORT: u16 = 6363;
/// How long management may take (ms).
const COMMAND_MS: u64 = 4000;
/// Room that a UDP socket asks for, for datagrams received.
const UDP_RECEIVE_BYTES: usize = 4 << 20;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(4);
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes that wait before they are sent.
const FLUSH_BYTES: usize = 64 << 10;

/// A packet from the forwarder.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) packet: Vec<u8>,
    pub(super) nack: Option<NackReason>,
    pub(super) congestion_mark: u64,
    pub(super) pit_token: Vec<u8>,
}

/// What became of an Interest.
#[derive(Debug)]
pub(super) enum Outcome {
    Data(Vec<u8>),
    Nack(NackReason),
    Timeout,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    link: LinkService,
    buffer: Vec<u8>,
    /// From where on `buffer` was not looked at.
    seen: usize,
    packets: VecDeque<Received>,
    queued: Vec<u8>,
    timeout: Option<Duration>,
    /// The forwarder takes this connection for an application of its machine.
    is_local: bool,
    started: Instant,
    pub(super) rng: Rng,
}

impl Connection {
    /// Connects to the forwarder that the option, the environment or client.conf names.
    pub(super) fn open(transport: Option<&str>) -> Result<Self, Failure> {
        let uri = match transport {
            Some(uri) => uri.to_owned(),
            None => configured_transport().unwrap_or_else(default_transport),
        };
        let socket = connect(&uri)?;
        let mtu = match &socket {
            Socket::Udp(socket) => {
                let is_here = socket.peer_addr().is_ok_and(|peer| peer.ip().is_loopback());
                Some(if is_here { 8800 } else { 1420 })
            }
            _ => None,
        };
        let is_local = match &socket {
            Socket::Unix(_) => true,
            Socket::Tcp(stream) => stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback()),
            Socket::Udp(_) => false,
        };
        let config = FaceConfig {
            mtu,
            congestion_marking: false,
            ..FaceConfig::local(&uri, "")
        };
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        let mut rng = Rng::new(seed);
        Ok(Self {
            socket,
            link: LinkService::new(&LinkConfig::of_face(&config), rng.next_u64()),
            buffer: Vec::new(),
            seen: 0,
            packets: VecDeque::new(),
            queued: Vec::new(),
            timeout: None,
            is_local,
            started: Instant::now(),
            rng,
        })
    }

    fn now(&self) -> wire::Instant {
        wire::Instant::ZERO + self.started.elapsed()
    }

    /// Sends a packet with [`flush`](Self::flush), or when many wait.
    pub(super) fn queue(&mut self, header: &LpHeader<'_>, packet: &[u8]) -> Result<(), Failure> {
        let now = self.now();
        let mut result = Ok(());
        let (queued, socket) = (&mut self.queued, &self.socket);
        let sent = self.link.send(now, header, packet, 0, &mut |frame| {
            if let Socket::Udp(socket) = socket {
                // What the kernel does not take is lost, as on any link.
                if let Err(error) = socket.send(frame)
                    && error.kind() == ErrorKind::ConnectionRefused
                {
                    result = Err(error);
                }
            } else {
                queued.extend_from_slice(frame);
            }
        });
        result?;
        sent.map_err(|reason| Failure::message(Exit::Failed, reason.text()))?;
        if self.queued.len() >= FLUSH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        if self.queued.is_empty() {
            return Ok(());
        }
        match &mut self.socket {
            Socket::Unix(stream) => stream.write_all(&self.queued),
            Socket::Tcp(stream) => stream.write_all(&self.queued),
            Socket::Udp(_) => Ok(()),
        }
        .map_err(lost)?;
        self.queued.clear();
        Ok(())
    }

    /// Sends a packet.
    pub(super) fn send(&mut self, packet: &[u8]) -> Result<(), Failure> {
        self.queue(&LpHeader::default(), packet)?;
        self.flush()
    }

    /// Answers an Interest.
    pub(super) fn answer(&mut self, to: &Received, packet: &[u8]) -> Result<(), Failure> {
        let header = LpHeader {
            pit_token: (!to.pit_token.is_empty()).then_some(&to.pit_token[..]),
            ..LpHeader::default()
        };
        self.queue(&header, packet)
    }

    /// Tells whether a packet is there already.
    pub(super) fn has_packet(&self) -> bool {
        !self.packets.is_empty()
    }

    /// Returns the next packet; `None` if none comes until `deadline`.
    pub(super) fn receive(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<Received>, Failure> {
        loop {
            if let Some(packet) = self.packets.pop_front() {
                return Ok(Some(packet));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            self.read(left)?;
        }
    }

    /// Reads what is there, or waits for something.
    fn read(&mut self, left: Option<Duration>) -> Result<(), Failure> {
        if self.timeout != left {
            // The kernel's clock is coarse; a zero would mean for ever.
            let left = left.map(|left| left.max(Duration::from_micros(100)));
            match &self.socket {
                Socket::Unix(stream) => stream.set_read_timeout(left),
                Socket::Tcp(stream) => stream.set_read_timeout(left),
                Socket::Udp(socket) => socket.set_read_timeout(left),
            }?;
            self.timeout = left;
        }
        if self.seen > 0 {
            self.buffer.drain(..self.seen);
            self.seen = 0;
        }
        let before = self.buffer.len();
        self.buffer.resize(before + CHUNK_BYTES, 0);
        let space = &mut self.buffer[before..];
        let result = match &mut self.socket {
            Socket::Unix(stream) => stream.read(space),
            Socket::Tcp(stream) => stream.read(space),
            Socket::Udp(socket) => socket.recv(space),
        };
        let length = match result {
            Ok(0) if !matches!(self.socket, Socket::Udp(_)) => {
                return Err(lost(ErrorKind::UnexpectedEof.into()));
            }
            Ok(length) => length,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                0
            }
            Err(error) => return Err(lost(error)),
        };
        self.buffer.truncate(before + length);
        self.take_frames()
    }

    fn take_frames(&mut self) -> Result<(), Failure> {
        let now = self.now();
        let Self {
            link,
            buffer,
            seen,
            packets,
            ..
        } = self;
        while *seen < buffer.len() {
            let frame = match Tlv::read(&buffer[*seen..]) {
                Ok(element) => element.bytes,
                Err(DecodeError::Truncated) => break,
                Err(error) => {
                    let message = format!("the forwarder sent what is no packet: {}", error.text());
                    return Err(Failure::message(Exit::Failed, message));
                }
            };
            let mut deliver = |header: &LpHeader<'_>, packet: &[u8]| {
                packets.push_back(Received {
                    packet: packet.to_vec(),
                    nack: header.nack,
                    congestion_mark: header.congestion_mark,
                    pit_token: header.pit_token.unwrap_or_default().to_vec(),
                });
            };
            // A packet that the link drops is one that did not come.
            let _ = link.receive(now, 0, frame, &mut deliver, &mut |_| {});
            *seen += frame.len();
        }
        Ok(())
    }

    /// Sends an Interest and waits for what answers it; other packets that come are dropped.
    pub(super) fn express(&mut self, fields: &InterestFields<'_>) -> Result<Outcome, Failure> {
        let packet = encode(fields, &mut self.rng, None::<&DigestSigner>)?;
        self.send(&packet)?;
        let interest = Interest::parse(&packet).map_err(bad_interest)?;
        let lifetime = Duration::from_millis(interest.lifetime_ms);
        let deadline = Instant::now() + lifetime;
        self.await_answer(&interest, deadline)
    }

    fn await_answer(
        &mut self,
        interest: &Interest<'_>,
        deadline: Instant,
    ) -> Result<Outcome, Failure> {
        while let Some(received) = self.receive(Some(deadline))? {
            if let Some(reason) = received.nack {
                let nacked = Interest::parse(&received.packet);
                if nacked.is_ok_and(|nacked| nacked.nonce == interest.nonce) {
                    return Ok(Outcome::Nack(reason));
                }
                continue;
            }
            if let Ok(data) = Data::parse(&received.packet)
                && interest.matches_data(&data.name, || data.implicit_digest())
            {
                return Ok(Outcome::Data(received.packet));
            }
        }
        Ok(Outcome::Timeout)
    }

    /// Gives a management command; the answer may be a refusal.
    pub(super) fn command(
        &mut self,
        module: &str,
        verb: &str,
        parameters: &ControlParameters,
    ) -> Result<Response, Failure> {
        let mut encoded = vec![0; 4096];
        let mut writer = Writer::new(&mut encoded);
        let fits = parameters.write(&mut writer);
        let length = writer.len();
        fits.map_err(|_| Failure::message(Exit::Usage, "the parameters are too long"))?;
        let prefix = if self.is_local {
            management_name(module, verb)
        } else {
            // What other machines may ask for.
            name_under(b"localhop", module, verb)
        };
        let name = prefix.with_generic(&encoded[..length]);
        let fields = InterestFields {
            must_be_fresh: true,
            lifetime_ms: Some(COMMAND_MS),
            ..InterestFields::new(name.as_ref())
        };
        let signer = CommandSigner {
            time_ms: unix_ms(),
            nonce: self.rng.next_u64().to_be_bytes(),
        };
        let packet = encode(&fields, &mut self.rng, Some(&signer))?;
        self.send(&packet)?;
        let interest = Interest::parse(&packet).map_err(bad_interest)?;
        let deadline = Instant::now() + Duration::from_millis(COMMAND_MS);
        match self.await_answer(&interest, deadline)? {
            Outcome::Data(data) => {
                let data = Data::parse(&data).map_err(bad_answer)?;
                Response::parse(data.content).map_err(bad_answer)
            }
            Outcome::Nack(_) | Outcome::Timeout => Err(no_management()),
        }
    }

    /// Reads a dataset of management.
    pub(super) fn dataset(&mut self, module: &str, name: &str) -> Result<Vec<u8>, Failure> {
        let prefix = management_name(module, name);
        self.segments_of_dataset(&prefix)
    }

    /// Reads a dataset whose name is known.
    pub(super) fn segments_of_dataset(&mut self, prefix: &Name) -> Result<Vec<u8>, Failure> {
        let mut fields = InterestFields {
            can_be_prefix: true,
            must_be_fresh: true,
            lifetime_ms: Some(COMMAND_MS),
            ..InterestFields::new(prefix.as_ref())
        };
        let mut content = Vec::new();
        let mut next: Name;
        for segment in 1.. {
            let packet = match self.express(&fields)? {
                Outcome::Data(packet) => packet,
                Outcome::Nack(_) | Outcome::Timeout => return Err(no_management()),
            };
            let data = Data::parse(&packet).map_err(bad_answer)?;
            if data.meta.content_type == wire::ndn::content_type::NACK {
                let response = Response::parse(data.content).map_err(bad_answer)?;
                return Err(refused(&response));
            }
            content.extend_from_slice(data.content);
            let last = data.name.last();
            let is_last = match (data.meta.final_block, last) {
                (Some(block), Some(last)) => block.bytes == last.bytes,
                _ => true,
            };
            let Some(parent) = data.name.parent().filter(|_| !is_last) else {
                break;
            };
            next = Name::from(parent).with_segment(segment);
            fields = InterestFields {
                lifetime_ms: Some(COMMAND_MS),
                ..InterestFields::new(next.as_ref())
            };
        }
        Ok(content)
    }

    /// Lets Interests under a prefix come here.
    pub(super) fn register(&mut self, prefix: &Name) -> Result<(), Failure> {
        let parameters = ControlParameters {
            name: Some(prefix.clone()),
            ..ControlParameters::default()
        };
        let response = self.command("rib", "register", &parameters)?;
        if response.code == 200 {
            Ok(())
        } else {
            Err(refused(&response))
        }
    }
}

/// Returns `/localhost/nfd/MODULE/VERB`.
pub(super) fn management_name(module: &str, verb: &str) -> Name {
    name_under(b"localhost", module, verb)
}

fn name_under(scope: &[u8], module: &str, verb: &str) -> Name {
    Name::new()
        .with_generic(scope)
        .with_generic(b"nfd")
        .with_generic(module.as_bytes())
        .with_generic(verb.as_bytes())
}

/// Signs commands with a digest, a time and a nonce, as NFD's configuration of an installation asks.
struct CommandSigner {
    time_ms: u64,
    nonce: [u8; 8],
}

impl wire::ndn::Signer for CommandSigner {
    fn info(&self) -> wire::ndn::SignatureInfo<'_> {
        wire::ndn::SignatureInfo {
            time_ms: Some(self.time_ms),
            nonce: Some(&self.nonce),
            ..DigestSigner.info()
        }
    }

    fn sign(&self, parts: &[&[u8]], out: &mut [u8]) -> Result<usize, wire::BufferTooShort> {
        DigestSigner.sign(parts, out)
    }
}

/// Encodes an Interest with a nonce.
pub(super) fn encode<S: wire::ndn::Signer>(
    fields: &InterestFields<'_>,
    rng: &mut Rng,
    signer: Option<&S>,
) -> Result<Vec<u8>, Failure> {
    let fields = InterestFields {
        nonce: Some(rng.nonce()),
        ..*fields
    };
    let mut packet = vec![0; wire::ndn::PACKET_BYTES_MAX];
    let length = match signer {
        Some(signer) => fields.encode_signed(signer, &mut packet),
        None => fields.encode(&mut packet),
    };
    let length = length.map_err(|_| Failure::message(Exit::Usage, "the name is too long"))?;
    packet.truncate(length);
    Ok(packet)
}

/// Turns the refusal of a command into a failure.
pub(super) fn refused(response: &Response) -> Failure {
    let exit = match response.code {
        400 => Exit::Usage,
        403 => Exit::Refused,
        404 | 410 => Exit::NotFound,
        _ => Exit::Failed,
    };
    let failure = Failure::message(
        exit,
        format!("the forwarder refuses: {} {}", response.code, response.text),
    );
    match response.code {
        403 => failure.remedy("ask an operator for the right (`[[ndn_key]]` in the node's file)"),
        406 => {
            failure.remedy("see with `tidegate ndn face channels` what the forwarder listens on")
        }
        _ => failure,
    }
}

fn no_management() -> Failure {
    Failure::message(
        Exit::Failed,
        "the forwarder does not answer management Interests",
    )
    .remedy(
        "use a Unix socket or TCP on the forwarder's machine; from elsewhere it takes registrations only, and only \
         with `localhop = true` under [ndn]",
    )
}

fn bad_answer(error: DecodeError) -> Failure {
    let message = format!("the answer of the forwarder is malformed: {}", error.text());
    Failure::message(Exit::Failed, message)
}

fn bad_interest(error: DecodeError) -> Failure {
    Failure::message(
        Exit::Usage,
        format!("no Interest can ask for this: {}", error.text()),
    )
}

fn lost(error: std::io::Error) -> Failure {
    Failure::new(
        Exit::Failed,
        anyhow::Error::from(error).context("the connection to the forwarder is lost"),
    )
}

pub(super) fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

fn not_running(uri: &str, error: std::io::Error) -> Failure {
    let exit = if error.kind() == ErrorKind::PermissionDenied {
        Exit::Refused
    } else {
        Exit::NotRunning
    };
    let context = format!("no NDN forwarder answers at {uri}");
    Failure::new(exit, anyhow::Error::from(error).context(context)).remedy(
        "start a node with a table `[ndn]` (`tidegate run`), or say with --transport or \
         NDN_CLIENT_TRANSPORT where one is",
    )
}

fn connect(uri: &str) -> Result<Socket, Failure> {
    let usage = |message: String| {
        Failure::message(Exit::Usage, message)
            .remedy("write for example unix:///run/nfd/nfd.sock or tcp://127.0.0.1:6363")
    };
    let (scheme, rest) = uri
        .split_once("://")
        .ok_or_else(|| usage(format!("`{uri}` is not a FaceUri")))?;
    match scheme {
        "unix" => UnixStream::connect(Path::new(rest))
            .map(Socket::Unix)
            .map_err(|error| not_running(uri, error)),
        "tcp" | "tcp4" | "tcp6" => {
            let address = resolve(rest, scheme).map_err(|error| not_running(uri, error))?;
            let stream = TcpStream::connect_timeout(&address, CONNECT);
            let stream = stream.map_err(|error| not_running(uri, error))?;
            stream.set_nodelay(true)?;
            Ok(Socket::Tcp(stream))
        }
        "udp" | "udp4" | "udp6" => {
            let address = resolve(rest, scheme).map_err(|error| not_running(uri, error))?;
            let any: SocketAddr = if address.is_ipv4() {
                ([0, 0, 0, 0], 0).into()
            } else {
                ([0_u16; 8], 0).into()
            };
            let socket = UdpSocket::bind(any)?;
            // A window of answers may come at once; the kernel gives what it allows.
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, UDP_RECEIVE_BYTES);
            socket.connect(address)?;
            Ok(Socket::Udp(socket))
        }
        _ => Err(usage(format!("a client cannot use the scheme `{scheme}`"))),
    }
}

/// Finds the address of a host with or without a port; `scheme` may end with the version that it is to have.
pub(super) fn resolve(host: &str, scheme: &str) -> std::io::Result<SocketAddr> {
    let host = host.strip_suffix('/').unwrap_or(host);
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(before, port)| port.parse::<u16>().is_ok() && !is_bare_v6(before));
    let with_port = match has_port {
        true => host.to_owned(),
        false if is_bare_v6(host) => format!("[{host}]:{PORT}"),
        false => format!("{host}:{PORT}"),
    };
    let mut found = with_port.to_socket_addrs()?;
    let fits = |address: &SocketAddr| match scheme.as_bytes().last() {
        Some(b'4') => address.is_ipv4(),
        Some(b'6') => address.is_ipv6(),
        _ => true,
    };
    found
        .find(fits)
        .ok_or_else(|| std::io::Error::new(ErrorKind::NotFound, format!("{host} has no address")))
}

/// Tells whether this is an IPv6 address, or the beginning of one, without brackets.
fn is_bare_v6(text: &str) -> bool {
    !text.starts_with('[') && text.contains(':')
}

/// Reads the key `transport` of the first client.conf that there is.
fn configured_transport() -> Option<String> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".ndn"));
    let directories = home
        .into_iter()
        .chain(["/usr/local/etc/ndn".into(), "/etc/ndn".into()]);
    let text = directories
        .map(|directory| directory.join("client.conf"))
        .find_map(|file| std::fs::read_to_string(file).ok())?;
    transport_in(&text)
}

fn transport_in(text: &str) -> Option<String> {
    text.lines()
        .map(|line| line.split(';').next().unwrap_or_default().trim())
        .filter_map(|line| line.split_once('='))
        .find(|(key, _)| key.trim() == "transport")
        .map(|(_, value)| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

fn default_transport() -> String {
    let found = SOCKETS.iter().find(|path| Path::new(path).exists());
    format!("unix://{}", found.unwrap_or(&SOCKETS[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_conf_is_read_as_others_read_it() {
        let text =
            "; a comment\n  transport = tcp://router.example:6363 ; another\npib=pib-sqlite3\n";
        assert_eq!(
            transport_in(text).as_deref(),
            Some("tcp://router.example:6363")
        );
        assert_eq!(transport_in(";transport=unix:///x\n"), None);
        assert_eq!(transport_in("transport=\n"), None);
    }

    #[test]
    fn hosts_have_the_port_of_ndn_unless_they_say_another() {
        let resolved = |host, scheme| resolve(host, scheme).unwrap().to_string();
        assert_eq!(resolved("127.0.0.1", "tcp"), "127.0.0.1:6363");
        assert_eq!(resolved("127.0.0.1:7000", "udp4"), "127.0.0.1:7000");
        assert_eq!(resolved("::1", "udp6"), "[::1]:6363");
        assert_eq!(resolved("[::1]", "udp6"), "[::1]:6363");
        assert_eq!(resolved("[::1]:7000", "udp"), "[::1]:7000");
        assert!(resolve("127.0.0.1", "udp6").is_err());
    }

    #[test]
    fn a_scheme_that_no_client_uses_is_a_wrong_usage() {
        for uri in ["ether://[01:00:5e:00:17:aa]", "nfd.sock"] {
            assert_eq!(connect(uri).unwrap_err().exit, Exit::Usage);
        }
        let nobody = connect("unix:///nowhere/nfd.sock").unwrap_err();
        assert_eq!(nobody.exit, Exit::NotRunning);
    }
}
