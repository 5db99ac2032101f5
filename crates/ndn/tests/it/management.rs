//! The management protocol: commands in both formats, datasets, events, authorisation.

use ndn::mgmt::{
    Authorization as _, Command, ControlParameters, FaceEventKind, FaceRefusal, KeyRing,
    Management, ManagementConfig, Now, SingleWorker, VerifyingKey,
};
use ndn::{ContentStore as _, FaceConfig, FaceId, FaceScope, Learned, Persistency};
use wire::ndn::name::Name;
use wire::ndn::{
    Data, DataFields, DigestSigner, Elements, Interest, InterestFields, KeyLocator, NameRef,
    SignatureInfo, SignatureType, Signer, Tlv, Writer, content_type, types,
};
use wire::{BufferTooShort, Instant};

use crate::support::{Bench, Kept, MS, data, interest, name};

// Commands that python-ndn 0.5.2 wrote, at Unix ms 1700000000000.
const REGISTER_OLD: &str = concat!(
    "0575076908096c6f63616c686f737408036e6664080372696208087265676973746572080968070705080361707008080000",
    "018bcfe5680008080102030405060708080516031b01000822172042a986eb474dfb41ce01fea57e7415ccc8bb648b919ccd",
    "29ed27d2089649d3790a04000000010c0203e8",
);
const REGISTER_SIGNED: &str = concat!(
    "05a5075c08096c6f63616c686f737408036e666408037269620808726567697374657208196817070508036170706901006f",
    "01ff6a01056c01016d02ea600220a7ef83c81126ca7d91b03d3b54d97f3f9255aa4c636a3ebf7b732655f53fe7440a040000",
    "00010c0203e824002c171b01002608010203040506070828080000018bcfe568002e200d126ee1c1d1d83e6b5144baaaffab",
    "ac670426f755f3587b9d42f096e8070ccf",
);
const STRATEGY_SIGNED: &str = concat!(
    "05c5077c08096c6f63616c686f737408036e6664080f73747261746567792d63686f69636508037365740832683007050803",
    "6170706b27072508096c6f63616c686f737408036e66640808737472617465677908096d756c746963617374022078d80a80",
    "f0373f291d718920c6846c49fe79def134c52bfd9c2e6e5c7e0345fe0a04000000010c0203e824002c171b01002608010203",
    "040506070828080000018bcfe568002e206c3be744e8286d7260d1da0138c3f3d57a7945afc760a259fd95198d1d05dded",
);
const UNIX_MS: u64 = 1_700_000_000_000;

/// A key made of bytes that are in front of what is signed: enough to tell keys apart.
struct SharedSecret(&'static [u8]);

impl VerifyingKey for SharedSecret {
    fn signature_type(&self) -> SignatureType {
        SignatureType::HmacWithSha256
    }
    fn verifies(&self, parts: &[&[u8]], signature: &[u8]) -> bool {
        let all = core::iter::once(self.0).chain(parts.iter().copied());
        wire::ndn::digest::sha256(all) == signature
    }
}

struct SecretSigner<'a> {
    secret: &'static [u8],
    key: NameRef<'a>,
    time_ms: u64,
}

impl Signer for SecretSigner<'_> {
    fn info(&self) -> SignatureInfo<'_> {
        SignatureInfo {
            key_locator: Some(KeyLocator::Name(self.key)),
            time_ms: Some(self.time_ms),
            ..SignatureInfo::new(SignatureType::HmacWithSha256)
        }
    }
    fn sign(&self, parts: &[&[u8]], out: &mut [u8]) -> Result<usize, BufferTooShort> {
        let all = core::iter::once(self.secret).chain(parts.iter().copied());
        out[..32].copy_from_slice(&wire::ndn::digest::sha256(all));
        Ok(32)
    }
}

struct Node {
    bench: Bench,
    management: Management<KeyRing<SharedSecret>>,
    unix_ms: u64,
}

