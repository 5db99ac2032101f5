//! `/localhost` stays on this machine, `/localhop` goes one hop.

use wire::DropReason;

use crate::support::{Bench, data, interest};

#[test]
fn localhost() {
    let mut bench = Bench::new();
    bench.route("/localhost/app", bench.app2, 1);
    bench.route("/localhost/app", bench.net[0], 0);
    let ask = interest("/localhost/app/x", 1, |_| {});
    assert_eq!(
        bench.dropped(bench.net[1], &ask),
        Some(DropReason::NdnScope)
    );
    // The cheaper next hop is out of scope.
    let sent = bench.input(bench.app, &ask);
    assert_eq!(sent[0].face, bench.app2);
    let answer = data("/localhost/app/x", 0);
    assert_eq!(
        bench.dropped(bench.net[0], &answer),
        Some(DropReason::NdnScope)
    );
    assert_eq!(bench.input(bench.app2, &answer)[0].face, bench.app);
}

#[test]
fn localhop() {
    let mut bench = Bench::new();
    bench.route("/localhop/x", bench.net[0], 0);
    bench.route("/localhop/x", bench.app2, 1);
    // From an application it leaves this machine, from another machine it stays.
    let sent = bench.input(bench.app, &interest("/localhop/x", 1, |_| {}));
    assert_eq!(sent[0].face, bench.net[0]);
    let sent = bench.input(bench.net[1], &interest("/localhop/x/y", 2, |_| {}));
    assert_eq!(sent[0].face, bench.app2);
}

#[test]
fn management_is_reached_through_the_internal_face() {
    let mut bench = Bench::new();
    let sent = bench.input(
        bench.app,
        &interest("/localhost/nfd/status/general", 1, |_| {}),
    );
    assert_eq!(sent[0].face, ndn::FaceId::INTERNAL);
}
