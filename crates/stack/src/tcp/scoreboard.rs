//! Segments in flight: when each was sent, and what the peer said of it (RFC 6675, RFC 8985 5.1).

use alloc::collections::VecDeque;

use super::seq::Seq;

bitflags::bitflags! {
    /// What is known of a segment in flight.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Mark: u8 {
        /// The peer has it (SACK).
        const SACKED = 1 << 0;
        /// Taken for lost.
        const LOST = 1 << 1;
        /// Sent again since it was taken for lost.
        const RESENT = 1 << 2;
        /// Sent more than once.
        const EVER_RESENT = 1 << 3;
        /// Carries our FIN as its last byte.
        const FIN = 1 << 4;
        /// The application had no more to send then.
        const APP_LIMITED = 1 << 5;
    }
}

/// One segment in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) start: Seq,
    pub(crate) end: Seq,
    pub(crate) mark: Mark,
    /// When it was sent last, ns.
    pub(crate) sent_at: u64,
    /// Bytes that had been delivered then, and when the last of them was (draft-cheng-iccrg-delivery-rate 3.1).
    pub(crate) delivered: u64,
    pub(crate) delivered_at: u64,
    /// When the first segment of that flight was sent, ns.
    pub(crate) first_sent_at: u64,
}

impl Sent {
    pub(crate) const fn bytes(&self) -> u32 {
        self.end.since(self.start)
    }
}

/// All segments in flight, in sequence order, and sums over them.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    queue: VecDeque<Sent>,
    sacked: u32,
    lost: u32,
    resent: u32,
    /// No lost segment that is to be sent again starts before this one.
    lost_hint: Seq,
    /// Blocks of the last acknowledgement: what they cover is marked already.
    known: [(Seq, Seq); 4],
}

