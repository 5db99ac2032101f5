//! IPv6 addresses of the host's own making: duplicate address detection, router discovery, SLAAC (RFC 4862, RFC 4861 6.3).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use wire::ndp::{HOP_LIMIT, Message, NdpOption, Repr, solicited_node};
use wire::{Addresses, MacAddr, icmpv6, ip_protocol};

use super::address::{Address, AddressState, Route};
use super::output::Outgoing;
use crate::stack::Stack;
use crate::tcp::table::Told;

/// Between a probe and the verdict, ns (RFC 4861 10: RetransTimer).
const PROBE_NS: u64 = 1_000_000_000;
/// Router solicitations, and the time between them, ns (RFC 4861 10).
const SOLICITATIONS: u8 = 3;
const SOLICIT_NS: u64 = 4_000_000_000;
/// No prefix may shorten an address's life below this, s (RFC 4862 5.5.3 e).
const LIFE_MIN_S: u64 = 7200;
/// Addresses that one router may make the host have.
const PREFIXES_MAX: usize = 8;

/// Router discovery.
#[derive(Debug, Default)]
pub(crate) struct Autoconf {
    pub(crate) is_on: bool,
    solicitations: u8,
    solicit_at: u64,
    /// When an address or a route changes its state, ns.
    lifetimes_at: u64,
}

impl Autoconf {
    pub(crate) fn deadline(&self) -> Option<u64> {
        [self.solicit_at, self.lifetimes_at]
            .into_iter()
            .filter(|at| *at > 0)
            .min()
    }
}

impl Stack {
    /// Begins with the link-local address.
    pub(crate) fn start_autoconf(&mut self, now_ns: u64) {
        self.autoconf.is_on = true;
        self.probe_address(self.mac.to_link_local(), 64, u64::MAX, u64::MAX, now_ns);
    }

    /// Adds an address that is used once nobody is found to have it (RFC 4862 5.4).
    pub(crate) fn probe_address(
        &mut self,
        ip: Ipv6Addr,
        prefix: u8,
        preferred_until: u64,
        valid_until: u64,
        now_ns: u64,
    ) {
        // Up to half a second of delay, so that hosts that start together do not talk together.
        let delay = self.tcp.secrets.random() % 500_000_000;
        let address = Address {
            preferred_until,
            valid_until,
            probe_at: now_ns + delay,
            ..Address::new(ip.into(), prefix, AddressState::Tentative)
        };
        if self.addressing.add_address(address) {
            self.join_solicited(ip, now_ns);
            self.plan_lifetimes();
        }
    }

    /// Somebody else has an address that we probed.
    pub(crate) fn found_duplicate(&mut self, target: Ipv6Addr) {
        if let Some(address) = self.addressing.get_mut(target.into()) {
            address.state = AddressState::Duplicate;
            address.probe_at = 0;
        }
        self.plan_lifetimes();
        self.told.push_back(Told::Addresses);
    }

    /// RFC 4861 6.3.4, RFC 4862 5.5.3.
    pub(crate) fn router_advertised(
        &mut self,
        router: Ipv6Addr,
        message: &Message<'_>,
        mac: MacAddr,
        now_ns: u64,
    ) {
        let Message::RouterAdvertisement {
            lifetime_s,
            options,
            ..
        } = *message
        else {
            return;
        };
        if !self.autoconf.is_on {
            return;
        }
        self.autoconf.solicit_at = 0;
        self.autoconf.solicitations = SOLICITATIONS;
        let mac = options.source_link_layer().unwrap_or(mac);
        let waiting = self
            .neighbours
            .learn(router.into(), mac, true, false, now_ns);
        self.release(waiting, mac);
        let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        if lifetime_s == 0 {
            self.addressing.remove_route(any, 0, Some(router.into()));
        } else {
            let valid_until = after(now_ns, lifetime_s.into());
            self.addressing.add_route(Route {
                network: any,
                prefix: 0,
                gateway: Some(router.into()),
                valid_until,
            });
        }
        for option in options.flatten() {
            match option {
                NdpOption::Mtu(mtu) if (1280..=u32::from(self.mtu)).contains(&mtu) => {
                    self.mtu = mtu as u16
                }
                NdpOption::Prefix {
                    prefix_length,
                    on_link,
                    autonomous,
                    valid_s,
                    preferred_s,
                    prefix,
                } => {
                    self.take_prefix(
                        (prefix, prefix_length),
                        (on_link, autonomous),
                        valid_s,
                        preferred_s,
                        now_ns,
                    );
                }
                _ => {}
            }
        }
        self.plan_lifetimes();
    }

