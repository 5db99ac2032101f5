//! Multicast groups of the host, and what routers hear of them: IGMPv3 (RFC 3376) and MLDv2 (RFC 3810), as a host that
//! takes any source.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use wire::ndp::solicited_node;
use wire::{Addresses, DropReason, Instant, MacAddr, checksum, icmpv6, ip_protocol};

use super::output::Outgoing;
use crate::error::Error;
use crate::handle::UdpHandle;
use crate::rx::Rx;
use crate::stack::Stack;

/// The most groups of a host.
const GROUPS_MAX: usize = 64;
/// How often a change is told (RFC 3376 8.1), and how far apart, ns.
const ROBUSTNESS: u8 = 2;
const INTERVAL_NS: u64 = 1_000_000_000;
/// Types of IGMP messages.
const QUERY: u8 = 0x11;
const REPORT_V2: u8 = 0x16;
const LEAVE_V2: u8 = 0x17;
const REPORT_V3: u8 = 0x22;
/// Types of MLD messages.
const MLD_QUERY: u8 = 130;
const MLD_REPORT_V2: u8 = 143;
/// Types of group records (RFC 3376 4.2.12; the same in RFC 3810 5.2.12).
const MODE_IS_EXCLUDE: u8 = 2;
const TO_INCLUDE: u8 = 3;
const TO_EXCLUDE: u8 = 4;
/// For how long a router's old version counts, ns (RFC 3376 8.12).
const OLD_QUERIER_NS: u64 = 260_000_000_000;

/// A group that the host is in, or has just left.
#[derive(Clone, Copy, Debug)]
struct Group {
    ip: IpAddr,
    /// Sockets that are in it.
    members: u32,
    /// Changes still to be told.
    changes: u8,
    change_at: u64,
    /// When an answer to a query is due, ns.
    answer_at: u64,
}

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    list: Vec<Group>,
    /// Until when IGMPv2 is spoken, ns.
    old_querier_until: u64,
}

impl Groups {
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.list
            .iter()
            .flat_map(|group| {
                [
                    (group.changes > 0).then_some(group.change_at),
                    (group.answer_at > 0).then_some(group.answer_at),
                ]
            })
            .flatten()
            .min()
    }
    fn contains(&self, ip: IpAddr) -> bool {
        self.list
            .iter()
            .any(|group| group.ip == ip && group.members > 0)
    }
    /// Adds a member; false when there are too many groups.
    fn join(&mut self, ip: IpAddr, now_ns: u64) -> bool {
        if let Some(group) = self.list.iter_mut().find(|group| group.ip == ip) {
            group.members += 1;
            if group.members == 1 {
                (group.changes, group.change_at) = (ROBUSTNESS, now_ns);
            }
            return true;
        }
        if self.list.len() >= GROUPS_MAX {
            return false;
        }
        self.list.push(Group {
            ip,
            members: 1,
            changes: ROBUSTNESS,
            change_at: now_ns,
            answer_at: 0,
        });
        true
    }
    fn leave(&mut self, ip: IpAddr, now_ns: u64) {
        if let Some(group) = self
            .list
            .iter_mut()
            .find(|group| group.ip == ip && group.members > 0)
        {
            group.members -= 1;
            if group.members == 0 {
                (group.changes, group.change_at, group.answer_at) = (ROBUSTNESS, now_ns, 0);
            }
        }
    }
}

