//! The state machine of neighbours (RFC 4861 7.3.2), without packets: what to do about a packet, what an
//! answer changes, what a timer asks for.

use core::time::Duration;
use std::sync::Arc;

use io::WorkerId;
use wire::{Instant, MacAddr};

use super::table::{Entry, Key, State, Table};
use crate::rate::TokenBucket;

/// Time between two questions (RFC 4861 10: RETRANS_TIMER).
pub const RETRANSMIT: Duration = Duration::from_secs(1);
/// Questions to everyone, and then to the neighbour alone, before it counts as failed.
pub const ATTEMPTS: u8 = 3;
/// Time that a stale neighbour is used before it is asked (RFC 4861 10: DELAY_FIRST_PROBE_TIME).
pub const DELAY: Duration = Duration::from_secs(5);
/// Time for which a neighbour counts as reachable (RFC 4861 10: REACHABLE_TIME).
pub const REACHABLE: Duration = Duration::from_secs(30);
/// Time after which a failed neighbour is asked again if packets want it (RFC 1122 2.3.2.1: at most one
/// request a second to one destination).
pub const HOLD_DOWN: Duration = Duration::from_secs(1);
/// Neighbours whose timers one worker runs, at most.
pub const ASKING_MAX: usize = 1024;
/// Questions that a worker may send in a second, and at once: a scan of a network must not become a storm.
const QUESTIONS_PER_S: u32 = 500;
const QUESTIONS_BURST: u32 = 100;

/// What to do with a packet for a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send it to this MAC address.
    Send(MacAddr),
    /// Keep it until there is an answer; ask first if `ask`.
    Wait {
        /// Whether a question to everyone is to be sent now.
        ask: bool,
    },
    /// The neighbour does not answer: tell the sender.
    Unreachable,
    /// Too many questions were sent lately.
    RateLimited,
    /// The table is full of neighbours in use.
    TableFull,
}

/// What a timer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Ask everyone on the link.
    AskAll(Key),
    /// Ask the neighbour itself.
    AskOne(Key, MacAddr),
    /// The neighbour did not answer: give up what waits for it.
    Failed(Key),
}

/// What a received message says about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// It answers a question, which proves that the path works both ways (RFC 4861 7.3.1).
    pub solicited: bool,
    /// It may replace a MAC address that is known (RFC 4861 4.4: the override flag; ARP always).
    pub overrides: bool,
    /// A neighbour that is not known yet is to be noted (RFC 826: it asked for this node).
    pub creates: bool,
}

#[derive(Clone, Copy, Debug)]
struct Asking {
    key: Key,
    due: Instant,
    sent: u8,
}

/// One worker's share: the timers of the neighbours that it asks.
#[derive(Debug)]
pub struct Machine {
    table: Arc<Table>,
    worker: WorkerId,
    asking: Vec<Asking>,
    limit: TokenBucket,
}

impl Machine {
    /// Makes the machine of a worker over the shared table.
    pub fn new(table: Arc<Table>, worker: WorkerId) -> Self {
        Self {
            table,
            worker,
            asking: Vec::with_capacity(ASKING_MAX),
            limit: TokenBucket::new(QUESTIONS_PER_S, QUESTIONS_BURST),
        }
    }

    /// Returns the shared table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Decides about a packet for a neighbour.
    pub fn resolve(&mut self, key: &Key, now: Instant) -> Action {
        let Some(entry) = self.table.get(key, now) else {
            return self.first_question(key, now);
        };
        match entry.state {
            State::Incomplete => Action::Wait { ask: false },
            State::Failed => self.ask_again(key, now),
            State::Stale => {
                let owner = self.worker;
                let changed = self.table.update(key, now, false, |e| {
                    let delay = Entry {
                        state: State::Delay,
                        owner,
                        ..e
                    };
                    (e.state == State::Stale).then_some(delay)
                });
                if changed.is_some() {
                    self.start(*key, now + DELAY, 0);
                }
                Action::Send(entry.mac)
            }
            _ => Action::Send(entry.mac),
        }
    }

    fn first_question(&mut self, key: &Key, now: Instant) -> Action {
        if self.asking.len() >= ASKING_MAX || !self.limit.take(now) {
            return Action::RateLimited;
        }
        let entry = Entry {
            state: State::Incomplete,
            mac: MacAddr::ZERO,
            owner: self.worker,
        };
        if !self.table.insert(key, entry, now) {
            return Action::TableFull;
        }
        self.start(*key, now + RETRANSMIT, 1);
        Action::Wait { ask: true }
    }

