//! DNS over UDP (RFC 1035): an answer has the identifier of a question that waits, and the last one ends the
//! connection early. The questions that wait are kept in one word of the connection's record.

/// Bytes of a message's header.
const HEADER_BYTES: usize = 12;
/// Questions of one connection whose identifiers are kept; with more, identifiers are not checked.
const WAITING_MAX: usize = 3;
/// More questions wait than are kept.
const MANY: u64 = 1 << 63;

/// The questions of a connection that wait for their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting(u64);

/// What a message is for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A question, or an answer while others wait.
    Open(Waiting),
    /// The answer to the last question that waited.
    Done(Waiting),
    /// Nobody asked for it, or it is no message at all.
    Odd,
}

impl Waiting {
    /// As it was kept.
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// To be kept.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Takes a message in.
    #[must_use]
    pub fn see(self, message: &[u8], from_client: bool) -> Seen {
        let Some(header) = message.first_chunk::<HEADER_BYTES>() else {
            return Seen::Odd;
        };
        let identifier = u16::from_be_bytes([header[0], header[1]]);
        let is_answer = header[2] & 0x80 != 0;
        match (from_client, is_answer) {
            (true, false) => Seen::Open(self.with(identifier)),
            (false, true) => match self.without(identifier) {
                Some(rest) if rest.0 == 0 => Seen::Done(rest),
                Some(rest) => Seen::Open(rest),
                None => Seen::Odd,
            },
            _ => Seen::Odd,
        }
    }

    /// A place's bits: the identifier, and above all three of them whether one waits there.
    const fn place(at: usize) -> (u64, u64) {
        (0xffff << (16 * at), 1 << (48 + at))
    }

    fn find(self, identifier: u16) -> Option<usize> {
        (0..WAITING_MAX).find(|&at| {
            let (bits, used) = Self::place(at);
            self.0 & used != 0 && (self.0 & bits) >> (16 * at) == u64::from(identifier)
        })
    }

    fn with(self, identifier: u16) -> Self {
        // Asked again: still one question.
        if self.0 & MANY != 0 || self.find(identifier).is_some() {
            return self;
        }
        let free = (0..WAITING_MAX).find(|&at| self.0 & Self::place(at).1 == 0);
        match free {
            Some(at) => Self(self.0 | u64::from(identifier) << (16 * at) | Self::place(at).1),
            None => Self(MANY),
        }
    }

    /// `None` if nobody waits for this.
    fn without(self, identifier: u16) -> Option<Self> {
        if self.0 & MANY != 0 {
            return Some(self);
        }
        let (bits, used) = Self::place(self.find(identifier)?);
        Some(Self(self.0 & !bits & !used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn message(identifier: u16, is_answer: bool) -> [u8; 12] {
        let [high, low] = identifier.to_be_bytes();
        let mut message = [high, low, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        message[2] |= u8::from(is_answer) << 7;
        message
    }

    #[test]
    fn row_84_an_answer_needs_its_question_and_the_last_one_ends_it() {
        let open = |seen| match seen {
            Seen::Open(waiting) => waiting,
            other => panic!("{other:?}"),
        };
        let none = Waiting::default();
        assert_eq!(none.see(&message(7, true), false), Seen::Odd);
        let one = open(none.see(&message(7, false), true));
        assert_eq!(open(one.see(&message(7, false), true)), one);
        assert_eq!(one.see(&message(8, true), false), Seen::Odd);
        assert_eq!(one.see(&message(7, true), true), Seen::Odd);
        assert_eq!(one.see(&message(7, false), false), Seen::Odd);
        assert_eq!(one.see(&message(7, true)[..11], false), Seen::Odd);
        assert_eq!(one.see(&message(7, true), false), Seen::Done(none));
        let two = open(one.see(&message(0, false), true));
        let rest = open(two.see(&message(7, true), false));
        assert_eq!(rest.see(&message(7, true), false), Seen::Odd);
        assert_eq!(rest.see(&message(0, true), false), Seen::Done(none));
        // Of many at once, none is lost.
        let many = (0..4).fold(none, |waiting, id| {
            open(waiting.see(&message(id, false), true))
        });
        assert_eq!(open(many.see(&message(99, true), false)), many);
    }

    proptest! {
        #[test]
        fn any_message_is_read_without_panic(bytes: Vec<u8>, word: u64, from_client: bool) {
            let waiting = Waiting::from_word(word);
            match waiting.see(&bytes, from_client) {
                Seen::Odd => prop_assert!(bytes.len() < 12 || bytes[2] >> 7 == u8::from(from_client) || !from_client),
                Seen::Open(_) | Seen::Done(_) => prop_assert!(bytes.len() >= 12),
            }
        }
    }
}
