//! What the node does over kernel interfaces, it does over virtual devices of DPDK: the same tests.
#![cfg(feature = "dpdk")]

#[path = "kernel/bridging.rs"]
mod bridging;
#[path = "kernel/common.rs"]
#[expect(
    dead_code,
    reason = "some of it serves the tests over kernel interfaces"
)]
mod common;
#[path = "kernel/hosting.rs"]
mod hosting;
#[path = "kernel/routing.rs"]
mod routing;

use lab::peer::testpmd;
use lab::vdev::{Vdev, Vdevs};

use crate::bridging::bridges;
use crate::common::Driver;
use crate::hosting::hosts;
use crate::routing::routes;

/// Runs a body over a kind of device, if what it needs is there.
fn over(test: &str, prefix: &str, kind: Vdev, body: fn(&str, &str, Driver)) {
    if !lab::need::root(test) || kind.has_relay() && !lab::need::program(test, testpmd::PROGRAM) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let vdevs = Vdevs::new(kind, directory.path());
    body(test, prefix, Driver::Dpdk(vdevs));
}

#[test]
fn routes_over_net_af_packet() {
    over(
        "routes_over_net_af_packet",
        "tg-vrp",
        Vdev::AfPacket,
        routes,
    );
}

#[test]
fn routes_over_net_af_xdp() {
    over("routes_over_net_af_xdp", "tg-vrx", Vdev::AfXdp, routes);
}

#[test]
fn routes_over_net_tap() {
    over("routes_over_net_tap", "tg-vrt", Vdev::Tap, routes);
}

#[test]
fn routes_over_net_memif() {
    over("routes_over_net_memif", "tg-vrm", Vdev::Memif, routes);
}

#[test]
fn routes_over_net_vhost() {
    over("routes_over_net_vhost", "tg-vrv", Vdev::Vhost, routes);
}

#[test]
fn bridges_over_net_af_packet() {
    over(
        "bridges_over_net_af_packet",
        "tg-vbp",
        Vdev::AfPacket,
        bridges,
    );
}

#[test]
fn bridges_over_net_af_xdp() {
    over("bridges_over_net_af_xdp", "tg-vbx", Vdev::AfXdp, bridges);
}

#[test]
fn bridges_over_net_tap() {
    over("bridges_over_net_tap", "tg-vbt", Vdev::Tap, bridges);
}

#[test]
fn bridges_over_net_memif() {
    over("bridges_over_net_memif", "tg-vbm", Vdev::Memif, bridges);
}

#[test]
fn bridges_over_net_vhost() {
    over("bridges_over_net_vhost", "tg-vbv", Vdev::Vhost, bridges);
}

#[test]
fn hosts_over_net_af_packet() {
    over("hosts_over_net_af_packet", "tg-vhp", Vdev::AfPacket, hosts);
}

#[test]
fn hosts_over_net_af_xdp() {
    over("hosts_over_net_af_xdp", "tg-vhx", Vdev::AfXdp, hosts);
}

#[test]
fn hosts_over_net_tap() {
    over("hosts_over_net_tap", "tg-vht", Vdev::Tap, hosts);
}

#[test]
fn hosts_over_net_memif() {
    over("hosts_over_net_memif", "tg-vhm", Vdev::Memif, hosts);
}

#[test]
fn hosts_over_net_vhost() {
    over("hosts_over_net_vhost", "tg-vhv", Vdev::Vhost, hosts);
}
