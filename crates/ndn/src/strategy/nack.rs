//! How strategies that use one upstream at a time answer Nacks (NFD's ProcessNackTraits).

use wire::ndn::lp::NackReason;

use super::{Action, Context};

/// Passes a Nack on once no upstream is left that may answer, with the least severe reason.
pub(super) fn process(cx: &mut Context<'_>) {
    let mut open = 0;
    let mut last_open = None;
    let mut reason = NackReason::None;
    for record in cx.pit.out_records(cx.entry) {
        match record.nack {
            Some(nack) => reason = reason.less_severe(nack),
            None => {
                open += 1;
                last_open = Some(record.face);
            }
        }
    }
    match (open, last_open) {
        (0, _) => cx.actions.push(Action::NackAll(reason)),
        // The one upstream that is left is also a downstream: it waits for us, and we for it.
        (1, Some(face)) if cx.pit.in_record(cx.entry, face).is_some() => {
            cx.actions.push(Action::Nack(face, reason));
        }
        _ => {}
    }
}
