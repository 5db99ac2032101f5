//! What the fuzz target of `wire::ndn` does with its input: read it as everything, and check what it promises.

use wire::ndn::lp::{Fragments, LpPacket};
use wire::ndn::name::UriParser;
use wire::ndn::{Data, Elements, Interest, NameRef, PACKET_BYTES_MAX, Tlv};

use crate::wire_targets::Body;

/// All targets by name; the name is also that of the folder of seeds in `fuzz/corpus`.
pub const TARGETS: [(&str, Body); 2] = [("ndn_packet", packet), ("ndn_name", name)];

/// A link packet, and what is inside.
pub fn packet(bytes: &[u8]) {
    let walked: usize = Elements::new(bytes).flatten().map(|e| e.bytes.len()).sum();
    assert!(walked <= bytes.len());
    let Ok(link) = LpPacket::parse(bytes) else {
        return;
    };
    let acks: Vec<u64> = link.acks().collect();
    let fragment = link.fragment.unwrap_or_default();
    // Without a field, a fragment is written bare, and it need not be a packet.
    let bare = link.header.is_empty() && acks.is_empty();
    if !bare && (link.header.frag_count.is_some() || link.header.frag_index == 0) {
        let mut out = vec![0; bytes.len() + 64];
        let length = link
            .header
            .encode(&acks, fragment, &mut out)
            .expect("it fits");
        let again = LpPacket::parse(&out[..length]).expect("what is written is valid");
        assert_eq!((again.header, again.fragment), (link.header, link.fragment));
        assert!(again.acks().eq(acks));
    }
    if let Ok(interest) = Interest::parse(fragment) {
        forwarded(&interest);
    }
    if let Ok(data) = Data::parse(fragment) {
        assert!(data.bytes.len() <= PACKET_BYTES_MAX);
        name(data.name.value());
        let _ = (data.implicit_digest(), data.digest_signature_holds());
        cut(&link, fragment);
    }
}

/// An Interest that is forwarded stays the same but for nonce, hop limit and hint.
fn forwarded(interest: &Interest<'_>) {
    let mut out = vec![0; interest.bytes.len() + 16];
    let _ = (
        interest.parameters_digest_holds(),
        interest.digest_signature_holds(),
    );
    for strip in [false, true] {
        let length = interest
            .encode_forwarded([9; 4], Some(1), strip, &mut out)
            .expect("it fits");
        let Ok(next) = Interest::parse(&out[..length]) else {
            // Only a nonce that was added can make it too long.
            assert!(interest.nonce.is_none() && length > PACKET_BYTES_MAX);
            continue;
        };
        assert_eq!(next.nonce, Some([9; 4]));
        assert_eq!(next.hop_limit, interest.hop_limit.map(|_| 1));
        assert_eq!(
            (next.name, next.lifetime_ms),
            (interest.name, interest.lifetime_ms)
        );
        assert_eq!(
            next.parameters_digest_holds(),
            interest.parameters_digest_holds()
        );
    }
    assert!(interest.forwarding_hint.is_empty() || interest.forwarding_hint.names().count() > 0);
    assert!(
        interest.matches_data(&interest.name.split_implicit_digest().0, || {
            *interest.name.split_implicit_digest().1.unwrap_or(&[0; 32])
        })
    );
    name(interest.name.value());
}

/// Fragments fit and add up.
fn cut(link: &LpPacket<'_>, packet: &[u8]) {
    for mtu in [60, 1200, 9000] {
        let Ok(mut plan) = Fragments::new(link.header, packet, mtu, 12, 5) else {
            continue;
        };
        let mut whole = Vec::new();
        while let Some((_, part)) = plan.next_parts() {
            whole.extend_from_slice(part);
        }
        assert_eq!(whole, packet);
    }
}

/// A name's value: prefixes, URI, and the way back.
pub fn name(value: &[u8]) {
    let _ = Tlv::read(value);
    let Ok(name) = NameRef::new(value) else {
        return;
    };
    assert_eq!(name.components().count(), name.len());
    let mut end = 0;
    for (index, component) in name.components().enumerate() {
        end += component.bytes.len();
        assert_eq!(component.end, end);
        if index < 8 {
            let prefix = name.prefix(index + 1);
            assert_eq!(prefix.value(), &value[..end]);
            assert!(prefix.is_prefix_of(&name));
            assert_eq!(
                prefix.value().len() + name.suffix(index + 1).value().len(),
                value.len()
            );
        }
    }
    assert_eq!(end, value.len());
    let uri = name.to_string();
    let mut out = vec![0; uri.len() + 12 * (name.len() + 1)];
    let again = UriParser::new(&mut out)
        .parse(&uri)
        .expect("what is shown can be read");
    assert_eq!(again, name);
}