impl Scoreboard {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
    pub(crate) fn first(&self) -> Option<&Sent> {
        self.queue.front()
    }
    pub(crate) fn last(&self) -> Option<&Sent> {
        self.queue.back()
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sent> {
        self.queue.iter()
    }
    pub(crate) const fn sacked_bytes(&self) -> u32 {
        self.sacked
    }
    pub(crate) const fn lost_bytes(&self) -> u32 {
        self.lost
    }
    /// Says whether a lost segment waits to be sent again.
    pub(crate) const fn has_lost(&self) -> bool {
        self.lost > self.resent
    }
    /// Returns the bytes on their way (RFC 6675 4, "pipe").
    pub(crate) fn pipe(&self) -> u32 {
        let all = match (self.queue.front(), self.queue.back()) {
            (Some(first), Some(last)) => last.end.since(first.start),
            _ => 0,
        };
        (all + self.resent).saturating_sub(self.sacked + self.lost)
    }
    /// Adds a segment that was just sent for the first time.
    pub(crate) fn push(&mut self, sent: Sent) {
        self.queue.push_back(sent);
    }
    /// Removes what `ack` covers, oldest first; a segment that it covers in part is cut.
    pub(crate) fn pop_acked(&mut self, ack: Seq) -> Option<Sent> {
        let first = self.queue.front_mut()?;
        if first.end.at_or_before(ack) {
            let sent = self.queue.pop_front()?;
            self.forget(&sent);
            return Some(sent);
        }
        if first.start.before(ack) {
            let mut part = *first;
            part.end = ack;
            first.start = ack;
            part.mark.remove(Mark::FIN);
            self.forget(&part);
            return Some(part);
        }
        None
    }
    /// Marks what a SACK block covers; `newly` hears of each segment that was not marked before.
    pub(crate) fn sack(&mut self, start: Seq, end: Seq, mut newly: impl FnMut(&Sent)) {
        let mut at = self.queue.partition_point(|sent| sent.start.before(start));
        while let Some(sent) = self.queue.get_mut(at) {
            if sent.end.after(end) {
                break;
            }
            if let Some((_, known_end)) = self
                .known
                .iter()
                .find(|(s, e)| sent.start.at_or_after(*s) && sent.end.at_or_before(*e) && s != e)
                && sent.mark.contains(Mark::SACKED)
            {
                // The last acknowledgement covered up to there: go on behind it.
                let known_end = *known_end;
                at += 1;
                if self
                    .queue
                    .get(at + 8)
                    .is_some_and(|later| later.start.before(known_end))
                {
                    at = self
                        .queue
                        .partition_point(|sent| sent.end.at_or_before(known_end))
                        .max(at);
                }
                continue;
            }
            if !sent.mark.contains(Mark::SACKED) {
                newly(sent);
                let bytes = sent.bytes();
                self.sacked += bytes;
                if sent.mark.contains(Mark::LOST) {
                    self.lost -= bytes;
                }
                if sent.mark.contains(Mark::RESENT) {
                    self.resent -= bytes;
                }
                sent.mark.remove(Mark::LOST | Mark::RESENT);
                sent.mark.insert(Mark::SACKED);
            }
            at += 1;
        }
    }
    /// Remembers the blocks of an acknowledgement, after [`sack`](Self::sack).
    pub(crate) fn remember(&mut self, blocks: &[(u32, u32)]) {
        self.known = [(Seq(0), Seq(0)); 4];
        for (to, from) in self.known.iter_mut().zip(blocks) {
            *to = (Seq(from.0), Seq(from.1));
        }
    }
    /// Walks the segments in order; `verdict` says which are lost, or ends the walk.
    pub(crate) fn mark_lost(&mut self, mut verdict: impl FnMut(&Sent) -> Loss) -> u32 {
        let mut bytes = 0;
        for sent in &mut self.queue {
            let pending = sent.mark.contains(Mark::LOST) && !sent.mark.contains(Mark::RESENT);
            if sent.mark.contains(Mark::SACKED) || pending {
                continue;
            }
            match verdict(sent) {
                Loss::No => {}
                Loss::End => break,
                Loss::Yes => {
                    if self.lost == self.resent || sent.start.before(self.lost_hint) {
                        self.lost_hint = sent.start;
                    }
                    if sent.mark.contains(Mark::RESENT) {
                        self.resent -= sent.bytes();
                        sent.mark.remove(Mark::RESENT);
                    } else {
                        self.lost += sent.bytes();
                    }
                    sent.mark.insert(Mark::LOST);
                    bytes += sent.bytes();
                }
            }
        }
        bytes
    }
    /// Takes nothing for lost any more: the loss was none.
    pub(crate) fn unmark_lost(&mut self) {
        for sent in &mut self.queue {
            if sent.mark.contains(Mark::LOST) && !sent.mark.contains(Mark::RESENT) {
                sent.mark.remove(Mark::LOST);
                self.lost -= sent.bytes();
            }
        }
    }
    /// Forgets what SACK blocks said: the peer may have reneged (RFC 2018 8).
    pub(crate) fn forget_sacks(&mut self) {
        for sent in &mut self.queue {
            sent.mark.remove(Mark::SACKED);
        }
        self.sacked = 0;
        self.known = [(Seq(0), Seq(0)); 4];
    }
    /// Returns the first lost segment that is to be sent again, at most `bytes_max` long: a longer one is cut.
    pub(crate) fn next_lost(&mut self, bytes_max: u32) -> Option<Sent> {
        if !self.has_lost() {
            return None;
        }
        let hint = self.lost_hint;
        let mut at = self
            .queue
            .partition_point(|sent| sent.end.at_or_before(hint));
        while let Some(sent) = self.queue.get(at) {
            if sent.mark.contains(Mark::LOST) && !sent.mark.contains(Mark::RESENT) {
                let sent = *sent;
                self.lost_hint = sent.start;
                return Some(self.cut(at, sent, bytes_max));
            }
            at += 1;
        }
        None
    }
    /// Notes that the segment that starts at `start` was sent again at `now_ns`.
    pub(crate) fn resend(
        &mut self,
        start: Seq,
        now_ns: u64,
        delivered: u64,
        delivered_at: u64,
        first_sent_at: u64,
    ) {
        let at = self.queue.partition_point(|sent| sent.start.before(start));
        if let Some(sent) = self.queue.get_mut(at) {
            if sent.mark.contains(Mark::LOST) && !sent.mark.contains(Mark::RESENT) {
                self.resent += sent.bytes();
                sent.mark.insert(Mark::RESENT);
            }
            sent.mark.insert(Mark::EVER_RESENT);
            sent.sent_at = now_ns;
            sent.delivered = delivered;
            sent.delivered_at = delivered_at;
            sent.first_sent_at = first_sent_at;
        }
    }
    /// Returns the segment that starts at or covers `seq`.
    pub(crate) fn find(&self, seq: Seq) -> Option<&Sent> {
        let at = self
            .queue
            .partition_point(|sent| sent.end.at_or_before(seq));
        self.queue.get(at)
    }
    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.sacked = 0;
        self.lost = 0;
        self.resent = 0;
        self.known = [(Seq(0), Seq(0)); 4];
    }

    fn cut(&mut self, at: usize, mut sent: Sent, bytes_max: u32) -> Sent {
        if sent.bytes() > bytes_max + u32::from(sent.mark.contains(Mark::FIN)) {
            let middle = sent.start.plus(bytes_max);
            let mut rest = sent;
            rest.start = middle;
            if let Some(first) = self.queue.get_mut(at) {
                first.end = middle;
                first.mark.remove(Mark::FIN);
                sent = *first;
            }
            self.queue.insert(at + 1, rest);
        }
        sent
    }

