//! An impaired link between two ports, frame by frame.

use std::time::Duration;

use crate::rig::Rig;

/// Two ports joined by a link with these keys.
fn link(keys: &str) -> String {
    format!(
        "[[port]]\nname = \"a\"\ndriver = \"mem\"\n[[port]]\nname = \"b\"\ndriver = \"mem\"\n\
         [[link]]\nname = \"bad\"\nports = [\"a\", \"b\"]\n{keys}\n"
    )
}

/// A frame that is nothing but a number; a link does not look into frames.
fn frame(number: u64) -> Vec<u8> {
    let mut frame = vec![0x5a; 52];
    frame.extend(number.to_be_bytes());
    frame
}

#[test]
fn a_frame_arrives_unchanged_after_the_delay_both_ways() {
    let mut rig = Rig::new(&link("delay_us = 2000"));
    for (from, to) in [(0, 1), (1, 0)] {
        let bytes = frame(from as u64);
        assert_eq!(
            rig.exchange(from, &bytes),
            [vec![], vec![]] as [Vec<Vec<u8>>; 2]
        );
        rig.now = rig.now + Duration::from_micros(1999);
        rig.run();
        assert!(rig.received(to).is_empty(), "not before its time");
        rig.now = rig.now + Duration::from_micros(1);
        rig.run();
        assert_eq!(rig.received(to), [bytes]);
        assert!(rig.received(from).is_empty());
    }
    rig.finish();
}

#[test]
fn every_frame_is_delivered_or_counted() {
    let keys = "drop_ppm = 100000\nduplicate_ppm = 50000\ncorrupt_ppm = 20000\nmtu = 68\nseed = 3";
    let mut rig = Rig::new(&link(keys));
    let mut received = 0;
    for number in 0..2000 {
        let [a, b] = &rig.exchange(0, &frame(number))[..] else {
            panic!("two ports");
        };
        assert!(a.is_empty());
        received += b.len() as u64;
    }
    // 14 bytes of header and 69 of payload: one too many.
    assert!(rig.exchange(0, &[0; 83]).iter().all(Vec::is_empty));
    assert_eq!(rig.exchange(0, &[0; 82])[0].len(), 0);
    let [_, to_b] = &*rig.shared.links[0];
    let stats = to_b.stats();
    assert_eq!(stats.offered, 2002);
    assert_eq!(stats.too_long, 1);
    assert!((150..250).contains(&stats.dropped), "{stats:?}");
    assert!((60..120).contains(&stats.duplicated), "{stats:?}");
    assert!((20..60).contains(&stats.corrupted), "{stats:?}");
    let through = stats.offered - stats.dropped - stats.too_long + stats.duplicated;
    assert_eq!(stats.delivered, through);
    assert!(
        (through - received) <= 2,
        "all but the last frame were looked at"
    );
    let mut drops = rig.drops();
    drops.sort_unstable();
    let wanted = [("fault_injected", stats.dropped), ("frame_too_long", 1)];
    assert_eq!(drops, wanted);
}

#[test]
fn frames_on_a_link_are_dropped_and_counted_when_the_worker_ends() {
    let mut rig = Rig::new(&link("delay_us = 1000000\nqueue_pkts = 10"));
    for number in 0..15 {
        rig.send(0, &frame(number));
    }
    rig.run();
    assert_eq!(rig.shared.links[0][1].in_flight(), 10);
    assert_eq!(rig.drops(), [("link_queue_full", 5)]);
    rig.end();
    assert_eq!(rig.shared.links[0][1].in_flight(), 0);
    assert_eq!(rig.drops(), [("link_queue_full", 5), ("shutdown", 10)]);
}
