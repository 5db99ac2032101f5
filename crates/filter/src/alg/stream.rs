//! Where lines start in the streams of inspected TCP connections, and starts of lines that wait for their rest.
//!
//! A line is read only where it is known to start: a client that can be made to send text of somebody's choice (a
//! browser's form, say) may not have its middle taken for a command. A line that comes in several segments waits until
//! it is whole, so that it can be changed: its first segments are acknowledged to their sender and leave together with
//! the last one. A worker's own, and bounded: what it has forgotten passes unread.

use alloc::boxed::Box;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use wire::tcp::Flags;

use crate::track::tcp::{Segment, after};

/// Streams that a worker follows, at most; the one that was silent longest is forgotten.
const STREAMS_MAX: usize = 256;
/// Bytes of a line that wait for its end, at most.
const HELD_MAX: usize = 256;
/// Places of line starts that are kept for retransmissions.
const STARTS: usize = 4;

/// One direction of a connection: the connection's reference, its table, the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKey {
    /// The connection, as a word.
    pub connection: u64,
    /// It is in the table for IPv4.
    pub is_ipv4: bool,
    /// 0 or 1.
    pub direction: u8,
}

/// What is to be done with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It goes on unread.
    Pass,
    /// The message starts with a line and is to be read; it begins with this many bytes that came before.
    Read(usize),
    /// It waits: the sender gets an acknowledgement, the receiver nothing yet.
    Hold,
    /// It comes too early: the sender will send it again.
    Early,
}

/// The streams of one worker.
#[derive(Debug, Default)]
pub struct Streams {
    streams: Vec<Stream>,
    clock: u64,
}

#[derive(Debug)]
struct Stream {
    key: StreamKey,
    /// The number that comes next.
    next: u32,
    /// A line starts there.
    at_line: bool,
    starts: [u32; STARTS],
    start_at: usize,
    held: Box<ArrayVec<u8, HELD_MAX>>,
    /// The held bytes have left, before the segment with this number.
    left_before: Option<u32>,
    used: u64,
}

impl Streams {
    /// Takes a segment in, and puts what is to be read into `message`. `promising` says whether a start of a line is
    /// worth waiting for its rest.
    pub fn see(
        &mut self,
        key: StreamKey,
        segment: &Segment,
        payload: &[u8],
        message: &mut Vec<u8>,
        promising: impl Fn(&[u8]) -> bool,
    ) -> Step {
        message.clear();
        self.clock += 1;
        let clock = self.clock;
        if segment.flags.contains(Flags::SYN) {
            let next = segment.sequence.wrapping_add(1);
            self.open(Stream::new(key, next, payload.is_empty(), clock));
            return Step::Pass;
        }
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.key == key) else {
            let next = segment.sequence.wrapping_add(payload.len() as u32);
            if !payload.is_empty() {
                self.open(Stream::new(key, next, payload.ends_with(b"\n"), clock));
            }
            return Step::Pass;
        };
        stream.used = clock;
        let step = stream.see(segment, payload, message, promising);
        if segment.flags.contains(Flags::RST) {
            self.streams.retain(|stream| stream.key != key);
        }
        step
    }

    fn open(&mut self, stream: Stream) {
        self.streams.retain(|known| known.key != stream.key);
        if self.streams.len() >= STREAMS_MAX {
            // One that holds something would lose it: last of all.
            let oldest = self
                .streams
                .iter()
                .enumerate()
                .min_by_key(|(_, stream)| (stream.is_holding(), stream.used));
            if let Some((at, _)) = oldest {
                self.streams.swap_remove(at);
            }
        }
        self.streams.push(stream);
    }
}

impl Stream {
    fn new(key: StreamKey, next: u32, at_line: bool, used: u64) -> Self {
        Self {
            key,
            next,
            at_line,
            starts: [next; STARTS],
            start_at: 0,
            held: Box::default(),
            left_before: None,
            used,
        }
    }

    /// Bytes wait that the receiver has not got.
    fn is_holding(&self) -> bool {
        !self.held.is_empty() && self.left_before.is_none()
    }

