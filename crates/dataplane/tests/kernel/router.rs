//! The node as a router between real kernels, by each driver.

use crate::common::{Bench, Driver, line, router, tcp_transfer};
use crate::routing::routes;

#[test]
fn routes_by_af_packet() {
    let driver = Driver::Kernel("af_packet");
    routes("routes_by_af_packet", "tg-dpra", driver);
}

#[test]
fn routes_by_af_xdp() {
    let driver = Driver::Kernel("af_xdp");
    routes("routes_by_af_xdp", "tg-dprx", driver);
}

/// Two workers, and as many queues as the driver gives: TCP streams and echo requests still pass whole.
#[test]
fn two_workers_route_together() {
    let test = "two_workers_route_together";
    let cpus = io::cpu::allowed().unwrap_or_default();
    if !lab::need::root(test) || !lab::need::need(test, "two CPUs", cpus.len() > 1) {
        return;
    }
    let line = line("tg-dp2w");
    let node = format!("[node]\ncpus = [{}, {}]\n", cpus[0], cpus[1]);
    let config = node + &router(&line, &Driver::Kernel("af_xdp"), "", "");
    let bench = Bench::start(line, &config);
    bench.pings("10.2.0.2", 3, &[], "ttl=63");
    bench.pings("fd02::2", 3, &[], "ttl=63");
    for far in ["10.2.0.2", "fd02::2"] {
        let (left, right) = (&bench.line.left.namespace, &bench.line.right.namespace);
        tcp_transfer(left, right, far.parse().expect("an address"), 2 << 20);
    }
    let stats = bench.node.stats();
    assert_eq!(stats.workers.len(), 2);
    let handed: u64 = stats.workers.iter().map(|w| w.handoff_in_pkts).sum();
    assert!(
        handed > 0,
        "the veth pair has one queue, so that flows were spread: {:?}",
        stats.workers
    );
    bench.finish();
}
