//! What a connection sends, and when: retransmissions, new data, FIN, probes, acknowledgements (RFC 9293 3.8).

use wire::tcp::Flags;

use super::emit::{Header, Path, emit};
use super::recovery::Phase;
use super::scoreboard::{Mark, Sent};
use super::seq::Seq;
use super::state::State;
use super::tcb::{Ctx, Flag, Tcb, Timer};
use crate::config::Modules;
use crate::sink::TxSink;

/// How far sending came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Nothing is left that may be sent now.
    Done,
    /// The turn is over; there is more.
    More,
    /// The sink is full.
    Full,
}

impl Tcb {
    /// Sends what may be sent now, `turn` segments with data at most.
    pub(crate) fn output<S: TxSink>(
        &mut self,
        path: &Path,
        turn: u32,
        sink: &mut S,
        ctx: &mut Ctx<'_>,
    ) -> Output {
        if self.has(Flag::RESET_NOW) {
            let header = self.header(Flags::RST | Flags::ACK, self.snd_nxt, ctx);
            if !emit(path, &header, 0, |_| true, sink) {
                return Output::Full;
            }
            ctx.stats.resets_out += 1;
            ctx.stats.segments_out += 1;
            self.flags.remove(Flag::RESET_NOW);
            return Output::Done;
        }
        if self.has(Flag::SYN_NOW) && !self.send_syn(path, sink, ctx) {
            return Output::Full;
        }
        if self.state == State::SynReceived {
            // A segment that was not acceptable, or a challenge (RFC 9293 3.10.7.4, RFC 5961 3.2).
            return self.send_acknowledgement(path, sink, ctx);
        }
        if !self.state.is_synchronized()
            || self.state == State::TimeWait && !self.has(Flag::ACK_NOW)
        {
            return Output::Done;
        }
        let mut result = Output::Done;
        if self.active.is_some() {
            result = self.send_data(path, turn, sink, ctx);
        }
        if result != Output::Full && self.may_send_bare_fin() {
            result = if self.send_fin(path, sink, ctx) {
                result
            } else {
                Output::Full
            };
        }
        if result == Output::Full {
            return result;
        }
        if self.has(Flag::PROBE_PEER) {
            // A byte that the peer has: it answers with its window (as Linux; RFC 9293 3.8.4).
            let header = self.header(Flags::ACK, self.snd_una.minus(1), ctx);
            if !emit(path, &header, 0, |_| true, sink) {
                return Output::Full;
            }
            ctx.stats.peer_probes += 1;
            ctx.stats.segments_out += 1;
            self.flags.remove(Flag::PROBE_PEER);
        }
        match self.send_acknowledgement(path, sink, ctx) {
            Output::Full => Output::Full,
            _ => result,
        }
    }

    /// Sends a bare acknowledgement if one is due.
    fn send_acknowledgement<S: TxSink>(
        &mut self,
        path: &Path,
        sink: &mut S,
        ctx: &mut Ctx<'_>,
    ) -> Output {
        if self.has(Flag::ACK_NOW) {
            let mut header = self.header(Flags::ACK, self.snd_nxt, ctx);
            self.add_sack(&mut header);
            if !emit(path, &header, 0, |_| true, sink) {
                return Output::Full;
            }
            ctx.stats.segments_out += 1;
            self.acknowledged();
        }
        Output::Done
    }

    /// Returns the header of a segment from `seq`, as it stands now.
    fn header(&mut self, flags: Flags, seq: Seq, ctx: &Ctx<'_>) -> Header {
        let mut flags = flags;
        if self.has(Flag::ECE) && flags.contains(Flags::ACK) && !flags.contains(Flags::RST) {
            flags |= Flags::ECE;
        }
        let window = self.announce();
        let mut header = Header::new(flags, seq, self.rcv_nxt, window);
        if self.has(Flag::TIMESTAMPS) {
            header.timestamps(self.timestamp(ctx.now_ns), self.ts_recent);
        }
        header
    }

