//! The forwarders of all workers as management sees them: one node.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use io::PortId;
use ndn::face_uri::ETHERNET_GROUP;
use ndn::fib::{FibError, NextHops};
use ndn::mgmt::{Control, FaceChange, FaceEventKind, FaceRefusal, FaceRequest, Status};
use ndn::shared_store::SharedStore;
use ndn::store::StoreInfo;
use ndn::strategy::{ChoiceError, StrategyChoice};
use ndn::{
    ContentStore, Face, FaceConfig, FaceId, FaceUri, Faces, Fib, ForwarderCounters, LinkType,
    NextHop, Persistency,
};
use wire::ndn::NameRef;
use wire::ndn::name::Name;
use wire::{DropReason, Instant};

use super::kernel::Filling;
use super::message::{Command, NewTransport, Peer, Report, ToWorker};
use super::websocket::WebStream;

/// How long a worker may take to report.
const REPORT_PATIENCE: Duration = Duration::from_millis(500);
/// How long a TCP connection may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// Longest link packet by UDP to another machine, where nothing else is said: no path of today cuts it.
const UDP_MTU: u32 = 1420;
/// Longest link packet by UDP within the machine.
const UDP_LOOPBACK_MTU: u32 = 8800;

/// A port with Ethernet faces.
#[derive(Clone, Debug)]
pub(super) struct EthernetPort {
    pub(super) port: PortId,
    pub(super) name: String,
    pub(super) mtu: u16,
}

/// What reaches the other end of a new face.
enum Way {
    /// Every worker by itself.
    Datagrams(Peer),
    /// One worker.
    Stream(OwnedFd),
    WebSocket(Box<WebStream>),
    Group(OwnedFd, SocketAddr),
}

/// All workers.
#[derive(Debug)]
pub(super) struct Many {
    pub(super) workers: Vec<ToWorker>,
    pub(super) faces: Faces,
    pub(super) fib: Fib,
    pub(super) choice: StrategyChoice,
    pub(super) store: SharedStore,
    /// What of it is in the kernel.
    pub(super) kernel: Option<Filling>,
    pub(super) channels: Vec<String>,
    /// Addresses of the workers' UDP sockets, by index.
    pub(super) udp: Vec<SocketAddr>,
    pub(super) ports: Vec<EthernetPort>,
    pub(super) status: Status,
    /// Drops outside of the forwarders.
    pub(super) link_drops: Vec<(DropReason, u64)>,
    /// What happened to faces, for the stream of events.
    pub(super) events: Vec<(FaceEventKind, Face)>,
    pub(super) next_worker: usize,
}

impl Many {
    pub(super) fn status_of_nothing() -> Status {
        Status {
            counters: ForwarderCounters::default(),
            tables: [0; 4],
        }
    }

    fn tell(&self, mut command: impl FnMut() -> Command) {
        for worker in &self.workers {
            worker.send(command());
        }
    }

