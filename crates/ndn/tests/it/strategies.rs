//! The strategies, as NFD's behave.

use wire::DropReason;
use wire::ndn::lp::{LpHeader, NackReason};

use crate::support::{Bench, MS, data, interest};

#[test]
fn best_route_tries_the_cheapest_then_the_others() {
    let mut bench = Bench::new();
    for (at, cost) in [(0, 30), (1, 10), (2, 20)] {
        bench.route("/a", bench.net[at], cost);
    }
    let ask = |nonce| interest("/a", nonce, |_| {});
    assert_eq!(bench.input(bench.app, &ask(1))[0].face, bench.net[1]);
    // Suppressed for 10 ms, then 20, 40, ... up to 250.
    let mut nonce = 2;
    let mut faces = Vec::new();
    for interval in [10, 20, 40, 80, 160, 250, 250] {
        bench.advance((interval - 1) * MS);
        assert!(bench.input(bench.app, &ask(nonce)).is_empty(), "{interval}");
        bench.advance(MS);
        faces.push(bench.input(bench.app, &ask(nonce + 1))[0].face);
        nonce += 2;
    }
    let [n0, n1, n2] = bench.net;
    assert_eq!(faces, [n2, n0, n1, n2, n0, n1, n2]);
}

#[test]
fn best_route_does_not_send_back() {
    let mut bench = Bench::new();
    bench.route("/a", bench.net[0], 1);
    let sent = bench.input(bench.net[0], &interest("/a", 1, |_| {}));
    assert_eq!(
        (sent[0].face, sent[0].nack),
        (bench.net[0], Some(NackReason::NoRoute))
    );
    assert_eq!(sent[0].interest().nonce, Some(1_u32.to_be_bytes()));
    bench.advance(2 * MS);
    assert!(bench.forwarder.pit().is_empty());
    let dropped = bench.dropped(bench.app, &interest("/b", 2, |_| {}));
    assert_eq!(dropped, Some(DropReason::NdnNoRoute));
}

#[test]
fn nacks_go_down_when_no_upstream_is_left() {
    let mut bench = Bench::new();
    bench.route("/a", bench.net[0], 1);
    bench.route("/a", bench.net[1], 2);
    let header = LpHeader {
        pit_token: Some(b"t"),
        ..LpHeader::default()
    };
    let first = bench
        .input_with(bench.app, header, &interest("/a", 1, |_| {}))
        .0
        .sent
        .remove(0);
    bench.advance(10 * MS);
    let second = bench
        .input(bench.app2, &interest("/a", 2, |_| {}))
        .remove(0);
    assert_eq!(second.face, bench.net[1]);
    // A Nack with another nonce, or from a face that was not asked, is nothing.
    assert!(
        bench
            .nack(bench.net[2], &first, NackReason::NoRoute)
            .is_empty()
    );
    assert!(
        bench
            .nack(bench.net[1], &first, NackReason::NoRoute)
            .is_empty()
    );
    assert!(
        bench
            .nack(bench.net[0], &first, NackReason::NoRoute)
            .is_empty()
    );
    let mut sent = bench.nack(bench.net[1], &second, NackReason::Congestion);
    sent.sort_by_key(|sent| sent.face);
    let seen: Vec<_> = sent.iter().map(|sent| (sent.face, sent.nack)).collect();
    let reason = Some(NackReason::Congestion);
    assert_eq!(
        seen,
        [(bench.app, reason), (bench.app2, reason)],
        "the least severe reason"
    );
    assert_eq!(sent[0].token, b"t");
    assert_eq!(sent[0].interest().nonce, Some(1_u32.to_be_bytes()));
    assert_eq!(sent[1].interest().nonce, Some(2_u32.to_be_bytes()));
    assert!(bench.forwarder.pit().is_empty());
}

#[test]
fn multicast_sends_to_all_and_to_new_next_hops() {
    let mut bench = Bench::new();
    bench.strategy("/a", "multicast");
    for at in 0..2 {
        bench.route("/a", bench.net[at], 1);
    }
    let faces = |sent: Vec<crate::support::Sent>| sent.iter().map(|s| s.face).collect::<Vec<_>>();
    let [n0, n1, n2] = bench.net;
    assert_eq!(
        faces(bench.input(bench.app, &interest("/a/b", 1, |_| {}))),
        [n0, n1]
    );
    assert_eq!(faces(bench.route("/a/b", n2, 1)), [n2]);
    assert_eq!(faces(bench.route("/c", n2, 1)), []);
    // The strategy of /a/b is that of /a; its next hop is n2 alone now.
    bench.advance(10 * MS);
    assert_eq!(
        faces(bench.input(bench.app, &interest("/a/b", 2, |_| {}))),
        [n2]
    );
    assert_eq!(
        faces(bench.input(bench.app, &interest("/a/c", 3, |_| {}))),
        [n0, n1]
    );
    let down = bench.input(n1, &data("/a/c", 0));
    assert_eq!(faces(down), [bench.app]);
}