    /// Notes that the peer was told what arrived.
    fn acknowledged(&mut self) {
        self.flags.remove(Flag::ACK_NOW);
        self.ack_at = 0;
        self.unacked_segments = 0;
        self.last_ack_sent = self.rcv_nxt;
    }

    fn add_sack(&mut self, header: &mut Header) {
        if !self.has(Flag::SACK) {
            return;
        }
        let Some(active) = &self.active else { return };
        let is_dsack = self.flags.contains(Flag::DSACK);
        if !is_dsack && !active.receive.has_holes() {
            return;
        }
        let most = if self.flags.contains(Flag::TIMESTAMPS) {
            3
        } else {
            4
        };
        let mut blocks = [(0, 0); 4];
        let mut count = 0;
        if is_dsack {
            blocks[0] = (active.dsack.0.0, active.dsack.1.0);
            count = 1;
        }
        let room = blocks.get_mut(count..most).unwrap_or_default();
        let beyond = active.receive.sack_blocks(room);
        for block in room.iter_mut().take(beyond) {
            // The FIN has a number too: a peer would take its last segment for lost.
            if active.fin_end.is_some_and(|end| end.minus(1).0 == block.1) {
                block.1 = block.1.wrapping_add(1);
            }
        }
        count += beyond;
        self.flags.remove(Flag::DSACK);
        header.sack(blocks.get(..count).unwrap_or_default());
    }

    /// Sends retransmissions first, then new data.
    fn send_data<S: TxSink>(
        &mut self,
        path: &Path,
        turn: u32,
        sink: &mut S,
        ctx: &mut Ctx<'_>,
    ) -> Output {
        self.restart_after_idle(ctx);
        let mut sent = 0;
        let mut is_full = false;
        let mut result = Output::Done;
        if self.has(Flag::PROBE_TAIL) {
            self.flags.remove(Flag::PROBE_TAIL);
            match self.send_tail_probe(path, sink, ctx) {
                Some(true) => sent += 1,
                Some(false) => {
                    self.flags.insert(Flag::PROBE_TAIL);
                    is_full = true;
                }
                None => {}
            }
        }
        while !is_full {
            if sent >= turn {
                result = Output::More;
                break;
            }
            if self.is_held_by_pace(ctx) {
                break;
            }
            let step = match self.next_resend() {
                Some(lost) => self.resend(lost, path, sink, ctx),
                None => match self.next_new(ctx) {
                    Some(bytes) => self.send_new(bytes, path, sink, ctx),
                    None => break,
                },
            };
            is_full = !step;
            sent += u32::from(step);
        }
        if sent > 0 {
            if let Some(active) = &mut self.active {
                active.sent_at = ctx.now_ns;
            }
            if self.timer != Timer::Rto || self.timer_at == 0 {
                self.arm_retransmission(ctx);
            }
        } else if self.timer == Timer::None {
            self.arm_retransmission(ctx);
        }
        if is_full { Output::Full } else { result }
    }

    /// RFC 5681 4.1: after a pause the window is not trusted.
    pub(crate) fn restart_after_idle(&mut self, ctx: &mut Ctx<'_>) {
        let rto_ns = self.rtt.rto_once_us(ctx.config) * 1000;
        let initial = ctx.config.initial_window * self.segment_bytes();
        if let Some(active) = &mut self.active
            && active.board.is_empty()
            && active.sent_at > 0
            && ctx.now_ns.saturating_sub(active.sent_at) > rto_ns
        {
            active
                .controller
                .get_mut()
                .on_idle_restart(ctx.now_ns, initial);
            active.sent_at = ctx.now_ns;
        }
    }

    /// Says whether pacing holds the next segment back, and sees to it that it is sent in time.
    fn is_held_by_pace(&mut self, ctx: &Ctx<'_>) -> bool {
        let Some(active) = &mut self.active else {
            return true;
        };
        if active.pace_at <= ctx.now_ns {
            return false;
        }
        let waits =
            active.board.has_lost() || active.send.len() as u32 > self.snd_nxt.since(self.snd_una);
        active.is_paced = waits;
        true
    }