    fn ask_again(&mut self, key: &Key, now: Instant) -> Action {
        let age_ns = self.table.age_ns(key, now).unwrap_or(u64::MAX);
        if u128::from(age_ns) < HOLD_DOWN.as_nanos() {
            return Action::Unreachable;
        }
        if self.asking.len() >= ASKING_MAX || !self.limit.take(now) {
            return Action::RateLimited;
        }
        let owner = self.worker;
        let changed = self.table.update(key, now, true, |e| {
            let entry = Entry {
                state: State::Incomplete,
                mac: MacAddr::ZERO,
                owner,
            };
            (e.state == State::Failed).then_some(entry)
        });
        match changed {
            Some(_) => {
                self.start(*key, now + RETRANSMIT, 1);
                Action::Wait { ask: true }
            }
            None => Action::Wait { ask: false },
        }
    }

    fn start(&mut self, key: Key, due: Instant, sent: u8) {
        self.asking.retain(|asking| asking.key != key);
        // Where there is no room, a stale neighbour is used without being asked until it is used again.
        if self.asking.len() < ASKING_MAX {
            self.asking.push(Asking { key, due, sent });
        } else {
            self.table.update(&key, due, false, |e| {
                Some(Entry {
                    state: State::Stale,
                    ..e
                })
            });
        }
    }

    /// Notes what a message said; tells whether packets that waited for the neighbour can go.
    pub fn heard(&mut self, key: &Key, mac: MacAddr, how: Heard, now: Instant) -> bool {
        if !mac.is_station() {
            return false;
        }
        let owner = self.worker;
        let fresh = if how.solicited {
            State::Reachable
        } else {
            State::Stale
        };
        if self.table.get(key, now).is_none() {
            let entry = Entry {
                state: State::Stale,
                mac,
                owner,
            };
            return how.creates && self.table.insert(key, entry, now);
        }
        let changed = self.table.update(key, now, true, |e| {
            let state = match e.state {
                State::Permanent => return None,
                State::Incomplete | State::Failed => fresh,
                _ if e.mac == mac && how.solicited => State::Reachable,
                // Hearing of the neighbour does not prove that it hears us.
                _ if e.mac == mac => return None,
                _ if how.overrides => fresh,
                // RFC 4861 7.2.5: another address that may not replace the known one casts doubt on it.
                State::Reachable => {
                    return Some(Entry {
                        state: State::Stale,
                        ..e
                    });
                }
                _ => return None,
            };
            Some(Entry {
                state,
                mac,
                owner: e.owner,
            })
        });
        changed.is_some_and(|(_, after)| after.state.is_usable())
    }

    /// Notes an answer that does not tell a MAC address: the neighbour still has the known one (RFC 4861
    /// 4.4: the option may be left out in an answer to a question to the neighbour alone).
    pub fn confirmed(&mut self, key: &Key, now: Instant) {
        self.table.update(key, now, true, |e| {
            let lives = e.state.is_usable() && e.state != State::Permanent;
            lives.then_some(Entry {
                state: State::Reachable,
                ..e
            })
        });
    }