impl Node {
    fn new() -> Self {
        let mut keys = KeyRing::new();
        for module in ["faces", "fib", "rib", "cs", "strategy-choice"] {
            keys.allow_anyone(module);
        }
        Self::with(keys)
    }

    fn with(keys: KeyRing<SharedSecret>) -> Self {
        let config = ManagementConfig {
            version: "tidegate-test".into(),
            start_unix_ms: UNIX_MS - 5000,
            routes: 100,
            localhop: true,
        };
        Self {
            bench: Bench::new(),
            management: Management::new(config, keys),
            unix_ms: UNIX_MS,
        }
    }

    fn handle(&mut self, packet: &[u8], ingress: FaceId) -> Option<Vec<u8>> {
        let mut sink = Kept::default();
        let channels = [
            "udp4://0.0.0.0:6363".to_owned(),
            "unix:///run/nfd/nfd.sock".to_owned(),
        ];
        let mut control = SingleWorker {
            forwarder: &mut self.bench.forwarder,
            sink: &mut sink,
            open: |request: &ndn::mgmt::FaceRequest| match request.remote_uri.split_once(':') {
                Some(("udp4", _)) => Ok(FaceConfig::network(
                    &request.remote_uri,
                    "udp4://192.0.2.9:6363",
                )),
                Some(("udp", _)) => Err(FaceRefusal::NotCanonical),
                Some(("tcp4", _)) => Err(FaceRefusal::Failed),
                _ => Err(FaceRefusal::Unsupported),
            },
            channels: &channels,
        };
        let now = Now {
            instant: self.bench.now,
            unix_ms: self.unix_ms,
        };
        let interest = Interest::parse(packet).unwrap();
        self.management
            .handle(now, &interest, ingress, &mut control)
    }

    /// Gives a command from an application; returns code and body.
    fn command(
        &mut self,
        command: &str,
        fill: impl FnOnce(&mut ControlParameters),
    ) -> (u64, Option<ControlParameters>) {
        let packet = signed(&format!("/localhost/nfd/{command}"), fill, &DigestSigner);
        let app = self.bench.app;
        response(&self.handle(&packet, app).unwrap())
    }

    /// Fetches all segments of a dataset.
    fn dataset(&mut self, uri: &str) -> Vec<u8> {
        self.dataset_of(name(uri))
    }

    fn dataset_of(&mut self, prefix: Name) -> Vec<u8> {
        let app = self.bench.app;
        let mut ask = Vec::new();
        let mut content = Vec::new();
        let mut next = prefix;
        for segment in 0.. {
            ask.resize(1000, 0);
            let fields = InterestFields {
                can_be_prefix: segment == 0,
                must_be_fresh: segment == 0,
                ..InterestFields::new(next.as_ref())
            };
            let length = fields.encode(&mut ask).unwrap();
            let packet = self.handle(&ask[..length], app).unwrap();
            let data = Data::parse(&packet).unwrap();
            assert!(data.digest_signature_holds() && data.meta.freshness_ms == 1000);
            assert!(
                Interest::parse(&ask[..length])
                    .unwrap()
                    .matches_data(&data.name, || [0; 32])
            );
            content.extend_from_slice(data.content);
            let last = data.meta.final_block.unwrap().number().unwrap();
            assert_eq!(
                data.name.last().unwrap().number_of(types::SEGMENT),
                Some(segment)
            );
            if segment == last {
                return content;
            }
            next = Name::from(data.name.parent().unwrap()).with_segment(segment + 1);
        }
        unreachable!()
    }

    fn fib(&self, uri: &str) -> Vec<(u32, u64)> {
        let hops = self.bench.forwarder.fib().get(name(uri).as_ref());
        hops.map(|hops| hops.iter().map(|hop| (hop.face.0, hop.cost)).collect())
            .unwrap_or_default()
    }
}

