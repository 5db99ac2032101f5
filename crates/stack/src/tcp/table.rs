//! All of TCP's tables of one worker: connections, sessions, listeners, timers, lists of who has something to send or tell.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;

use tables::wheel::Wheel;

use super::block::BlockPool;
use super::emit::Cookie;
use super::listener::Listener;
use super::secrets::Secrets;
use super::sessions::{Found, SessionRef, Sessions, TimeWait};
use super::state::State;
use super::stats::TcpStats;
use super::tcb::{Active, Ctx, Flag, Tcb};
use crate::config::{StackConfig, TcpConfig};
use crate::event::Ready;
use crate::handle::Slab;

/// Timer ticks: about a microsecond, so that pacing is even.
const TICK_NS: u64 = 1024;

/// Who has an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Tcp(u32, u32),
    Listener(u32, u32),
    Udp(u32, u32),
    Addresses,
}

/// TCP of one worker.
#[derive(Debug)]
pub(crate) struct TcpTable {
    pub(crate) config: TcpConfig,
    pub(crate) tcbs: Slab<Tcb>,
    pub(crate) sessions: Sessions,
    pub(crate) listeners: Slab<Listener>,
    /// Listeners by port; of one port, those of one address come before the one of any.
    pub(crate) by_port: BTreeMap<(u16, Option<IpAddr>), u32>,
    pub(crate) pool: BlockPool,
    #[expect(
        clippy::vec_box,
        reason = "a box moves between connection and pool as it is"
    )]
    pub(crate) spare: Vec<Box<Active>>,
    pub(crate) stats: TcpStats,
    pub(crate) secrets: Secrets,
    /// Where the search for a local port goes on.
    pub(crate) next_port: u32,
    /// Fast Open cookies that servers gave us; the first goes when there are too many.
    pub(crate) fast_open_cookies: BTreeMap<IpAddr, Cookie>,
    /// Connections that have something to send.
    pub(crate) ready: VecDeque<u32>,
    wheel: Wheel,
    /// Sessions in TIME_WAIT, in the order of their ends.
    waits: VecDeque<(u64, SessionRef)>,
    waits_max: usize,
}

