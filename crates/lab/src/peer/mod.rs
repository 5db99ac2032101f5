//! What else can stand where the node stands: the kernel as router or bridge, a libpcap forwarder, DPDK's
//! testpmd.

#[expect(unsafe_code, reason = "libpcap is a C library, loaded when it is used")]
pub mod libpcap;
pub mod testpmd;

use crate::netns::NetnsError;
use crate::topology::Line;

/// Makes the kernel route IPv4 between the two sides of a line, with permanent neighbours.
///
/// # Errors
/// The kernel refuses a setting.
pub fn route_by_kernel(line: &Line) -> Result<(), NetnsError> {
    let mut links = line.node.links()?;
    for side in [&line.left, &line.right] {
        links.add_address(&side.node_device, side.node_address(), 24)?;
        links.add_neighbour(&side.node_device, side.address(), side.mac)?;
        let filter = format!("net/ipv4/conf/{}/rp_filter", side.node_device);
        line.node.set_sysctl(&filter, "0")?;
    }
    line.node.set_sysctl("net/ipv4/conf/all/rp_filter", "0")?;
    line.node.set_sysctl("net/ipv4/ip_forward", "1")
}

/// Makes the kernel bridge the two sides of a line.
///
/// # Errors
/// The kernel refuses a setting.
pub fn bridge_by_kernel(line: &Line) -> Result<(), NetnsError> {
    let mut links = line.node.links()?;
    links.add_bridge("bridge")?;
    for side in [&line.left, &line.right] {
        links.set_bridge(&side.node_device, "bridge")?;
    }
    links.set_up("bridge")
}
