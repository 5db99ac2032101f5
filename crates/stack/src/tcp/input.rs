//! SEGMENT ARRIVES (RFC 9293 3.10.7), with the checks of RFC 5961 and RFC 7323.

use wire::tcp::Flags;

use super::receive_buffer::Received;
use super::segment::Segment;
use super::seq::Seq;
use super::state::State;
use super::tcb::{Ctx, Flag, Tcb, Timer};
use crate::config::Modules;
use crate::error::Error;
use crate::event::Ready;

/// After so long without a segment, a timestamp no longer counts (RFC 7323 5.5), s.
const TIMESTAMP_LIFE_S: u32 = 24 * 86_400;
/// The least time between two challenges of a connection.
const CHALLENGE_MS: u32 = 500;

/// What is to be sent that the connection itself does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Nothing.
    None,
    /// A reset that takes its numbers from the segment.
    Reset,
}

impl Tcb {
    /// Takes a segment of this connection.
    pub(crate) fn on_segment(&mut self, segment: &Segment<'_>, ctx: &mut Ctx<'_>) -> Reply {
        self.heard_at = ctx.now_ns;
        match self.state {
            State::Closed | State::TimeWait => Reply::None,
            State::SynSent => self.in_syn_sent(segment, ctx),
            _ => self.in_other_states(segment, ctx),
        }
    }

    /// Takes the segment that most connections get most of the time, if it is one (header prediction, after Jacobson):
    /// the next data, while nothing of ours is in flight. All that the general way would do with it, and nothing else;
    /// false, and nothing done, for any other.
    #[inline]
    pub(crate) fn take_next(&mut self, segment: &Segment<'_>, ctx: &mut Ctx<'_>) -> bool {
        let is_next = self.state == State::Established
            && segment.flags.difference(Flags::PSH) == Flags::ACK
            && segment.seq == self.rcv_nxt
            && segment.ack == self.snd_nxt
            && self.snd_una == self.snd_nxt
            && self.timer == Timer::None
            && !self.flags.intersects(Flag::ECN | Flag::DEAF | Flag::ORPHAN);
        let bytes = segment.payload.len();
        let room = self.rcv_adv.diff(self.rcv_nxt).max(0) as usize;
        if !is_next || bytes == 0 || bytes > room {
            return false;
        }
        let stamp = segment.options.timestamps.map(|(value, _)| value);
        if stamp.is_some() != self.has(Flag::TIMESTAMPS)
            || stamp.is_some_and(|value| Seq(value).before(Seq(self.ts_recent)))
        {
            return false;
        }
        let Some(active) = &mut self.active else {
            return false;
        };
        if active.receive.has_holes() || active.fin_end.is_some() {
            return false;
        }
        let Received::InOrder(written) =
            active
                .receive
                .write(self.rcv_nxt, segment.seq, segment.payload, ctx.pool)
        else {
            return false;
        };
        self.heard_at = ctx.now_ns;
        self.tries = 0;
        self.update_window(segment);
        if let Some(value) = stamp
            && segment.seq.at_or_before(self.last_ack_sent)
        {
            self.set_ts_recent(value, ctx.now_ns);
        }
        self.rcv_nxt = self.rcv_nxt.plus(written as u32);
        self.ready |= Ready::READABLE;
        if written < bytes {
            self.flags.insert(Flag::ACK_NOW);
        }
        self.plan_ack(true, ctx);
        true
    }

    /// RFC 9293 3.10.7.3.
    fn in_syn_sent(&mut self, segment: &Segment<'_>, ctx: &mut Ctx<'_>) -> Reply {
        let has_ack = segment.has(Flags::ACK);
        if has_ack && (segment.ack.at_or_before(self.iss) || segment.ack.after(self.snd_nxt)) {
            return if segment.has(Flags::RST) {
                Reply::None
            } else {
                Reply::Reset
            };
        }
        if segment.has(Flags::RST) {
            if has_ack {
                ctx.stats.resets_in += 1;
                self.end(Some(Error::ConnectionRefused), ctx);
            }
            return Reply::None;
        }
        if !segment.has(Flags::SYN) {
            return Reply::None;
        }
        if has_ack
            && let Some((_, echo)) = segment.options.timestamps
            && self.has(Flag::TIMESTAMPS)
        {
            // RFC 7323 3.2: the echo is of our SYN.
            let sent = self.timestamp(ctx.now_ns).wrapping_sub(echo);
            if sent > 600_000 {
                return Reply::Reset;
            }
        }
        self.take_syn(segment, ctx);
        if !has_ack {
            // Simultaneous open (3.5, figure 8).
            self.state = State::SynReceived;
            self.snd_nxt = self.iss;
            self.tries = 0;
            self.flags.remove(Flag::SYN_DATA | Flag::FAST_OPEN);
            self.flags.insert(Flag::SYN_NOW);
            return Reply::None;
        }
        if segment.has(Flags::ECE) && !segment.has(Flags::CWR) && self.has(Flag::ECN) {
            self.flags.insert(Flag::ECN);
        } else {
            self.flags.remove(Flag::ECN);
        }
        self.establish(segment, ctx);
        self.flags.insert(Flag::ACK_NOW);
        if !segment.payload.is_empty() || segment.has(Flags::FIN) {
            let data = Segment {
                seq: segment.seq.plus(1),
                ..*segment
            };
            self.take_data(&data, ctx);
        }
        Reply::None
    }