fn signed(uri: &str, fill: impl FnOnce(&mut ControlParameters), signer: &impl Signer) -> Vec<u8> {
    let mut parameters = ControlParameters::default();
    fill(&mut parameters);
    let mut bytes = [0; 1000];
    let mut writer = Writer::new(&mut bytes);
    parameters.write(&mut writer).unwrap();
    let command = name(uri).with_generic(writer.written());
    let mut out = vec![0; 2000];
    let length = InterestFields::new(command.as_ref())
        .encode_signed(signer, &mut out)
        .unwrap();
    out.truncate(length);
    out
}

fn response(packet: &[u8]) -> (u64, Option<ControlParameters>) {
    let data = Data::parse(packet).unwrap();
    assert!(data.digest_signature_holds());
    let outer = Tlv::read_exact(data.content).unwrap();
    assert_eq!(outer.tlv_type, 101);
    let elements: Vec<_> = outer.elements().map(Result::unwrap).collect();
    assert_eq!((elements[0].tlv_type, elements[1].tlv_type), (102, 103));
    let body = elements
        .get(2)
        .map(|body| ControlParameters::parse(body.bytes).unwrap());
    (elements[0].integer().unwrap(), body)
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// The elements of a dataset's entry, as type and value.
fn entries(content: &[u8], tlv_type: u32) -> Vec<Vec<(u32, Vec<u8>)>> {
    Elements::new(content)
        .map(|entry| {
            let entry = entry.unwrap();
            assert_eq!(entry.tlv_type, tlv_type);
            entry
                .elements()
                .map(|e| e.map(|e| (e.tlv_type, e.value.to_vec())).unwrap())
                .collect()
        })
        .collect()
}

#[test]
fn commands_of_python_ndn_are_taken_in_both_formats() {
    let mut node = Node::new();
    let app = node.bench.app;
    let (code, body) = response(&node.handle(&hex(REGISTER_OLD), app).unwrap());
    let body = body.unwrap();
    assert_eq!(
        (code, body.face_id, body.origin, body.cost, body.flags),
        (200, Some(u64::from(app.0)), Some(0), Some(0), Some(1))
    );
    assert_eq!(node.fib("/app"), [(app.0, 0)]);
    let (code, body) = response(&node.handle(&hex(REGISTER_SIGNED), app).unwrap());
    assert_eq!((code, body.unwrap().expiration_ms), (200, Some(60_000)));
    assert_eq!(node.management.rib().len(), 2);
    let (code, body) = response(&node.handle(&hex(STRATEGY_SIGNED), app).unwrap());
    assert_eq!(
        (code, body.unwrap().strategy),
        (200, Some(name("/localhost/nfd/strategy/multicast/v=5")))
    );
    // Any bit that is signed and differs is seen.
    // The last byte of the signature: of the name in one format, of the packet in the other.
    for (text, at) in [(REGISTER_OLD, 108), (REGISTER_SIGNED, 166)] {
        let mut damaged = hex(text);
        damaged[at] ^= 1;
        let mut node = Node::new();
        assert_eq!(response(&node.handle(&damaged, app).unwrap()).0, 403);
        assert!(node.management.rib().is_empty());
    }
    // The old format carries a time of day.
    let mut late = Node::new();
    late.unix_ms += 121_000;
    assert_eq!(
        response(&late.handle(&hex(REGISTER_OLD), app).unwrap()).0,
        403
    );
}

#[test]
fn unsigned_and_unknown_commands_are_refused() {
    let mut node = Node::new();
    let app = node.bench.app;
    for (uri, code) in [
        ("/localhost/nfd/rib/register/x", 400),
        ("/localhost/nfd/rib/register", 400),
        ("/localhost/nfd/rib/register/%68%00", 403),
    ] {
        let packet = interest(uri, 1, |_| {});
        assert_eq!(
            response(&node.handle(&packet, app).unwrap()).0,
            code,
            "{uri}"
        );
    }
    assert_eq!(node.command("rib/turn", |_| {}).0, 501);
    assert_eq!(node.command("status/set", |_| {}).0, 403);
    assert!(
        node.handle(&interest("/localhost/other", 1, |_| {}), app)
            .is_none()
    );
}

#[test]
fn routes_by_command_reach_the_fib_and_expire() {
    let mut node = Node::new();
    let net = node.bench.net[0];
    let register = |p: &mut ControlParameters| {
        p.name = Some(name("/r"));
        p.face_id = Some(u64::from(net.0));
        p.origin = Some(255);
        p.cost = Some(7);
        p.expiration_ms = Some(1000);
    };
    assert_eq!(node.command("rib/register", register).0, 200);
    assert_eq!(node.fib("/r"), [(net.0, 7)]);
    let rib = node.dataset("/localhost/nfd/rib/list");
    let all = entries(&rib, 128);
    assert_eq!(all[0][0], (7, name("/r").value().to_vec()));
    let route =
        ControlParameters::parse(&[&[104, all[0][1].1.len() as u8][..], &all[0][1].1].concat())
            .unwrap();
    assert_eq!(
        (route.face_id, route.origin, route.cost, route.flags),
        (Some(u64::from(net.0)), Some(255), Some(7), Some(1))
    );
    assert_eq!(route.expiration_ms, Some(1000));
    // Another origin is another route.
    let unregister = |p: &mut ControlParameters| {
        p.name = Some(name("/r"));
        p.face_id = Some(u64::from(net.0));
    };
    assert_eq!(node.command("rib/unregister", unregister).0, 200);
    assert_eq!(node.fib("/r").len(), 1);
    let later = node.management.poll_timeout().unwrap();
    let mut sink = Kept::default();
    let mut control = SingleWorker {
        forwarder: &mut node.bench.forwarder,
        sink: &mut sink,
        open: |_: &_| Err(FaceRefusal::Failed),
        channels: &[],
    };
    node.management.handle_timeout(later, &mut control);
    assert!(node.fib("/r").is_empty() && node.management.rib().is_empty());
    let deep = (0..33).fold(Name::new(), |name, n| name.with_segment(n));
    assert_eq!(
        node.command("rib/register", |p| p.name = Some(deep.clone()))
            .0,
        414
    );
    assert_eq!(node.command("rib/register", |_| {}).0, 400);
    assert_eq!(
        node.command("rib/register", |p| {
            p.name = Some(name("/r"));
            p.face_id = Some(9999);
        })
        .0,
        410
    );
}

#[test]
fn faces_are_made_changed_listed_and_destroyed() {
    let mut node = Node::new();
    let create = |uri: &'static str| {
        move |p: &mut ControlParameters| {
            p.uri = Some(uri.into());
            p.flags = Some(2);
            p.mask = Some(2);
            p.mtu = Some(1400);
            p.persistency = Some(2);
        }
    };
    let (code, body) = node.command("faces/create", create("udp4://198.51.100.1:6363"));
    let body = body.unwrap();
    assert_eq!(
        (code, body.flags, body.mtu, body.persistency),
        (200, Some(6), Some(1400), Some(2))
    );
    let id = body.face_id.unwrap();
    let (code, body) = node.command("faces/create", create("udp4://198.51.100.1:6363"));
    assert_eq!((code, body.unwrap().face_id), (409, Some(id)));
    for (uri, code) in [
        ("udp://host:6363", 400),
        ("tcp4://192.0.2.7:6363", 504),
        ("fd://5", 406),
    ] {
        assert_eq!(node.command("faces/create", create(uri)).0, code);
    }
    for fill in [
        (|p| p.flags = Some(1)) as fn(&mut ControlParameters),
        |p| p.persistency = Some(1),
        |p| p.persistency = Some(3),
        |p| p.mtu = Some(10),
        |p| p.face_id = Some(300),
    ] {
        let uri = "udp4://198.51.100.2:6363";
        assert_eq!(
            node.command("faces/create", |p| {
                p.uri = Some(uri.into());
                fill(p);
            })
            .0,
            400
        );
    }
    // Local fields are for applications.
    let local_fields = |id: Option<u64>| {
        move |p: &mut ControlParameters| {
            p.face_id = id;
            p.flags = Some(1);
            p.mask = Some(1);
        }
    };
    assert_eq!(node.command("faces/update", local_fields(Some(id))).0, 409);
    assert_eq!(
        node.command("faces/update", local_fields(None)).0,
        200,
        "the face that asks"
    );
    assert!(
        node.bench
            .forwarder
            .faces()
            .get(node.bench.app)
            .unwrap()
            .config
            .local_fields
    );
    assert_eq!(
        node.command("faces/update", local_fields(Some(7777))).0,
        404
    );
    let list = node.dataset("/localhost/nfd/faces/list");
    let all = entries(&list, 128);
    assert_eq!(all.len(), 2 + 5 + 1);
    let order: Vec<u32> = all.last().unwrap().iter().map(|e| e.0).collect();
    assert_eq!(
        order,
        [
            105, 114, 129, 132, 133, 134, 135, 136, 137, 144, 145, 151, 146, 147, 152, 148, 149,
            108
        ]
    );
    let query = |bytes: &[u8]| name("/localhost/nfd/faces/query").with_generic(bytes);
    let filtered = node.dataset_of(query(&[150, 6, 131, 4, b'u', b'd', b'p', b'4']));
    assert_eq!(entries(&filtered, 128).len(), 4);
    let filtered = node.dataset_of(query(&[150, 3, 132, 1, 1]));
    assert_eq!(entries(&filtered, 128).len(), 4, "local scope");
    let app = node.bench.app;
    let bad = interest("/localhost/nfd/faces/query/x", 1, |_| {});
    let refusal = node.handle(&bad, app).unwrap();
    assert_eq!(
        Data::parse(&refusal).unwrap().meta.content_type,
        content_type::NACK
    );
    assert_eq!(
        node.command("faces/destroy", |p| p.face_id = Some(id)).0,
        200
    );
    assert_eq!(
        node.command("faces/destroy", |p| p.face_id = Some(id)).0,
        200
    );
    assert_eq!(node.command("faces/destroy", |_| {}).0, 400);
    assert!(
        node.bench
            .forwarder
            .faces()
            .get(FaceId(id as u32))
            .is_none()
    );
    assert_eq!(
        entries(&node.dataset("/localhost/nfd/faces/channels"), 130).len(),
        2
    );
}

