//! The DHCPv4 client (RFC 2131, options of RFC 2132).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use wire::{Addresses, DropReason, MacAddr, ip_protocol, udp};

use super::address::{Address, AddressState, Route};
use super::output::Outgoing;
use crate::stack::Stack;
use crate::tcp::table::Told;

const SERVER_PORT: u16 = 67;
/// The port that answers come to.
pub(crate) const CLIENT_PORT: u16 = 68;
const MAGIC: [u8; 4] = [99, 130, 83, 99];
/// Length of the fixed part, magic included.
const FIXED_BYTES: usize = 240;
const S_NS: u64 = 1_000_000_000;
/// Requests for one offer before the client looks for another.
const REQUESTS_MAX: u32 = 4;
const DNS_MAX: usize = 3;

const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;
const NAK: u8 = 6;
const RELEASE: u8 = 7;

/// What a server gave the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// Length of the prefix that is on the link, bits.
    pub prefix: u8,
    /// The default router.
    pub router: Option<Ipv4Addr>,
    /// Name servers; unspecified where there are fewer.
    pub name_servers: [Ipv4Addr; DNS_MAX],
    /// The server.
    pub server: Ipv4Addr,
    /// Seconds for which the address may be used.
    pub seconds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Selecting,
    Requesting(Lease),
    Bound(Lease),
    Renewing(Lease),
    Rebinding(Lease),
}

/// The client's state (RFC 2131 4.4).
#[derive(Debug)]
pub(crate) struct Dhcp {
    stage: Stage,
    transaction: u32,
    tries: u32,
    /// When to act next, ns.
    at: u64,
    began_at: u64,
    rebind_at: u64,
    ends_at: u64,
}

impl Dhcp {
    pub(crate) const fn new(now_ns: u64) -> Self {
        Self {
            stage: Stage::Selecting,
            transaction: 0,
            tries: 0,
            at: now_ns,
            began_at: now_ns,
            rebind_at: 0,
            ends_at: 0,
        }
    }
    pub(crate) const fn deadline(&self) -> u64 {
        self.at
    }
    const fn lease(&self) -> Option<Lease> {
        match self.stage {
            Stage::Bound(lease) | Stage::Renewing(lease) | Stage::Rebinding(lease) => Some(lease),
            Stage::Selecting | Stage::Requesting(_) => None,
        }
    }
}

/// The options of a server's message that matter.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    kind: u8,
    mask: Option<Ipv4Addr>,
    router: Option<Ipv4Addr>,
    name_servers: [Option<Ipv4Addr>; DNS_MAX],
    server: Option<Ipv4Addr>,
    lease_s: Option<u32>,
    renew_s: Option<u32>,
    rebind_s: Option<u32>,
}

impl Options {
    fn parse(mut rest: &[u8]) -> Self {
        let mut this = Self::default();
        while let [kind, tail @ ..] = rest {
            let (kind, tail) = (*kind, tail);
            match kind {
                0 => {
                    rest = tail;
                    continue;
                }
                255 => break,
                _ => {}
            }
            let Some((length, tail)) = tail.split_first() else {
                break;
            };
            let Some((data, tail)) = tail.split_at_checked(usize::from(*length)) else {
                break;
            };
            rest = tail;
            let number = data
                .first_chunk::<4>()
                .map(|bytes| u32::from_be_bytes(*bytes));
            let address = number.map(Ipv4Addr::from_bits);
            match kind {
                1 => this.mask = address,
                3 => this.router = address,
                6 => {
                    let (servers, _) = data.as_chunks::<4>();
                    for (to, from) in this.name_servers.iter_mut().zip(servers) {
                        *to = Some(Ipv4Addr::from_octets(*from));
                    }
                }
                51 => this.lease_s = number,
                53 => this.kind = data.first().copied().unwrap_or(0),
                54 => this.server = address,
                58 => this.renew_s = number,
                59 => this.rebind_s = number,
                _ => {}
            }
        }
        this
    }
}

impl Stack {
    /// Returns what DHCP gave the host, while it holds.
    pub fn dhcp_lease(&self) -> Option<Lease> {
        self.dhcp.as_ref()?.lease()
    }

    /// Gives the lease back and asks no more (RFC 2131 4.4.6).
    pub fn dhcp_stop(&mut self) {
        let Some(lease) = self.dhcp_lease() else {
            self.dhcp = None;
            return;
        };
        self.send_dhcp(RELEASE, Some(lease), lease.address, 0);
        self.dhcp = None;
        self.drop_lease(lease);
    }

    /// Says whether a packet to an address that the host does not have yet may be the server's answer.
    pub(crate) fn awaits_lease(&self, destination: Ipv4Addr) -> bool {
        self.dhcp.as_ref().is_some_and(|dhcp| match dhcp.stage {
            Stage::Selecting => true,
            Stage::Requesting(lease) => lease.address == destination,
            _ => false,
        })
    }

