//! What a path takes: by ICMP (RFC 1191, RFC 8201), and by probing where ICMP is lost (RFC 4821).

use super::seq::Seq;
use super::tcb::{Ctx, Flag, Tcb};
use crate::config::Modules;

/// What every path takes, for segments (RFC 4821 7.2 asks for 1024 at least).
const BASE_MSS: u16 = 1024;
/// Timeouts of full segments in a row that mean a black hole.
const BLACK_HOLE_TIMEOUTS: u8 = 3;

/// Search for a larger segment size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MtuProbe {
    /// Largest size not known to fail; 0 when no search is on.
    high: u16,
    /// The probe in flight: its start, and its size.
    probe: Option<(Seq, u16)>,
}

impl Tcb {
    /// Hears that the path takes packets of `mtu` bytes at most; `header` is IP and TCP without options.
    pub(crate) fn on_packet_too_big(&mut self, mtu: u16, header: u16, ctx: &mut Ctx<'_>) {
        let mss = mtu.saturating_sub(header).max(88);
        if mss >= self.mss {
            return;
        }
        self.set_mss(mss);
        let una = self.snd_una;
        if let Some(active) = &mut self.active {
            active.probe = MtuProbe::default();
            // What was too large is lost: sent again in pieces, without a reduction (RFC 8201 4).
            let limit = u32::from(mss);
            active.board.mark_lost(|sent| match sent.bytes() > limit {
                true => super::scoreboard::Loss::Yes,
                false => super::scoreboard::Loss::No,
            });
            if active.board.has_lost() {
                self.flags.insert(Flag::FORCE_RESEND);
            }
        }
        let _ = (una, ctx);
    }

    pub(crate) fn set_mss(&mut self, mss: u16) {
        self.mss = mss;
        let bytes = self.segment_bytes();
        if let Some(active) = &mut self.active {
            active.controller.get_mut().set_mss(bytes);
        }
    }

    /// After timeouts in a row, tries the size that every path takes, and searches upwards from there.
    pub(crate) fn probe_black_hole(&mut self, ctx: &mut Ctx<'_>) {
        if !ctx.has(Modules::PLPMTUD)
            || self.rtt.backoff < BLACK_HOLE_TIMEOUTS
            || self.mss <= BASE_MSS
        {
            return;
        }
        let high = self.mss;
        self.set_mss(BASE_MSS);
        if let Some(active) = &mut self.active {
            active.probe = MtuProbe { high, probe: None };
        }
    }

    /// Returns the size of the next new segment if it is to be a probe: half-way between what works and what may.
    pub(crate) fn probe_size(&self, unsent: u32, room: u32) -> Option<u32> {
        let probe = &self.active.as_ref()?.probe;
        if probe.high <= self.mss.saturating_add(8) || probe.probe.is_some() {
            return None;
        }
        let size = u32::from(self.mss + (probe.high - self.mss) / 2 - self.option_bytes());
        // RFC 4821 7.4: enough data behind the probe, so that its loss is seen by duplicates.
        (unsent >= size + 4 * self.segment_bytes() && room >= size).then_some(size)
    }

    /// Notes that a probe goes out.
    pub(crate) fn probe_sent(&mut self, start: Seq, bytes: u32) {
        let options = self.option_bytes();
        if let Some(active) = &mut self.active {
            active.probe.probe = Some((start, bytes as u16 + options));
        }
    }

    /// Looks whether a probe was acknowledged or lost.
    pub(crate) fn check_probe(&mut self) {
        let una = self.snd_una;
        let Some(active) = &mut self.active else {
            return;
        };
        let Some((start, size)) = active.probe.probe else {
            return;
        };
        if una.after(start) {
            active.probe.probe = None;
            if active
                .board
                .find(start)
                .is_none_or(|sent| sent.start.after(start))
                && size > self.mss
            {
                self.set_mss(size);
            }
            return;
        }
        let is_lost = active
            .board
            .find(start)
            .is_some_and(|sent| sent.mark.contains(super::scoreboard::Mark::LOST));
        if is_lost {
            active.probe.probe = None;
            active.probe.high = size - 1;
        }
    }
}
