//! What the fuzz target of `kernel_cache` does with its input: the core of the kernel's program reads it as a frame and as
//! an NDN packet in one, beside the parser of `wire`.

use std::sync::OnceLock;

use kernel_cache::shared::answer::{Scratch, answer};
use kernel_cache::shared::layout::PortRow;
use kernel_cache::{Arrays, Buffer, Cache, Outcome, Sizes, monotonic_ns};
use wire::ndn::lp::LpPacket;
use wire::ndn::name::Name;
use wire::ndn::{Data, DataFields, DigestSigner, Interest, Tlv};

/// The port's interface, Ethernet address and longest frame.
const IFINDEX: u32 = 1;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FRAME_BYTES_MAX: usize = 1514;
/// What is in the cache: name, content bytes, FreshnessPeriod in ms.
const PACKETS: [(&str, usize, u64); 4] = [
    ("/a", 1, 0),
    ("/a/b", 300, 3_600_000),
    ("/a/c/d", 1200, 0),
    ("/long/name/of/six/components/%00%FF", 0, 3_600_000),
];

/// The cache, and the packets that it has.
fn cache() -> &'static (Cache, Vec<Vec<u8>>) {
    static CACHE: OnceLock<(Cache, Vec<Vec<u8>>)> = OnceLock::new();
    CACHE.get_or_init(|| {
        let mut cache = Cache::new(Arrays::private(Sizes::of(64)).expect("memory"));
        let packets = PACKETS.map(|(uri, bytes, freshness_ms)| {
            let name: Name = uri.parse().expect("a name");
            let content = vec![7; bytes];
            let fields = DataFields {
                freshness_ms,
                ..DataFields::new(name.as_ref(), &content)
            };
            let mut packet = vec![0; 2000];
            let length = fields.encode(&DigestSigner, &mut packet).expect("it fits");
            packet.truncate(length);
            cache.insert(&packet, monotonic_ns()).expect("it is taken");
            packet
        });
        (cache, packets.to_vec())
    })
}

/// Reads an input as a frame to the port, and as an NDN packet in an Ethernet frame.
pub fn frame(bytes: &[u8]) {
    let mut whole = bytes.to_vec();
    if let Some(destination) = whole.get_mut(..6) {
        destination.copy_from_slice(&MAC);
    }
    ask(&whole);
    let link = [&MAC[..], &[2, 0, 0, 0, 0, 2, 0x86, 0x24], bytes].concat();
    if let Some(reply) = ask(&link) {
        answers(bytes, reply.get(14..).unwrap_or_default());
    }
}

/// Gives the core a frame; returns the reply if there is one.
fn ask(request: &[u8]) -> Option<Vec<u8>> {
    let (cache, packets) = cache();
    let [a, b, c, d, e, f] = MAC;
    let port = PortRow {
        ifindex: IFINDEX,
        frame_bytes_max: FRAME_BYTES_MAX as u32,
        mac: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
    };
    let mut buffer = Buffer::new(request, 2048);
    let mut scratch = Box::<Scratch>::default();
    let outcome = answer(cache.memory(), &mut buffer, IFINDEX, &port, &mut scratch);
    if !outcome.is_hit() {
        assert_eq!(buffer.bytes(), request, "{outcome:?}");
        assert!(!matches!(outcome, Outcome::Torn | Outcome::Raced));
        return None;
    }
    let reply = buffer.bytes();
    // A VLAN tag may come on top.
    assert!(reply.len() <= FRAME_BYTES_MAX + 4);
    let has = |packet: &Vec<u8>| reply.windows(packet.len()).any(|window| window == packet);
    assert!(packets.iter().any(has), "{outcome:?} without a packet");
    Some(reply.to_vec())
}

/// Checks an answer with the parser of the forwarder.
fn answers(asked: &[u8], reply: &[u8]) {
    let asked = Tlv::read(asked).expect("a packet").bytes;
    let asked = LpPacket::parse(asked).expect("a link packet");
    let interest = Interest::parse(asked.fragment.expect("a fragment")).expect("an Interest");
    let reply = Tlv::read(reply).expect("a packet").bytes;
    let reply = LpPacket::parse(reply).expect("a link packet");
    assert_eq!(reply.header.pit_token, asked.header.pit_token);
    let data = Data::parse(reply.fragment.expect("a fragment")).expect("Data");
    let is_exact = data.name == interest.name;
    assert!(is_exact || interest.can_be_prefix && interest.name.is_prefix_of(&data.name));
    assert!(!interest.must_be_fresh || data.meta.freshness_ms > 0);
}