    /// Returns the next lost segment that the window lets go.
    fn next_resend(&mut self) -> Option<Sent> {
        let mss = self.segment_bytes();
        let force = self.has(Flag::FORCE_RESEND);
        let active = self.active.as_mut()?;
        if !active.board.has_lost() {
            return None;
        }
        let window = active.window();
        let in_flight = active.in_flight(mss);
        if !force && in_flight > 0 && in_flight + mss > window {
            active.window_limited = true;
            return None;
        }
        active.board.next_lost(mss)
    }

    fn resend<S: TxSink>(
        &mut self,
        lost: Sent,
        path: &Path,
        sink: &mut S,
        ctx: &mut Ctx<'_>,
    ) -> bool {
        let has_fin = lost.mark.contains(Mark::FIN);
        let bytes = (lost.bytes() - u32::from(has_fin)) as usize;
        let mut flags = Flags::ACK;
        flags.set(Flags::FIN, has_fin);
        flags.set(Flags::PSH, bytes > 0 && lost.end == self.snd_nxt);
        let header = self.header(flags, lost.start, ctx);
        let offset = lost.start.since(self.snd_una) as usize;
        let stamp = self.timestamp(ctx.now_ns);
        let mss = self.segment_bytes();
        let Some(active) = &mut self.active else {
            return false;
        };
        if !emit(
            path,
            &header,
            bytes,
            |to| active.send.copy_to(offset, to),
            sink,
        ) {
            return false;
        }
        let rate = &mut active.rate;
        let in_flight = active.board.pipe();
        rate.on_send(ctx.now_ns, in_flight);
        active.board.resend(
            lost.start,
            ctx.now_ns,
            rate.delivered,
            rate.delivered_at,
            rate.first_sent_at,
        );
        active.recovery.on_resend(stamp);
        active.recovery.on_send(lost.bytes());
        let _ = mss;
        self.flags.remove(Flag::FORCE_RESEND);
        self.pace(bytes as u32, ctx);
        ctx.stats.segments_resent += 1;
        ctx.stats.segments_out += 1;
        self.acknowledged_by_data();
        true
    }

    /// Data acknowledges too, unless a SACK is due, which data does not carry.
    fn acknowledged_by_data(&mut self) {
        let needs_sack = self.has(Flag::DSACK)
            || self.has(Flag::SACK)
                && self
                    .active
                    .as_ref()
                    .is_some_and(|active| active.receive.has_holes());
        if !needs_sack {
            self.acknowledged();
        }
    }

    /// Returns the length of the next new segment, if one may go (RFC 9293 3.8.6.2.1, 3.7.4).
    fn next_new(&mut self, ctx: &Ctx<'_>) -> Option<u32> {
        let mss = self.segment_bytes();
        let unsent = self.unsent();
        let flight = self.snd_nxt.since(self.snd_una);
        let peer_room = self.snd_wnd.saturating_sub(flight);
        let wants_override = self.has(Flag::OVERRIDE);
        let (nodelay, cork, fin) = (
            self.has(Flag::NODELAY),
            self.has(Flag::CORK),
            self.has(Flag::FIN_QUEUED),
        );
        let half = self.snd_wnd_max / 2;
        let probe = if ctx.has(Modules::PLPMTUD) {
            self.probe_size(unsent, peer_room)
        } else {
            None
        };
        let active = self.active.as_mut()?;
        let (window, in_flight) = (active.window(), active.in_flight(mss));
        if unsent == 0 {
            active.window_limited |=
                in_flight * 2 > window && window < active.controller.get().threshold();
            active.rate.app_limited_until = (active.rate.delivered + u64::from(in_flight)).max(1);
            return None;
        }
        let bytes = probe.unwrap_or(mss).min(unsent).min(peer_room);
        if bytes == 0 {
            return None;
        }
        if in_flight > 0 && in_flight + bytes > window {
            active.window_limited = true;
            return None;
        }
        let is_last = bytes == unsent;
        let may_go = bytes >= mss
            || is_last && (fin || !cork && (nodelay || flight == 0))
            || bytes >= half && !cork
            || wants_override;
        if !may_go {
            return None;
        }
        active.window_limited = in_flight + bytes + mss > window;
        Some(bytes)
    }