impl TcpTable {
    pub(crate) fn new(config: &StackConfig, now_ns: u64) -> Self {
        let limits = &config.limits;
        Self {
            config: config.tcp.clone(),
            tcbs: Slab::new(limits.connections as usize),
            sessions: Sessions::new(limits.sessions_ipv4, limits.sessions_ipv6, config.seed),
            listeners: Slab::new(limits.listeners as usize),
            by_port: BTreeMap::new(),
            pool: BlockPool::new(limits.buffer_blocks as usize),
            spare: Vec::new(),
            stats: TcpStats::default(),
            secrets: Secrets::new(config.seed),
            next_port: 0,
            fast_open_cookies: BTreeMap::new(),
            ready: VecDeque::new(),
            wheel: Wheel::new(TICK_NS, (limits.connections as usize).min(1 << 31), now_ns),
            waits: VecDeque::new(),
            waits_max: limits.time_wait as usize,
        }
    }
    /// Returns a connection and what its methods are handed.
    #[inline]
    pub(crate) fn with(&mut self, index: u32, now_ns: u64) -> Option<(&mut Tcb, Ctx<'_>)> {
        let tcb = self.tcbs.at_mut(index)?;
        let ctx = Ctx {
            now_ns,
            config: &self.config,
            pool: &mut self.pool,
            spare: &mut self.spare,
            stats: &mut self.stats,
        };
        Some((tcb, ctx))
    }
    /// Finds the listener of a local address and port.
    pub(crate) fn listener_of(&self, address: IpAddr, port: u16) -> Option<u32> {
        self.by_port
            .get(&(port, Some(address)))
            .or_else(|| self.by_port.get(&(port, None)))
            .copied()
    }
    /// Puts a connection on the list of those with something to send.
    #[inline]
    pub(crate) fn queue(&mut self, index: u32) {
        if let Some(tcb) = self.tcbs.at_mut(index)
            && !tcb.flags.intersects(Flag::QUEUED | Flag::UNRESOLVED)
        {
            tcb.flags.insert(Flag::QUEUED);
            self.ready.push_back(index);
        }
    }
    /// Draws the consequences of a change: events, sending, timers, the end of a session.
    pub(crate) fn settle(&mut self, index: u32, now_ns: u64, told: &mut VecDeque<Told>) {
        self.settle_after(index, true, now_ns, told);
    }
    /// As [`settle`](Self::settle); without `may_queue` for a connection that has just sent all it may.
    pub(crate) fn settle_after(
        &mut self,
        index: u32,
        may_queue: bool,
        now_ns: u64,
        told: &mut VecDeque<Told>,
    ) {
        let generation = self.tcbs.generation(index);
        let Some(tcb) = self.tcbs.at_mut(index) else {
            return;
        };
        if !tcb.ready.is_empty()
            && tcb.flags.contains(Flag::OWNED)
            && !tcb.flags.contains(Flag::TOLD)
        {
            tcb.flags.insert(Flag::TOLD);
            told.push_back(Told::Tcp(index, generation));
        }
        if tcb.flags.contains(Flag::HALF_OPEN) && tcb.state != State::SynReceived {
            self.leave_backlog(index, generation, told);
        }
        let Some(tcb) = self.tcbs.at_mut(index) else {
            return;
        };
        if may_queue && tcb.wants_output() && !tcb.flags.intersects(Flag::QUEUED | Flag::UNRESOLVED)
        {
            tcb.flags.insert(Flag::QUEUED);
            self.ready.push_back(index);
        }
        match tcb.state {
            State::Closed if !tcb.flags.contains(Flag::RESET_NOW) => self.finish(index),
            State::TimeWait if !tcb.flags.contains(Flag::ACK_NOW) => {
                self.start_time_wait(index, now_ns);
                self.finish(index);
            }
            _ => self.arm(index),
        }
    }
    /// Takes an established connection from the half-open ones to those that wait to be accepted.
    fn leave_backlog(&mut self, index: u32, generation: u32, told: &mut VecDeque<Told>) {
        let Some(tcb) = self.tcbs.at_mut(index) else {
            return;
        };
        tcb.flags.remove(Flag::HALF_OPEN);
        let at = tcb.listener;
        let listener_generation = self.listeners.generation(at);
        let Some(listener) = self.listeners.at_mut(at) else {
            // The listener was closed meanwhile.
            if tcb.state != State::Closed {
                tcb.state = State::Closed;
                tcb.flags.insert(Flag::RESET_NOW);
            }
            return;
        };
        listener.half_open = listener.half_open.saturating_sub(1);
        if tcb.state == State::Closed {
            return;
        }
        self.stats.passive_opens += 1;
        tcb.flags.insert(Flag::ACCEPTABLE);
        listener.queue.push_back((index, generation));
        listener.ready |= Ready::ACCEPT;
        if !listener.is_told {
            listener.is_told = true;
            told.push_back(Told::Listener(at, listener_generation));
        }
    }
    /// Takes a connection that is over out of the tables; its slot is free when the application gave the handle back.
    fn finish(&mut self, index: u32) {
        let Some(tcb) = self.tcbs.at_mut(index) else {
            return;
        };
        let session = core::mem::replace(&mut tcb.session, SessionRef::Absent);
        if let Some(timer) = tcb.armed.take() {
            self.wheel.cancel(timer);
        }
        if self.sessions.get(session) == Found::Connection(index) {
            self.sessions.remove(session);
        }
        let Some(tcb) = self.tcbs.at_mut(index) else {
            return;
        };
        if !tcb.flags.intersects(Flag::OWNED | Flag::ACCEPTABLE) {
            if let Some((tcb, mut ctx)) = self.with(index, 0) {
                tcb.deactivate(&mut ctx);
            }
            self.tcbs.remove(index);
        }
    }
    /// Turns the session of a connection into one in TIME_WAIT.
    fn start_time_wait(&mut self, index: u32, now_ns: u64) {
        let Some(tcb) = self.tcbs.at_mut(index) else {
            return;
        };
        if tcb.session == SessionRef::Absent {
            return;
        }
        let session = core::mem::replace(&mut tcb.session, SessionRef::Absent);
        let life = self.config.time_wait.as_nanos() as u64;
        let is_ours = self.sessions.get(session) == Found::Connection(index);
        if !is_ours {
            return;
        }
        if life == 0 || self.waits.len() >= self.waits_max {
            self.stats.time_wait_overflow += u64::from(life > 0);
            self.sessions.remove(session);
            return;
        }
        let wait = TimeWait {
            snd_nxt: tcb.snd_nxt,
            rcv_nxt: tcb.rcv_nxt,
            ts_recent: tcb.ts_recent,
            ts_offset: tcb.ts_offset,
            has_timestamps: tcb.flags.contains(Flag::TIMESTAMPS),
            window: tcb.announce(),
            until_ns: now_ns + life,
            listed_ns: now_ns + life,
        };
        self.sessions.wait(session, &wait);
        self.waits.push_back((wait.until_ns, session));
    }
    /// Begins TIME_WAIT anew: the peer sent its FIN again.
    pub(crate) fn restart_time_wait(
        &mut self,
        session: SessionRef,
        mut wait: TimeWait,
        now_ns: u64,
    ) {
        wait.until_ns = now_ns + self.config.time_wait.as_nanos() as u64;
        self.sessions.wait(session, &wait);
    }
    /// Sets the wheel for the connection's next deadline. A timer that is early enough stays: it is looked at when it
    /// fires, so that deadlines which move away cost nothing.
    #[inline]
    fn arm(&mut self, index: u32) {
        let Some(tcb) = self.tcbs.at_mut(index) else {
            return;
        };
        let Some(deadline) = tcb.deadline() else {
            return;
        };
        if tcb.armed.is_some() && tcb.armed_at <= deadline {
            return;
        }
        if let Some(timer) = tcb.armed.take() {
            self.wheel.cancel(timer);
        }
        tcb.armed = self.wheel.schedule(deadline, index.into());
        tcb.armed_at = deadline;
    }
    /// Returns when `on_timers` is to be called next, ns.
    pub(crate) fn next_timeout(&self) -> Option<u64> {
        let wait = self.waits.front().map(|(until, _)| *until);
        [self.wheel.next_timeout_ns(), wait]
            .into_iter()
            .flatten()
            .min()
    }
    /// Acts on all deadlines that have passed.
    pub(crate) fn on_timers(&mut self, now_ns: u64, told: &mut VecDeque<Told>) {
        while let Some(token) = self.wheel.pop(now_ns) {
            // A connection cancels its timer before its slot is free, so the slot is its own.
            let index = token as u32;
            if let Some((tcb, mut ctx)) = self.with(index, now_ns) {
                tcb.armed = None;
                let was_paced = tcb.is_paced();
                tcb.on_timer(&mut ctx);
                if was_paced && !tcb.is_paced() {
                    self.queue(index);
                }
            }
            self.settle(index, now_ns, told);
        }
        self.end_waits(now_ns);
    }
    fn end_waits(&mut self, now_ns: u64) {
        while let Some(&(until, session)) = self.waits.front() {
            if until > now_ns {
                break;
            }
            self.waits.pop_front();
            let Found::TimeWait(mut wait) = self.sessions.get(session) else {
                continue;
            };
            if wait.listed_ns != until || self.sessions.key(session).is_none() {
                continue;
            }
            if wait.until_ns <= now_ns {
                self.sessions.remove(session);
            } else {
                wait.listed_ns = wait.until_ns;
                self.sessions.wait(session, &wait);
                self.waits.push_back((wait.until_ns, session));
            }
        }
    }
    /// Removes a session in TIME_WAIT, for a new connection of the same ends.
    pub(crate) fn reuse(&mut self, session: SessionRef) {
        self.stats.time_wait_reused += 1;
        self.sessions.remove(session);
    }
    /// Returns how many sessions are in TIME_WAIT, about.
    pub(crate) fn waits(&self) -> usize {
        self.waits.len()
    }
}

impl Tcb {
    /// Says whether those who send and who read know already that the connection has something for them.
    #[inline]
    pub(crate) fn is_known_to_act(&self) -> bool {
        self.flags.contains(Flag::QUEUED | Flag::TOLD)
    }
    pub(crate) fn is_paced(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.is_paced)
    }
    /// Says whether `output` may have something to do.
    #[inline]
    pub(crate) fn wants_output(&self) -> bool {
        self.flags.intersects(
            Flag::ACK_NOW
                | Flag::SYN_NOW
                | Flag::PROBE_TAIL
                | Flag::PROBE_PEER
                | Flag::OVERRIDE
                | Flag::RESET_NOW
                | Flag::FORCE_RESEND,
        ) || self.state.is_synchronized()
            && self
                .active
                .as_ref()
                .is_some_and(|active| active.board.has_lost() || self.unsent() > 0)
            || self.state.is_synchronized()
                && self.flags.contains(Flag::FIN_QUEUED)
                && !self.flags.contains(Flag::FIN_SENT)
    }
}