    fn forget(&mut self, sent: &Sent) {
        let bytes = sent.bytes();
        if sent.mark.contains(Mark::SACKED) {
            self.sacked -= bytes;
        }
        if sent.mark.contains(Mark::LOST) {
            self.lost -= bytes;
        }
        if sent.mark.contains(Mark::RESENT) {
            self.resent -= bytes;
        }
    }
}

/// What [`Scoreboard::mark_lost`] is told of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It is lost.
    Yes,
    /// It may arrive.
    No,
    /// It may arrive, and so may all later ones.
    End,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn sent(start: Seq, bytes: u32) -> Sent {
        Sent {
            start,
            end: start.plus(bytes),
            mark: Mark::default(),
            sent_at: 0,
            delivered: 0,
            delivered_at: 0,
            first_sent_at: 0,
        }
    }

    proptest! {
        /// The oracle keeps one state a byte.
        #[test]
        fn sums_equal_a_walk_over_bytes(
            base in any::<u32>(),
            ops in prop::collection::vec((0_u8..7, any::<u16>(), any::<u16>()), 1..150),
        ) {
            let mut board = Scoreboard::default();
            // (sacked, lost, resent) of each byte in flight.
            let mut bytes: Vec<(bool, bool, bool)> = Vec::new();
            let (mut una, mut nxt) = (Seq(base), Seq(base));
            for (op, a, b) in ops {
                let flight = nxt.since(una);
                match op {
                    0 | 1 => {
                        let len = u32::from(a % 1400) + 1;
                        board.push(sent(nxt, len));
                        bytes.extend(vec![(false, false, false); len as usize]);
                        nxt = nxt.plus(len);
                    }
                    2 if flight > 0 => {
                        let len = u32::from(a) % flight + 1;
                        let ack = una.plus(len);
                        let mut popped = 0;
                        while let Some(part) = board.pop_acked(ack) {
                            prop_assert_eq!(part.start, una.plus(popped));
                            popped += part.bytes();
                        }
                        prop_assert_eq!(popped, len);
                        bytes.drain(..len as usize);
                        una = ack;
                    }
                    3 if flight > 0 => {
                        // A block of whole segments, as receivers send them.
                        let from = u32::from(a) % flight;
                        let to = from + u32::from(b) % (flight - from + 1);
                        let (start, end) = (una.plus(from), una.plus(to));
                        let whole: Vec<Sent> = board.iter().copied()
                            .filter(|s| s.start.at_or_after(start) && s.end.at_or_before(end)).collect();
                        let mut fresh = 0;
                        board.sack(start, end, |s| fresh += s.bytes());
                        board.remember(&[(start.0, end.0)]);
                        let mut expected = 0;
                        for s in whole {
                            for byte in &mut bytes[s.start.since(una) as usize..s.end.since(una) as usize] {
                                expected += u32::from(!byte.0);
                                *byte = (true, false, false);
                            }
                        }
                        prop_assert_eq!(fresh, expected);
                    }
                    4 if flight > 0 => {
                        let limit = una.plus(u32::from(a) % flight);
                        board.mark_lost(|s| if s.end.at_or_before(limit) { Loss::Yes } else { Loss::End });
                        let ends: Vec<Sent> = board.iter().copied().filter(|s| s.end.at_or_before(limit)).collect();
                        for s in ends {
                            for byte in &mut bytes[s.start.since(una) as usize..s.end.since(una) as usize] {
                                if !byte.0 && (!byte.1 || byte.2) {
                                    *byte = (false, true, false);
                                }
                            }
                        }
                    }
                    5 => {
                        let expected = bytes.iter().position(|byte| byte.1 && !byte.2);
                        let max = u32::from(b % 700) + 1;
                        let next = board.next_lost(max);
                        prop_assert_eq!(next.map(|s| s.start.since(una) as usize), expected);
                        if let Some(s) = next {
                            prop_assert!(s.bytes() <= max);
                            board.resend(s.start, 1, 0, 0, 0);
                            for byte in &mut bytes[s.start.since(una) as usize..s.end.since(una) as usize] {
                                byte.2 = true;
                            }
                        }
                    }
                    6 if a % 16 == 0 => {
                        board.forget_sacks();
                        bytes.iter_mut().for_each(|byte| byte.0 = false);
                    }
                    _ => {}
                }
                let count = |f: fn(&(bool, bool, bool)) -> bool| bytes.iter().filter(|b| f(b)).count() as u32;
                prop_assert_eq!(board.sacked_bytes(), count(|b| b.0));
                prop_assert_eq!(board.lost_bytes(), count(|b| b.1));
                prop_assert_eq!(board.has_lost(), bytes.iter().any(|b| b.1 && !b.2));
                prop_assert_eq!(board.pipe(), count(|b| !b.0 && (!b.1 || b.2)));
            }
        }
    }
}
