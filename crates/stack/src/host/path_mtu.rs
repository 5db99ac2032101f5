//! What ICMP told of paths (RFC 1191, RFC 8201): a bounded table; what was told is forgotten after ten minutes.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use crate::stack::Stack;

/// Destinations remembered.
const ENTRIES_MAX: usize = 256;
/// For how long, ns (RFC 1191 6.3).
const LIFE_NS: u64 = 600_000_000_000;
/// No less is believed: 552 as Linux for IPv4, the least MTU of IPv6.
const MIN_V4: u16 = 552;
const MIN_V6: u16 = 1280;

/// Paths that take less than the link.
#[derive(Debug, Default)]
pub(crate) struct PathMtus {
    entries: BTreeMap<IpAddr, (u16, u64)>,
}

impl PathMtus {
    /// Notes what a path takes; returns the value that counts.
    pub(crate) fn set(&mut self, destination: IpAddr, mtu: u16, now_ns: u64) -> u16 {
        let mtu = mtu.max(if destination.is_ipv4() {
            MIN_V4
        } else {
            MIN_V6
        });
        if self.entries.len() >= ENTRIES_MAX && !self.entries.contains_key(&destination) {
            let oldest = self
                .entries
                .iter()
                .min_by_key(|(_, (_, until))| *until)
                .map(|(ip, _)| *ip);
            oldest.and_then(|ip| self.entries.remove(&ip));
        }
        let slot = self.entries.entry(destination).or_insert((u16::MAX, 0));
        *slot = (slot.0.min(mtu), now_ns.saturating_add(LIFE_NS));
        slot.0
    }
    pub(crate) fn get(&self, destination: IpAddr) -> Option<u16> {
        self.entries.get(&destination).map(|(mtu, _)| *mtu)
    }
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.entries.values().map(|(_, until)| *until).min()
    }
    pub(crate) fn expire(&mut self, now_ns: u64) {
        self.entries.retain(|_, (_, until)| *until > now_ns);
    }
}

impl Stack {
    /// Returns the largest packet that the path to a destination takes, as far as is known.
    pub(crate) fn path_mtu(&self, destination: IpAddr) -> u16 {
        self.paths
            .get(destination)
            .map_or(self.mtu, |mtu| mtu.min(self.mtu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn falls_only_is_bounded_and_forgets() {
        let mut paths = PathMtus::default();
        let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(paths.set(ip, 1400, 0), 1400);
        assert_eq!(paths.set(ip, 1450, 0), 1400);
        assert_eq!(paths.set(ip, 68, 0), 552);
        assert_eq!(paths.set("2001:db8::1".parse().unwrap(), 68, 0), 1280);
        for i in 0..1000 {
            paths.set(Ipv4Addr::from_bits(i).into(), 1000, u64::from(i));
        }
        assert_eq!(paths.entries.len(), ENTRIES_MAX);
        paths.expire(LIFE_NS + 999);
        assert_eq!(paths.deadline(), None);
    }
}
