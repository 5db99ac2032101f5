//! A learning bridge, frame by frame.

use crate::rig::Rig;

const BRIDGE: &str = r#"
[[port]]
name = "a"
driver = "mem"
[[port]]
name = "b"
driver = "mem"
[[port]]
name = "c"
driver = "mem"
[[bridge]]
name = "lan"
ports = ["a", "b", "c"]
ageing_s = 300
"#;

const ANNA: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const BERT: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 9];
const SPANNING_TREE: [u8; 6] = [1, 0x80, 0xc2, 0, 0, 0];

/// A frame with a VLAN tag and a payload that is no protocol: a bridge looks at neither.
fn frame(to: [u8; 6], from: [u8; 6], bytes: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from[..], &[0x81, 0, 0, 7, 0x88, 0xb5]].concat();
    frame.resize(bytes, 0x5a);
    frame
}

#[test]
fn stations_are_learnt_flooded_to_and_found() {
    let mut rig = Rig::new(BRIDGE);
    let unknown = frame(BERT, ANNA, 60);
    let sent = rig.exchange(0, &unknown);
    assert_eq!(
        sent,
        [vec![], vec![unknown.clone()], vec![unknown]],
        "unknown: flooded, not back"
    );
    let answer = frame(ANNA, BERT, 60);
    assert_eq!(
        rig.exchange(1, &answer),
        [vec![answer], vec![], vec![]],
        "known: one port"
    );
    let group = frame(GROUP, ANNA, 60);
    assert_eq!(
        rig.exchange(0, &group),
        [vec![], vec![group.clone()], vec![group]]
    );
    // Anna moves to port c: what is for her follows.
    rig.exchange(2, &frame(BERT, ANNA, 60));
    let answer = frame(ANNA, BERT, 60);
    assert_eq!(rig.exchange(1, &answer), [vec![], vec![], vec![answer]]);
    assert_eq!(rig.shared.stations[0].moves(), 1);
    // Silent for longer than the ageing time: unknown again.
    rig.wait(302);
    let late = frame(ANNA, GROUP.map(|b| b & 0xfe), 60);
    let sent = rig.exchange(1, &late);
    assert_eq!((sent[0].len(), sent[2].len()), (1, 1));
    rig.finish();
}

#[test]
fn frames_that_a_bridge_keeps_to_itself() {
    let mut rig = Rig::new(BRIDGE);
    rig.exchange(0, &frame(GROUP, ANNA, 60));
    let nothing = [vec![], vec![], vec![]] as [Vec<Vec<u8>>; 3];
    for bad in [
        frame(SPANNING_TREE, BERT, 60),
        frame(ANNA, BERT, 60), // Anna is on the port that it comes from
        frame(ANNA, GROUP, 60),
        vec![1, 2, 3],
    ] {
        assert_eq!(rig.exchange(0, &bad), nothing);
    }
    let long = frame(ANNA, BERT, 1519);
    assert_eq!(rig.exchange(1, &long), nothing);
    let longest = frame(ANNA, BERT, 1518);
    assert_eq!(rig.exchange(1, &longest)[0], [longest]);
    let mut drops = rig.drops();
    drops.sort_unstable();
    let wanted = [
        ("bridge_reserved", 1),
        ("bridge_same_port", 1),
        ("ethernet_source", 1),
        ("ethernet_truncated", 1),
        ("frame_too_long", 1),
    ];
    assert_eq!(drops, wanted);
    rig.finish();
}
