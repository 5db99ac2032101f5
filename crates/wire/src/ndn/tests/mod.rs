//! Interests and Data: the rules of the specification, packets of another implementation, round trips.

mod vectors;

use std::string::ToString;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// Wraps elements in a packet of type `tlv_type`.
fn packet(tlv_type: u8, elements: &[&[u8]]) -> Vec<u8> {
    let value = elements.concat();
    let mut bytes = vec![tlv_type, value.len() as u8];
    bytes.extend_from_slice(&value);
    bytes
}

const NAME: &[u8] = &[7, 3, 8, 1, b'a'];

type Row<'a> = (&'a [&'a [u8]], Result<(), DecodeError>);

#[test]
fn interest_elements() {
    use DecodeError::*;
    let digest = [&[7, 36, 8, 0, 1, 32][..], &[0; 32]].concat();
    let rows: [Row<'_>; 31] = [
        (&[NAME], Ok(())),
        (&[&digest], Ok(())),
        (&[], Err(Missing)),
        (&[&[7, 0]], Err(EmptyName)),
        (&[&[0x0a, 4, 1, 2, 3, 4], NAME], Err(Missing)),
        // Not even something that may be ignored comes before the name.
        (&[&[0xf0, 0], NAME], Err(Missing)),
        (&[NAME, NAME], Err(Critical)),
        (&[NAME, &[0x21, 0]], Ok(())),
        (&[NAME, &[0x21, 1, 0]], Err(ElementLength)),
        (&[NAME, &[0x12, 0]], Ok(())),
        (&[NAME, &[0x12, 0], &[0x21, 0]], Err(Critical)),
        (&[NAME, &[0x21, 0], &[0x21, 0]], Err(Critical)),
        (&[NAME, &[0x1e, 5], NAME], Ok(())),
        (&[NAME, &[0x1e, 0]], Err(Missing)),
        (&[NAME, &[0x1e, 7], NAME, &[0xf0, 0]], Ok(())),
        (&[NAME, &[0x1e, 7], NAME, &[0xf1, 0]], Err(Critical)),
        // The delegations of old.
        (
            &[NAME, &[0x1e, 10, 0x1f, 8, 0x1e, 1, 0], NAME],
            Err(Critical),
        ),
        (&[NAME, &[0x0a, 4, 1, 2, 3, 4]], Ok(())),
        (&[NAME, &[0x0a, 3, 1, 2, 3]], Err(ElementLength)),
        (&[NAME, &[0x0c, 2, 1, 0]], Ok(())),
        (&[NAME, &[0x0c, 3, 1, 0, 0]], Err(Integer)),
        (&[NAME, &[0x22, 1, 5]], Ok(())),
        (&[NAME, &[0x22, 0]], Err(ElementLength)),
        // Even types above 31 may be ignored, out of order too; others not.
        (&[NAME, &[0x22, 1, 5], &[0x22, 1, 6]], Ok(())),
        (&[NAME, &[0xf0, 1, 7]], Ok(())),
        (&[NAME, &[0xf1, 1, 7]], Err(Critical)),
        (&[NAME, &[30, 5], NAME, &[28, 0]], Err(Critical)),
        (&[NAME, &[0x24, 0]], Ok(())),
        (
            &[NAME, &[0x24, 0], &[0x2c, 3, 0x1b, 1, 0], &[0x2e, 0]],
            Ok(()),
        ),
        (&[NAME, &[0x24, 0], &[0x2c, 0], &[0x2e, 0]], Err(Missing)),
        (&[NAME, &[0x2c, 0], &[0x2e, 0]], Ok(())),
    ];
    for (elements, expected) in rows {
        let bytes = packet(5, elements);
        assert_eq!(
            Interest::parse(&bytes).map(|_| ()),
            expected,
            "{bytes:02x?}"
        );
    }
}

#[test]
fn data_elements() {
    use DecodeError::*;
    let info: &[u8] = &[0x16, 3, 0x1b, 1, 0];
    let value: &[u8] = &[0x17, 1, 9];
    let rows: [Row<'_>; 24] = [
        (&[NAME, info, value], Ok(())),
        (&[&[7, 0], info, value], Ok(())),
        (&[info, value], Err(Missing)),
        (&[NAME, value], Err(Missing)),
        (&[NAME, info], Err(Missing)),
        (&[NAME, value, info], Err(Critical)),
        (&[NAME, &[0x16, 0], value], Err(Missing)),
        (&[NAME, &[0x14, 0], &[0x15, 0], info, value], Ok(())),
        (&[NAME, &[0x15, 0], &[0x14, 0], info, value], Err(Critical)),
        (&[NAME, &[0x14, 3, 0x18, 1, 2], info, value], Ok(())),
        (&[NAME, &[0x14, 3, 0x19, 1, 2], info, value], Ok(())),
        (&[NAME, &[0x14, 2, 0x19, 0], info, value], Err(Integer)),
        (&[NAME, &[0x14, 5, 0x1a, 3, 50, 1, 0], info, value], Ok(())),
        (&[NAME, &[0x14, 2, 0x1a, 0], info, value], Err(Truncated)),
        (
            &[NAME, &[0x14, 6, 0x1a, 4, 50, 1, 0, 9], info, value],
            Err(Trailing),
        ),
        (
            &[NAME, &[0x14, 6, 0x19, 1, 2, 0x18, 1, 2], info, value],
            Err(Critical),
        ),
        (&[NAME, &[0x14, 2, 0xf0, 0], info, value], Ok(())),
        (&[NAME, info, value, &[0xf0, 0]], Ok(())),
        (&[NAME, info, value, &[0xf1, 0]], Err(Critical)),
        (
            &[NAME, &[0x16, 10, 0x1b, 1, 1, 0x1c, 5], NAME, value],
            Ok(()),
        ),
        (
            &[NAME, &[0x16, 8, 0x1b, 1, 1, 0x1c, 3, 0x1d, 1, 9], value],
            Ok(()),
        ),
        (
            &[NAME, &[0x16, 5, 0x1b, 1, 1, 0x26, 0], value],
            Err(ElementLength),
        ),
        // A certificate's validity period is known, though odd.
        (
            &[NAME, &[0x16, 7, 0x1b, 1, 1, 0xfd, 0, 0xfd, 0], value],
            Ok(()),
        ),
        (
            &[NAME, &[0x16, 7, 0x1b, 1, 1, 0xfd, 1, 1, 0], value],
            Err(Critical),
        ),
    ];
    for (elements, expected) in rows {
        let bytes = packet(6, elements);
        assert_eq!(Data::parse(&bytes).map(|_| ()), expected, "{bytes:02x?}");
    }
}

#[test]
fn packets_of_python_ndn() {
    let bytes = hex(vectors::INTEREST_FULL);
    let interest = Interest::parse(&bytes).unwrap();
    assert_eq!(interest.name.to_string(), "/local/ndn/prefix");
    assert!(interest.can_be_prefix && interest.must_be_fresh);
    assert_eq!(interest.nonce, Some([0x6c, 0x21, 0x11, 0x66]));
    assert_eq!((interest.lifetime_ms, interest.hop_limit), (10, Some(1)));
    let hints: Vec<_> = interest
        .forwarding_hint
        .names()
        .map(|n| n.to_string())
        .collect();
    assert_eq!(hints, ["/h/1", "/h/2"]);
    assert!(interest.parameters_digest_holds());

    for text in [
        vectors::INTEREST_PARAMS,
        vectors::INTEREST_SIGNED,
        vectors::INTEREST_SIGNED_POS,
    ] {
        let bytes = hex(text);
        let interest = Interest::parse(&bytes).unwrap();
        assert!(interest.parameters_digest_holds());
        assert_eq!(
            interest.digest_signature_holds(),
            interest.signature_info.is_some()
        );
        let mut damaged = bytes.clone();
        *damaged.last_mut().unwrap() ^= 1;
        let damaged = Interest::parse(&damaged).unwrap();
        assert!(!damaged.parameters_digest_holds() && !damaged.digest_signature_holds());
    }
    for text in [vectors::DATA_PLAIN, vectors::DATA_META] {
        let bytes = hex(text);
        assert!(Data::parse(&bytes).unwrap().digest_signature_holds());
        let mut damaged = bytes;
        *damaged.last_mut().unwrap() ^= 1;
        assert!(!Data::parse(&damaged).unwrap().digest_signature_holds());
    }
    let bytes = hex(vectors::DATA_META);
    let data = Data::parse(&bytes).unwrap();
    assert_eq!(data.name.to_string(), "/a/b/v=1/seg=3");
    assert_eq!(
        data.meta.final_block.unwrap().number_of(types::SEGMENT),
        Some(9)
    );
    assert_eq!(
        (data.meta.content_type, data.content.len()),
        (content_type::KEY, 300)
    );
    let bytes = hex(vectors::DATA_HMAC);
    let data = Data::parse(&bytes).unwrap();
    assert_eq!(
        data.signature_info.signature_type,
        SignatureType::HmacWithSha256
    );
    let Some(KeyLocator::Name(key)) = data.signature_info.key_locator else {
        panic!("the key has a name");
    };
    assert_eq!(key.to_string(), "/k");
    let bytes = hex(vectors::NACK);
    let link = lp::LpPacket::parse(&bytes).unwrap();
    assert_eq!(link.header.nack, Some(lp::NackReason::NoRoute));
    let refused = Interest::parse(link.fragment.unwrap()).unwrap();
    assert_eq!(refused.name.to_string(), "/a/b");
    assert_eq!(refused.bytes, hex(vectors::INTEREST_PLAIN));
}

/// What we write is byte for byte what python-ndn writes.
#[test]
fn same_bytes_as_python_ndn() {
    let mut out = [0; 512];
    let (mut one, mut two, mut three) = ([0; 64], [0; 64], [0; 64]);
    let prefix = name::UriParser::new(&mut one)
        .parse("/local/ndn/prefix")
        .unwrap();
    let hints = [
        name::UriParser::new(&mut two).parse("/h/1").unwrap(),
        name::UriParser::new(&mut three).parse("/h/2").unwrap(),
    ];
    let fields = InterestFields {
        can_be_prefix: true,
        must_be_fresh: true,
        forwarding_hint: &hints,
        nonce: Some([0x6c, 0x21, 0x11, 0x66]),
        lifetime_ms: Some(10),
        hop_limit: Some(1),
        ..InterestFields::new(prefix)
    };
    let length = fields.encode(&mut out).unwrap();
    assert_eq!(out[..length], hex(vectors::INTEREST_FULL));
    let fields = InterestFields {
        nonce: Some([0x6c, 0x21, 0x11, 0x66]),
        lifetime_ms: Some(4000),
        application_parameters: Some(&[1, 2, 3, 4]),
        ..InterestFields::new(prefix)
    };
    let length = fields.encode_signed(&DigestSigner, &mut out).unwrap();
    assert_eq!(out[..length], hex(vectors::INTEREST_SIGNED));
}

#[test]
fn oversized_packets_are_refused() {
    let mut out = vec![0; 9000];
    for (content, fits) in [(8700, true), (8800, false)] {
        let content = vec![0; content];
        let fields = DataFields::new(NameRef::EMPTY, &content);
        let length = fields.encode(&DigestSigner, &mut out).unwrap();
        assert_eq!(Data::parse(&out[..length]).is_ok(), fits);
    }
    let bytes = [&[5, 253, 0x22, 0x5e][..], &[0; 8798]].concat();
    assert_eq!(Interest::parse(&bytes), Err(DecodeError::TooLong));
}

#[test]
fn matching() {
    let digest = [3; 32];
    let full = [&[8, 1, b'a', 1, 32][..], &digest].concat();
    let full_interest = packet(5, &[&[&[7, 37][..], &full].concat()]);
    let exact = packet(5, &[NAME]);
    let prefix = packet(5, &[NAME, &[0x21, 0]]);
    let a = NameRef::new(&[8, 1, b'a']).unwrap();
    let ab = NameRef::new(&[8, 1, b'a', 8, 1, b'b']).unwrap();
    let rows = [
        (&exact, a, true),
        (&exact, ab, false),
        (&prefix, a, true),
        (&prefix, ab, true),
        (&full_interest, a, true),
        (&full_interest, ab, false),
    ];
    for (bytes, name, expected) in rows {
        let interest = Interest::parse(bytes).unwrap();
        assert_eq!(interest.matches_data(&name, || digest), expected, "{name}");
    }
    let interest = Interest::parse(&full_interest).unwrap();
    assert!(!interest.matches_data(&a, || [4; 32]));
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let component = (3..300_u32, proptest::collection::vec(any::<u8>(), 0..20));
    proptest::collection::vec(component, 1..6).prop_map(|components| {
        let mut out = [0; 400];
        let mut writer = Writer::new(&mut out);
        for (component_type, value) in &components {
            writer.element(*component_type, value).unwrap();
        }
        writer.written().to_vec()
    })
}

type Options = (
    bool,
    bool,
    Option<[u8; 4]>,
    Option<u64>,
    Option<u8>,
    Option<Vec<u8>>,
);

proptest! {
    #[test]
    fn interests_survive_the_way_there_and_back(
        name in any_name(), hint in proptest::option::of(any_name()), options in any::<Options>(), sign in any::<bool>(),
        nonce in any::<[u8; 4]>(), limit in any::<u8>(), strip in any::<bool>(),
    ) {
        let (can_be_prefix, must_be_fresh, old_nonce, lifetime_ms, hop_limit, parameters) = options;
        let hints: Vec<_> = hint.iter().map(|hint| NameRef::new(hint).unwrap()).collect();
        let fields = InterestFields {
            name: NameRef::new(&name).unwrap(), can_be_prefix, must_be_fresh, forwarding_hint: &hints,
            nonce: old_nonce, lifetime_ms, hop_limit, application_parameters: parameters.as_deref(),
        };
        let mut out = [0; 2000];
        let length = if sign { fields.encode_signed(&DigestSigner, &mut out) } else { fields.encode(&mut out) }.unwrap();
        let interest = Interest::parse(&out[..length]).unwrap();
        prop_assert!(interest.parameters_digest_holds());
        prop_assert_eq!(interest.digest_signature_holds(), sign);
        prop_assert_eq!((interest.can_be_prefix, interest.must_be_fresh), (can_be_prefix, must_be_fresh));
        prop_assert_eq!((interest.nonce, interest.hop_limit), (old_nonce, hop_limit));
        prop_assert_eq!(interest.lifetime_ms, lifetime_ms.unwrap_or(DEFAULT_LIFETIME_MS));
        prop_assert_eq!(interest.forwarding_hint.names().collect::<Vec<_>>(), hints.clone());
        prop_assert!(sign || fields.encode(&mut vec![0; length - 1]).is_err());

        // As the next hop gets it: other nonce and hop limit, all else the same.
        let mut forwarded = [0; 2020];
        let length = interest.encode_forwarded(nonce, Some(limit), strip, &mut forwarded).unwrap();
        let next = Interest::parse(&forwarded[..length]).unwrap();
        prop_assert_eq!((next.nonce, next.hop_limit), (Some(nonce), hop_limit.map(|_| limit)));
        prop_assert_eq!(next.name, interest.name);
        prop_assert_eq!(next.forwarding_hint.is_empty(), strip || hints.is_empty());
        prop_assert!(next.parameters_digest_holds());
        prop_assert_eq!(next.digest_signature_holds(), sign);
    }

    #[test]
    fn data_survives_the_way_there_and_back(
        name in any_name(), content_type in any::<u64>(), freshness_ms in any::<u64>(), last in proptest::option::of(any::<u8>()),
        content in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let last = last.map(|n| [50, 1, n]);
        let fields = DataFields {
            content_type, freshness_ms,
            final_block: last.as_ref().map(|bytes| Component::read(bytes).unwrap()),
            ..DataFields::new(NameRef::new(&name).unwrap(), &content)
        };
        let mut out = [0; 2000];
        let length = fields.encode(&DigestSigner, &mut out).unwrap();
        let data = Data::parse(&out[..length]).unwrap();
        prop_assert_eq!(data.name.value(), name);
        prop_assert_eq!((data.meta.content_type, data.meta.freshness_ms), (content_type, freshness_ms));
        prop_assert_eq!(data.meta.final_block.map(|c| c.bytes), last.as_ref().map(|b| &b[..]));
        prop_assert_eq!(data.content, content);
        prop_assert!(data.digest_signature_holds());
    }

    #[test]
    fn any_elements_are_read_without_panic(
        elements in proptest::collection::vec((0..60_u8, proptest::collection::vec(any::<u8>(), 0..8)), 0..8), kind in 5..=6_u8,
    ) {
        let mut value = NAME.to_vec();
        for (tlv_type, bytes) in elements {
            value.extend_from_slice(&[tlv_type, bytes.len() as u8]);
            value.extend_from_slice(&bytes);
        }
        let bytes = packet(kind, &[&value]);
        if let Ok(interest) = Interest::parse(&bytes) {
            let mut out = [0; 300];
            let length = interest.encode_forwarded([1; 4], Some(3), true, &mut out).unwrap();
            let next = Interest::parse(&out[..length]).unwrap();
            prop_assert_eq!((next.nonce, next.lifetime_ms), (Some([1; 4]), interest.lifetime_ms));
        }
        let _ = Data::parse(&bytes);
    }
}
