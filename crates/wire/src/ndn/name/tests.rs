use std::string::ToString;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::ndn::Writer;

fn parse(uri: &str) -> Result<Vec<u8>, UriError> {
    let mut out = [0; 512];
    UriParser::new(&mut out)
        .parse(uri)
        .map(|name| name.value().to_vec())
}

#[test]
fn components_are_checked() {
    let digest = [&[1, 32][..], &[7; 32]].concat();
    let long = [&[8, 253, 1, 44][..], &[b'x'; 300]].concat();
    let rows: [(&[u8], Result<usize, DecodeError>); 12] = [
        (&[], Ok(0)),
        (&[8, 0], Ok(1)),
        (&[8, 1, b'a', 50, 1, 3], Ok(2)),
        (&digest, Ok(1)),
        (&long, Ok(1)),
        (&[253, 255, 255, 0], Ok(1)),
        (&[1, 1, 7], Err(DecodeError::DigestLength)),
        (&[2, 0], Err(DecodeError::DigestLength)),
        (&[0, 0], Err(DecodeError::TypeRange)),
        (&[254, 0, 1, 0, 0, 0], Err(DecodeError::ComponentType)),
        (&[8, 2, b'a'], Err(DecodeError::Truncated)),
        (&[8, 253, 0, 1, b'a'], Err(DecodeError::NotShortest)),
    ];
    for (value, expected) in rows {
        assert_eq!(
            NameRef::new(value).map(|name| name.len()),
            expected,
            "{value:?}"
        );
    }
}

#[test]
fn prefixes_suffixes_and_ends() {
    let value = parse("/a/bb/ccc").unwrap();
    let name = NameRef::new(&value).unwrap();
    let ends: Vec<usize> = name.components().map(|c| c.end).collect();
    assert_eq!(ends, [3, 7, 12]);
    assert_eq!(name.components().len(), 3);
    assert_eq!(name.prefix(0), NameRef::EMPTY);
    assert_eq!(name.prefix(2).to_string(), "/a/bb");
    assert_eq!(name.prefix(2).len(), 2);
    assert_eq!(name.prefix(9), name);
    assert_eq!(name.suffix(1).to_string(), "/bb/ccc");
    assert_eq!(
        name.suffix(1),
        NameRef::new(name.suffix(1).value()).unwrap()
    );
    assert_eq!(name.suffix(3), NameRef::EMPTY);
    assert_eq!(name.parent().unwrap(), name.prefix(2));
    assert_eq!(NameRef::EMPTY.parent(), None);
    assert_eq!(name.component(2).unwrap().value, b"ccc");
    assert_eq!(name.component(3), None);
}

#[test]
fn an_implicit_digest_is_split_off_only_where_it_is_a_component() {
    let real = [&[8, 1, b'a', 1, 32][..], &[9; 32]].concat();
    let (name, digest) = NameRef::new(&real).unwrap().split_implicit_digest();
    assert_eq!((name.to_string().as_str(), digest), ("/a", Some(&[9; 32])));
    // The same bytes at the end of a generic component are not a digest.
    let fake = [&[8, 34, 1, 32][..], &[9; 32]].concat();
    let (name, digest) = NameRef::new(&fake).unwrap().split_implicit_digest();
    assert_eq!((name.len(), digest), (1, None));
    assert_eq!(name.value(), fake);
}

