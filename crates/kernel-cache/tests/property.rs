//! The cache against a map, operation by operation: what is found, byte for byte, and what is not.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::collections::BTreeMap;

use kernel_cache::shared::answer::{Scratch, answer};
use kernel_cache::{Arrays, Buffer, Cache, Outcome, Sizes, monotonic_ns};
use proptest::prelude::*;
use support::{
    CARRIERS, Carrier, PORT_MAC, data_of, frame, in_lp, interest_of, network_packet, port_row,
    reply_payload,
};
use wire::ndn::name::Name;

const HOUR_MS: u64 = 3_600_000;

/// What is done to both.
#[derive(Clone, Debug)]
enum Step {
    Insert(Name, u8, bool),
    Remove(Name),
    RemovePrefix(Name),
    Clear,
    Ask(Name, &'static str),
}

/// Names of one to five components, of few different ones, so that they meet.
fn names() -> impl Strategy<Value = Name> {
    proptest::collection::vec(0..4_u8, 1..6).prop_map(|components| {
        components.iter().fold(Name::new(), |name, &component| {
            name.with_generic(&vec![component; 1 + 5 * usize::from(component)])
        })
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let flags = prop_oneof![Just(""), Just("p"), Just("f"), Just("pf")];
    prop_oneof![
        6 => (names(), any::<u8>(), any::<bool>()).prop_map(|(n, c, f)| Step::Insert(n, c, f)),
        2 => names().prop_map(Step::Remove),
        1 => names().prop_map(Step::RemovePrefix),
        1 => Just(Step::Clear),
        12 => (names(), flags).prop_map(|(n, f)| Step::Ask(n, f)),
    ]
}

/// Asks the cache in user space as the kernel's program does.
fn ask(cache: &Cache, request: &[u8]) -> (Outcome, Vec<u8>) {
    let mut buffer = Buffer::new(request, 4000);
    let port = port_row(1, PORT_MAC, 3000);
    let mut scratch = Box::<Scratch>::default();
    let outcome = answer(cache.memory(), &mut buffer, 1, &port, &mut scratch);
    (outcome, buffer.bytes().to_vec())
}

/// The packets that the cache ought to have, by the components of their names.
type Model = BTreeMap<Name, (Vec<u8>, bool)>;

fn check_answer(
    cache: &Cache,
    model: &Model,
    name: &Name,
    flags: &str,
) -> Result<(), TestCaseError> {
    let request = frame(Carrier::Ethernet, None, &interest_of(name.as_ref(), flags));
    let (outcome, reply) = ask(cache, &request);
    let (prefix, fresh) = (flags.contains('p'), flags.contains('f'));
    let fits = |(known, (_, is_fresh)): (&Name, &(Vec<u8>, bool))| {
        let named = known == name || prefix && name.as_ref().is_prefix_of(&known.as_ref());
        named && (!fresh || *is_fresh)
    };
    let wanted = model.iter().any(&fits);
    if matches!(outcome, Outcome::Exact | Outcome::Prefix) {
        let (packet, ..) = network_packet(&reply_payload(Carrier::Ethernet, None, &reply));
        let data = wire::ndn::Data::parse(&packet).expect("Data");
        let (found, stored) = model
            .get_key_value(&Name::from(data.name))
            .expect("is known");
        prop_assert!(fits((found, stored)), "{name} {flags} gave {found}");
        prop_assert_eq!(&packet, &stored.0);
        prop_assert_eq!(outcome == Outcome::Exact, found == name);
    } else {
        prop_assert_eq!(&reply, &request, "unchanged");
        let below = model
            .keys()
            .filter(|known| name.as_ref().is_prefix_of(&known.as_ref()))
            .count();
        // A walk of 64 steps passes at least 12 Data nodes with their prefixes.
        prop_assert!(
            !wanted || outcome == Outcome::Steps && below > 12,
            "{name} {flags}: {outcome:?}"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn finds_what_a_map_finds(steps in proptest::collection::vec(steps(), 1..120)) {
        let mut cache = Cache::new(Arrays::private(Sizes { data: 400, prefixes: 400 }).expect("memory"));
        let mut model = Model::new();
        let now = monotonic_ns();
        for step in steps {
            match step {
                Step::Insert(name, content, fresh) => {
                    let packet = data_of(
                        name.as_ref(),
                        &vec![content; 1 + usize::from(content)],
                        if fresh { HOUR_MS } else { 0 },
                    );
                    cache.insert(&packet, now).expect("has room");
                    model.insert(name, (packet, fresh));
                }
                Step::Remove(name) => {
                    prop_assert_eq!(cache.remove(&name.as_ref()), model.remove(&name).is_some());
                }
                Step::RemovePrefix(name) => {
                    let before = model.len();
                    model.retain(|known, _| !name.as_ref().is_prefix_of(&known.as_ref()));
                    prop_assert_eq!(cache.remove_prefix(&name.as_ref()), before - model.len());
                }
                Step::Clear => {
                    cache.clear();
                    model.clear();
                }
                Step::Ask(name, flags) => check_answer(&cache, &model, &name, flags)?,
            }
            prop_assert_eq!(cache.len(), model.len());
        }
    }

    #[test]
    fn a_small_cache_never_gives_wrong_bytes(steps in proptest::collection::vec(steps(), 1..200)) {
        let mut cache = Cache::new(Arrays::private(Sizes { data: 6, prefixes: 3 }).expect("memory"));
        let mut last = Model::new();
        for step in steps {
            match step {
                Step::Insert(name, content, _) => {
                    let packet = data_of(name.as_ref(), &[content], 0);
                    if cache.insert(&packet, 0).is_ok() {
                        last.insert(name, (packet, false));
                    }
                }
                Step::Remove(name) => {
                    cache.remove(&name.as_ref());
                    last.remove(&name);
                }
                Step::RemovePrefix(_) | Step::Clear => {}
                Step::Ask(name, flags) => {
                    let request = frame(Carrier::Ethernet, None, &interest_of(name.as_ref(), flags));
                    let (outcome, reply) = ask(&cache, &request);
                    if matches!(outcome, Outcome::Exact | Outcome::Prefix) {
                        let (packet, ..) = network_packet(&reply_payload(Carrier::Ethernet, None, &reply));
                        let data = wire::ndn::Data::parse(&packet).expect("Data");
                        prop_assert!(name.as_ref().is_prefix_of(&data.name));
                        prop_assert_eq!(&last[&Name::from(data.name)].0, &packet);
                    }
                }
            }
            prop_assert!(cache.len() <= 6);
        }
    }

    /// Whatever comes in is passed on unchanged, or it was a well-formed Interest of the one name that is there.
    #[test]
    fn any_bytes_are_safe(
        carrier in 0..3_usize, bytes in proptest::collection::vec(any::<u8>(), 1..80),
        flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..3), lp in any::<bool>(),
    ) {
        let name: Name = "/a/b".parse().expect("a name");
        let mut cache = Cache::new(Arrays::private(Sizes::of(4)).expect("memory"));
        cache.insert(&data_of(name.as_ref(), b"x", 0), 0).expect("has room");
        let noise = frame(CARRIERS[carrier], None, &bytes);
        let (outcome, after) = ask(&cache, &noise);
        prop_assert!(!matches!(outcome, Outcome::Exact | Outcome::Prefix) && after == noise);
        let asked = interest_of(name.as_ref(), "");
        let mut near = frame(CARRIERS[carrier], None, &if lp { in_lp(&asked, Some(b"t"), 0) } else { asked });
        for (at, value) in flips {
            let at = at % near.len();
            near[at] = value;
        }
        let (outcome, after) = ask(&cache, &near);
        if matches!(outcome, Outcome::Exact | Outcome::Prefix) {
            let found = after.windows(name.as_ref().value().len()).any(|part| part == name.as_ref().value());
            prop_assert!(found);
        } else {
            prop_assert_eq!(after, near);
        }
    }
}