    fn see(
        &mut self,
        segment: &Segment,
        payload: &[u8],
        message: &mut Vec<u8>,
        promising: impl Fn(&[u8]) -> bool,
    ) -> Step {
        let sequence = segment.sequence;
        let end = sequence.wrapping_add(payload.len() as u32);
        if payload.is_empty() {
            let is_last = segment.flags.contains(Flags::FIN) && sequence == self.next;
            return if is_last && self.is_holding() {
                self.join(sequence, payload, message)
            } else {
                Step::Pass
            };
        }
        if after(sequence, self.next) {
            if self.is_holding() {
                return Step::Early;
            }
            self.forget();
            self.go_on(end, payload);
            return Step::Pass;
        }
        if sequence != self.next {
            return self.again(segment, payload, message, promising);
        }
        if self.is_holding() {
            let is_whole = payload.contains(&b'\n');
            message.extend_from_slice(&self.held);
            message.extend_from_slice(payload);
            if !is_whole && promising(message) && self.held.try_extend_from_slice(payload).is_ok() {
                self.next = end;
                return Step::Hold;
            }
            self.left_before = Some(sequence);
            self.go_on(end, payload);
            return Step::Read(message.len() - payload.len());
        }
        self.forget();
        if !self.at_line {
            self.go_on(end, payload);
            return Step::Pass;
        }
        self.fresh(sequence, payload, message, promising)
    }

    /// A segment that starts with a line.
    fn fresh(
        &mut self,
        sequence: u32,
        payload: &[u8],
        message: &mut Vec<u8>,
        promising: impl Fn(&[u8]) -> bool,
    ) -> Step {
        let end = sequence.wrapping_add(payload.len() as u32);
        if !payload.contains(&b'\n')
            && promising(payload)
            && self.held.try_extend_from_slice(payload).is_ok()
        {
            self.next = end;
            return Step::Hold;
        }
        if let Some(place) = self.starts.get_mut(self.start_at) {
            *place = sequence;
        }
        self.start_at = (self.start_at + 1) % STARTS;
        self.go_on(end, payload);
        message.extend_from_slice(payload);
        Step::Read(0)
    }

    /// A segment that came before.
    fn again(
        &mut self,
        segment: &Segment,
        payload: &[u8],
        message: &mut Vec<u8>,
        promising: impl Fn(&[u8]) -> bool,
    ) -> Step {
        let sequence = segment.sequence;
        let end = sequence.wrapping_add(payload.len() as u32);
        let has_more = after(end, self.next);
        if self.is_holding() {
            if !has_more {
                return Step::Hold;
            }
            let start = self.next.wrapping_sub(self.held.len() as u32);
            if sequence != start {
                return Step::Early;
            }
            self.forget();
            return self.fresh(sequence, payload, message, promising);
        }
        if self.left_before == Some(sequence) {
            return self.join(sequence, payload, message);
        }
        let starts_line = self.starts.contains(&sequence);
        if has_more {
            self.forget();
            self.go_on(end, payload);
        }
        if !starts_line {
            return Step::Pass;
        }
        message.extend_from_slice(payload);
        Step::Read(0)
    }

    /// The held bytes and what follows them.
    fn join(&mut self, sequence: u32, payload: &[u8], message: &mut Vec<u8>) -> Step {
        message.extend_from_slice(&self.held);
        message.extend_from_slice(payload);
        self.left_before = Some(sequence);
        let end = sequence.wrapping_add(payload.len() as u32);
        if after(end, self.next) {
            self.go_on(end, payload);
        }
        Step::Read(message.len() - payload.len())
    }

    fn go_on(&mut self, end: u32, payload: &[u8]) {
        self.next = end;
        self.at_line = payload.ends_with(b"\n");
    }