#[test]
fn the_fib_and_strategies_by_command() {
    let mut node = Node::new();
    let net = node.bench.net[1];
    let hop = |p: &mut ControlParameters| {
        p.name = Some(name("/f"));
        p.face_id = Some(u64::from(net.0));
        p.cost = Some(3);
    };
    assert_eq!(node.command("fib/add-nexthop", hop).0, 200);
    assert_eq!(node.fib("/f"), [(net.0, 3)]);
    let fib = node.dataset("/localhost/nfd/fib/list");
    assert_eq!(entries(&fib, 128).len(), 2, "with management's own");
    assert_eq!(node.command("fib/remove-nexthop", hop).0, 200);
    assert!(node.fib("/f").is_empty());
    let set = |strategy: &'static str| {
        move |p: &mut ControlParameters| {
            p.name = Some(name("/s"));
            p.strategy = Some(name(strategy));
        }
    };
    assert_eq!(
        node.command("strategy-choice/set", set("/localhost/nfd/strategy/asf"))
            .0,
        200
    );
    assert_eq!(
        node.command("strategy-choice/set", set("/localhost/nfd/strategy/none"))
            .0,
        404
    );
    let list = node.dataset("/localhost/nfd/strategy-choice/list");
    let all = entries(&list, 128);
    assert_eq!(all.len(), 2);
    let asf = name("/localhost/nfd/strategy/asf/v=5");
    assert_eq!(
        all[1][1].1,
        [&[7, asf.value().len() as u8][..], asf.value()].concat()
    );
    assert_eq!(
        node.command("strategy-choice/unset", |p| p.name = Some(name("/s")))
            .0,
        200
    );
    assert_eq!(
        node.command("strategy-choice/unset", |p| p.name = Some(Name::new()))
            .0,
        400
    );
    assert_eq!(node.bench.forwarder.choice().entries().len(), 1);
}

