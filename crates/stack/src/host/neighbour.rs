//! Neighbours: IP addresses of the link and the MAC addresses that they have (RFC 826, RFC 1122 2.3.2, RFC 4861 7.3).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use wire::MacAddr;

/// Between solicitations, ns (RFC 4861 10).
const RETRANSMIT_NS: u64 = 1_000_000_000;
/// For how long an answer counts, ns.
const REACHABLE_NS: u64 = 30_000_000_000;
/// How long a stale address is used before it is asked for, ns.
const DELAY_NS: u64 = 5_000_000_000;
/// Solicitations before a neighbour is given up.
const TRIES_MAX: u8 = 3;
/// Packets that wait for one neighbour.
const WAITING_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Asked for; no answer yet.
    Incomplete,
    /// Answered not long ago.
    Reachable,
    /// Answered once; in use since, so that it is to be asked again.
    Delay,
    /// Asked again.
    Probe,
    /// No answer.
    Failed,
}

/// One neighbour.
#[derive(Debug)]
struct Neighbour {
    ip: IpAddr,
    mac: MacAddr,
    state: State,
    is_static: bool,
    tries: u8,
    /// When the state ends, ns; 0: when it is used.
    until: u64,
    used_at: u64,
    /// Whole frames without MAC addresses that wait for an answer.
    waiting: Vec<Vec<u8>>,
    /// Connections that wait for an answer.
    connections: Vec<u32>,
}

/// What a lookup gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolved {
    Mac(MacAddr),
    /// It is being asked for.
    Wait,
    /// It does not answer.
    Failed,
}

/// A solicitation that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Solicit {
    pub(crate) ip: IpAddr,
    /// To this station alone, or to all.
    pub(crate) mac: Option<MacAddr>,
}

/// What waited for a neighbour.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) connections: Vec<u32>,
}

/// The neighbour table.
#[derive(Debug)]
pub(crate) struct Neighbours {
    slots: Vec<Neighbour>,
    by_ip: BTreeMap<IpAddr, u32>,
    max: usize,
    /// Earliest end of a state, ns.
    deadline: u64,
    pub(crate) solicit: Vec<Solicit>,
    /// Neighbours given up since the last look.
    pub(crate) failed: Vec<(IpAddr, Waiting)>,
}