    fn forget(&mut self) {
        self.held.clear();
        self.left_before = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: StreamKey = StreamKey {
        connection: 1,
        is_ipv4: true,
        direction: 0,
    };

    struct Line {
        streams: Streams,
        message: Vec<u8>,
    }

    impl Line {
        fn new() -> Self {
            let mut line = Self {
                streams: Streams::default(),
                message: Vec::new(),
            };
            assert_eq!(line.flagged(99, b"", Flags::SYN), Step::Pass);
            line
        }

        fn flagged(&mut self, sequence: u32, payload: &[u8], flags: Flags) -> Step {
            let segment = Segment {
                sequence,
                flags,
                payload_bytes: payload.len() as u32,
                ..Segment::default()
            };
            let promising =
                |start: &[u8]| b"PORT ".starts_with(start) || start.starts_with(b"PORT ");
            self.streams
                .see(KEY, &segment, payload, &mut self.message, promising)
        }

        fn see(&mut self, sequence: u32, payload: &[u8]) -> Step {
            self.flagged(sequence, payload, Flags::ACK)
        }
    }

    #[test]
    fn lines_are_read_where_they_start_and_again_when_sent_again() {
        let mut line = Line::new();
        assert_eq!(line.see(100, b"USER x\r\n"), Step::Read(0));
        assert_eq!(line.see(108, b"STOR aaaa"), Step::Read(0));
        // The middle of a line is no command.
        assert_eq!(line.see(117, b"PORT 1\r\n"), Step::Pass);
        assert_eq!(line.see(125, b"PORT 2\r\n"), Step::Read(0));
        assert_eq!(line.see(125, b"PORT 2\r\n"), Step::Read(0));
        assert_eq!(line.message, b"PORT 2\r\n");
        assert_eq!(line.see(117, b"PORT 1\r\n"), Step::Pass);
        // After a gap, the next line that is known to start.
        assert_eq!(line.see(150, b"PORT 3\r\n"), Step::Pass);
        assert_eq!(line.see(158, b"PORT 4\r\n"), Step::Read(0));
        assert_eq!(line.flagged(166, b"", Flags::RST), Step::Pass);
        assert_eq!(line.see(166, b"PORT 5\r\n"), Step::Pass);
    }

    #[test]
    fn a_line_in_pieces_waits_until_it_is_whole() {
        let mut line = Line::new();
        assert_eq!(line.see(100, b"PO"), Step::Hold);
        assert_eq!(line.see(100, b"PO"), Step::Hold);
        assert_eq!(line.see(102, b"RT 1"), Step::Hold);
        assert_eq!(line.see(110, b"later"), Step::Early);
        assert_eq!(line.see(106, b",2\r\n"), Step::Read(6));
        assert_eq!(line.message, b"PORT 1,2\r\n");
        // Lost on the way: what was held goes with it again.
        assert_eq!(line.see(106, b",2\r\n"), Step::Read(6));
        assert_eq!(line.message, b"PORT 1,2\r\n");
        assert_eq!(line.see(110, b"NOOP\r\n"), Step::Read(0));
        // The sender joins what it sends again.
        assert_eq!(line.see(116, b"P"), Step::Hold);
        assert_eq!(line.see(116, b"PORT 7\r\n"), Step::Read(0));
        assert_eq!(line.message, b"PORT 7\r\n");
        // What is no command after all, and what ends without one, leave as they are.
        assert_eq!(line.see(124, b"P"), Step::Hold);
        assert_eq!(line.see(125, b"WD"), Step::Read(1));
        assert_eq!(line.message, b"PWD");
        assert_eq!(line.see(127, b"\r\n"), Step::Pass);
        assert_eq!(line.see(129, b"PORT"), Step::Hold);
        assert_eq!(
            line.flagged(133, b"", Flags::FIN | Flags::ACK),
            Step::Read(4)
        );
        assert_eq!(line.message, b"PORT");
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut line = Line::new();
        let mut sequence = 100;
        let mut held = 0;
        assert_eq!(line.see(sequence, b"PORT "), Step::Hold);
        sequence += 5;
        while line.see(sequence, &[b'1'; 50]) == Step::Hold {
            sequence += 50;
            held += 50;
        }
        assert_eq!(held, 250);
        assert_eq!(line.message.len(), 305);
        for connection in 0..1000 {
            let segment = Segment {
                flags: Flags::SYN,
                ..Segment::default()
            };
            let key = StreamKey { connection, ..KEY };
            let mut message = Vec::new();
            line.streams
                .see(key, &segment, b"", &mut message, |_| false);
        }
        assert_eq!(line.streams.streams.len(), STREAMS_MAX);
    }
}
