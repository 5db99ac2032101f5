//! IPv6 addresses of the host's own making (RFC 4862).

use core::net::{Ipv4Addr, Ipv6Addr};

use wire::MacAddr;
use wire::ndp::Message;

use crate::stack::Stack;

impl Stack {
    pub(crate) fn found_duplicate(&mut self, _target: Ipv6Addr) {}
    pub(crate) fn router_advertised(
        &mut self,
        _router: Ipv6Addr,
        _message: &Message<'_>,
        _mac: MacAddr,
        _now_ns: u64,
    ) {
    }
    pub(crate) fn awaits_lease(&self, _destination: Ipv4Addr) -> bool {
        false
    }
}
