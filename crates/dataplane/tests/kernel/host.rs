//! The sans-io host on a queue of a port, by each driver.

use crate::common::Driver;
use crate::hosting::hosts;

#[test]
fn hosts_by_af_packet() {
    hosts("hosts_by_af_packet", "tg-dpha", Driver::Kernel("af_packet"));
}

#[test]
fn hosts_by_af_xdp() {
    hosts("hosts_by_af_xdp", "tg-dphx", Driver::Kernel("af_xdp"));
}
