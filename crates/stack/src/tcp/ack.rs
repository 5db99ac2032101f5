//! Acknowledgements: what they cover, what they tell of time and rate, and the peer's window (RFC 9293 3.10.7.4).

use super::congestion::Ack;
use super::rack::Rack;
use super::rate::RateSampler;
use super::recovery::{Phase, Progress};
use super::scoreboard::{Mark, Sent};
use super::segment::Segment;
use super::seq::Seq;
use super::tcb::{Ctx, Flag, Tcb, Timer};
use crate::config::Modules;
use crate::event::Ready;

/// What the delivered segments of one acknowledgement say together.
struct Delivery<'a> {
    now_ns: u64,
    bytes: u32,
    /// Of the oldest and of the newest segment that was sent once.
    rtt_oldest_ns: u64,
    rtt_newest_ns: u64,
    resent_acked: bool,
    echo: Option<u32>,
    stamp_offset: u32,
    rack: &'a mut Rack,
    rate: &'a mut RateSampler,
}

impl Delivery<'_> {
    #[inline]
    fn add(&mut self, sent: &Sent) {
        self.bytes += sent.bytes();
        let app_limited = sent.mark.contains(Mark::APP_LIMITED);
        self.rate.on_delivered(sent, app_limited, self.now_ns);
        let mut echo_is_older = false;
        if sent.mark.contains(Mark::EVER_RESENT) {
            let stamp = ((sent.sent_at / 1_000_000) as u32).wrapping_add(self.stamp_offset);
            echo_is_older = self.echo.is_some_and(|echo| Seq(echo).before(Seq(stamp)));
            self.resent_acked = true;
        } else {
            let rtt = self.now_ns.saturating_sub(sent.sent_at).max(1);
            self.rtt_newest_ns = rtt;
            if self.rtt_oldest_ns == 0 {
                self.rtt_oldest_ns = rtt;
            }
        }
        self.rack.on_delivered(sent, self.now_ns, echo_is_older);
    }
}

impl Tcb {
    /// Takes the acknowledgement of an acceptable segment; false if the segment is to be dropped.
    pub(crate) fn on_ack(&mut self, segment: &Segment<'_>, ctx: &mut Ctx<'_>) -> bool {
        let ack = segment.ack;
        // RFC 5961 5: neither of the future nor of a past beyond the largest window.
        if ack.after(self.snd_nxt) || ack.before(self.snd_una.minus(self.snd_wnd_max.max(1))) {
            self.challenge(ctx);
            return false;
        }
        let window_moved = self.update_window(segment);
        if self.snd_una == self.snd_nxt && ack == self.snd_una {
            self.on_idle_ack(window_moved, ctx);
            return true;
        }
        let advanced = ack.after(self.snd_una);
        if !advanced && self.active.is_none() {
            return true;
        }
        self.activate(ctx);
        self.acknowledge(segment, advanced, window_moved, ctx);
        true
    }

    /// An acknowledgement while nothing is in flight: of a probe, perhaps, or a window update.
    fn on_idle_ack(&mut self, window_moved: bool, ctx: &mut Ctx<'_>) {
        self.tries = 0;
        if self.timer == Timer::Persist && (window_moved || self.snd_wnd > 0) {
            self.rtt.backoff = 0;
            self.timer = Timer::None;
            self.timer_at = 0;
            self.arm_retransmission(ctx);
        }
    }

    /// Takes the window if the segment is newer than the one that told it last; says whether it changed.
    #[inline]
    pub(crate) fn update_window(&mut self, segment: &Segment<'_>) -> bool {
        let newer = self.snd_wl1.before(segment.seq)
            || self.snd_wl1 == segment.seq && self.snd_wl2.at_or_before(segment.ack);
        if !newer || segment.ack.before(self.snd_una) {
            return false;
        }
        let window = u32::from(segment.window) << self.snd_shift;
        let changed = window != self.snd_wnd;
        self.snd_wnd = window;
        self.snd_wnd_max = self.snd_wnd_max.max(window);
        self.snd_wl1 = segment.seq;
        self.snd_wl2 = segment.ack;
        changed
    }