#[test]
fn uris_of_the_specification() {
    let hex = "893259d98aca58c451453f29ec7dc38688e690dd0b59ef4f3b9d33738bff0b8d";
    let same = [
        "/",
        "/ndn/a",
        "/42=Hello%20world",
        "/...",
        "/....",
        "/......",
        "/.a",
        "/32=KEY",
        "/50=seg",
        "/50=...",
        "/65535=x",
        "/%00%FF",
        "/a%3Db",
        "/seg=0/off=255/v=256/t=1600000000000000/seq=18446744073709551615",
        &std::format!("/sha256digest={hex}"),
        &std::format!("/params-sha256={hex}"),
    ];
    for uri in same {
        let value = parse(uri).unwrap();
        assert_eq!(NameRef::new(&value).unwrap().to_string(), uri);
    }
    let other = [
        ("", "/"),
        ("ndn:/a", "/a"),
        ("ndn:", "/"),
        ("ndn://authority/a/b", "/a/b"),
        ("ndn://authority", "/"),
        ("a/b/", "/a/b"),
        ("/8=Hello%20world", "/Hello%20world"),
        ("/%41%7e", "/A~"),
        ("/50=%07", "/seg=7"),
    ];
    for (uri, shown) in other {
        assert_eq!(
            NameRef::new(&parse(uri).unwrap()).unwrap().to_string(),
            shown
        );
    }
    let bad = [
        ("/a//b", UriError::EmptyComponent),
        ("/.", UriError::EmptyComponent),
        ("/..", UriError::EmptyComponent),
        ("/a%2", UriError::Escape),
        ("/a%zz", UriError::Escape),
        ("/0=a", UriError::ComponentType),
        ("/08=a", UriError::ComponentType),
        ("/65536=a", UriError::ComponentType),
        ("/+8=a", UriError::ComponentType),
        ("/version=7", UriError::ComponentType),
        ("/SEG=7", UriError::ComponentType),
        ("/seg=x", UriError::ComponentValue),
        ("/seg=+1", UriError::ComponentValue),
        ("/v=18446744073709551616", UriError::ComponentValue),
        ("/sha256digest=12", UriError::ComponentValue),
        ("/1=12", UriError::ComponentValue),
    ];
    for (uri, error) in bad {
        assert_eq!(parse(uri), Err(error), "{uri}");
    }
    let mut short = [0; 3];
    assert_eq!(
        UriParser::new(&mut short).parse("/ab"),
        Err(UriError::BufferTooShort)
    );
}

#[test]
fn a_long_number_keeps_its_length_in_the_uri() {
    let name = NameRef::new(&[50, 2, 0, 7]).unwrap();
    assert_eq!(name.to_string(), "/50=%00%07");
    assert_eq!(
        name.component(0).unwrap().number_of(types::SEGMENT),
        Some(7)
    );
    assert_eq!(name.component(0).unwrap().number_of(types::VERSION), None);
}

/// Components as (type, value), written out.
fn write(components: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut out = vec![0; 4096];
    let mut writer = Writer::new(&mut out);
    for (component_type, value) in components {
        writer.element(u32::from(*component_type), value).unwrap();
    }
    writer.written().to_vec()
}

fn any_component() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let short = proptest::collection::vec(prop_oneof![Just(b'.'), Just(b'a'), any::<u8>()], 0..5);
    let long = (250..260_usize).prop_map(|n| vec![b'z'; n]);
    let numbered = prop_oneof![Just(50_u16), Just(52), Just(54), Just(56), Just(58)];
    prop_oneof![
        4 => (Just(8_u16), short.clone()),
        1 => (Just(8_u16), long),
        2 => (3..=u16::MAX, short.clone()),
        2 => (numbered, short),
        1 => (1..=2_u16, Just(vec![5; 32])),
    ]
}

fn any_name() -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
    proptest::collection::vec(any_component(), 0..5)
}

proptest! {
    #[test]
    fn any_bytes_are_checked_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(name) = NameRef::new(&bytes) {
            prop_assert_eq!(name.components().count(), name.len());
            let _ = name.to_string();
        }
    }

    #[test]
    fn the_order_of_the_bytes_is_the_canonical_order(a in any_name(), b in any_name(), shared in 0..5_usize) {
        let b = [&a[..shared.min(a.len())], &b].concat();
        let (left, right) = (write(&a), write(&b));
        let (left, right) = (NameRef::new(&left).unwrap(), NameRef::new(&right).unwrap());
        let naive = left
            .components()
            .zip(right.components())
            .map(|(x, y)| x.canonical_cmp(&y))
            .find(|order| order.is_ne())
            .unwrap_or_else(|| a.len().cmp(&b.len()));
        prop_assert_eq!(left.cmp(&right), naive);
        prop_assert_eq!(left.is_prefix_of(&right), b.starts_with(&a));
    }

    #[test]
    fn uris_survive_the_way_there_and_back(components in any_name()) {
        let value = write(&components);
        let uri = NameRef::new(&value).unwrap().to_string();
        prop_assert_eq!(parse_long(&uri), Ok(value));
    }

    #[test]
    fn any_text_is_parsed_without_panic(uri in "[/a=%.0-9segv]{0,24}") {
        if let Ok(value) = parse(&uri) {
            prop_assert!(NameRef::new(&value).is_ok(), "{}", uri);
        }
    }
}

fn parse_long(uri: &str) -> Result<Vec<u8>, UriError> {
    let mut out = vec![0; uri.len() + 100];
    UriParser::new(&mut out)
        .parse(uri)
        .map(|name| name.value().to_vec())
}
