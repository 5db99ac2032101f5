//! The host: what comes in, what goes out, when to look again.

use alloc::collections::VecDeque;
use core::net::IpAddr;

use tables::memory::Pages;
use tables::token_bucket::{Rate, TokenBuckets};
use wire::{DropReason, Instant, MacAddr};

use crate::config::{FlowOwner, StackConfig};
use crate::event::{Event, Ready};
use crate::handle::{ListenerHandle, TcpHandle, UdpHandle};
use crate::host::address::{Address, AddressState, Addressing, Route};
use crate::host::autoconf::Autoconf;
use crate::host::dhcp::Dhcp;
use crate::host::group::Groups;
use crate::host::neighbour::{Neighbours, Waiting};
use crate::host::path_mtu::PathMtus;
use crate::host::queue::HostQueue;
use crate::host::reassembly::Reassembly;
use crate::sink::TxSink;
use crate::tcp::Output;
use crate::tcp::sessions::SessionRef;
use crate::tcp::stats::TcpStats;
use crate::tcp::table::{TcpTable, Told};
use crate::tcp::tcb::Flag;
use crate::udp::UdpTable;

/// Segments with data that a connection sends before the next one's turn.
const TURN: u32 = 64;
/// ICMP errors and resets a second that the host answers strangers with.
const ERRORS_PER_S: u64 = 1000;

/// Which kinds of answers are limited.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Icmp,
    Reset,
    /// Acknowledgements of sessions in TIME_WAIT.
    TimeWait,
}

/// A TCP/IP host on one Ethernet link, for one worker. No clock, no thread, no socket of the operating system: the
/// caller brings frames, time and a sink.
pub struct Stack {
    pub(crate) mac: MacAddr,
    pub(crate) mtu: u16,
    pub(crate) verify: bool,
    pub(crate) owner: Option<FlowOwner>,
    pub(crate) tcp: TcpTable,
    pub(crate) udp: UdpTable,
    pub(crate) addressing: Addressing,
    pub(crate) neighbours: Neighbours,
    pub(crate) queue: HostQueue,
    pub(crate) paths: PathMtus,
    pub(crate) groups: Groups,
    pub(crate) autoconf: Autoconf,
    pub(crate) dhcp: Option<Dhcp>,
    pub(crate) reassembly: Reassembly,
    pub(crate) told: VecDeque<Told>,
    pub(crate) drops: [u64; DropReason::COUNT],
    limits: TokenBuckets,
}

impl core::fmt::Debug for Stack {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Stack")
            .field("mac", &self.mac)
            .field("addresses", &self.addressing.addresses)
            .field("connections", &self.tcp.tcbs.len())
            .field("tcp", &self.tcp.stats)
            .finish_non_exhaustive()
    }
}

/// How much a stack holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// TCP sessions, TIME_WAIT included.
    pub sessions: usize,
    /// Connections with state of their own.
    pub connections: usize,
    /// Sessions in TIME_WAIT.
    pub time_wait: usize,
    /// Buffer blocks in use, of 4 KiB.
    pub blocks: usize,
    /// Bytes of the session index.
    pub index_bytes: usize,
}

impl Stack {
    /// Makes a host; takes the memory of its tables.
    pub fn new(config: StackConfig, now: Instant) -> Self {
        let tcp = TcpTable::new(&config, now.as_ns());
        let makes_addresses = config.ipv6_autoconfiguration;
        let mut this = Self {
            mac: config.mac,
            mtu: config.mtu.max(576),
            verify: config.verify_checksums,
            owner: config.owns_flow,
            tcp,
            udp: UdpTable::new(&config.limits),
            addressing: Addressing::default(),
            neighbours: Neighbours::new(config.limits.neighbours as usize),
            queue: HostQueue::new(config.limits.host_queue as usize),
            paths: PathMtus::default(),
            groups: Groups::default(),
            autoconf: Autoconf::default(),
            dhcp: config.dhcp.then(|| Dhcp::new(now.as_ns())),
            reassembly: Reassembly::new(config.limits.reassemblies as usize),
            told: VecDeque::new(),
            drops: [0; DropReason::COUNT],
            limits: TokenBuckets::new(8, Pages::Normal),
        };
        if makes_addresses {
            this.start_autoconf(now.as_ns());
        }
        this
    }

