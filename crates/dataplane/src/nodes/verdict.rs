//! What a node decides about each frame of a batch, and the fast way to act on it.

use graph::{EdgeId, Outlets};
use io::{BATCH_MAX, Batch, Frame};
use wire::DropReason;

/// What happens to a frame, in two bytes, so that the verdicts of a batch are compared in no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict(u16);

const DROP: u16 = 0x100;
const CONSUME: u16 = 0x200;

impl Verdict {
    /// It did its work here.
    pub(crate) const CONSUME: Self = Self(CONSUME);

    /// It goes along an edge.
    #[inline]
    pub(crate) const fn edge(edge: EdgeId) -> Self {
        Self(edge.0 as u16)
    }

    /// It is dropped.
    #[inline]
    pub(crate) const fn drop(reason: DropReason) -> Self {
        Self(DROP | reason as u16)
    }

    fn act(self, frame: Frame, out: &mut Outlets) {
        let number = self.0 & 0xff;
        match self.0 & !0xff {
            0 => out.push(EdgeId(number as u8), frame),
            DROP => match DropReason::ALL.get(usize::from(number)) {
                Some(&reason) => out.drop(frame, reason),
                None => out.consume(frame),
            },
            _ => out.consume(frame),
        }
    }
}

/// Judges every frame of a batch in place, then moves them: all at once where all go the same way.
#[inline]
pub(crate) fn judge(
    batch: &mut Batch,
    out: &mut Outlets,
    mut judge: impl FnMut(&mut Frame) -> Verdict,
) {
    let mut verdicts = [Verdict::CONSUME; BATCH_MAX];
    let mut differ = 0;
    let mut last = None;
    for (frame, verdict) in batch.iter_mut().zip(&mut verdicts) {
        let now = judge(frame);
        *verdict = now;
        differ |= now.0 ^ last.unwrap_or(now).0;
        last = Some(now);
    }
    match last {
        Some(Verdict(edge)) if differ == 0 && edge < DROP => {
            out.push_rest(EdgeId(edge as u8), batch);
        }
        _ => spread(batch, &verdicts, out),
    }
}

#[cold]
fn spread(batch: &mut Batch, verdicts: &[Verdict; BATCH_MAX], out: &mut Outlets) {
    for (frame, verdict) in batch.drain().zip(verdicts) {
        verdict.act(frame, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_comes_back() {
        for &reason in DropReason::ALL {
            let Verdict(code) = Verdict::drop(reason);
            assert_eq!(DropReason::ALL[usize::from(code & 0xff)], reason);
        }
    }
}
