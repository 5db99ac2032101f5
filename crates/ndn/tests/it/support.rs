//! A forwarder with faces, and a sink that keeps what leaves.

use std::time::Duration;

use ndn::{
    FaceConfig, FaceId, Forwarder, ForwarderConfig, Handoff, Learned, MemoryStore, NameHasher,
    NextHop, Outgoing, Partition, Sink,
};
use wire::ndn::lp::{LpHeader, NackReason};
use wire::ndn::name::Name;
use wire::ndn::{DataFields, DigestSigner, Interest, InterestFields};
use wire::{DropReason, Instant};

/// What left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) face: FaceId,
    pub(crate) nack: Option<NackReason>,
    pub(crate) token: Vec<u8>,
    pub(crate) incoming_face: Option<u64>,
    pub(crate) non_discovery: bool,
    pub(crate) packet: Vec<u8>,
}

impl Sent {
    pub(crate) fn is_data(&self) -> bool {
        self.packet[0] == 6
    }
    pub(crate) fn interest(&self) -> Interest<'_> {
        Interest::parse(&self.packet).unwrap()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct HandedOff {
    pub(crate) worker: usize,
    pub(crate) ingress: FaceId,
    pub(crate) packet: Vec<u8>,
    pub(crate) is_solicited: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) sent: Vec<Sent>,
    pub(crate) handed_off: Vec<HandedOff>,
    pub(crate) learned: Vec<(FaceId, bool)>,
}

impl Sink for Kept {
    fn send(&mut self, outgoing: Outgoing<'_>) {
        self.sent.push(Sent {
            face: outgoing.face,
            nack: outgoing.header.nack,
            token: outgoing.header.pit_token.unwrap_or_default().to_vec(),
            incoming_face: outgoing.header.incoming_face,
            non_discovery: outgoing.header.non_discovery,
            packet: outgoing.packet.to_vec(),
        });
    }
    fn hand_off(&mut self, worker: usize, handoff: Handoff<'_>) {
        self.handed_off.push(HandedOff {
            worker,
            ingress: handoff.ingress,
            packet: handoff.packet.to_vec(),
            is_solicited: handoff.is_solicited,
        });
    }
    fn learned(&mut self, learned: Learned<'_>) {
        self.learned
            .push((learned.face, learned.announcement.is_some()));
    }
}

pub(crate) fn name(uri: &str) -> Name {
    uri.parse().unwrap()
}

/// Writes an Interest; `change` sets what is not default.
pub(crate) fn interest(
    uri: &str,
    nonce: u32,
    change: impl FnOnce(&mut InterestFields<'_>),
) -> Vec<u8> {
    let name = name(uri);
    let mut fields = InterestFields {
        nonce: Some(nonce.to_be_bytes()),
        ..InterestFields::new(name.as_ref())
    };
    change(&mut fields);
    let mut out = vec![0; 2000];
    let length = fields.encode(&mut out).unwrap();
    out.truncate(length);
    out
}

pub(crate) fn data(uri: &str, freshness_ms: u64) -> Vec<u8> {
    let name = name(uri);
    let fields = DataFields {
        freshness_ms,
        ..DataFields::new(name.as_ref(), b"content")
    };
    let mut out = vec![0; 2000];
    let length = fields.encode(&DigestSigner, &mut out).unwrap();
    out.truncate(length);
    out
}

/// One worker with two local and three network faces.
pub(crate) struct Bench {
    pub(crate) forwarder: Forwarder<MemoryStore>,
    pub(crate) now: Instant,
    pub(crate) app: FaceId,
    pub(crate) app2: FaceId,
    pub(crate) net: [FaceId; 3],
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(ForwarderConfig::default())
    }

    pub(crate) fn with(config: ForwarderConfig) -> Self {
        let now = Instant::from_ns(1_000_000_000_000);
        let partition = Partition::new(1, NameHasher::new([1, 2]), 1024);
        let mut forwarder = Forwarder::new(0, partition, config, MemoryStore::new(100), now);
        let mut add = |config| forwarder.add_face(config, now).unwrap();
        let app = add(FaceConfig::local("fd://10", "unix:///run/nfd/nfd.sock"));
        let app2 = add(FaceConfig::local("fd://11", "unix:///run/nfd/nfd.sock"));
        let net = [1, 2, 3].map(|n| {
            let remote = format!("udp4://192.0.2.{n}:6363");
            add(FaceConfig::network(&remote, "udp4://192.0.2.9:6363"))
        });
        Self {
            forwarder,
            now,
            app,
            app2,
            net,
        }
    }

    pub(crate) fn route(&mut self, prefix: &str, face: FaceId, cost: u64) -> Vec<Sent> {
        let mut sink = Kept::default();
        let hop = NextHop { face, cost };
        self.forwarder
            .add_next_hop(name(prefix).as_ref(), hop, self.now, &mut sink)
            .unwrap();
        sink.sent
    }

    pub(crate) fn strategy(&mut self, prefix: &str, strategy: &str) {
        let strategy = name(&format!("/localhost/nfd/strategy/{strategy}"));
        self.forwarder
            .set_strategy(name(prefix).as_ref(), strategy.as_ref())
            .unwrap();
    }

    pub(crate) fn input(&mut self, face: FaceId, packet: &[u8]) -> Vec<Sent> {
        self.input_with(face, LpHeader::default(), packet).0.sent
    }

    pub(crate) fn input_with(
        &mut self,
        face: FaceId,
        header: LpHeader<'_>,
        packet: &[u8],
    ) -> (Kept, Result<(), DropReason>) {
        let mut sink = Kept::default();
        let result = self
            .forwarder
            .input(self.now, face, &header, packet, &mut sink);
        (sink, result)
    }

    pub(crate) fn dropped(&mut self, face: FaceId, packet: &[u8]) -> Option<DropReason> {
        self.input_with(face, LpHeader::default(), packet).1.err()
    }

    pub(crate) fn nack(&mut self, face: FaceId, sent: &Sent, reason: NackReason) -> Vec<Sent> {
        let header = LpHeader {
            nack: Some(reason),
            ..LpHeader::default()
        };
        self.input_with(face, header, &sent.packet).0.sent
    }

    pub(crate) fn advance(&mut self, time: Duration) {
        self.now = self.now + time;
        let mut sink = Kept::default();
        self.forwarder.handle_timeout(self.now, &mut sink);
        assert!(sink.sent.is_empty());
    }
}

pub(crate) const MS: Duration = Duration::from_millis(1);