impl Neighbours {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            slots: Vec::new(),
            by_ip: BTreeMap::new(),
            max: max.max(1),
            deadline: u64::MAX,
            solicit: Vec::new(),
            failed: Vec::new(),
        }
    }
    /// Returns the index of a neighbour, made if there is none; the least recently used goes when the table is full.
    pub(crate) fn index(&mut self, ip: IpAddr, now_ns: u64) -> Option<u32> {
        if let Some(&index) = self.by_ip.get(&ip) {
            return Some(index);
        }
        let fresh = Neighbour {
            ip,
            mac: MacAddr::ZERO,
            state: State::Failed,
            is_static: false,
            tries: 0,
            until: 0,
            used_at: now_ns,
            waiting: Vec::new(),
            connections: Vec::new(),
        };
        let index = if self.slots.len() < self.max {
            self.slots.push(fresh);
            self.slots.len() as u32 - 1
        } else {
            let idle = |n: &&(u32, &Neighbour)| {
                !n.1.is_static && n.1.connections.is_empty() && n.1.waiting.is_empty()
            };
            let oldest = (0..)
                .zip(&self.slots)
                .filter(|n| idle(&n))
                .min_by_key(|(_, n)| n.used_at)?
                .0;
            let slot = self.slots.get_mut(oldest as usize)?;
            self.by_ip.remove(&slot.ip);
            *slot = fresh;
            oldest
        };
        self.by_ip.insert(ip, index);
        Some(index)
    }
    /// Returns the MAC address, or asks for it.
    #[inline]
    pub(crate) fn resolve(&mut self, index: u32, now_ns: u64) -> Resolved {
        let Some(neighbour) = self.slots.get_mut(index as usize) else {
            return Resolved::Failed;
        };
        neighbour.used_at = now_ns;
        match neighbour.state {
            State::Reachable if neighbour.is_static || now_ns < neighbour.until => {
                Resolved::Mac(neighbour.mac)
            }
            State::Delay | State::Probe => Resolved::Mac(neighbour.mac),
            State::Reachable => {
                neighbour.state = State::Delay;
                neighbour.until = now_ns + DELAY_NS;
                self.deadline = self.deadline.min(neighbour.until);
                Resolved::Mac(neighbour.mac)
            }
            State::Incomplete => Resolved::Wait,
            State::Failed => {
                neighbour.state = State::Incomplete;
                neighbour.tries = 1;
                neighbour.until = now_ns + RETRANSMIT_NS;
                self.deadline = self.deadline.min(neighbour.until);
                self.solicit.push(Solicit {
                    ip: neighbour.ip,
                    mac: None,
                });
                Resolved::Wait
            }
        }
    }
    /// Keeps a connection until the answer comes.
    pub(crate) fn wait_connection(&mut self, index: u32, connection: u32) {
        if let Some(neighbour) = self.slots.get_mut(index as usize) {
            neighbour.connections.push(connection);
        }
    }
    /// Keeps a frame until the answer comes; false if too many wait.
    pub(crate) fn wait_frame(&mut self, index: u32, frame: Vec<u8>) -> bool {
        match self.slots.get_mut(index as usize) {
            Some(neighbour) if neighbour.waiting.len() < WAITING_MAX => {
                neighbour.waiting.push(frame);
                true
            }
            _ => false,
        }
    }
    /// Hears a neighbour's MAC address. `create`: also of one that nobody asked for. `is_answer`: it was asked.
    pub(crate) fn learn(
        &mut self,
        ip: IpAddr,
        mac: MacAddr,
        create: bool,
        is_answer: bool,
        now_ns: u64,
    ) -> Waiting {
        if !mac.is_station() || !create && !self.by_ip.contains_key(&ip) {
            return Waiting::default();
        }
        let Some(index) = self.index(ip, now_ns) else {
            return Waiting::default();
        };
        let Some(neighbour) = self.slots.get_mut(index as usize) else {
            return Waiting::default();
        };
        if neighbour.is_static {
            return Waiting::default();
        }
        let changed = neighbour.mac != mac;
        neighbour.mac = mac;
        if is_answer || changed || matches!(neighbour.state, State::Incomplete | State::Failed) {
            neighbour.state = State::Reachable;
            // What was not asked for is stale: it is used, and checked when it is.
            neighbour.until = if is_answer {
                now_ns + REACHABLE_NS
            } else {
                now_ns
            };
            neighbour.tries = 0;
        }
        Waiting {
            frames: core::mem::take(&mut neighbour.waiting),
            connections: core::mem::take(&mut neighbour.connections),
        }
    }
    /// Sets a neighbour by hand, for ever.
    pub(crate) fn set_static(&mut self, ip: IpAddr, mac: MacAddr, now_ns: u64) -> Waiting {
        let waiting = self.learn(ip, mac, true, true, now_ns);
        if let Some(&index) = self.by_ip.get(&ip)
            && let Some(neighbour) = self.slots.get_mut(index as usize)
        {
            neighbour.is_static = true;
        }
        waiting
    }
    /// Hears that packets to the neighbour arrive (RFC 4861 7.3.1): TCP moves forward.
    pub(crate) fn confirm(&mut self, index: u32, now_ns: u64) {
        if let Some(neighbour) = self.slots.get_mut(index as usize)
            && matches!(
                neighbour.state,
                State::Reachable | State::Delay | State::Probe
            )
        {
            neighbour.state = State::Reachable;
            neighbour.until = now_ns + REACHABLE_NS;
        }
    }
    /// Returns when something is due, ns.
    pub(crate) fn deadline(&self) -> Option<u64> {
        (self.deadline != u64::MAX).then_some(self.deadline)
    }
    /// Asks again, and gives up who does not answer.
    pub(crate) fn on_timer(&mut self, now_ns: u64) {
        if now_ns < self.deadline {
            return;
        }
        self.deadline = u64::MAX;
        for neighbour in &mut self.slots {
            let waits = matches!(
                neighbour.state,
                State::Incomplete | State::Delay | State::Probe
            );
            if waits && neighbour.until <= now_ns {
                if neighbour.state != State::Delay && neighbour.tries >= TRIES_MAX {
                    neighbour.state = State::Failed;
                    let waiting = Waiting {
                        frames: core::mem::take(&mut neighbour.waiting),
                        connections: core::mem::take(&mut neighbour.connections),
                    };
                    self.failed.push((neighbour.ip, waiting));
                    continue;
                }
                if neighbour.state == State::Delay {
                    neighbour.state = State::Probe;
                    neighbour.tries = 0;
                }
                neighbour.tries += 1;
                neighbour.until = now_ns + RETRANSMIT_NS;
                let mac = (neighbour.state == State::Probe).then_some(neighbour.mac);
                self.solicit.push(Solicit {
                    ip: neighbour.ip,
                    mac,
                });
            }
            if matches!(
                neighbour.state,
                State::Incomplete | State::Delay | State::Probe
            ) {
                self.deadline = self.deadline.min(neighbour.until);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const S: u64 = 1_000_000_000;

    #[test]
    fn asks_three_times_then_fails() {
        let mut table = Neighbours::new(2);
        let ip = "192.0.2.9".parse().unwrap();
        let index = table.index(ip, 0).unwrap();
        assert_eq!(table.resolve(index, 0), Resolved::Wait);
        assert_eq!(table.resolve(index, 0), Resolved::Wait);
        assert!(table.wait_frame(index, vec![1]));
        table.wait_connection(index, 5);
        for second in 1..3 {
            table.on_timer(second * S);
        }
        assert_eq!(table.solicit, [Solicit { ip, mac: None }; 3]);
        assert!(table.failed.is_empty());
        table.on_timer(3 * S);
        let (failed, waiting) = table.failed.pop().unwrap();
        assert_eq!(
            (failed, waiting.frames, waiting.connections),
            (ip, vec![vec![1]], vec![5])
        );
        assert_eq!(table.deadline(), None);
    }

    #[test]
    fn an_answer_is_checked_when_it_is_old_and_in_use() {
        let mut table = Neighbours::new(2);
        let ip = "192.0.2.9".parse().unwrap();
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let index = table.index(ip, 0).unwrap();
        table.resolve(index, 0);
        table.solicit.clear();
        table.learn(ip, mac, false, true, 0);
        assert_eq!(table.resolve(index, 29 * S), Resolved::Mac(mac));
        // Idle: no timer.
        table.on_timer(3600 * S);
        assert_eq!((table.deadline(), table.solicit.len()), (None, 0));
        assert_eq!(table.resolve(index, 3600 * S), Resolved::Mac(mac));
        table.on_timer(3605 * S);
        assert_eq!(table.solicit, [Solicit { ip, mac: Some(mac) }]);
        table.learn(ip, mac, false, true, 3605 * S);
        assert_eq!(table.resolve(index, 3606 * S), Resolved::Mac(mac));
        // Gossip does not make an entry, and the table is bounded.
        table.learn("192.0.2.10".parse().unwrap(), mac, false, false, 0);
        assert_eq!(table.slots.len(), 1);
        assert!((0..5).all(|i| {
            table
                .index(core::net::Ipv4Addr::from_bits(i).into(), u64::from(i))
                .is_some()
        }));
        assert_eq!(table.slots.len(), 2);
    }
}