    fn take_prefix(
        &mut self,
        (prefix, length): (Ipv6Addr, u8),
        (on_link, autonomous): (bool, bool),
        valid_s: u32,
        preferred_s: u32,
        now_ns: u64,
    ) {
        if prefix.is_unicast_link_local()
            || prefix.is_multicast()
            || length > 128
            || preferred_s > valid_s
        {
            return;
        }
        let network = Ipv6Addr::from_bits(
            prefix.to_bits() & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0),
        );
        if on_link {
            if valid_s == 0 {
                self.addressing.remove_route(network.into(), length, None);
            } else {
                let valid_until = after(now_ns, valid_s);
                self.addressing.add_route(Route {
                    network: network.into(),
                    prefix: length,
                    gateway: None,
                    valid_until,
                });
            }
        }
        if !autonomous || length != 64 {
            return;
        }
        let ours = self.interface_address(network, 0);
        if let Some(address) = self.addressing.get_mut(ours.into()) {
            let remaining_s = address.valid_until.saturating_sub(now_ns) / 1_000_000_000;
            let told_s = u64::from(valid_s);
            address.preferred_until = after(now_ns, preferred_s);
            // RFC 4862 5.5.3 e: a forged advertisement may not end an address.
            if told_s > LIFE_MIN_S || told_s > remaining_s {
                address.valid_until = after(now_ns, valid_s);
            } else if remaining_s > LIFE_MIN_S {
                address.valid_until = after(now_ns, LIFE_MIN_S as u32);
            }
            if address.state == AddressState::Deprecated && address.preferred_until > now_ns {
                address.state = AddressState::Preferred;
                self.addressing.epoch += 1;
            }
            return;
        }
        let made = self
            .addressing
            .addresses
            .iter()
            .filter(|address| address.valid_until != u64::MAX)
            .count();
        if valid_s > 0 && made < PREFIXES_MAX {
            self.probe_address(
                ours,
                64,
                after(now_ns, preferred_s),
                after(now_ns, valid_s),
                now_ns,
            );
        }
    }

    /// Makes an address whose lower half tells no MAC address and stays the same in its network (RFC 7217).
    fn interface_address(&self, network: Ipv6Addr, counter: u64) -> Ipv6Addr {
        let upper = (network.to_bits() >> 64) as u64;
        let id = self
            .tcp
            .secrets
            .interface_id(upper, self.mac.to_u64(), counter);
        Ipv6Addr::from_bits(u128::from(upper) << 64 | u128::from(id))
    }

    /// Probes, decides, solicits, expires.
    pub(crate) fn autoconf_timers(&mut self, now_ns: u64) {
        if self.autoconf.solicit_at > 0 && self.autoconf.solicit_at <= now_ns {
            self.solicit_routers(now_ns);
        }
        if self.autoconf.lifetimes_at == 0 || self.autoconf.lifetimes_at > now_ns {
            return;
        }
        let mut probes = Vec::new();
        let mut changed = false;
        for address in &mut self.addressing.addresses {
            let IpAddr::V6(ip) = address.ip else { continue };
            if address.state == AddressState::Tentative && address.probe_at <= now_ns {
                if address.probes == 0 {
                    address.probes = 1;
                    address.probe_at = now_ns + PROBE_NS;
                    probes.push(ip);
                } else {
                    address.state = AddressState::Preferred;
                    address.probe_at = 0;
                    changed = true;
                    if ip.is_unicast_link_local()
                        && self.autoconf.is_on
                        && self.autoconf.solicitations == 0
                    {
                        self.autoconf.solicit_at = now_ns + 1;
                    }
                }
            }
            if address.state == AddressState::Preferred && address.preferred_until <= now_ns {
                address.state = AddressState::Deprecated;
                changed = true;
            }
        }
        let gone: Vec<IpAddr> = self
            .addressing
            .addresses
            .iter()
            .filter(|address| address.valid_until <= now_ns)
            .map(|address| address.ip)
            .collect();
        for ip in gone {
            self.addressing.remove_address(ip);
            if let IpAddr::V6(ip) = ip {
                self.leave_solicited(ip, now_ns);
            }
            changed = true;
        }
        let routes = self.addressing.routes.len();
        self.addressing
            .routes
            .retain(|route| route.valid_until > now_ns);
        if changed || routes != self.addressing.routes.len() {
            self.addressing.epoch += 1;
            self.told.push_back(Told::Addresses);
        }
        for target in probes {
            let group = solicited_node(target);
            let repr = Repr::NeighbourSolicitation {
                target,
                source_mac: None,
            };
            self.send_ndp(
                &repr,
                Ipv6Addr::UNSPECIFIED,
                group,
                MacAddr::from_ipv6_multicast(group),
            );
        }
        self.plan_lifetimes();
    }

    fn solicit_routers(&mut self, now_ns: u64) {
        self.autoconf.solicitations += 1;
        self.autoconf.solicit_at = if self.autoconf.solicitations < SOLICITATIONS {
            now_ns + SOLICIT_NS
        } else {
            0
        };
        let source = self.mac.to_link_local();
        let destination = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
        // Type, code, checksum, reserved; source link-layer address option.
        let mut message = [0; 16];
        let [a, b, c, d, e, f] = self.mac.octets();
        if let Some(option) = message.last_chunk_mut::<8>() {
            *option = [1, 1, a, b, c, d, e, f];
        }
        let repr = icmpv6::Repr::Other {
            kind: wire::ndp::ROUTER_SOLICITATION,
            code: 0,
            rest: 0,
        };
        if repr.emit(&mut message, source, destination).is_ok() {
            let addresses = Addresses::V6 {
                source,
                destination,
            };
            let outgoing = Outgoing {
                addresses,
                protocol: ip_protocol::ICMPV6,
                ttl: HOP_LIMIT,
                tos: 0,
                router_alert: false,
            };
            self.queue_packet(
                &outgoing,
                MacAddr::from_ipv6_multicast(destination),
                &message,
            );
        }
    }

    /// Finds the next change of an address or a route.
    fn plan_lifetimes(&mut self) {
        let addresses = self.addressing.addresses.iter().flat_map(|address| {
            let probe =
                (address.state == AddressState::Tentative).then_some(address.probe_at.max(1));
            let preferred =
                (address.state == AddressState::Preferred).then_some(address.preferred_until);
            [probe, preferred, Some(address.valid_until)]
        });
        let routes = self
            .addressing
            .routes
            .iter()
            .map(|route| Some(route.valid_until));
        let next = addresses
            .chain(routes)
            .flatten()
            .filter(|at| *at != u64::MAX)
            .min();
        self.autoconf.lifetimes_at = next.unwrap_or(0);
    }
}

/// The end of a lifetime; all ones is for ever (RFC 4861 4.6.2).
fn after(now_ns: u64, seconds: u32) -> u64 {
    if seconds == u32::MAX {
        u64::MAX
    } else {
        now_ns.saturating_add(u64::from(seconds) * 1_000_000_000)
    }
}