#[test]
fn the_content_store_by_command() {
    let mut node = Node::new();
    for n in 0..50 {
        let packet = data(&format!("/c/{n}"), 0);
        let now = node.bench.now;
        node.bench
            .forwarder
            .store_mut()
            .insert(&Data::parse(&packet).unwrap(), now);
    }
    let (code, body) = node.command("cs/erase", |p| {
        p.name = Some(name("/c"));
        p.count = Some(20);
    });
    assert_eq!((code, body.unwrap().count), (200, Some(20)));
    let (code, body) = node.command("cs/config", |p| {
        p.capacity = Some(10);
        p.flags = Some(0);
        p.mask = Some(1);
    });
    let body = body.unwrap();
    assert_eq!((code, body.capacity, body.flags), (200, Some(10), Some(2)));
    assert_eq!(node.command("cs/config", |p| p.mask = Some(1)).0, 400);
    let info = node.dataset("/localhost/nfd/cs/info");
    let all = entries(&info, 128);
    assert_eq!(
        all[0],
        [
            (131, vec![10]),
            (108, vec![2]),
            (135, vec![10]),
            (129, vec![0]),
            (130, vec![0])
        ]
    );
}

#[test]
fn the_general_status_is_not_wrapped() {
    let mut node = Node::new();
    node.bench.input(FaceId(256), &interest("/x", 1, |_| {}));
    let content = node.dataset("/localhost/nfd/status/general");
    let all: Vec<_> = Elements::new(&content).map(Result::unwrap).collect();
    let order: Vec<u32> = all.iter().map(|e| e.tlv_type).collect();
    assert_eq!(
        order,
        [
            128, 129, 130, 131, 132, 133, 134, 135, 144, 145, 151, 146, 147, 152, 153, 154
        ]
    );
    assert_eq!(all[0].value, b"tidegate-test");
    assert_eq!(
        (all[1].integer(), all[2].integer()),
        (Ok(UNIX_MS - 5000), Ok(UNIX_MS))
    );
    assert_eq!(all[8].integer(), Ok(1));
}