    fn send_new<S: TxSink>(
        &mut self,
        bytes: u32,
        path: &Path,
        sink: &mut S,
        ctx: &mut Ctx<'_>,
    ) -> bool {
        let is_last = bytes == self.unsent();
        let takes_fin = is_last && self.has(Flag::FIN_QUEUED) && !self.has(Flag::FIN_SENT);
        let mut flags = Flags::ACK;
        flags.set(Flags::PSH, is_last);
        flags.set(Flags::FIN, takes_fin);
        let cwr = self.has(Flag::ECN) && self.has(Flag::CWR);
        flags.set(Flags::CWR, cwr);
        let mut header = self.header(flags, self.snd_nxt, ctx);
        header.is_capable = self.has(Flag::ECN);
        let offset = self.snd_nxt.since(self.snd_una) as usize;
        let Some(active) = &mut self.active else {
            return false;
        };
        if !emit(
            path,
            &header,
            bytes as usize,
            |to| active.send.copy_to(offset, to),
            sink,
        ) {
            return false;
        }
        if cwr {
            self.flags.remove(Flag::CWR);
        }
        if takes_fin {
            self.flags.insert(Flag::FIN_SENT);
        }
        let is_probe = bytes > self.segment_bytes();
        self.track(bytes, takes_fin, ctx);
        if is_probe {
            let start = self.snd_nxt.minus(bytes + u32::from(takes_fin));
            self.probe_sent(start, bytes);
        }
        self.flags.remove(Flag::OVERRIDE);
        self.pace(bytes, ctx);
        self.acknowledged_by_data();
        true
    }

    /// Puts a segment that was just sent on the scoreboard.
    fn track(&mut self, bytes: u32, has_fin: bool, ctx: &mut Ctx<'_>) {
        let start = self.snd_nxt;
        let end = start.plus(bytes + u32::from(has_fin));
        self.snd_nxt = end;
        ctx.stats.segments_out += 1;
        let was_empty = start == self.snd_una;
        self.activate(ctx);
        let Some(active) = &mut self.active else {
            return;
        };
        active.rate.on_send(ctx.now_ns, active.board.pipe());
        let mut mark = Mark::empty();
        mark.set(Mark::FIN, has_fin);
        mark.set(Mark::APP_LIMITED, active.rate.app_limited_until > 0);
        active.board.push(Sent {
            start,
            end,
            mark,
            sent_at: ctx.now_ns,
            delivered: active.rate.delivered,
            delivered_at: active.rate.delivered_at,
            first_sent_at: active.rate.first_sent_at,
        });
        active.recovery.on_send(bytes);
        if was_empty {
            self.stalled_at = ctx.now_ns;
        }
    }

    fn pace(&mut self, bytes: u32, ctx: &Ctx<'_>) {
        if !ctx.has(Modules::PACING) {
            return;
        }
        let Some(active) = &mut self.active else {
            return;
        };
        let Some(rate) = active.controller.get().pacing_rate() else {
            return;
        };
        // A sender that woke late may catch up by a quarter of a millisecond.
        let from = active.pace_at.max(ctx.now_ns.saturating_sub(250_000));
        active.pace_at = from + u64::from(bytes + 66) * 1_000_000_000 / rate.max(1);
    }