    fn acknowledge(
        &mut self,
        segment: &Segment<'_>,
        advanced: bool,
        window_moved: bool,
        ctx: &mut Ctx<'_>,
    ) {
        let ack = segment.ack;
        let mss = self.segment_bytes();
        let old_una = self.snd_una;
        let has_sack = self.has(Flag::SACK);
        let blocks = segment.options.sack;
        let blocks = if has_sack { blocks.as_slice() } else { &[] };
        let echo = segment
            .options
            .timestamps
            .map(|(_, echo)| echo)
            .filter(|&echo| echo != 0 && self.has(Flag::TIMESTAMPS));
        let next = self.snd_nxt;
        let is_dsack = self.take_dsack(blocks, ack, ctx);
        let Some(active) = &mut self.active else {
            return;
        };
        let prior_in_flight = active.in_flight(mss);
        let prior_board = active.board.is_empty();
        let sacked_before = active.board.sacked_bytes();
        active.rack.begin();
        let mut delivery = Delivery {
            now_ns: ctx.now_ns,
            bytes: 0,
            rtt_oldest_ns: 0,
            rtt_newest_ns: 0,
            resent_acked: false,
            echo,
            stamp_offset: self.ts_offset,
            rack: &mut active.rack,
            rate: &mut active.rate,
        };
        if !blocks.is_empty() {
            for &(start, end) in blocks.iter().skip(usize::from(is_dsack)) {
                let (start, end) = (Seq(start), Seq(end));
                if end.after(start) && start.at_or_after(old_una) && end.at_or_before(next) {
                    active.board.sack(start, end, |sent| delivery.add(sent));
                }
            }
            active
                .board
                .remember(blocks.get(usize::from(is_dsack)..).unwrap_or_default());
        }
        let newly_sacked = active.board.sacked_bytes() - sacked_before;
        let mut fin_acked = false;
        while let Some(sent) = active.board.pop_acked(ack) {
            fin_acked |= sent.mark.contains(Mark::FIN);
            if !sent.mark.contains(Mark::SACKED) {
                delivery.add(&sent);
            }
        }
        let progress = Progress {
            advanced,
            delivered: delivery.bytes,
            resent_acked: delivery.resent_acked,
            prior_in_flight,
            is_duplicate: !advanced
                && segment.payload.is_empty()
                && !window_moved
                && !prior_board
                && (!has_sack || newly_sacked == 0),
            echo,
        };
        let (rtt_oldest, rtt_newest) = (delivery.rtt_oldest_ns, delivery.rtt_newest_ns);
        let was_limited = active.window_limited;
        if advanced {
            let bytes = ack.since(old_una).saturating_sub(u32::from(fin_acked)) as usize;
            active.send.consume(bytes, ctx.pool);
            self.snd_una = ack;
            self.stalled_at = ctx.now_ns;
            self.rtt.backoff = 0;
            self.tries = 0;
            self.flags.remove(Flag::SOFT_ERROR);
        }
        self.take_rtt(rtt_oldest, echo.filter(|_| advanced), ctx);
        self.check_probe();
        let lost = self.recover(&progress, ctx);
        self.react_to_mark(segment, &progress, ctx);
        let echoes_mark = self.has(Flag::ECN) && segment.has(wire::tcp::Flags::ECE);
        self.grow(&progress, rtt_newest, was_limited, lost, echoes_mark, ctx);
        if advanced
            || progress.delivered > 0
            || lost > 0
            || matches!(self.timer, Timer::Persist | Timer::None)
        {
            self.arm_retransmission(ctx);
        }
        if advanced {
            self.tell_room(ctx);
        }
    }

    /// Recognises a duplicate report in the first block (RFC 2883 4).
    fn take_dsack(&mut self, blocks: &[(u32, u32)], ack: Seq, ctx: &mut Ctx<'_>) -> bool {
        let Some(&(start, end)) = blocks.first() else {
            return false;
        };
        let (start, end) = (Seq(start), Seq(end));
        let inside_second = blocks
            .get(1)
            .is_some_and(|&(s, e)| start.at_or_after(Seq(s)) && end.at_or_before(Seq(e)));
        if !(start.before(ack) || inside_second) {
            return false;
        }
        ctx.stats.dsacks_in += 1;
        let (una, next) = (self.snd_una, self.snd_nxt);
        if let Some(active) = &mut self.active {
            let is_tail_probe = active
                .rack
                .tail
                .is_some_and(|(tail, is_resend)| is_resend && end == tail);
            if is_tail_probe {
                active.rack.tail = None;
            } else {
                active.rack.reordering_seen = true;
            }
            active.rack.on_dsack(una, next);
            active.recovery.on_dsack(start);
        }
        true
    }

