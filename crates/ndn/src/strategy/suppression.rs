//! Exponential suppression of retransmissions (NFD's RetxSuppressionExponential).

use core::time::Duration;

use super::Context;
use crate::face::FaceId;

/// What to do with an Interest that comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is not pending: treat it as new.
    New,
    /// It was retransmitted late enough.
    Forward,
    /// It comes too soon.
    Suppress,
}

/// Intervals in which an Interest is not sent again, which grow with every retransmission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suppression {
    /// The first interval (`retx-suppression-initial`, ms).
    pub initial: Duration,
    /// The longest (`retx-suppression-max`, ms).
    pub max: Duration,
    /// Their ratio in thousandths (`retx-suppression-multiplier`).
    pub multiplier_milli: u32,
}

impl Default for Suppression {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(10),
            max: Duration::from_millis(250),
            multiplier_milli: 2000,
        }
    }
}

impl Suppression {
    /// Decides for the whole entry; the interval grows if the Interest is forwarded.
    pub fn for_entry(&self, cx: &mut Context<'_>) -> Verdict {
        let Some(last) = cx.last_outgoing().filter(|_| cx.has_pending_out()) else {
            return Verdict::New;
        };
        let Some(entry) = cx.pit.get_mut(cx.entry) else {
            return Verdict::New;
        };
        let interval = self.interval(entry.suppression);
        if cx.now.saturating_since(last) < interval {
            return Verdict::Suppress;
        }
        entry.suppression = self.grown(interval);
        Verdict::Forward
    }

    /// Decides for one upstream.
    pub fn for_upstream(&self, cx: &Context<'_>, face: FaceId) -> Verdict {
        let Some(record) = cx.out_record(face) else {
            return Verdict::New;
        };
        let since = cx.now.saturating_since(record.last_renewed);
        if since < self.interval(record.suppression) {
            Verdict::Suppress
        } else {
            Verdict::Forward
        }
    }

    /// Lets an upstream's interval grow.
    pub fn grow(&self, cx: &mut Context<'_>, face: FaceId) {
        if let Some(record) = cx.pit.out_record_mut(cx.entry, face) {
            record.suppression = self.grown(self.interval(record.suppression));
        }
    }

    fn interval(&self, stored: Duration) -> Duration {
        if stored.is_zero() {
            self.initial
        } else {
            stored
        }
    }

    fn grown(&self, interval: Duration) -> Duration {
        let longer = interval.saturating_mul(self.multiplier_milli) / 1000;
        longer.min(self.max)
    }
}