    /// Takes a datagram to the client's port; false if the client is not on.
    pub(crate) fn receive_dhcp(&mut self, data: &[u8], now_ns: u64) -> Result<bool, DropReason> {
        let Some(dhcp) = &mut self.dhcp else {
            return Ok(false);
        };
        let Some((fixed, options)) = data.split_first_chunk::<FIXED_BYTES>() else {
            return Err(DropReason::TransportTruncated);
        };
        let transaction = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
        let is_ours =
            fixed[0] == 2 && transaction == dhcp.transaction && fixed[28..34] == self.mac.octets();
        if !is_ours || fixed[236..] != MAGIC {
            return Ok(true);
        }
        let options = Options::parse(options);
        let address = Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]);
        match (options.kind, dhcp.stage) {
            (OFFER, Stage::Selecting) => {
                if let Some(lease) = lease_of(address, &options) {
                    dhcp.stage = Stage::Requesting(lease);
                    dhcp.tries = 0;
                    dhcp.at = now_ns;
                }
            }
            (ACK, Stage::Requesting(_) | Stage::Renewing(_) | Stage::Rebinding(_)) => {
                if let Some(lease) = lease_of(address, &options) {
                    self.take_lease(lease, &options, now_ns);
                }
            }
            (NAK, Stage::Requesting(_) | Stage::Renewing(_) | Stage::Rebinding(_)) => {
                self.restart_dhcp(now_ns)
            }
            _ => {}
        }
        Ok(true)
    }

    fn take_lease(&mut self, lease: Lease, options: &Options, now_ns: u64) {
        if let Some(old) = self.dhcp_lease()
            && old != lease
        {
            self.drop_lease(old);
        }
        self.addressing.add_address(Address::new(
            lease.address.into(),
            lease.prefix,
            AddressState::Preferred,
        ));
        if let Some(router) = lease.router {
            let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
            self.addressing.add_route(Route {
                network: any,
                prefix: 0,
                gateway: Some(router.into()),
                valid_until: u64::MAX,
            });
        }
        let life = u64::from(lease.seconds);
        // 4.4.5: half, and seven eighths, if the server does not say.
        let renew = options.renew_s.map_or(life / 2, u64::from).min(life);
        let rebind = options
            .rebind_s
            .map_or(life * 7 / 8, u64::from)
            .clamp(renew, life.max(renew));
        if let Some(dhcp) = &mut self.dhcp {
            dhcp.stage = Stage::Bound(lease);
            dhcp.tries = 0;
            let is_forever = lease.seconds == u32::MAX;
            dhcp.at = if is_forever {
                u64::MAX
            } else {
                now_ns + renew * S_NS
            };
            dhcp.rebind_at = now_ns + rebind * S_NS;
            dhcp.ends_at = now_ns + life * S_NS;
        }
        self.told.push_back(Told::Addresses);
        // Tell the link, so that old entries for the address go (RFC 5227 3).
        let announce = wire::arp::Repr::request(self.mac, lease.address, lease.address);
        self.send_arp(&announce, MacAddr::BROADCAST);
    }

    fn drop_lease(&mut self, lease: Lease) {
        self.addressing.remove_address(lease.address.into());
        if let Some(router) = lease.router {
            self.addressing
                .remove_route(Ipv4Addr::UNSPECIFIED.into(), 0, Some(router.into()));
        }
        self.told.push_back(Told::Addresses);
    }

    fn restart_dhcp(&mut self, now_ns: u64) {
        if let Some(lease) = self.dhcp_lease() {
            self.drop_lease(lease);
        }
        self.dhcp = Some(Dhcp::new(now_ns + S_NS));
    }

    /// Sends what is due, and ends a lease that was not renewed.
    pub(crate) fn dhcp_timer(&mut self, now_ns: u64) {
        let random = self.tcp.secrets.random();
        let Some(dhcp) = &mut self.dhcp else { return };
        if dhcp.at > now_ns {
            return;
        }
        match dhcp.stage {
            Stage::Selecting => {
                if dhcp.tries == 0 {
                    dhcp.transaction = random as u32;
                    dhcp.began_at = now_ns;
                }
                dhcp.wait(now_ns, random);
                self.send_dhcp(DISCOVER, None, Ipv4Addr::UNSPECIFIED, now_ns);
            }
            Stage::Requesting(lease) => {
                if dhcp.tries >= REQUESTS_MAX {
                    self.restart_dhcp(now_ns);
                    return;
                }
                dhcp.wait(now_ns, random);
                self.send_dhcp(REQUEST, Some(lease), Ipv4Addr::UNSPECIFIED, now_ns);
            }
            Stage::Bound(lease) => {
                dhcp.stage = Stage::Renewing(lease);
                dhcp.transaction = random as u32;
                self.dhcp_timer(now_ns);
            }
            Stage::Renewing(lease) if now_ns >= dhcp.rebind_at => {
                dhcp.stage = Stage::Rebinding(lease);
                self.dhcp_timer(now_ns);
            }
            Stage::Rebinding(_) if now_ns >= dhcp.ends_at => self.restart_dhcp(now_ns),
            Stage::Renewing(lease) | Stage::Rebinding(lease) => {
                // 4.4.5: half of what is left, a minute at least.
                let end = if matches!(dhcp.stage, Stage::Renewing(_)) {
                    dhcp.rebind_at
                } else {
                    dhcp.ends_at
                };
                dhcp.at = (now_ns + (end.saturating_sub(now_ns) / 2).max(60 * S_NS)).min(end);
                self.send_dhcp(REQUEST, Some(lease), lease.address, now_ns);
            }
        }
    }

    fn send_dhcp(&mut self, kind: u8, lease: Option<Lease>, ours: Ipv4Addr, now_ns: u64) {
        let Some(dhcp) = &self.dhcp else { return };
        let unicast = matches!(dhcp.stage, Stage::Renewing(_)) || kind == RELEASE;
        let seconds = (now_ns.saturating_sub(dhcp.began_at) / S_NS).min(u64::from(u16::MAX)) as u16;
        let mut datagram = Vec::with_capacity(300 + udp::HEADER_BYTES);
        datagram.resize(udp::HEADER_BYTES, 0);
        datagram.extend_from_slice(&[1, 1, 6, 0]);
        datagram.extend_from_slice(&dhcp.transaction.to_be_bytes());
        datagram.extend_from_slice(&seconds.to_be_bytes());
        // The broadcast bit, while we have no address to be answered at (4.1).
        datagram.extend_from_slice(if ours.is_unspecified() {
            &[0x80, 0]
        } else {
            &[0, 0]
        });
        datagram.extend_from_slice(&ours.octets());
        datagram.resize(udp::HEADER_BYTES + 28, 0);
        datagram.extend_from_slice(&self.mac.octets());
        datagram.resize(udp::HEADER_BYTES + FIXED_BYTES - 4, 0);
        datagram.extend_from_slice(&MAGIC);
        datagram.extend_from_slice(&[53, 1, kind, 61, 7, 1]);
        datagram.extend_from_slice(&self.mac.octets());
        if let Some(lease) = lease {
            if ours.is_unspecified() {
                datagram.extend_from_slice(&[50, 4]);
                datagram.extend_from_slice(&lease.address.octets());
            }
            if ours.is_unspecified() || kind == RELEASE {
                datagram.extend_from_slice(&[54, 4]);
                datagram.extend_from_slice(&lease.server.octets());
            }
        }
        if kind != RELEASE {
            datagram.extend_from_slice(&[55, 6, 1, 3, 6, 51, 58, 59]);
        }
        datagram.push(255);
        // BOOTP relays want 300 bytes at least (RFC 1542 2.1).
        let bytes = datagram.len().max(300 + udp::HEADER_BYTES);
        datagram.resize(bytes, 0);
        let destination = lease
            .filter(|_| unicast)
            .map_or(Ipv4Addr::BROADCAST, |lease| lease.server);
        let addresses = Addresses::V4 {
            source: ours,
            destination,
        };
        let ports = udp::Repr {
            source_port: CLIENT_PORT,
            destination_port: SERVER_PORT,
        };
        if ports.emit(&mut datagram, &addresses).is_err() {
            return;
        }
        let outgoing = Outgoing {
            addresses,
            protocol: ip_protocol::UDP,
            ttl: 64,
            tos: 0,
            router_alert: false,
        };
        if unicast {
            self.queue_routed(&outgoing, &datagram, now_ns);
        } else {
            self.queue_packet(&outgoing, MacAddr::BROADCAST, &datagram);
        }
    }
}

impl Dhcp {
    /// Waits 4, 8, 16, 32, 64 s, each give or take one (RFC 2131 4.1).
    fn wait(&mut self, now_ns: u64, random: u64) {
        let seconds = 4 << self.tries.min(4);
        self.tries += 1;
        self.at = now_ns + (seconds - 1) * S_NS + random % (2 * S_NS);
    }
}

/// Makes a lease of an offer or acknowledgement; `None` if it lacks what a lease needs.
fn lease_of(address: Ipv4Addr, options: &Options) -> Option<Lease> {
    if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
        return None;
    }
    let mask = options.mask.map_or(0xffff_ff00, Ipv4Addr::to_bits);
    Some(Lease {
        address,
        prefix: mask.leading_ones() as u8,
        router: options.router,
        name_servers: options
            .name_servers
            .map(|server| server.unwrap_or(Ipv4Addr::UNSPECIFIED)),
        server: options.server?,
        seconds: options.lease_s?.max(60),
    })
}
