//! The classifier decides as the reference that tries one rule after another: verdicts, effects and counters.

mod common;
mod generate;

use filter::lang::{Options, load};
use filter::rules::{Interfaces, NoTrace, Ruleset};
use filter::verdict::{Changes, Effects};
use generate::{ruleset_text, spec};
use proptest::prelude::*;

fn compile(text: &str) -> Ruleset {
    let options = Options {
        interfaces: Interfaces::ethernet(&["eth0", "eth1", "eth2", "eth3", "lan"]),
        ..Options::default()
    };
    load(text, options).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn as_one_by_one(text in ruleset_text(), specs in prop::collection::vec(spec(), 1..40)) {
        let (fast, slow) = (compile(&text), compile(&text));
        let (mut fast_worker, mut slow_worker) = (fast.worker(0).unwrap(), slow.worker(0).unwrap());
        let base = fast.all_base_chains()[0].clone();
        for spec in &specs {
            let (mut fast_frame, mut slow_frame) = (spec.frame(), spec.frame());
            let (mut fast_effects, mut slow_effects) = (Effects::default(), Effects::default());
            let mut packet = spec.packet(&mut fast_frame, base.hook);
            let verdict = fast.evaluate(base.chain, &mut packet, &mut fast_effects, &mut fast_worker, &mut NoTrace);
            let (mark, ct) = (packet.mark, packet.ct);
            let mut packet = spec.packet(&mut slow_frame, base.hook);
            let wanted =
                slow.evaluate_one_by_one(base.chain, &mut packet, &mut slow_effects, &mut slow_worker, &mut NoTrace);
            prop_assert_eq!(verdict, wanted, "{}\n{:?}", text, spec);
            prop_assert_eq!((mark, ct), (packet.mark, packet.ct));
            // The reference may have looked at more.
            fast_effects.changes.remove(Changes::PER_PACKET);
            slow_effects.changes.remove(Changes::PER_PACKET);
            prop_assert_eq!(format!("{fast_effects:?}"), format!("{slow_effects:?}"));
            prop_assert_eq!(&fast_frame, &slow_frame);
        }
        for (at, rule) in fast.rules().iter().enumerate() {
            if let Some(counter) = rule.counter {
                prop_assert_eq!(fast.counter(counter), slow.counter(counter), "rule {} of\n{}", at, text);
            }
        }
    }
}