#[test]
fn long_datasets_come_in_segments() {
    let mut node = Node::new();
    let net = node.bench.net[0];
    for n in 0..1000 {
        node.bench
            .route(&format!("/a/long/prefix/with/number/{n}"), net, n);
    }
    let content = node.dataset("/localhost/nfd/fib/list");
    assert!(content.len() > 30_000);
    assert_eq!(entries(&content, 128).len(), 1001);
    // A segment of a version that was never published is not answered.
    let gone = interest("/localhost/nfd/fib/list/v=5/seg=0", 1, |_| {});
    let app = node.bench.app;
    assert!(node.handle(&gone, app).is_none());
}

#[test]
fn face_events_are_numbered_and_kept() {
    let mut node = Node::new();
    let app = node.bench.app;
    let ask = interest("/localhost/nfd/faces/events", 1, |i| {
        i.can_be_prefix = true;
        i.must_be_fresh = true;
    });
    assert!(node.handle(&ask, app).is_none());
    let sent = node.bench.input(app, &ask);
    assert_eq!(sent[0].face, FaceId::INTERNAL);
    let face = node
        .bench
        .forwarder
        .faces()
        .get(node.bench.net[0])
        .unwrap()
        .clone();
    let created = node.management.face_event(FaceEventKind::Created, &face);
    let sent = node.bench.input(FaceId::INTERNAL, &created);
    assert_eq!(sent[0].face, app);
    let event = Data::parse(&sent[0].packet).unwrap();
    assert_eq!(event.name.to_string(), "/localhost/nfd/faces/events/seq=0");
    let all = entries(event.content, 192);
    assert_eq!(all[0][0], (193, vec![1]));
    assert_eq!(all[0][2].1, face.config.remote_uri.as_bytes());
    node.management.face_event(FaceEventKind::Destroyed, &face);
    let second = interest("/localhost/nfd/faces/events/seq=1", 2, |_| {});
    assert!(node.handle(&second, app).is_some());
}

