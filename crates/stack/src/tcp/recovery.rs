//! Loss recovery: when a window is reduced, until when, and when that is taken back (RFC 6582, 6675, 8985, 3522, 3708).

use super::prr::Prr;
use super::scoreboard::{Loss, Mark};
use super::seq::Seq;
use super::tcb::{Active, Ctx, Flag, Tcb, Timer};
use crate::config::Modules;

/// Duplicate acknowledgements that mean a loss (RFC 5681 3.2).
const DUP_THRESH: u32 = 3;

/// Where recovery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No loss is known.
    Open,
    /// Lost segments are sent again.
    Recovery,
    /// After a timeout.
    Timeout,
}

/// Recovery of a connection.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub(crate) phase: Phase,
    /// Recovery ends when this is acknowledged.
    pub(crate) point: Seq,
    /// No reduction for a congestion mark before something beyond this is acknowledged.
    pub(crate) marked_until: Seq,
    /// Duplicate acknowledgements in a row (without SACK).
    pub(crate) dupacks: u32,
    prr: Prr,
    /// The window in recovery, by PRR.
    window: u32,
    undo: Option<Undo>,
}

/// What tells a spurious reduction.
#[derive(Clone, Copy, Debug)]
struct Undo {
    /// Duplicates of what starts here or later count.
    from: Seq,
    /// Retransmissions not reported as duplicates yet, and whether there was one at all.
    outstanding: u32,
    any: bool,
    /// Our clock at the first retransmission.
    stamp: u32,
}

impl Recovery {
    pub(crate) const fn new(una: Seq) -> Self {
        Self {
            phase: Phase::Open,
            point: una,
            marked_until: una.minus(1),
            dupacks: 0,
            prr: Prr::new(1),
            window: 0,
            undo: None,
        }
    }
    /// Hears of a retransmission.
    pub(crate) fn on_resend(&mut self, stamp: u32) {
        if let Some(undo) = &mut self.undo {
            if !undo.any {
                undo.stamp = stamp;
            }
            undo.any = true;
            undo.outstanding += 1;
        }
    }
    /// Hears that bytes were sent.
    pub(crate) fn on_send(&mut self, bytes: u32) {
        if self.phase == Phase::Recovery {
            self.prr.on_send(bytes);
        }
    }
    /// Hears of a duplicate that starts at `start`.
    pub(crate) fn on_dsack(&mut self, start: Seq) {
        if let Some(undo) = &mut self.undo
            && undo.any
            && start.at_or_after(undo.from)
        {
            undo.outstanding = undo.outstanding.saturating_sub(1);
        }
    }
    fn is_spurious(&self, resent_acked: bool, echo: Option<u32>) -> bool {
        let Some(undo) = &self.undo else { return false };
        if !undo.any {
            return false;
        }
        // RFC 3522: what was acknowledged was sent before the retransmission. RFC 3708: all came twice.
        let eifel = resent_acked && echo.is_some_and(|echo| Seq(echo).before(Seq(undo.stamp)));
        eifel || undo.outstanding == 0
    }
}

/// What one acknowledgement did, for recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) advanced: bool,
    pub(crate) delivered: u32,
    pub(crate) resent_acked: bool,
    pub(crate) prior_in_flight: u32,
    pub(crate) is_duplicate: bool,
    pub(crate) echo: Option<u32>,
}

impl Active {
    /// Returns the window that holds now.
    pub(crate) fn window(&self) -> u32 {
        let window = self.controller.get().window();
        if self.recovery.phase == Phase::Recovery && self.recovery.window > 0 {
            self.recovery.window
        } else {
            window
        }
    }
    /// Returns what is in flight, as far as is known; without SACK a duplicate acknowledgement tells of one segment.
    pub(crate) fn in_flight(&self, mss: u32) -> u32 {
        self.board
            .pipe()
            .saturating_sub(self.recovery.dupacks * mss)
    }
}