impl Stack {
    /// Joins a group with a UDP socket: datagrams to the group and the socket's port arrive.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if it is no group of the socket's family, [`Error::AddrInUse`] if the socket is in it,
    /// [`Error::OutOfMemory`] for too many groups, [`Error::NotFound`].
    pub fn udp_join(
        &mut self,
        now: Instant,
        handle: UdpHandle,
        group: IpAddr,
    ) -> Result<(), Error> {
        let local: SocketAddr = self.udp_local(handle)?;
        if !group.is_multicast() || group.is_ipv4() != local.is_ipv4() {
            return Err(Error::InvalidInput);
        }
        let groups = self.udp.groups_mut(handle).ok_or(Error::NotFound)?;
        if groups.contains(&group) {
            return Err(Error::AddrInUse);
        }
        if !self.groups.join(group, now.as_ns()) {
            return Err(Error::OutOfMemory);
        }
        if let Some(groups) = self.udp.groups_mut(handle) {
            groups.push(group);
        }
        Ok(())
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// [`Error::AddrNotAvailable`] if the socket is not in it, [`Error::NotFound`].
    pub fn udp_leave(
        &mut self,
        now: Instant,
        handle: UdpHandle,
        group: IpAddr,
    ) -> Result<(), Error> {
        let groups = self.udp.groups_mut(handle).ok_or(Error::NotFound)?;
        let at = groups
            .iter()
            .position(|member| *member == group)
            .ok_or(Error::AddrNotAvailable)?;
        groups.remove(at);
        self.groups.leave(group, now.as_ns());
        Ok(())
    }

    pub(crate) fn leave_unused(&mut self, group: IpAddr, now_ns: u64) {
        self.groups.leave(group, now_ns);
    }

    /// Joins the group that solicitations of an address go to.
    pub(crate) fn join_solicited(&mut self, address: Ipv6Addr, now_ns: u64) {
        self.groups.join(solicited_node(address).into(), now_ns);
    }
    pub(crate) fn leave_solicited(&mut self, address: Ipv6Addr, now_ns: u64) {
        self.groups.leave(solicited_node(address).into(), now_ns);
    }

    /// Says whether packets to a group are for this host.
    pub(crate) fn is_member(&self, group: IpAddr) -> bool {
        let all_hosts = match group {
            IpAddr::V4(ip) => ip == Ipv4Addr::new(224, 0, 0, 1),
            IpAddr::V6(ip) => ip == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        };
        all_hosts || self.groups.contains(group)
    }

    pub(crate) fn receive_igmp(&mut self, rx: &Rx<'_>, now_ns: u64) -> Result<(), DropReason> {
        let message = rx
            .frame
            .get(usize::from(rx.layout.payload)..usize::from(rx.layout.end))
            .unwrap_or_default();
        let Some(&[kind, code, _, _, a, b, c, d]) = message.first_chunk::<8>() else {
            return Err(DropReason::TransportTruncated);
        };
        if checksum::checksum(message) != 0 {
            return Err(DropReason::TransportChecksum);
        }
        if kind != QUERY {
            return Ok(()); // other hosts' reports: version 3 does not mind them
        }
        if message.len() < 12 {
            self.groups.old_querier_until = now_ns.saturating_add(OLD_QUERIER_NS);
        }
        // RFC 3376 4.1.1: tenths of a second, above 127 a floating point number.
        let tenths = match code {
            0 => 100,
            1..=127 => u64::from(code),
            _ => u64::from(code & 0xf | 0x10) << (u64::from(code >> 4 & 7) + 3),
        };
        let asked = Ipv4Addr::new(a, b, c, d);
        let asked = if asked.is_unspecified() {
            None
        } else {
            Some(IpAddr::V4(asked))
        };
        self.plan_answers(asked, true, tenths * 100, now_ns);
        Ok(())
    }

    pub(crate) fn receive_mld(
        &mut self,
        rx: &Rx<'_>,
        message: &[u8],
        now_ns: u64,
    ) -> Result<(), DropReason> {
        let Some((source, _)) = rx.layout.ipv6_addresses(rx.frame) else {
            return Err(DropReason::Ipv6Source);
        };
        if message.first() != Some(&MLD_QUERY) {
            return Ok(());
        }
        if !source.is_unicast_link_local() {
            return Err(DropReason::Ipv6Source);
        }
        let Some(group) = message.get(8..).and_then(|rest| rest.first_chunk::<16>()) else {
            return Err(DropReason::TransportTruncated);
        };
        let code = message
            .get(4..)
            .and_then(|rest| rest.first_chunk::<2>())
            .map_or(0, |code| u16::from_be_bytes(*code));
        let ms = if code < 0x8000 {
            u64::from(code)
        } else {
            u64::from(code & 0xfff | 0x1000) << (u64::from(code >> 12 & 7) + 3)
        };
        let asked = Ipv6Addr::from_octets(*group);
        let asked = if asked.is_unspecified() {
            None
        } else {
            Some(IpAddr::V6(asked))
        };
        self.plan_answers(asked, false, ms, now_ns);
        Ok(())
    }

    /// Plans the answers to a query, at random times up to `most_ms` from now (RFC 3376 5.2).
    fn plan_answers(&mut self, asked: Option<IpAddr>, is_v4: bool, most_ms: u64, now_ns: u64) {
        for at in 0..self.groups.list.len() {
            let delay = self.tcp.secrets.random() % (most_ms * 1_000_000 + 1);
            let Some(group) = self.groups.list.get_mut(at) else {
                return;
            };
            let is_asked = asked.is_none_or(|asked| asked == group.ip);
            if group.ip.is_ipv4() == is_v4 && group.members > 0 && is_asked {
                let due = now_ns + delay;
                group.answer_at = if group.answer_at == 0 {
                    due
                } else {
                    group.answer_at.min(due)
                };
            }
        }
    }

    /// Sends reports that are due.
    pub(crate) fn group_timers(&mut self, now_ns: u64) {
        let mut due: Vec<(IpAddr, u8)> = Vec::new();
        let mut random = self.tcp.secrets.random();
        for group in &mut self.groups.list {
            if group.changes > 0 && group.change_at <= now_ns {
                group.changes -= 1;
                random = random.rotate_left(17).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                group.change_at = now_ns + 1 + random % INTERVAL_NS;
                due.push((
                    group.ip,
                    if group.members > 0 {
                        TO_EXCLUDE
                    } else {
                        TO_INCLUDE
                    },
                ));
            }
            if group.answer_at > 0 && group.answer_at <= now_ns {
                group.answer_at = 0;
                due.push((group.ip, MODE_IS_EXCLUDE));
            }
        }
        self.groups
            .list
            .retain(|group| group.members > 0 || group.changes > 0);
        for (ip, record) in due {
            match ip {
                IpAddr::V4(ip) => self.report_igmp(ip, record, now_ns),
                IpAddr::V6(ip) => self.report_mld(ip, record),
            }
        }
    }

    fn report_igmp(&mut self, group: Ipv4Addr, record: u8, now_ns: u64) {
        let source = self
            .addressing
            .addresses
            .iter()
            .find_map(|address| match address.ip {
                IpAddr::V4(ip) if address.is_usable() => Some(ip),
                _ => None,
            });
        let source = source.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let mut message = Vec::new();
        let destination = if now_ns < self.groups.old_querier_until {
            let kind = if record == TO_INCLUDE {
                LEAVE_V2
            } else {
                REPORT_V2
            };
            message.extend_from_slice(&[kind, 0, 0, 0]);
            message.extend_from_slice(&group.octets());
            if kind == LEAVE_V2 {
                Ipv4Addr::new(224, 0, 0, 2)
            } else {
                group
            }
        } else {
            message.extend_from_slice(&[REPORT_V3, 0, 0, 0, 0, 0, 0, 1, record, 0, 0, 0]);
            message.extend_from_slice(&group.octets());
            Ipv4Addr::new(224, 0, 0, 22)
        };
        let sum = checksum::checksum(&message).to_be_bytes();
        if let Some(field) = message.get_mut(2..4) {
            field.copy_from_slice(&sum);
        }
        let addresses = Addresses::V4 {
            source,
            destination,
        };
        let outgoing = Outgoing {
            addresses,
            protocol: ip_protocol::IGMP,
            ttl: 1,
            tos: 0xc0,
            router_alert: true,
        };
        self.queue_packet(
            &outgoing,
            MacAddr::from_ipv4_multicast(destination),
            &message,
        );
    }

    fn report_mld(&mut self, group: Ipv6Addr, record: u8) {
        // RFC 3810 5.2.13: from the link-local address, or from none while that is tentative.
        let source = self
            .addressing
            .addresses
            .iter()
            .find_map(|address| match address.ip {
                IpAddr::V6(ip) if address.is_usable() && ip.is_unicast_link_local() => Some(ip),
                _ => None,
            });
        let source = source.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let destination = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
        let mut message = [0; 28];
        if let Some((head, rest)) = message.split_at_mut_checked(12)
            && let Some(record_at) = head.get_mut(8)
        {
            *record_at = record;
            rest.copy_from_slice(&group.octets());
        }
        let repr = icmpv6::Repr::Other {
            kind: MLD_REPORT_V2,
            code: 0,
            rest: 1,
        };
        if repr.emit(&mut message, source, destination).is_ok() {
            let addresses = Addresses::V6 {
                source,
                destination,
            };
            let outgoing = Outgoing {
                addresses,
                protocol: ip_protocol::ICMPV6,
                ttl: 1,
                tos: 0,
                router_alert: true,
            };
            self.queue_packet(
                &outgoing,
                MacAddr::from_ipv6_multicast(destination),
                &message,
            );
        }
    }
}
