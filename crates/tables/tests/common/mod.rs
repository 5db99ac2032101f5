//! A checker for histories of one map: is there an order of the operations, within their times, in which a
//! sequential map would have given every answer? (Wing and Gong 1993, with Lowe's memory of configurations.)
//! Keys are independent (linearizability is local: Herlihy and Wing 1990), so each key is checked alone.

use std::collections::{HashMap, HashSet};

/// What was asked of the map, and the answer, for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// `true`: this value went in; `false`: the key was there.
    Insert { value: u64, won: bool },
    /// `true`: this operation removed it.
    Remove { won: bool },
    /// The value that was found.
    Read(Option<u64>),
}

/// One operation of a history: when it began and ended, on a clock that all threads share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) key: u64,
    pub(crate) op: Op,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// Returns the new state if a map in `state` would have given this answer.
fn apply(state: Option<u64>, op: Op) -> Option<Option<u64>> {
    match op {
        Op::Insert { value, won: true } => state.is_none().then_some(Some(value)),
        Op::Insert { won: false, .. } => state.is_some().then_some(state),
        Op::Remove { won: true } => state.is_some().then_some(None),
        Op::Remove { won: false } => state.is_none().then_some(None),
        Op::Read(seen) => (seen == state).then_some(state),
    }
}

/// Checks a whole history; `Err` names a key whose events have no order.
pub(crate) fn check(history: &[Event]) -> Result<(), u64> {
    let mut by_key: HashMap<u64, Vec<Event>> = HashMap::new();
    for &event in history {
        by_key.entry(event.key).or_default().push(event);
    }
    by_key.into_iter().try_for_each(|(key, mut events)| {
        events.sort_by_key(|event| event.begin);
        if check_key(&events) { Ok(()) } else { Err(key) }
    })
}

/// Depth-first over the orders; `events` by begin. A configuration is the prefix that is done, the done ones
/// beyond it (few: as many as there are threads), and the state.
fn check_key(events: &[Event]) -> bool {
    type Configuration = (usize, Vec<usize>, Option<u64>);
    let mut seen: HashSet<Configuration> = HashSet::new();
    let mut stack: Vec<Configuration> = vec![(0, Vec::new(), None)];
    while let Some((prefix, done, state)) = stack.pop() {
        if prefix == events.len() {
            return true;
        }
        // Whatever comes next must have begun before every pending operation ended.
        let mut earliest_end = u64::MAX;
        for (at, event) in events.iter().enumerate().skip(prefix) {
            if event.begin > earliest_end {
                break;
            }
            if done.contains(&at) {
                continue;
            }
            earliest_end = earliest_end.min(event.end);
        }
        for (at, event) in events.iter().enumerate().skip(prefix) {
            if event.begin > earliest_end {
                break;
            }
            if done.contains(&at) {
                continue;
            }
            let Some(next) = apply(state, event.op) else {
                continue;
            };
            let mut done = done.clone();
            done.push(at);
            done.sort_unstable();
            let mut prefix = prefix;
            while done.first() == Some(&prefix) {
                done.remove(0);
                prefix += 1;
            }
            let configuration = (prefix, done, next);
            if seen.insert(configuration.clone()) {
                stack.push(configuration);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(op: Op, begin: u64, end: u64) -> Event {
        Event {
            key: 1,
            op,
            begin,
            end,
        }
    }

    #[test]
    fn two_winners_have_no_order() {
        let insert = |value, begin, end| event(Op::Insert { value, won: true }, begin, end);
        assert!(check(&[insert(1, 0, 10), insert(2, 5, 15)]).is_err());
        let remove = event(Op::Remove { won: true }, 3, 12);
        assert!(check(&[insert(1, 0, 10), insert(2, 5, 15), remove]).is_ok());
    }

    #[test]
    fn a_stale_read_has_no_order() {
        let insert = event(
            Op::Insert {
                value: 1,
                won: true,
            },
            0,
            1,
        );
        assert!(check(&[insert, event(Op::Read(None), 2, 3)]).is_err());
        assert!(check(&[insert, event(Op::Read(None), 1, 3)]).is_ok());
        assert!(check(&[insert, event(Op::Read(Some(2)), 1, 3)]).is_err());
    }
}