#[test]
fn a_removed_face_takes_its_routes_along() {
    let mut node = Node::new();
    let net = node.bench.net[0];
    assert_eq!(
        node.command("rib/register", |p| {
            p.name = Some(name("/r"));
            p.face_id = Some(u64::from(net.0));
        })
        .0,
        200
    );
    node.bench.forwarder.remove_face(net);
    let now = node.bench.now;
    let mut sink = Kept::default();
    let mut control = SingleWorker {
        forwarder: &mut node.bench.forwarder,
        sink: &mut sink,
        open: |_: &_| Err(FaceRefusal::Failed),
        channels: &[],
    };
    node.management.face_removed(net, now, &mut control);
    assert!(node.management.rib().is_empty());
}

#[test]
fn keys_have_privileges_and_commands_are_not_replayed() {
    let mut keys = KeyRing::new();
    keys.allow(name("/operator"), SharedSecret(b"one"), &["rib"]);
    let mut node = Node::with(keys);
    let key = name("/operator/KEY/1");
    let other = name("/stranger/KEY/1");
    let signer = |secret, key: &'static str, time_ms| (secret, name(key), time_ms);
    let net = node.bench.net[0];
    let rows = [
        (
            signer(b"one", "/operator/KEY/1", UNIX_MS),
            "/localhost/nfd/rib/register",
            200,
        ),
        (
            signer(b"one", "/operator/KEY/1", UNIX_MS),
            "/localhost/nfd/rib/register",
            403,
        ),
        (
            signer(b"one", "/operator/KEY/1", UNIX_MS - 1),
            "/localhost/nfd/rib/register",
            403,
        ),
        (
            signer(b"one", "/operator/KEY/1", UNIX_MS + 1),
            "/localhop/nfd/rib/register",
            200,
        ),
        (
            signer(b"one", "/operator/KEY/1", UNIX_MS + 121_000),
            "/localhost/nfd/rib/register",
            403,
        ),
        (
            signer(b"two", "/operator/KEY/1", UNIX_MS + 2),
            "/localhost/nfd/rib/register",
            403,
        ),
        (
            signer(b"one", "/stranger/KEY/1", UNIX_MS + 2),
            "/localhost/nfd/rib/register",
            403,
        ),
        (
            signer(b"one", "/operator/KEY/1", UNIX_MS + 2),
            "/localhost/nfd/cs/config",
            403,
        ),
        (
            signer(b"one", "/operator/KEY/1", UNIX_MS + 3),
            "/localhop/nfd/cs/config",
            501,
        ),
    ];
    for ((secret, key, time_ms), uri, code) in rows {
        let signer = SecretSigner {
            secret,
            key: key.as_ref(),
            time_ms,
        };
        let packet = signed(uri, |p| p.name = Some(name("/r")), &signer);
        assert_eq!(
            response(&node.handle(&packet, net).unwrap()).0,
            code,
            "{uri} {time_ms}"
        );
    }
    let _ = (key, other);
    // Integrity alone gives no privilege here.
    assert_eq!(
        node.command("rib/register", |p| p.name = Some(name("/r")))
            .0,
        403
    );
    // The same nonce twice is a replay too.
    let mut keys: KeyRing<SharedSecret> = KeyRing::new();
    keys.allow_anyone("rib");
    let packet = hex(REGISTER_OLD);
    let interest = Interest::parse(&packet).unwrap();
    let command = Command::parse(&interest, &name("/localhost/nfd")).unwrap();
    let untimed = Command {
        time_ms: None,
        ..command
    };
    assert!(keys.authorize(&untimed, 0).is_ok());
    assert!(keys.authorize(&untimed, 0).is_err());
}