    /// Asks all workers for their figures. One that does not answer is left out.
    pub(super) fn refresh(&mut self) {
        let asked: Vec<_> = self
            .workers
            .iter()
            .map(|worker| {
                let (reply, answer) = sync_channel(1);
                worker.send(Command::Report(reply));
                answer
            })
            .collect();
        let answers = asked
            .iter()
            .map(|answer| answer.recv_timeout(REPORT_PATIENCE));
        let reports: Vec<Report> = answers.filter_map(Result::ok).collect();
        let mut counters = ForwarderCounters::default();
        let mut tables = [self.fib.len() as u64, 0, 0, 0];
        let mut drops = vec![0; DropReason::COUNT];
        for report in &reports {
            counters.add(&report.counters);
            tables[1] += report.tables[1];
            tables[2] += report.tables[2];
            tables[3] = report.tables[3];
            for (reason, count) in &report.link_drops {
                drops[*reason as usize] += count;
            }
        }
        let faces: Vec<FaceId> = self.faces.iter().map(|face| face.id).collect();
        for id in faces {
            let Some(face) = self.faces.get_mut(id) else {
                continue;
            };
            let mut sum = ndn::FaceCounters::default();
            for report in &reports {
                let Ok(at) = report.faces.binary_search_by_key(&id, |(id, ..)| *id) else {
                    continue;
                };
                let (_, counters, last_used) = &report.faces[at];
                sum.in_interests += counters.in_interests;
                sum.in_data += counters.in_data;
                sum.in_nacks += counters.in_nacks;
                sum.in_bytes += counters.in_bytes;
                sum.out_interests += counters.out_interests;
                sum.out_data += counters.out_data;
                sum.out_nacks += counters.out_nacks;
                sum.out_bytes += counters.out_bytes;
                face.last_used = face.last_used.max(*last_used);
            }
            face.counters = sum;
        }
        self.status = Status { counters, tables };
        self.link_drops = DropReason::ALL
            .iter()
            .zip(drops)
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| (*reason, count))
            .collect();
    }

    /// Adds a face of a connected stream.
    pub(super) fn add_stream(
        &mut self,
        config: FaceConfig,
        stream: OwnedFd,
        now: Instant,
    ) -> Option<FaceId> {
        self.add(config, Way::Stream(stream), Vec::new(), now)
    }

    /// Adds a face of an open WebSocket.
    pub(super) fn add_websocket(
        &mut self,
        config: FaceConfig,
        stream: Box<WebStream>,
        now: Instant,
    ) -> Option<FaceId> {
        self.add(config, Way::WebSocket(stream), Vec::new(), now)
    }

    /// Adds a face of a UDP group.
    pub(super) fn add_group(
        &mut self,
        config: FaceConfig,
        socket: OwnedFd,
        group: SocketAddr,
        now: Instant,
    ) -> Option<FaceId> {
        self.add(config, Way::Group(socket, group), Vec::new(), now)
    }

    /// Adds a face of a peer that sent something; `first` is what it sent.
    pub(super) fn add_peer(&mut self, peer: Peer, first: Vec<u8>, now: Instant) -> Option<FaceId> {
        let known = self.known_peer(peer);
        if let Some(face) = known {
            // Two workers heard it first.
            self.workers.first()?.send(Command::AddFace {
                face,
                config: self.faces.get(face)?.config.clone(),
                transport: transport_of(&peer),
                peer: Some(peer),
                first: vec![first],
            });
            return Some(face);
        }
        let config = FaceConfig {
            persistency: Persistency::OnDemand,
            ..self.config_of(peer)?
        };
        self.add(config, Way::Datagrams(peer), vec![first], now)
    }

    /// Adds the face of a port's Ethernet group.
    pub(super) fn add_ethernet_group(&mut self, port: PortId, now: Instant) -> Option<FaceId> {
        let peer = Peer::Ethernet(port, ETHERNET_GROUP);
        let config = FaceConfig {
            persistency: Persistency::Permanent,
            link_type: LinkType::MultiAccess,
            ..self.config_of(peer)?
        };
        self.add(config, Way::Datagrams(peer), Vec::new(), now)
    }

    fn known_peer(&self, peer: Peer) -> Option<FaceId> {
        let config = self.config_of(peer)?;
        let found = self.faces.iter().find(|face| {
            face.config.remote_uri == config.remote_uri && face.config.local_uri == config.local_uri
        });
        found.map(|face| face.id)
    }

    /// Says what a face to a peer without connection is like.
    fn config_of(&self, peer: Peer) -> Option<FaceConfig> {
        match peer {
            Peer::Udp(socket, address) => {
                let local = FaceUri::Udp(*self.udp.get(socket)?);
                let remote = FaceUri::Udp(address);
                let mtu = if address.ip().is_loopback() {
                    UDP_LOOPBACK_MTU
                } else {
                    UDP_MTU
                };
                Some(FaceConfig {
                    mtu: Some(mtu),
                    ..FaceConfig::network(&remote.to_string(), &local.to_string())
                })
            }
            Peer::Ethernet(port, address) => {
                let port = self.ports.iter().find(|known| known.port == port)?;
                let local = FaceUri::Device(port.name.clone());
                let remote = FaceUri::Ethernet(address);
                Some(FaceConfig {
                    mtu: Some(port.mtu.into()),
                    ..FaceConfig::network(&remote.to_string(), &local.to_string())
                })
            }
        }
    }

    fn add(
        &mut self,
        config: FaceConfig,
        way: Way,
        first: Vec<Vec<u8>>,
        now: Instant,
    ) -> Option<FaceId> {
        let face = self.faces.add(config.clone(), now)?;
        self.connect(face, &config, way, first);
        if let Some(face) = self.faces.get(face) {
            self.events.push((FaceEventKind::Created, face.clone()));
        }
        Some(face)
    }

    /// Tells all workers how to reach a face; those that do not send first.
    fn connect(&mut self, face: FaceId, config: &FaceConfig, way: Way, first: Vec<Vec<u8>>) {
        let owner = self.next_worker;
        let (peer, transport) = match way {
            Way::Datagrams(peer) if !config.reliability => {
                // Each worker sends by itself.
                let mut first = Some(first);
                for worker in &self.workers {
                    worker.send(Command::AddFace {
                        face,
                        config: config.clone(),
                        transport: transport_of(&peer),
                        peer: Some(peer),
                        first: first.take().unwrap_or_default(),
                    });
                }
                return;
            }
            Way::Datagrams(peer) => (Some(peer), transport_of(&peer)),
            Way::Stream(socket) => (None, NewTransport::Stream(socket)),
            Way::WebSocket(stream) => (None, NewTransport::WebSocket(stream)),
            Way::Group(socket, group) => (None, NewTransport::Group(socket, group)),
        };
        self.next_worker = (owner + 1) % self.workers.len();
        let others = self.workers.iter().enumerate().filter(|(i, _)| *i != owner);
        for (_, worker) in others {
            worker.send(Command::AddFace {
                face,
                config: config.clone(),
                transport: NewTransport::Elsewhere(owner),
                peer,
                first: Vec::new(),
            });
        }
        self.workers[owner].send(Command::AddFace {
            face,
            config: config.clone(),
            transport,
            peer,
            first,
        });
    }

    /// Connects a permanent face again; false if that failed.
    pub(super) fn reconnect(&mut self, face: FaceId) -> bool {
        let Some(config) = self.faces.get(face).map(|face| face.config.clone()) else {
            return true;
        };
        let Ok(FaceUri::Tcp(address)) = config.remote_uri.parse() else {
            return true;
        };
        let Ok((stream, _)) = connect(address) else {
            return false;
        };
        self.connect(face, &config, Way::Stream(stream), Vec::new());
        self.set_up(face, true);
        true
    }

    /// Notes that the link of a face works, or that it does not.
    pub(super) fn set_up(&mut self, face: FaceId, is_up: bool) {
        if let Some(face) = self.faces.get_mut(face)
            && face.is_up != is_up
        {
            face.is_up = is_up;
            let kind = if is_up {
                FaceEventKind::Up
            } else {
                FaceEventKind::Down
            };
            self.events.push((kind, face.clone()));
        }
    }

    fn ethernet_port(&self, local: Option<&str>) -> Result<PortId, FaceRefusal> {
        match local.map(str::parse::<FaceUri>) {
            Some(Ok(FaceUri::Device(name))) => {
                let found = self.ports.iter().find(|port| port.name == name);
                found.map(|port| port.port).ok_or(FaceRefusal::Failed)
            }
            Some(_) => Err(FaceRefusal::NotCanonical),
            None => match &self.ports[..] {
                [only] => Ok(only.port),
                _ => Err(FaceRefusal::Unsupported),
            },
        }
    }

    fn way_to(&self, request: &FaceRequest) -> Result<(FaceConfig, Way), FaceRefusal> {
        let uri: FaceUri = match request.remote_uri.parse() {
            Ok(uri) => uri,
            Err(ndn::FaceUriError::Scheme(_)) => return Err(FaceRefusal::Unsupported),
            Err(_) => return Err(FaceRefusal::NotCanonical),
        };
        if uri.to_string() != request.remote_uri {
            return Err(FaceRefusal::NotCanonical);
        }
        match uri {
            FaceUri::Udp(address) => {
                if address.ip().is_multicast() {
                    return Err(FaceRefusal::Unsupported);
                }
                let socket = self
                    .udp
                    .iter()
                    .position(|local| reaches(local.ip(), address.ip()))
                    .ok_or(FaceRefusal::Unsupported)?;
                let peer = Peer::Udp(socket, address);
                let config = self.config_of(peer).ok_or(FaceRefusal::Failed)?;
                Ok((config, Way::Datagrams(peer)))
            }
            FaceUri::Ethernet(address) => {
                if address[0] & 1 != 0 {
                    return Err(FaceRefusal::Unsupported);
                }
                let port = self.ethernet_port(request.local_uri.as_deref())?;
                let peer = Peer::Ethernet(port, address);
                let config = self.config_of(peer).ok_or(FaceRefusal::Failed)?;
                Ok((config, Way::Datagrams(peer)))
            }
            FaceUri::Tcp(address) => {
                let (stream, local) = connect(address).map_err(|_| FaceRefusal::Failed)?;
                let local = FaceUri::Tcp(local).to_string();
                let config = FaceConfig {
                    persistency: Persistency::Persistent,
                    ..face_of_tcp(address, &request.remote_uri, &local)
                };
                Ok((config, Way::Stream(stream)))
            }
            _ => Err(FaceRefusal::Unsupported),
        }
    }
}

