//! The node as a bridge between the stacks of two kernels, by each driver.

use crate::bridging::bridges;
use crate::common::Driver;

#[test]
fn bridges_by_af_packet() {
    let driver = Driver::Kernel("af_packet");
    bridges("bridges_by_af_packet", "tg-dpba", driver);
}

#[test]
fn bridges_by_af_xdp() {
    let driver = Driver::Kernel("af_xdp");
    bridges("bridges_by_af_xdp", "tg-dpbx", driver);
}