impl Tcb {
    /// Looks for losses after an acknowledgement and moves between the phases; returns newly lost bytes.
    pub(crate) fn recover(&mut self, progress: &Progress, ctx: &mut Ctx<'_>) -> u32 {
        let mss = self.segment_bytes();
        let una = self.snd_una;
        self.try_undo(progress, ctx);
        let Some(active) = &mut self.active else {
            return 0;
        };
        let recovery = &mut active.recovery;
        if recovery.phase != Phase::Open && una.at_or_after(recovery.point) {
            recovery.phase = Phase::Open;
            recovery.dupacks = 0;
            active.rack.on_recovered();
            active.controller.get_mut().on_recovered(ctx.now_ns);
        }
        let lost = if self.flags.contains(Flag::SACK) {
            self.detect_by_sack(ctx)
        } else {
            self.detect_by_duplicates(progress, mss)
        };
        self.tail_probe_acked(progress, ctx);
        let Some(active) = &mut self.active else {
            return 0;
        };
        if lost > 0 && active.recovery.phase == Phase::Open {
            self.enter_recovery(progress.prior_in_flight, ctx);
        }
        let Some(active) = &mut self.active else {
            return 0;
        };
        if active.recovery.phase == Phase::Recovery {
            let in_flight = active.in_flight(mss);
            let threshold = active.controller.get().threshold();
            let recovery = &mut active.recovery;
            if ctx.has(Modules::PRR) && !active.controller.get().owns_recovery() {
                let is_safe = progress.advanced && lost == 0;
                recovery.window =
                    recovery
                        .prr
                        .on_ack(progress.delivered, in_flight, threshold, mss, is_safe);
            } else {
                recovery.window = 0;
            }
        }
        lost
    }

    /// Begins recovery: the window is reduced once.
    fn enter_recovery(&mut self, prior_in_flight: u32, ctx: &mut Ctx<'_>) {
        let (una, next) = (self.snd_una, self.snd_nxt);
        let Some(active) = &mut self.active else {
            return;
        };
        ctx.stats.recoveries += 1;
        active.recovery.phase = Phase::Recovery;
        active.recovery.point = next;
        active.recovery.prr = Prr::new(prior_in_flight);
        active.recovery.undo = Some(Undo {
            from: una,
            outstanding: 0,
            any: false,
            stamp: 0,
        });
        active
            .controller
            .get_mut()
            .on_congestion(ctx.now_ns, prior_in_flight);
        active.rack.tail = None;
        self.flags.insert(Flag::FORCE_RESEND);
        if self.flags.contains(Flag::ECN) {
            self.flags.insert(Flag::CWR);
        }
    }

    /// RACK (RFC 8985 6), or without it the rule of RFC 6675 4: three segments above were delivered.
    fn detect_by_sack(&mut self, ctx: &mut Ctx<'_>) -> u32 {
        let mss = self.segment_bytes();
        let srtt_ns = u64::from(self.rtt.srtt_us) * 1000;
        let Some(active) = &mut self.active else {
            return 0;
        };
        if active.board.is_empty() {
            return 0;
        }
        let is_recovering = active.recovery.phase != Phase::Open;
        if !ctx.has(Modules::RACK_TLP) {
            let mut above = active.board.sacked_bytes();
            if above < DUP_THRESH * mss && !is_recovering {
                return 0;
            }
            let sacked: alloc::vec::Vec<(Seq, u32)> = active
                .board
                .iter()
                .filter(|sent| sent.mark.contains(Mark::SACKED))
                .map(|sent| (sent.start, sent.bytes()))
                .collect();
            let mut passed = sacked.iter().peekable();
            return active.board.mark_lost(|sent| {
                while let Some((_, bytes)) = passed.next_if(|(start, _)| start.before(sent.start)) {
                    above -= bytes;
                }
                match above > (DUP_THRESH - 1) * mss {
                    true if sent.mark.contains(Mark::EVER_RESENT) => Loss::No,
                    true => Loss::Yes,
                    false => Loss::End,
                }
            });
        }
        let sacked_segments = active.board.sacked_bytes() / mss.max(1);
        let window = active
            .rack
            .window_ns(srtt_ns, is_recovering, sacked_segments);
        let mut wait = 0;
        let rack = &active.rack;
        let lost = active
            .board
            .mark_lost(|sent| rack.verdict(sent, window, ctx.now_ns, &mut wait));
        if wait > 0 {
            self.timer = Timer::Reorder;
            self.timer_at = ctx.now_ns + wait;
        } else if self.timer == Timer::Reorder {
            self.timer = Timer::None;
        }
        lost
    }

    /// Hears that the reordering window ended.
    pub(crate) fn on_reorder_timer(&mut self, ctx: &mut Ctx<'_>) {
        let mss = self.segment_bytes();
        let in_flight = self
            .active
            .as_ref()
            .map_or(0, |active| active.in_flight(mss));
        self.timer = Timer::None;
        let progress = Progress {
            prior_in_flight: in_flight,
            ..Progress::default()
        };
        self.recover(&progress, ctx);
        if self.timer == Timer::None {
            self.arm_retransmission(ctx);
        }
    }

