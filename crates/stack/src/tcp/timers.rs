//! Deadlines of a connection: one retransmission timer of several kinds, the delayed acknowledgement, and idle time.

use super::recovery::Phase;
use super::state::State;
use super::tcb::{Ctx, Flag, Tcb, Timer};
use crate::config::Modules;
use crate::error::Error;

impl Tcb {
    /// Returns the earliest deadline, ns; `None` for an idle connection.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let mut earliest = u64::MAX;
        let pace_at = self
            .active
            .as_ref()
            .filter(|active| active.is_paced)
            .map_or(0, |active| active.pace_at);
        for at in [self.timer_at, self.ack_at, self.idle_at, pace_at] {
            if at > 0 {
                earliest = earliest.min(at);
            }
        }
        (earliest != u64::MAX).then_some(earliest)
    }

    /// Sets the retransmission timer for what is in flight now.
    pub(crate) fn arm_retransmission(&mut self, ctx: &mut Ctx<'_>) {
        if matches!(
            self.state,
            State::SynSent | State::SynReceived | State::Closed
        ) || self.timer == Timer::Reorder
        {
            return;
        }
        let rto_ns = self.rto_ns(ctx.config);
        let unsent = self.unsent();
        let srtt_ns = u64::from(self.rtt.srtt_us) * 1000;
        let Some(active) = &self.active else {
            self.timer = Timer::None;
            self.timer_at = 0;
            return;
        };
        if active.board.is_empty() {
            let waits = unsent > 0 || self.has(Flag::FIN_QUEUED) && !self.has(Flag::FIN_SENT);
            let blocked = waits
                && (self.snd_wnd == 0
                    || unsent > self.snd_wnd && self.snd_wnd < self.segment_bytes());
            if !blocked {
                self.timer = Timer::None;
                self.timer_at = 0;
            } else if self.timer != Timer::Persist {
                self.timer = Timer::Persist;
                self.timer_at = ctx.now_ns + rto_ns;
            }
            return;
        }
        let may_probe = ctx.has(Modules::RACK_TLP)
            && self.has(Flag::SACK)
            && active.recovery.phase == Phase::Open
            && active.rack.tail.is_none()
            && active.board.sacked_bytes() == 0
            && srtt_ns > 0;
        let rto_at = ctx.now_ns + rto_ns;
        (self.timer, self.timer_at) = (Timer::Rto, rto_at);
        if may_probe {
            // RFC 8985 7.2: two round trips, and the peer's delay if one segment is all.
            let mut wait = 2 * srtt_ns;
            if active.board.len() == 1 {
                wait += ctx.config.delayed_ack.as_nanos() as u64 + srtt_ns / 2;
            } else {
                wait += 10_000;
            }
            if ctx.now_ns + wait < rto_at {
                (self.timer, self.timer_at) = (Timer::Tail, ctx.now_ns + wait);
            }
        }
    }

    /// Acts on the deadlines that have passed. Sets flags for `output`, or ends the connection.
    pub(crate) fn on_timer(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.now_ns;
        if self.ack_at > 0 && self.ack_at <= now {
            self.ack_at = 0;
            self.flags.insert(Flag::ACK_NOW);
            self.quick = 0;
        }
        if let Some(active) = &mut self.active
            && active.pace_at <= now
        {
            active.is_paced = false;
        }
        if self.timer_at > 0 && self.timer_at <= now {
            self.timer_at = 0;
            self.on_retransmission_timer(ctx);
        }
        if self.idle_at > 0 && self.idle_at <= now && self.state != State::Closed {
            self.idle_at = 0;
            self.on_idle_timer(ctx);
        }
    }

    fn on_retransmission_timer(&mut self, ctx: &mut Ctx<'_>) {
        match self.timer {
            Timer::None => {}
            Timer::Syn => self.on_syn_timer(ctx),
            Timer::Reorder => self.on_reorder_timer(ctx),
            Timer::Tail => {
                ctx.stats.tail_probes += 1;
                self.flags.insert(Flag::PROBE_TAIL);
                self.timer = Timer::Rto;
                self.timer_at = ctx.now_ns + self.rto_ns(ctx.config);
            }
            Timer::Rto => {
                if self.gives_up(ctx) {
                    return;
                }
                self.on_timeout(ctx);
                self.timer = Timer::Rto;
                self.timer_at = ctx.now_ns + self.rto_ns(ctx.config);
            }
            Timer::Persist => {
                // A peer that answers keeps the connection, however long its window is closed (RFC 9293 3.8.6.1).
                if self.tries >= self.retries(ctx) || self.user_timeout_passed(ctx) {
                    self.time_out(ctx);
                    return;
                }
                self.tries = self.tries.saturating_add(1);
                self.rtt.backoff = self.rtt.backoff.saturating_add(1);
                let flag = if self.snd_wnd > 0 {
                    Flag::OVERRIDE
                } else {
                    Flag::PROBE_PEER
                };
                self.flags.insert(flag);
                self.timer = Timer::Persist;
                self.timer_at = ctx.now_ns + self.rto_ns(ctx.config);
            }
        }
    }

    fn on_syn_timer(&mut self, ctx: &mut Ctx<'_>) {
        let is_passive = self.has(Flag::PASSIVE);
        let most = if is_passive {
            ctx.config.syn_ack_retries
        } else {
            ctx.config.syn_retries
        };
        if self.tries >= most || self.user_timeout_passed(ctx) {
            self.time_out(ctx);
            return;
        }
        self.tries += 1;
        self.rtt.backoff = self.tries;
        // RFC 7413 4.2: the second SYN goes without cookie and data.
        self.flags.remove(Flag::FAST_OPEN | Flag::SYN_DATA);
        self.flags.insert(Flag::SYN_NOW);
    }

    fn on_idle_timer(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.now_ns;
        if self.state == State::FinWait2 && self.has(Flag::ORPHAN) {
            self.end(None, ctx);
            return;
        }
        if self.active.is_some() {
            let trim_ns = ctx.config.trim_after.as_nanos() as u64;
            let last = self
                .heard_at
                .max(self.active.as_ref().map_or(0, |active| active.sent_at));
            if self.is_quiescent() && last + trim_ns <= now {
                // The time of the last segment goes with the working memory.
                self.restart_after_idle(ctx);
                self.deactivate(ctx);
            } else {
                let keepalive = self.keepalive_due(ctx);
                self.idle_at = keepalive.min(now + trim_ns.max(1));
                if keepalive > now {
                    return;
                }
            }
        }
        if !self.has(Flag::KEEPALIVE) {
            return;
        }
        let due = self.keepalive_due(ctx);
        if due > now {
            self.idle_at = due;
            return;
        }
        let settings = self.settings.as_deref().copied().unwrap_or_default();
        let probes = settings
            .keepalive_probes
            .unwrap_or(ctx.config.keepalive_probes);
        let interval = settings
            .keepalive_interval
            .unwrap_or(ctx.config.keepalive_interval);
        let in_flight = self
            .active
            .as_ref()
            .is_some_and(|active| !active.board.is_empty());
        if in_flight || self.unsent() > 0 {
            // The retransmission timer watches.
            self.idle_at = now + interval.as_nanos() as u64;
            return;
        }
        if self.tries >= probes {
            self.flags.insert(Flag::RESET_NOW);
            self.time_out(ctx);
            return;
        }
        self.tries += 1;
        self.flags.insert(Flag::PROBE_PEER);
        self.idle_at = now + interval.as_nanos() as u64;
    }

    fn keepalive_due(&self, ctx: &Ctx<'_>) -> u64 {
        if !self.has(Flag::KEEPALIVE) || !self.state.is_synchronized() {
            return u64::MAX;
        }
        let settings = self.settings.as_deref().copied().unwrap_or_default();
        let idle = settings.keepalive_idle.unwrap_or(ctx.config.keepalive_idle);
        let interval = settings
            .keepalive_interval
            .unwrap_or(ctx.config.keepalive_interval);
        self.heard_at + idle.as_nanos() as u64 + interval.as_nanos() as u64 * u64::from(self.tries)
    }

    /// Retransmissions or window probes before the peer is given up: fewer for an orphan, as in Linux
    /// (tcp_orphan_retries).
    fn retries(&self, ctx: &Ctx<'_>) -> u8 {
        if self.has(Flag::ORPHAN) {
            ctx.config.retries.min(8)
        } else {
            ctx.config.retries
        }
    }

    fn gives_up(&mut self, ctx: &mut Ctx<'_>) -> bool {
        let over = if self.user_timeout().is_some() {
            self.user_timeout_passed(ctx)
        } else {
            self.rtt.backoff >= self.retries(ctx)
        };
        if over {
            self.time_out(ctx);
        }
        over
    }

    fn user_timeout(&self) -> Option<u64> {
        self.settings
            .as_ref()?
            .user_timeout
            .map(|timeout| timeout.as_nanos() as u64)
    }

    fn user_timeout_passed(&self, ctx: &Ctx<'_>) -> bool {
        self.user_timeout()
            .is_some_and(|timeout| ctx.now_ns >= self.stalled_at + timeout)
    }

    /// Ends the connection for want of an answer.
    pub(crate) fn time_out(&mut self, ctx: &mut Ctx<'_>) {
        let error = if self.has(Flag::SOFT_ERROR) {
            Error::HostUnreachable
        } else {
            Error::TimedOut
        };
        self.end(Some(error), ctx);
    }
}
