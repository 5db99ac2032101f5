//! The receive window: what the peer is told, and how it grows (RFC 9293 3.8.6.2.2, RFC 7323 2).

use super::tcb::{Ctx, Flag, Tcb};
use crate::config::Modules;

impl Tcb {
    /// Returns the shift of windows that are to be announced up to the configured maximum.
    pub(crate) fn shift_for(bytes_max: u32) -> u8 {
        let mut shift = 0;
        while shift < 14 && u32::from(u16::MAX) << shift < bytes_max {
            shift += 1;
        }
        shift
    }
    /// Returns the window of a SYN, which is never scaled: whole segments below 64 KiB, as Linux.
    pub(crate) fn initial_window(&self) -> u32 {
        let mss = u32::from(self.mss.max(1));
        (65_535 / mss * mss).min(self.rcv_limit)
    }
    /// Returns the window field for the next segment, and remembers the edge that it tells.
    pub(crate) fn announce(&mut self) -> u16 {
        let ready = self.readable() as u32;
        let room = self.rcv_limit.saturating_sub(ready);
        let told = self.rcv_adv.diff(self.rcv_nxt).max(0) as u32;
        let mss = u32::from(self.mss);
        // The edge never moves back; forward by a segment or half of the buffer (silly-window avoidance).
        let window = if room >= told.saturating_add(mss.min(self.rcv_limit / 2)) {
            room
        } else {
            told
        };
        let field = (window >> self.rcv_shift).min(u32::from(u16::MAX));
        let edge = self.rcv_nxt.plus(field << self.rcv_shift);
        // Rounding by the shift may not take back what was told: the old edge stays valid for what comes.
        self.rcv_adv = self.rcv_adv.later(edge);
        field as u16
    }
    /// Hears that the application read `bytes`: grows the buffer, and tells the peer of room if it waits for it.
    pub(crate) fn on_read(&mut self, bytes: usize, ctx: &mut Ctx<'_>) {
        self.rcv_read = self.rcv_read.saturating_add(bytes as u32);
        if ctx.has(Modules::AUTOTUNING) && self.rcv_read >= self.rcv_limit {
            self.rcv_read = 0;
            let most = if self.has(Flag::SCALING) {
                ctx.config.receive_buffer_max
            } else {
                65_535
            };
            self.rcv_limit = self
                .rcv_limit
                .saturating_mul(2)
                .min(most.max(self.rcv_limit));
        }
        let room = self.rcv_limit.saturating_sub(self.readable() as u32);
        let told = self.rcv_adv.diff(self.rcv_nxt).max(0) as u32;
        let step = (2 * u32::from(self.mss)).min(self.rcv_limit / 2).max(1);
        if self.state.may_receive() && room >= told + step && told < self.rcv_limit / 2 {
            self.flags.insert(Flag::ACK_NOW);
        }
    }
}