    /// Takes the peer's SYN: numbers and options. Options that were not offered do not count.
    pub(crate) fn take_syn(&mut self, segment: &Segment<'_>, ctx: &mut Ctx<'_>) {
        let options = &segment.options;
        self.irs = segment.seq;
        self.rcv_nxt = segment.seq.plus(1);
        self.last_ack_sent = self.rcv_nxt;
        self.peer_mss = options.mss.unwrap_or(536).max(88);
        let mss = self.mss.min(self.peer_mss);
        self.mss = mss;
        match options.scale {
            Some(shift) if self.has(Flag::SCALING) => self.snd_shift = shift,
            _ => {
                self.flags.remove(Flag::SCALING);
                self.rcv_shift = 0;
                self.rcv_limit = self.rcv_limit.min(65_535);
            }
        }
        if !options.sack_permitted {
            self.flags.remove(Flag::SACK);
        }
        match options.timestamps {
            Some((value, _)) if self.has(Flag::TIMESTAMPS) => self.set_ts_recent(value, ctx.now_ns),
            _ => self.flags.remove(Flag::TIMESTAMPS),
        }
        self.window = ctx.config.initial_window * self.segment_bytes();
        self.snd_wnd = u32::from(segment.window);
        self.snd_wnd_max = self.snd_wnd;
        self.snd_wl1 = segment.seq;
        self.snd_wl2 = segment.ack;
        self.rcv_adv = self.rcv_nxt.plus(self.initial_window());
    }

    /// Both SYNs are acknowledged.
    fn establish(&mut self, segment: &Segment<'_>, ctx: &mut Ctx<'_>) {
        let syn_at = self.stalled_at;
        self.snd_una = self.iss.plus(1);
        if self.snd_nxt.before(self.snd_una) {
            self.snd_nxt = self.snd_una;
        }
        if self.tries == 0 && ctx.now_ns > syn_at && syn_at > 0 {
            self.rtt
                .sample(u32::try_from((ctx.now_ns - syn_at) / 1000).unwrap_or(u32::MAX));
        }
        self.rtt.backoff = 0;
        if self.tries > 1 {
            // RFC 5681 3.1: more than one SYN lost.
            self.window = self.segment_bytes();
        }
        self.tries = 0;
        self.state = State::Established;
        self.timer = Timer::None;
        self.timer_at = 0;
        self.stalled_at = ctx.now_ns;
        self.snd_wl1 = segment.seq;
        self.snd_wl2 = segment.ack;
        // Data of a Fast Open SYN: what was acknowledged is delivered, the rest is sent anew.
        let taken = segment.ack.since(self.snd_una);
        if taken > 0
            && segment.ack.at_or_before(self.snd_nxt)
            && let Some(active) = &mut self.active
        {
            active.send.consume(taken as usize, ctx.pool);
            ctx.stats.fast_opens += 1;
        }
        self.snd_una = segment.ack;
        self.snd_nxt = segment.ack;
        if self.has(Flag::KEEPALIVE) {
            let idle = self
                .settings
                .as_ref()
                .and_then(|settings| settings.keepalive_idle);
            self.idle_at = ctx.now_ns + idle.unwrap_or(ctx.config.keepalive_idle).as_nanos() as u64;
        }
        self.ready |= Ready::CONNECTED | Ready::WRITABLE;
        if self.has(Flag::FIN_QUEUED) {
            self.state = State::FinWait1;
        }
    }