/// Says what a face of a TCP connection is like.
pub(super) fn face_of_tcp(peer: SocketAddr, remote: &str, local: &str) -> FaceConfig {
    if peer.ip().is_loopback() {
        FaceConfig::local(remote, local)
    } else {
        FaceConfig {
            persistency: Persistency::OnDemand,
            ..FaceConfig::network(remote, local)
        }
    }
}

/// Tells whether a socket that is bound to `local` can send to `remote`.
fn reaches(local: IpAddr, remote: IpAddr) -> bool {
    local.is_ipv4() == remote.is_ipv4() && (!local.is_loopback() || remote.is_loopback())
}

fn connect(address: SocketAddr) -> std::io::Result<(OwnedFd, SocketAddr)> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_PATIENCE)?;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let local = stream.local_addr()?;
    Ok((stream.into(), local))
}

const fn transport_of(peer: &Peer) -> NewTransport {
    match *peer {
        Peer::Udp(socket, address) => NewTransport::Udp(socket, address),
        Peer::Ethernet(port, address) => NewTransport::Ethernet(port, address),
    }
}

impl Control for Many {
    fn faces(&self) -> &Faces {
        &self.faces
    }

    fn create_face(&mut self, request: &FaceRequest, now: Instant) -> Result<FaceId, FaceRefusal> {
        let known = self.faces.iter().find(|face| {
            face.config.remote_uri == request.remote_uri
                && request
                    .local_uri
                    .as_ref()
                    .is_none_or(|local| *local == face.config.local_uri)
        });
        if let Some(face) = known {
            return Err(FaceRefusal::Exists(face.id));
        }
        let (mut config, way) = self.way_to(request)?;
        request.change.apply(&mut config);
        self.add(config, way, Vec::new(), now)
            .ok_or(FaceRefusal::Failed)
    }