    /// Three duplicate acknowledgements; then each partial one tells of the next loss (RFC 6582 3.2).
    fn detect_by_duplicates(&mut self, progress: &Progress, mss: u32) -> u32 {
        let una = self.snd_una;
        let Some(active) = &mut self.active else {
            return 0;
        };
        let Some(first) = active.board.first().copied() else {
            return 0;
        };
        let recovery = &mut active.recovery;
        if progress.advanced {
            let acked = progress.delivered.div_ceil(mss.max(1));
            recovery.dupacks = recovery.dupacks.saturating_sub(acked.saturating_sub(1));
            if recovery.phase == Phase::Open {
                recovery.dupacks = 0;
                return 0;
            }
            if recovery.phase == Phase::Recovery && first.start == una {
                return active.board.mark_lost(|sent| {
                    if sent.start == una {
                        Loss::Yes
                    } else {
                        Loss::End
                    }
                });
            }
            return 0;
        }
        if progress.is_duplicate {
            let in_board = active.board.len() as u32;
            recovery.dupacks = (recovery.dupacks + 1).min(in_board.saturating_sub(1));
            if recovery.phase == Phase::Open && recovery.dupacks >= DUP_THRESH {
                return active.board.mark_lost(|sent| {
                    if sent.start == una {
                        Loss::Yes
                    } else {
                        Loss::End
                    }
                });
            }
        }
        0
    }

    fn try_undo(&mut self, progress: &Progress, ctx: &mut Ctx<'_>) {
        if !ctx.has(Modules::UNDO) {
            return;
        }
        let echo = if self.has(Flag::TIMESTAMPS) {
            progress.echo
        } else {
            None
        };
        let Some(active) = &mut self.active else {
            return;
        };
        if !active.recovery.is_spurious(progress.resent_acked, echo) {
            return;
        }
        ctx.stats.undos += 1;
        active.recovery.undo = None;
        active.controller.get_mut().on_spurious(ctx.now_ns);
        if active.recovery.phase != Phase::Open {
            active.recovery.phase = Phase::Open;
            active.recovery.dupacks = 0;
            active.board.unmark_lost();
            self.rtt.backoff = 0;
        }
    }

    /// Hears of a retransmission timeout (RFC 6298 5.4 to 5.6).
    pub(crate) fn on_timeout(&mut self, ctx: &mut Ctx<'_>) {
        let mss = self.segment_bytes();
        let (una, next) = (self.snd_una, self.snd_nxt);
        ctx.stats.timeouts += 1;
        self.rtt.backoff = self.rtt.backoff.saturating_add(1);
        let Some(active) = &mut self.active else {
            return;
        };
        let in_flight = active.in_flight(mss);
        if active
            .board
            .first()
            .is_some_and(|first| first.mark.contains(Mark::SACKED))
        {
            active.board.forget_sacks();
        }
        active.board.mark_lost(|_| Loss::Yes);
        let again = active.recovery.phase == Phase::Timeout && una.before(active.recovery.point);
        active.recovery.undo = (!again).then_some(Undo {
            from: una,
            outstanding: 0,
            any: false,
            stamp: 0,
        });
        // Of the same segment again: the window is one segment already, the threshold stays (RFC 5681 3.1).
        if !again || self.rtt.backoff <= 1 {
            active
                .controller
                .get_mut()
                .on_timeout(ctx.now_ns, in_flight.max(2 * mss));
        }
        active.recovery.phase = Phase::Timeout;
        active.recovery.point = next;
        active.recovery.dupacks = 0;
        active.rack.tail = None;
        active.pace_at = 0;
        self.flags.insert(Flag::FORCE_RESEND);
        self.probe_black_hole(ctx);
    }

    /// RFC 8985 7.4: a probe that repaired a loss is a sign of congestion.
    fn tail_probe_acked(&mut self, progress: &Progress, ctx: &mut Ctx<'_>) {
        let una = self.snd_una;
        let Some(active) = &mut self.active else {
            return;
        };
        let Some((end, is_resend)) = active.rack.tail else {
            return;
        };
        if una.before(end) {
            return;
        }
        if !is_resend || una == end && progress.is_duplicate {
            // New data arrived, or both transmissions did: there was no loss.
            active.rack.tail = None;
        } else if una.after(end) {
            active.rack.tail = None;
            if active.recovery.phase == Phase::Open {
                active
                    .controller
                    .get_mut()
                    .on_congestion(ctx.now_ns, progress.prior_in_flight);
                active.recovery.undo = None;
            }
        }
    }
}