    /// RFC 9293 3.10.7.4.
    fn in_other_states(&mut self, segment: &Segment<'_>, ctx: &mut Ctx<'_>) -> Reply {
        if self.is_syn_ack_of_simultaneous_open(segment) {
            return self.acknowledge_syn(segment, ctx);
        }
        if self.state == State::SynReceived
            && segment.has(Flags::SYN)
            && segment.seq == self.irs
            && !segment.has(Flags::ACK)
        {
            // Our SYN-ACK was lost.
            self.flags.insert(Flag::SYN_NOW);
            return Reply::None;
        }
        if !self.passes_paws(segment, ctx) {
            return Reply::None;
        }
        if !self.is_acceptable(segment) {
            if !segment.has(Flags::RST) {
                self.report_duplicate(segment, ctx);
                self.flags.insert(Flag::ACK_NOW);
            }
            return Reply::None;
        }
        if segment.has(Flags::RST) {
            return self.take_reset(segment, ctx);
        }
        if segment.has(Flags::SYN) {
            // RFC 5961 4.
            self.challenge(ctx);
            return Reply::None;
        }
        if !segment.has(Flags::ACK) {
            return Reply::None;
        }
        if self.state == State::SynReceived {
            let reply = self.acknowledge_syn(segment, ctx);
            if reply != Reply::None || self.state == State::SynReceived {
                return reply;
            }
        } else if !self.on_ack(segment, ctx) {
            return Reply::None;
        }
        // RFC 7323 4.3; a segment whose acknowledgement is refused teaches nothing.
        if let Some((value, _)) = segment.options.timestamps
            && self.has(Flag::TIMESTAMPS)
            && segment.seq.at_or_before(self.last_ack_sent)
            && Seq(value).at_or_after(Seq(self.ts_recent))
        {
            self.set_ts_recent(value, ctx.now_ns);
        }
        self.after_ack(ctx);
        if self.state == State::Closed
            || self.state == State::TimeWait
                && self.snd_una == self.snd_nxt
                && segment.length() == 0
        {
            return Reply::None;
        }
        self.take_mark(segment);
        if segment.length() > 0 {
            return self.take_data(segment, ctx);
        }
        Reply::None
    }

    fn is_syn_ack_of_simultaneous_open(&self, segment: &Segment<'_>) -> bool {
        self.state == State::SynReceived
            && !self.has(Flag::PASSIVE)
            && segment.flags.contains(Flags::SYN | Flags::ACK)
            && !segment.has(Flags::RST)
            && segment.seq == self.irs
            && segment.payload.is_empty()
    }

    fn acknowledge_syn(&mut self, segment: &Segment<'_>, ctx: &mut Ctx<'_>) -> Reply {
        if segment.ack.at_or_before(self.iss) || segment.ack.after(self.snd_nxt) {
            return Reply::Reset;
        }
        if self.has(Flag::PASSIVE) && !self.has(Flag::ACCEPTABLE) && !self.has(Flag::OWNED) {
            // The listener decides whether there is room; it sets the flag first.
            return Reply::None;
        }
        self.establish(segment, ctx);
        if segment.has(Flags::SYN) {
            self.flags.insert(Flag::ACK_NOW);
        } else {
            self.snd_wnd = u32::from(segment.window) << self.snd_shift;
        }
        self.snd_wnd_max = self.snd_wnd_max.max(self.snd_wnd);
        Reply::None
    }

    /// PAWS (RFC 7323 5.3); resets are not checked.
    fn passes_paws(&mut self, segment: &Segment<'_>, ctx: &mut Ctx<'_>) -> bool {
        let Some((value, _)) = segment.options.timestamps else {
            return true;
        };
        if !self.has(Flag::TIMESTAMPS)
            || segment.has(Flags::RST)
            || Seq(value).at_or_after(Seq(self.ts_recent))
        {
            return true;
        }
        let now_s = (ctx.now_ns / 1_000_000_000) as u32;
        if now_s.wrapping_sub(self.ts_recent_s) > TIMESTAMP_LIFE_S {
            return true;
        }
        ctx.stats.paws += 1;
        self.report_duplicate(segment, ctx);
        self.flags.insert(Flag::ACK_NOW);
        false
    }

    fn set_ts_recent(&mut self, value: u32, now_ns: u64) {
        self.ts_recent = value;
        self.ts_recent_s = (now_ns / 1_000_000_000) as u32;
    }