    /// RFC 8985 7.3: new data if there is some, otherwise the last segment again. `None`: nothing to send.
    fn send_tail_probe<S: TxSink>(
        &mut self,
        path: &Path,
        sink: &mut S,
        ctx: &mut Ctx<'_>,
    ) -> Option<bool> {
        let mss = self.segment_bytes();
        let unsent = self.unsent();
        let room = self
            .snd_wnd
            .saturating_sub(self.snd_nxt.since(self.snd_una));
        let new = mss.min(unsent).min(room);
        if self.active.as_ref()?.recovery.phase != Phase::Open {
            return None;
        }
        let is_resend = new == 0;
        let done = if is_resend {
            let last = *self.active.as_ref()?.board.last()?;
            self.resend(last, path, sink, ctx)
        } else {
            self.send_new(new, path, sink, ctx)
        };
        let end = self.snd_nxt;
        if done && let Some(active) = &mut self.active {
            active.rack.tail = Some((end, is_resend));
            self.timer = Timer::Rto;
            self.timer_at = ctx.now_ns + self.rto_ns(ctx.config);
        }
        Some(done)
    }

    fn may_send_bare_fin(&self) -> bool {
        self.has(Flag::FIN_QUEUED)
            && !self.has(Flag::FIN_SENT)
            && self.unsent() == 0
            && self.snd_una.at_or_before(self.snd_nxt)
    }

    fn send_fin<S: TxSink>(&mut self, path: &Path, sink: &mut S, ctx: &mut Ctx<'_>) -> bool {
        let header = self.header(Flags::FIN | Flags::ACK, self.snd_nxt, ctx);
        if !emit(path, &header, 0, |_| true, sink) {
            return false;
        }
        self.flags.insert(Flag::FIN_SENT);
        self.track(0, true, ctx);
        self.acknowledged_by_data();
        self.timer = Timer::None;
        self.arm_retransmission(ctx);
        true
    }

    /// Sends the SYN or the SYN-ACK, options as Linux lays them out.
    fn send_syn<S: TxSink>(&mut self, path: &Path, sink: &mut S, ctx: &mut Ctx<'_>) -> bool {
        let is_reply = self.state == State::SynReceived;
        let mut flags = Flags::SYN;
        flags.set(Flags::ACK, is_reply);
        if self.has(Flag::ECN) {
            flags |= if is_reply {
                Flags::ECE
            } else {
                Flags::ECE | Flags::CWR
            };
        }
        let window = self.initial_window();
        let mut header = Header::new(
            flags,
            self.iss,
            if is_reply { self.rcv_nxt } else { Seq(0) },
            window as u16,
        );
        let advertised = path.mss();
        header.syn_options(super::emit::SynOptions {
            mss: advertised,
            sack: self.has(Flag::SACK),
            timestamps: self
                .has(Flag::TIMESTAMPS)
                .then(|| (self.timestamp(ctx.now_ns), self.ts_recent)),
            scale: self.has(Flag::SCALING).then_some(self.rcv_shift),
        });
        let cookie = path
            .fast_open
            .filter(|_| is_reply || self.has(Flag::FAST_OPEN));
        if let Some(cookie) = &cookie {
            header.fast_open(cookie);
        }
        let has_cookie = cookie.is_some_and(|cookie| !cookie.is_empty()) && !is_reply;
        let most = self.mss.saturating_sub(40) as usize;
        let data = self
            .active
            .as_ref()
            .filter(|_| has_cookie)
            .map_or(0, |active| active.send.len().min(most));
        let active = &self.active;
        let fill = |to: &mut [u8]| {
            active
                .as_ref()
                .is_none_or(|active| active.send.copy_to(0, to))
        };
        if !emit(path, &header, data, fill, sink) {
            return false;
        }
        if self.tries == 0 {
            self.stalled_at = ctx.now_ns;
        } else {
            ctx.stats.segments_resent += 1;
        }
        ctx.stats.segments_out += 1;
        if is_reply {
            self.rcv_adv = self.rcv_nxt.plus(window);
            self.acknowledged();
        }
        self.flags.set(Flag::SYN_DATA, data > 0);
        self.snd_nxt = self.snd_nxt.later(self.iss.plus(1 + data as u32));
        self.flags.remove(Flag::SYN_NOW);
        self.timer = Timer::Syn;
        self.timer_at = ctx.now_ns + self.rto_ns(ctx.config);
        true
    }
}