    fn update_face(&mut self, face: FaceId, change: &FaceChange) -> bool {
        let Some(known) = self.faces.get_mut(face) else {
            return false;
        };
        change.apply(&mut known.config);
        self.tell(|| Command::UpdateFace(face, change.clone()));
        true
    }

    fn destroy_face(&mut self, face: FaceId) -> bool {
        let Some(gone) = self.faces.remove(face) else {
            return false;
        };
        self.fib.remove_face(face);
        self.tell(|| Command::RemoveFace(face));
        self.events.push((FaceEventKind::Destroyed, gone));
        true
    }

    fn channels(&self) -> Vec<String> {
        self.channels.clone()
    }

    fn fib_entries(&self) -> Vec<(Name, NextHops)> {
        self.fib.entries()
    }

    fn add_next_hop(
        &mut self,
        prefix: NameRef<'_>,
        hop: NextHop,
        _now: Instant,
    ) -> Result<(), FibError> {
        self.fib.add(prefix, hop.face, hop.cost)?;
        self.tell(|| Command::AddNextHop(Name::from(prefix), hop));
        Ok(())
    }

    fn remove_next_hop(&mut self, prefix: NameRef<'_>, face: FaceId) {
        if self.fib.remove(prefix, face) {
            self.tell(|| Command::RemoveNextHop(Name::from(prefix), face));
        }
    }

    fn strategies(&self) -> Vec<(Name, Name)> {
        self.choice.entries()
    }

    fn set_strategy(
        &mut self,
        prefix: NameRef<'_>,
        strategy: NameRef<'_>,
    ) -> Result<Name, ChoiceError> {
        let name = self.choice.set(prefix, strategy)?;
        self.tell(|| Command::SetStrategy(Name::from(prefix), name.clone()));
        Ok(name)
    }

    fn unset_strategy(&mut self, prefix: NameRef<'_>) -> Result<bool, ChoiceError> {
        let was_set = self.choice.unset(prefix)?;
        if was_set {
            self.tell(|| Command::UnsetStrategy(Name::from(prefix)));
        }
        Ok(was_set)
    }

    fn store_info(&self) -> StoreInfo {
        self.store.info()
    }

    fn configure_store(&mut self, capacity: Option<u64>, admit: Option<bool>, serve: Option<bool>) {
        self.store.configure(capacity, admit, serve);
        if let Some(kernel) = &mut self.kernel
            && serve == Some(false)
        {
            kernel.mirror.erase(&NameRef::default());
        }
    }

    fn erase(&mut self, prefix: NameRef<'_>, limit: u64) -> u64 {
        self.store.online();
        let erased = self.store.erase(prefix, limit);
        self.store.quiescent();
        self.store.offline();
        if let Some(kernel) = &mut self.kernel {
            kernel.mirror.erase(&prefix);
        }
        erased
    }

    fn status(&self) -> Status {
        self.status.clone()
    }
}