    /// The four cases of RFC 9293 3.4, the window's right edge included for what carries nothing.
    fn is_acceptable(&self, segment: &Segment<'_>) -> bool {
        let (start, length) = (segment.seq, segment.length());
        let window = self.rcv_adv.since(self.rcv_nxt);
        if window > u32::MAX / 2 {
            return start == self.rcv_nxt;
        }
        if length == 0 {
            return start.at_or_after(self.rcv_nxt) && start.at_or_before(self.rcv_adv);
        }
        if window == 0 {
            // Its acknowledgement, and a FIN, count; its data is cut (3.10.7.4 allows it).
            return start == self.rcv_nxt;
        }
        let last = segment.end().minus(1);
        start.is_within(self.rcv_nxt, self.rcv_adv)
            || last.is_within(self.rcv_nxt, self.rcv_adv)
            || start.before(self.rcv_nxt) && last.at_or_after(self.rcv_adv)
    }

    /// RFC 5961 3: only the exact sequence number resets.
    fn take_reset(&mut self, segment: &Segment<'_>, ctx: &mut Ctx<'_>) -> Reply {
        if segment.seq != self.rcv_nxt {
            self.challenge(ctx);
            return Reply::None;
        }
        ctx.stats.resets_in += 1;
        let error = match self.state {
            State::SynReceived if self.has(Flag::PASSIVE) => None,
            State::SynReceived => Some(Error::ConnectionRefused),
            State::CloseWait => Some(Error::BrokenPipe),
            State::Closing | State::LastAck => None,
            _ => Some(Error::ConnectionReset),
        };
        self.end(error, ctx);
        Reply::None
    }

    /// A challenge acknowledgement (RFC 5961), one in half a second: ten in five, as section 7 proposes. Each connection has
    /// its own limit: one for all would tell an attacker of other connections (CVE-2016-5696).
    pub(crate) fn challenge(&mut self, ctx: &mut Ctx<'_>) {
        let now_ms = (ctx.now_ns / 1_000_000) as u32;
        if self.challenged_ms != 0 && now_ms.wrapping_sub(self.challenged_ms) < CHALLENGE_MS {
            ctx.stats.challenges_withheld += 1;
            return;
        }
        self.challenged_ms = now_ms.max(1);
        ctx.stats.challenges += 1;
        self.flags.insert(Flag::ACK_NOW);
    }