    /// Returns when [`Machine::next_due`] wants to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.asking.iter().map(|asking| asking.due).min()
    }

    /// Returns one thing that is due; call it until there is none.
    pub fn next_due(&mut self, now: Instant) -> Option<Due> {
        loop {
            let at = self.asking.iter().position(|asking| asking.due <= now)?;
            let due = self.step(at, now);
            if due.is_some() {
                return due;
            }
        }
    }

    /// Runs the timer at an index; it is gone, or later, after.
    fn step(&mut self, at: usize, now: Instant) -> Option<Due> {
        let Asking { key, sent, .. } = self.asking[at];
        let entry = self
            .table
            .get(&key, now)
            .filter(|entry| entry.owner == self.worker);
        let Some(entry) = entry else {
            self.asking.swap_remove(at);
            return None;
        };
        let due = match entry.state {
            State::Delay => {
                self.set_state(&key, State::Delay, State::Probe, now);
                Due::AskOne(key, entry.mac)
            }
            State::Probe if sent < ATTEMPTS => Due::AskOne(key, entry.mac),
            State::Incomplete if sent < ATTEMPTS => Due::AskAll(key),
            State::Probe | State::Incomplete => {
                self.asking.swap_remove(at);
                // If this fails, an answer came at the last moment.
                let failed = self.set_state(&key, entry.state, State::Failed, now);
                return failed.then_some(Due::Failed(key));
            }
            State::Reachable | State::Stale | State::Failed | State::Permanent => {
                self.asking.swap_remove(at);
                return None;
            }
        };
        self.asking[at].sent = sent + 1;
        self.asking[at].due = now + RETRANSMIT;
        Some(due)
    }

    fn set_state(&self, key: &Key, from: State, to: State, now: Instant) -> bool {
        let failed = to == State::Failed;
        let changed = self.table.update(key, now, failed, |e| {
            (e.state == from).then_some(Entry { state: to, ..e })
        });
        changed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::InterfaceId;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
    const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xaa]);
    const ANSWER: Heard = Heard {
        solicited: true,
        overrides: true,
        creates: false,
    };
    const REQUEST: Heard = Heard {
        solicited: false,
        overrides: true,
        creates: true,
    };
    const GRATUITOUS: Heard = Heard {
        solicited: false,
        overrides: true,
        creates: false,
    };
    const MEEK: Heard = Heard {
        solicited: false,
        overrides: false,
        creates: false,
    };

    fn key() -> Key {
        Key::v4(InterfaceId(0), [192, 0, 2, 7])
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn machines(n: u16) -> Vec<Machine> {
        let table = Arc::new(Table::new(256, 99, REACHABLE.as_nanos() as u64));
        (0..n)
            .map(|w| Machine::new(Arc::clone(&table), WorkerId(w)))
            .collect()
    }

    fn state(m: &Machine, ms: u64) -> Option<State> {
        m.table().get(&key(), at(ms)).map(|e| e.state)
    }

    fn all_due(m: &mut Machine, ms: u64) -> Vec<Due> {
        core::iter::from_fn(|| m.next_due(at(ms))).collect()
    }

    #[test]
    fn three_questions_then_failure_and_a_new_start_after_the_hold_down() {
        let m = &mut machines(1)[0];
        assert_eq!(m.resolve(&key(), at(0)), Action::Wait { ask: true });
        assert_eq!(m.resolve(&key(), at(1)), Action::Wait { ask: false });
        assert_eq!(m.poll_timeout(), Some(at(1000)));
        assert_eq!(all_due(m, 999), []);
        assert_eq!(all_due(m, 1000), [Due::AskAll(key())]);
        assert_eq!(all_due(m, 2000), [Due::AskAll(key())]);
        assert_eq!(all_due(m, 3000), [Due::Failed(key())]);
        assert_eq!(
            (state(m, 3000), m.poll_timeout()),
            (Some(State::Failed), None)
        );
        assert_eq!(m.resolve(&key(), at(3999)), Action::Unreachable);
        assert_eq!(m.resolve(&key(), at(4000)), Action::Wait { ask: true });
    }

    #[test]
    fn an_answer_makes_reachable_and_use_after_30_s_leads_to_a_probe() {
        let m = &mut machines(1)[0];
        m.resolve(&key(), at(0));
        assert!(m.heard(&key(), MAC, ANSWER, at(5)), "what waits can go");
        assert_eq!(m.resolve(&key(), at(6)), Action::Send(MAC));
        assert_eq!(all_due(m, 1000), [], "no second question");
        assert_eq!(state(m, 30_004), Some(State::Reachable));
        assert_eq!(state(m, 30_005), Some(State::Stale));
        assert_eq!(m.poll_timeout(), None, "an idle neighbour costs no wake-up");
        assert_eq!(
            m.resolve(&key(), at(40_000)),
            Action::Send(MAC),
            "stale is used at once"
        );
        assert_eq!(state(m, 40_000), Some(State::Delay));
        assert_eq!(m.poll_timeout(), Some(at(45_000)));
        assert_eq!(all_due(m, 45_000), [Due::AskOne(key(), MAC)]);
        assert_eq!(state(m, 45_000), Some(State::Probe));
        assert_eq!(m.resolve(&key(), at(45_001)), Action::Send(MAC));
        assert!(m.heard(&key(), MAC, ANSWER, at(45_002)));
        assert_eq!(state(m, 45_003), Some(State::Reachable));
        assert_eq!(all_due(m, 50_000), []);
        assert_eq!(m.poll_timeout(), None);
    }

    #[test]
    fn a_neighbour_that_is_gone_fails_after_three_probes() {
        let m = &mut machines(1)[0];
        m.heard(&key(), MAC, REQUEST, at(0));
        assert_eq!(state(m, 0), Some(State::Stale));
        m.resolve(&key(), at(0));
        let ask = Due::AskOne(key(), MAC);
        assert_eq!(all_due(m, 5000), [ask]);
        assert_eq!(all_due(m, 6000), [ask]);
        assert_eq!(all_due(m, 7000), [ask]);
        assert_eq!(all_due(m, 8000), [Due::Failed(key())]);
        assert_eq!(m.resolve(&key(), at(8001)), Action::Unreachable);
    }

    #[test]
    fn an_answer_without_a_mac_address_confirms_the_known_one() {
        let m = &mut machines(1)[0];
        m.confirmed(&key(), at(0));
        assert_eq!(state(m, 0), None);
        m.resolve(&key(), at(0));
        m.confirmed(&key(), at(1));
        assert_eq!(
            state(m, 1),
            Some(State::Incomplete),
            "there is none to confirm"
        );
        m.heard(&key(), MAC, REQUEST, at(2));
        m.resolve(&key(), at(3));
        assert_eq!(all_due(m, 5003), [Due::AskOne(key(), MAC)]);
        m.confirmed(&key(), at(5004));
        assert_eq!(state(m, 5005), Some(State::Reachable));
        assert_eq!(all_due(m, 9000), []);
    }

    #[test]
    fn only_questions_for_the_node_make_new_neighbours() {
        let m = &mut machines(1)[0];
        assert!(!m.heard(&key(), MAC, GRATUITOUS, at(0)));
        assert_eq!(state(m, 0), None);
        assert!(
            !m.heard(&key(), MacAddr::BROADCAST, REQUEST, at(0)),
            "not a station"
        );
        assert!(m.heard(&key(), MAC, REQUEST, at(0)));
    }

    #[test]
    fn a_new_mac_address_replaces_an_old_one_only_where_it_may() {
        let m = &mut machines(1)[0];
        m.heard(&key(), MAC, REQUEST, at(0));
        m.heard(&key(), MAC, ANSWER, at(1));
        assert!(!m.heard(&key(), MAC, REQUEST, at(2)) && state(m, 2) == Some(State::Reachable));
        m.heard(&key(), OTHER, MEEK, at(3));
        assert_eq!(state(m, 3), Some(State::Stale), "in doubt");
        assert_eq!(m.resolve(&key(), at(4)), Action::Send(MAC));
        m.heard(&key(), OTHER, GRATUITOUS, at(5));
        assert_eq!(m.resolve(&key(), at(6)), Action::Send(OTHER));
        m.table().set_permanent(&key(), MAC, at(7));
        m.heard(&key(), OTHER, GRATUITOUS, at(8));
        assert_eq!(
            m.resolve(&key(), at(9)),
            Action::Send(MAC),
            "the configuration wins"
        );
    }

    #[test]
    fn an_answer_on_another_worker_serves_all() {
        let mut workers = machines(2);
        assert_eq!(
            workers[0].resolve(&key(), at(0)),
            Action::Wait { ask: true }
        );
        assert_eq!(
            workers[1].resolve(&key(), at(0)),
            Action::Wait { ask: false },
            "one asks"
        );
        assert!(workers[1].heard(&key(), MAC, ANSWER, at(1)));
        assert_eq!(workers[0].resolve(&key(), at(2)), Action::Send(MAC));
        assert_eq!(all_due(&mut workers[0], 1000), []);
        // The worker that uses the stale neighbour first runs its timers.
        assert_eq!(workers[1].resolve(&key(), at(40_000)), Action::Send(MAC));
        assert_eq!(workers[0].resolve(&key(), at(40_001)), Action::Send(MAC));
        assert_eq!(workers[0].poll_timeout(), None);
        assert_eq!(all_due(&mut workers[1], 45_000), [Due::AskOne(key(), MAC)]);
    }

    #[test]
    fn a_scan_is_limited_to_the_burst_and_then_the_rate() {
        let m = &mut machines(1)[0];
        let mut asked = 0;
        for n in 0..1000_u32 {
            let key = Key::v4(InterfaceId(0), (0x0a00_0000 + n).to_be_bytes());
            asked += u32::from(m.resolve(&key, at(0)) == Action::Wait { ask: true });
        }
        assert!(asked <= 100, "{asked} questions at once");
    }
}