    /// Returns the MAC address.
    pub const fn mac(&self) -> MacAddr {
        self.mac
    }
    /// Gives the host an address; `prefix` bits of it are on the link. False when there are too many.
    ///
    /// It is used at once; the caller vouches that nobody else has it.
    pub fn add_address(&mut self, ip: IpAddr, prefix: u8) -> bool {
        let is_new = !self
            .addressing
            .addresses
            .iter()
            .any(|address| address.ip == ip);
        let added = self
            .addressing
            .add_address(Address::new(ip, prefix, AddressState::Preferred));
        if let IpAddr::V6(ip) = ip
            && is_new
            && added
        {
            self.join_solicited(ip, 1);
        }
        added
    }
    /// Takes an address away; sessions that have it send no more. False if the host did not have it.
    pub fn remove_address(&mut self, ip: IpAddr) -> bool {
        let removed = self.addressing.remove_address(ip);
        if let IpAddr::V6(ip) = ip
            && removed
        {
            self.leave_solicited(ip, 1);
        }
        removed
    }
    /// Returns the addresses.
    pub fn addresses(&self) -> &[Address] {
        &self.addressing.addresses
    }
    /// Adds a route; `gateway` is a router on the link, or `None` for a network on the link. False when there are too many.
    pub fn add_route(&mut self, network: IpAddr, prefix: u8, gateway: Option<IpAddr>) -> bool {
        self.addressing.add_route(Route {
            network,
            prefix,
            gateway,
            valid_until: u64::MAX,
        })
    }
    /// Removes a route, whatever its gateway if none is given. False if there is none.
    pub fn remove_route(&mut self, network: IpAddr, prefix: u8, gateway: Option<IpAddr>) -> bool {
        self.addressing.remove_route(network, prefix, gateway)
    }
    /// Returns the routes.
    pub fn routes(&self) -> &[Route] {
        &self.addressing.routes
    }
    /// Sets a neighbour's MAC address by hand.
    pub fn set_neighbour(&mut self, now: Instant, ip: IpAddr, mac: MacAddr) {
        let waiting = self.neighbours.set_static(ip, mac, now.as_ns());
        self.release(waiting, mac);
    }
    /// Returns TCP's counters.
    pub fn tcp_stats(&self) -> &TcpStats {
        &self.tcp.stats
    }
    /// Returns how many frames were dropped for a reason.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops.get(reason as usize).copied().unwrap_or(0)
    }
    /// Returns how much is held now.
    pub fn usage(&self) -> Usage {
        Usage {
            sessions: self.tcp.sessions.len(),
            connections: self.tcp.tcbs.len(),
            time_wait: self.tcp.waits(),
            blocks: self.tcp.pool.in_use(),
            index_bytes: self.tcp.sessions.index_bytes(),
        }
    }

    /// Sends what is to be sent: calls the sink until it is full or nothing is left. Returns false if it was full.
    pub fn poll_transmit<S: TxSink>(&mut self, now: Instant, sink: &mut S) -> bool {
        let now_ns = now.as_ns();
        self.host_output(now_ns);
        if !self.queue.flush(sink) {
            return false;
        }
        if !self.transmit_tcp(now_ns, sink) || !self.transmit_udp(now_ns, sink) {
            return false;
        }
        self.host_output(now_ns);
        self.queue.flush(sink)
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is to be called at the latest; `None`: not before something
    /// else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let times = [self.tcp.next_timeout(), self.host_deadline()];
        times.into_iter().flatten().min().map(Instant::from_ns)
    }

    /// Acts on all deadlines that have passed. Too early is no error.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now_ns = now.as_ns();
        self.tcp.on_timers(now_ns, &mut self.told);
        self.host_timers(now_ns);
    }

    /// Returns the next event. An event that was returned is told again only after a new change.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            match self.told.pop_front()? {
                Told::Tcp(index, generation) => {
                    let Some(tcb) = self.tcp.tcbs.get_mut(index, generation) else {
                        continue;
                    };
                    tcb.flags.remove(Flag::TOLD);
                    let ready = core::mem::take(&mut tcb.ready);
                    if !ready.is_empty() {
                        return Some(Event::Tcp(TcpHandle { index, generation }, ready));
                    }
                }
                Told::Listener(index, generation) => {
                    let Some(listener) = self.tcp.listeners.get_mut(index, generation) else {
                        continue;
                    };
                    listener.is_told = false;
                    let ready = core::mem::take(&mut listener.ready);
                    return Some(Event::Listener(ListenerHandle { index, generation }, ready));
                }
                Told::Udp(index, generation) => {
                    let Some(ready) = self.udp.take_ready(index, generation) else {
                        continue;
                    };
                    return Some(Event::Udp(UdpHandle { index, generation }, ready));
                }
                Told::Addresses => return Some(Event::AddressesChanged),
            }
        }
    }

    /// Counts a drop.
    pub(crate) fn drop_frame(&mut self, reason: DropReason) {
        if let Some(counter) = self.drops.get_mut(reason as usize) {
            *counter += 1;
        }
    }

    /// Says whether an answer of this kind may be sent now.
    pub(crate) fn may_answer(&self, limit: Limit, now_ns: u64) -> bool {
        self.limits.take(
            limit as usize,
            Rate::new(ERRORS_PER_S, ERRORS_PER_S),
            now_ns,
            1,
        )
    }

    /// Tells the owner of a listener or socket.
    pub(crate) fn tell_udp(&mut self, index: u32, ready: Ready) {
        if let Some(generation) = self.udp.tell(index, ready) {
            self.told.push_back(Told::Udp(index, generation));
        }
    }

    /// Lets go what waited for a neighbour.
    pub(crate) fn release(&mut self, waiting: Waiting, mac: MacAddr) {
        for mut frame in waiting.frames {
            if let Some(to) = frame.get_mut(..6) {
                to.copy_from_slice(&mac.octets());
            }
            self.queue.push(frame);
        }
        for index in waiting.connections {
            if let Some(tcb) = self.tcp.tcbs.at_mut(index) {
                tcb.flags.remove(Flag::UNRESOLVED);
            }
            self.tcp.queue(index);
        }
    }

    fn transmit_tcp<S: TxSink>(&mut self, now_ns: u64, sink: &mut S) -> bool {
        while let Some(index) = self.tcp.ready.pop_front() {
            let Some(tcb) = self.tcp.tcbs.at_mut(index) else {
                continue;
            };
            tcb.flags.remove(Flag::QUEUED);
            if tcb.session == SessionRef::Absent {
                continue;
            }
            let Some(path) = self.tcp_path(index, now_ns) else {
                continue;
            };
            let Some((tcb, mut ctx)) = self.tcp.with(index, now_ns) else {
                continue;
            };
            let output = tcb.output(&path, TURN, sink, &mut ctx);
            self.tcp.settle_after(index, false, now_ns, &mut self.told);
            match output {
                Output::Done => {}
                Output::More => self.tcp.queue(index),
                Output::Full => {
                    if let Some(tcb) = self.tcp.tcbs.at_mut(index) {
                        tcb.flags.insert(Flag::QUEUED);
                        self.tcp.ready.push_front(index);
                    }
                    return false;
                }
            }
        }
        true
    }
}