fn announcement(prefix: &str, expiration_ms: u64) -> Vec<u8> {
    let name = name(prefix)
        .with_keyword(b"PA")
        .with_version(1)
        .with_segment(0);
    let mut content = [0; 32];
    let mut writer = Writer::new(&mut content);
    writer.integer(109, expiration_ms).unwrap();
    let fields = DataFields {
        content_type: content_type::PREFIX_ANNOUNCEMENT,
        ..DataFields::new(name.as_ref(), writer.written())
    };
    let mut out = vec![0; 500];
    let length = fields.encode(&DigestSigner, &mut out).unwrap();
    out.truncate(length);
    out
}

#[test]
fn announced_prefixes_become_routes() {
    let mut node = Node::new();
    let (app, net) = (node.bench.app, node.bench.net[2]);
    let object = announcement("/ann", 5000);
    let command = name("/localhost/nfd/rib/announce");
    let mut out = vec![0; 1000];
    let fields = InterestFields {
        application_parameters: Some(&object),
        ..InterestFields::new(command.as_ref())
    };
    let length = fields.encode_signed(&DigestSigner, &mut out).unwrap();
    let (code, body) = response(&node.handle(&out[..length], app).unwrap());
    let body = body.unwrap();
    assert_eq!(
        (code, body.origin, body.cost, body.expiration_ms),
        (200, Some(129), Some(2048), Some(5000))
    );
    assert_eq!(node.fib("/ann"), [(app.0, 2048)]);
    // Learned beside Data, and lost again.
    let object = announcement("/learned", u64::MAX);
    let ask = interest("/learned/x", 1, |_| {});
    let learned = |announcement| Learned {
        face: net,
        announcement,
        packet: &ask,
    };
    let now = node.bench.now;
    let mut sink = Kept::default();
    let mut control = SingleWorker {
        forwarder: &mut node.bench.forwarder,
        sink: &mut sink,
        open: |_: &_| Err(FaceRefusal::Failed),
        channels: &[],
    };
    assert!(
        node.management
            .learned(now, &learned(Some(&object)), &mut control)
    );
    assert!(
        !node
            .management
            .learned(now, &learned(Some(&ask)), &mut control)
    );
    assert_eq!(
        node.management
            .rib()
            .iter()
            .flat_map(|e| e.1)
            .filter_map(|r| r.expires)
            .max(),
        Some(now + 600_000 * MS)
    );
    assert!(node.management.learned(now, &learned(None), &mut control));
    assert!(!node.management.learned(now, &learned(None), &mut control));
    assert!(node.fib("/learned").is_empty());
}

#[test]
fn broken_parameters_and_names_are_refused_without_panic() {
    let mut node = Node::new();
    let app = node.bench.app;
    let mut rng = ndn::Rng::new(9);
    for text in [REGISTER_OLD, REGISTER_SIGNED, STRATEGY_SIGNED] {
        for _ in 0..3000 {
            let mut packet = hex(text);
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(packet.len() as u64) as usize;
                packet[at] = rng.next_u64() as u8;
            }
            if Interest::parse(&packet).is_ok() {
                let _ = node.handle(&packet, app);
            }
        }
    }
    assert!(node.management.rib().len() <= 100);
}

#[test]
fn scopes_and_persistencies_have_the_numbers_of_the_protocol() {
    assert_eq!((FaceScope::NonLocal as u8, FaceScope::Local as u8), (0, 1));
    assert_eq!(
        [
            Persistency::Persistent as u8,
            Persistency::OnDemand as u8,
            Persistency::Permanent as u8
        ],
        [0, 1, 2]
    );
    assert_eq!(Instant::ZERO.as_ns(), 0);
}
