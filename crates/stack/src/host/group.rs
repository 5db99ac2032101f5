//! Multicast groups of the host.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::DropReason;
use wire::ndp::solicited_node;

use crate::rx::Rx;
use crate::stack::Stack;

impl Stack {
    /// Says whether packets to a group are for this host.
    pub(crate) fn is_member(&self, group: IpAddr) -> bool {
        match group {
            IpAddr::V4(ip) => ip == Ipv4Addr::new(224, 0, 0, 1),
            IpAddr::V6(ip) => {
                ip == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)
                    || self
                        .addressing
                        .addresses
                        .iter()
                        .any(|address| match address.ip {
                            IpAddr::V6(ours) => solicited_node(ours) == ip,
                            IpAddr::V4(_) => false,
                        })
            }
        }
    }
    pub(crate) fn leave_unused(&mut self, _group: IpAddr, _now_ns: u64) {}
    pub(crate) fn receive_igmp(&mut self, _rx: &Rx<'_>, _now_ns: u64) -> Result<(), DropReason> {
        Err(DropReason::ProtocolUnknown)
    }
    pub(crate) fn receive_mld(
        &mut self,
        _rx: &Rx<'_>,
        _message: &[u8],
        _now_ns: u64,
    ) -> Result<(), DropReason> {
        Err(DropReason::ProtocolUnknown)
    }
}