    /// Takes a round-trip sample: of a segment sent once, or of the echo where all were sent again (RFC 7323 4).
    fn take_rtt(&mut self, rtt_ns: u64, echo: Option<u32>, ctx: &mut Ctx<'_>) {
        if rtt_ns > 0 {
            self.rtt
                .sample(u32::try_from(rtt_ns / 1000).unwrap_or(u32::MAX));
        } else if let Some(echo) = echo {
            let ms = self.timestamp(ctx.now_ns).wrapping_sub(echo);
            if ms < 60_000 {
                self.rtt.sample((ms * 1000).max(1));
            }
        }
    }

    /// RFC 3168 6.1.2: an echo of congestion reduces the window, once a round trip.
    fn react_to_mark(&mut self, segment: &Segment<'_>, progress: &Progress, ctx: &mut Ctx<'_>) {
        if !self.has(Flag::ECN)
            || !segment.has(wire::tcp::Flags::ECE)
            || segment.has(wire::tcp::Flags::SYN)
        {
            return;
        }
        let (una, next) = (self.snd_una, self.snd_nxt);
        if let Some(active) = &mut self.active
            && active.recovery.phase == Phase::Open
            && una.after(active.recovery.marked_until)
        {
            ctx.stats.ecn_reductions += 1;
            active.recovery.marked_until = next;
            active
                .controller
                .get_mut()
                .on_congestion(ctx.now_ns, progress.prior_in_flight);
            self.flags.insert(Flag::CWR);
        }
    }

    /// Tells the congestion control.
    fn grow(
        &mut self,
        progress: &Progress,
        rtt_ns: u64,
        was_limited: bool,
        lost: u32,
        echoes_mark: bool,
        ctx: &mut Ctx<'_>,
    ) {
        let mss = self.segment_bytes();
        let (una, next, srtt_us) = (self.snd_una, self.snd_nxt, self.rtt.srtt_us);
        let Some(active) = &mut self.active else {
            return;
        };
        let min_rtt_ns = active.rack.min_rtt_ns;
        let rate = active.rate.finish(min_rtt_ns);
        if progress.delivered == 0 && lost == 0 {
            return;
        }
        // Blocks alone do not grow the window (RFC 3042 2), unless the path is known to reorder; nor does an echo of
        // congestion (RFC 3168 6.1.2).
        let may_grow = (progress.advanced || active.rack.reordering_seen) && !echoes_mark;
        let ack = Ack {
            now_ns: ctx.now_ns,
            delivered: progress.delivered,
            rtt_ns,
            min_rtt_ns,
            srtt_ns: u64::from(srtt_us) * 1000,
            prior_in_flight: progress.prior_in_flight,
            in_flight: active.in_flight(mss),
            acknowledged: una.0,
            next: next.0,
            delivery_rate: rate.bytes_per_s,
            prior_delivered: rate.prior_delivered,
            total_delivered: active.rate.delivered,
            lost,
            app_limited: rate.app_limited,
            window_limited: was_limited,
            in_recovery: active.recovery.phase == Phase::Recovery || !may_grow,
        };
        active.controller.get_mut().on_ack(&ack);
        if ctx.has(Modules::AUTOTUNING) {
            let wanted = active.controller.get().window().saturating_mul(2);
            if wanted > self.snd_limit {
                self.snd_limit = wanted.min(ctx.config.send_buffer_max.max(self.snd_limit));
            }
        }
    }

    /// Tells the application of room to send, when there is enough.
    fn tell_room(&mut self, _ctx: &mut Ctx<'_>) {
        if !self.has(Flag::WANTS_ROOM) {
            return;
        }
        let used = self
            .active
            .as_ref()
            .map_or(0, |active| active.send.len() as u32);
        if used <= self.snd_limit - self.snd_limit / 3 {
            self.flags.remove(Flag::WANTS_ROOM);
            self.ready |= Ready::WRITABLE;
        }
    }
}