    /// Moves on when our FIN is acknowledged.
    fn after_ack(&mut self, ctx: &mut Ctx<'_>) {
        if !self.has(Flag::FIN_SENT) || self.snd_una != self.snd_nxt {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.has(Flag::ORPHAN) {
                    self.idle_at = ctx.now_ns + ctx.config.fin_wait_2.as_nanos() as u64;
                }
            }
            State::Closing => self.enter_time_wait(ctx),
            State::LastAck => self.end(None, ctx),
            _ => {}
        }
    }

    fn enter_time_wait(&mut self, _ctx: &mut Ctx<'_>) {
        self.state = State::TimeWait;
        self.ready |= Ready::CLOSED;
        self.stop_timers();
    }

    /// RFC 3168 6.1.3: echo a mark until the peer says that it reduced its window.
    fn take_mark(&mut self, segment: &Segment<'_>) {
        if !self.has(Flag::ECN) {
            return;
        }
        if segment.has(Flags::CWR) {
            self.flags.remove(Flag::ECE);
        }
        if segment.is_marked {
            self.flags.insert(Flag::ECE | Flag::ACK_NOW);
        }
    }

    /// Takes data and FIN of an acceptable segment.
    pub(crate) fn take_data(&mut self, segment: &Segment<'_>, ctx: &mut Ctx<'_>) -> Reply {
        if !self.state.may_receive() {
            // After the peer's FIN there is nothing more (3.10.7.4, seventh).
            self.flags.insert(Flag::ACK_NOW);
            return Reply::None;
        }
        if self.has(Flag::ORPHAN)
            && !segment.payload.is_empty()
            && segment.end().after(self.rcv_nxt)
        {
            // Nobody will read it: say so (RFC 9293 3.6.1; RFC 2525 2.17).
            self.end(None, ctx);
            return Reply::Reset;
        }
        let before = self.rcv_nxt;
        let mut fin = segment.has(Flags::FIN);
        let skip = self.rcv_nxt.diff(segment.seq).max(0) as usize;
        let start = segment.seq.plus(skip as u32);
        let room = self.rcv_adv.diff(start).max(0) as usize;
        let data = segment
            .payload
            .get(skip.min(segment.payload.len())..)
            .unwrap_or_default();
        if data.len() > room {
            fin = false;
        }
        let data = data.get(..room).unwrap_or(data);
        if skip > 0 {
            self.report_duplicate(segment, ctx);
        }
        if !data.is_empty() {
            self.keep(start, data, ctx);
        } else if !segment.payload.is_empty() {
            self.flags.insert(Flag::ACK_NOW);
        }
        let kept = self.active.as_ref().and_then(|active| active.fin_end);
        if fin {
            self.take_fin(segment.end(), ctx);
        } else if let Some(end) = kept
            && self.rcv_nxt == end.minus(1)
        {
            self.take_fin(end, ctx);
        }
        if self.rcv_nxt != before {
            self.plan_ack(!segment.payload.is_empty(), ctx);
        }
        Reply::None
    }

    fn keep(&mut self, start: Seq, data: &[u8], ctx: &mut Ctx<'_>) {
        let next = self.rcv_nxt;
        let is_deaf = self.has(Flag::DEAF);
        self.activate(ctx);
        let Some(active) = &mut self.active else {
            return;
        };
        let had_holes = active.receive.has_holes();
        if had_holes
            && start.after(next)
            && active.receive.holds(start, start.plus(data.len() as u32))
        {
            active.dsack = (start, start.plus(data.len() as u32));
            self.flags.insert(Flag::DSACK | Flag::ACK_NOW);
            return;
        }
        match active.receive.write(next, start, data, ctx.pool) {
            Received::InOrder(bytes) => {
                self.rcv_nxt = next.plus(bytes as u32);
                if is_deaf {
                    active.receive.consume(bytes, ctx.pool);
                }
                self.ready |= Ready::READABLE;
                if had_holes || bytes < data.len() {
                    self.flags.insert(Flag::ACK_NOW);
                }
            }
            Received::OutOfOrder => {
                ctx.stats.out_of_order += 1;
                self.flags.insert(Flag::ACK_NOW);
            }
            Received::NoRoom => {
                ctx.stats.no_buffer += 1;
                self.flags.insert(Flag::ACK_NOW);
            }
        }
    }

    /// RFC 9293 3.10.7.4, eighth; a FIN beyond a hole waits until the hole is filled.
    fn take_fin(&mut self, end: Seq, ctx: &mut Ctx<'_>) {
        if self.rcv_nxt != end.minus(1) {
            self.flags.insert(Flag::ACK_NOW);
            if self.rcv_nxt.before(end.minus(1)) {
                self.activate(ctx).fin_end = Some(end);
            }
            return;
        }
        if let Some(active) = &mut self.active {
            active.fin_end = None;
        }
        self.rcv_nxt = end;
        if self.rcv_adv.before(end) {
            self.rcv_adv = end;
        }
        self.flags.insert(Flag::FIN_RECEIVED | Flag::ACK_NOW);
        self.ready |= Ready::READABLE | Ready::PEER_CLOSED;
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(ctx),
            _ => {}
        }
    }

    /// Acknowledges now, or in a while (RFC 9293 3.8.6.3, RFC 5681 4.2).
    fn plan_ack(&mut self, has_data: bool, ctx: &mut Ctx<'_>) {
        if !has_data {
            return;
        }
        self.unacked_segments = self.unacked_segments.saturating_add(1);
        let has_holes = self
            .active
            .as_ref()
            .is_some_and(|active| active.receive.has_holes());
        if self.unacked_segments >= 2
            || self.quick > 0
            || has_holes
            || !ctx.has(Modules::DELAYED_ACK)
        {
            self.quick = self.quick.saturating_sub(1);
            self.flags.insert(Flag::ACK_NOW);
        } else if self.ack_at == 0 {
            self.ack_at = ctx.now_ns + ctx.config.delayed_ack.as_nanos() as u64;
        }
    }

    /// Remembers a range that came twice, to be reported (RFC 2883).
    fn report_duplicate(&mut self, segment: &Segment<'_>, ctx: &mut Ctx<'_>) {
        if !self.has(Flag::SACK)
            || segment.payload.is_empty()
            || segment.seq.at_or_after(self.rcv_nxt)
        {
            return;
        }
        let end = segment
            .seq
            .plus(segment.payload.len() as u32)
            .earlier(self.rcv_nxt);
        self.activate(ctx);
        if let Some(active) = &mut self.active {
            active.dsack = (segment.seq, end);
            self.flags.insert(Flag::DSACK | Flag::ACK_NOW);
        }
    }
}