#[test]
fn random_uses_all_next_hops() {
    let mut bench = Bench::new();
    bench.strategy("/", "random/v=1");
    for face in bench.net {
        bench.route("/a", face, 1);
    }
    let mut counts = [0; 3];
    for n in 0..300 {
        let sent = bench.input(bench.app, &interest(&format!("/a/{n}"), n, |_| {}));
        let at = bench.net.iter().position(|&face| face == sent[0].face);
        counts[at.unwrap()] += 1;
    }
    assert!(counts.iter().all(|&count| count > 60), "{counts:?}");
}

#[test]
fn asf_prefers_fast_paths_and_leaves_dead_ones() {
    let mut bench = Bench::new();
    bench.strategy("/a", "asf/v=5/probing-interval~1000");
    let [slow, fast, dead] = bench.net;
    for (face, cost) in [(dead, 1), (slow, 2), (fast, 3)] {
        bench.route("/a", face, cost);
    }
    let mut first_hops = Vec::new();
    for n in 0..200_u32 {
        let name = format!("/a/{n}");
        let sent = bench.input(bench.app, &interest(&name, n, |_| {}));
        first_hops.push(sent[0].face);
        // A probe has a nonce of its own.
        if let [first, probe] = &sent[..] {
            assert_ne!(first.interest().nonce, probe.interest().nonce);
        }
        let asked: Vec<_> = sent.iter().map(|sent| sent.face).collect();
        bench.advance(5 * MS);
        if asked.contains(&fast) {
            bench.input(fast, &data(&name, 0));
        }
        bench.advance(45 * MS);
        if asked.contains(&slow) {
            bench.input(slow, &data(&name, 0));
        }
        bench.advance(350 * MS);
    }
    assert_eq!(first_hops[0], dead, "nothing is known at first");
    assert!(
        first_hops[100..].iter().all(|&face| face == fast),
        "{first_hops:?}"
    );
    bench.advance(10_000 * MS);
    assert!(bench.forwarder.pit().is_empty());
}

#[test]
fn asf_refuses_without_next_hops() {
    let mut bench = Bench::new();
    bench.strategy("/a", "asf");
    let sent = bench.input(bench.app, &interest("/a", 1, |_| {}));
    assert_eq!(sent[0].nack, Some(NackReason::NoRoute));
}

#[test]
fn self_learning_floods_learns_and_follows() {
    let mut bench = Bench::new();
    bench.strategy("/a", "self-learning");
    let sent = bench.input(bench.app, &interest("/a/1", 1, |_| {}));
    let faces: Vec<_> = sent.iter().map(|sent| sent.face).collect();
    assert_eq!(faces, bench.net);
    assert!(sent.iter().all(|sent| !sent.non_discovery));
    let announcement = data("/a", 0);
    let header = LpHeader {
        prefix_announcement: Some(&announcement),
        ..LpHeader::default()
    };
    let (kept, _) = bench.input_with(bench.net[1], header, &data("/a/1", 0));
    assert_eq!(kept.learned, [(bench.net[1], true)]);
    assert_eq!(kept.sent.len(), 1);
    // With the route, Interests follow it and say so.
    bench.route("/a", bench.net[1], 1);
    let sent = bench.input(bench.app, &interest("/a/2", 2, |_| {}));
    assert_eq!(
        (sent.len(), sent[0].face, sent[0].non_discovery),
        (1, bench.net[1], true)
    );
    let header = LpHeader {
        nack: Some(NackReason::NoRoute),
        ..LpHeader::default()
    };
    let (kept, _) = bench.input_with(bench.net[1], header, &sent[0].packet);
    assert_eq!(kept.learned, [(bench.net[1], false)]);
    // A non-discovery Interest is not flooded.
    let header = LpHeader {
        non_discovery: true,
        ..LpHeader::default()
    };
    bench.strategy("/b", "self-learning");
    let (kept, _) = bench.input_with(bench.net[0], header, &interest("/b", 3, |_| {}));
    assert_eq!(kept.sent[0].nack, Some(NackReason::NoRoute));
}

#[test]
fn a_strategy_is_chosen_per_prefix_at_run_time() {
    let mut bench = Bench::new();
    for face in bench.net {
        bench.route("/a", face, 1);
    }
    let count = |bench: &mut Bench, uri: &str, nonce| {
        let ask = interest(uri, nonce, |_| {});
        bench.input(bench.app, &ask).len()
    };
    assert_eq!(count(&mut bench, "/a/1", 1), 1);
    bench.strategy("/a", "multicast");
    bench.strategy("/a/b", "best-route");
    assert_eq!(count(&mut bench, "/a/2", 2), 3);
    assert_eq!(count(&mut bench, "/a/b/1", 3), 1);
    let a = crate::support::name("/a");
    assert_eq!(bench.forwarder.unset_strategy(a.as_ref()), Ok(true));
    assert_eq!(bench.forwarder.unset_strategy(a.as_ref()), Ok(false));
    assert_eq!(count(&mut bench, "/a/3", 4), 1);
    assert_eq!(bench.forwarder.choice().entries().len(), 2);
}
