//! What a node decides about each frame of a batch, and the fast way to act on it.

use graph::{EdgeId, Outlets};
use io::{BATCH_MAX, Batch, Frame};
use wire::DropReason;

/// What happens to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes along an edge.
    Edge(EdgeId),
    /// It is dropped.
    Drop(DropReason),
    /// It did its work here.
    Consume,
}

/// Judges every frame of a batch in place, then moves them: all at once where all go the same way.
#[inline]
pub(crate) fn judge(
    batch: &mut Batch,
    out: &mut Outlets,
    mut judge: impl FnMut(&mut Frame) -> Verdict,
) {
    let mut verdicts = [Verdict::Consume; BATCH_MAX];
    let mut first = None;
    let mut same = true;
    for (frame, verdict) in batch.iter_mut().zip(&mut verdicts) {
        *verdict = judge(frame);
        same &= *first.get_or_insert(*verdict) == *verdict;
    }
    match first {
        Some(Verdict::Edge(edge)) if same => out.push_rest(edge, batch),
        _ => spread(batch, &verdicts, out),
    }
}

#[cold]
fn spread(batch: &mut Batch, verdicts: &[Verdict; BATCH_MAX], out: &mut Outlets) {
    for (frame, verdict) in batch.drain().zip(verdicts) {
        match *verdict {
            Verdict::Edge(edge) => out.push(edge, frame),
            Verdict::Drop(reason) => out.drop(frame, reason),
            Verdict::Consume => out.consume(frame),
        }
    }
}
