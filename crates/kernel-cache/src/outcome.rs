//! The outcomes for people.

use crate::shared::answer::Outcome;

impl Outcome {
    /// All, by number.
    pub const ALL: [Self; crate::OUTCOMES] = [
        Self::Other,
        Self::Elsewhere,
        Self::Malformed,
        Self::Data,
        Self::ForwarderOnly,
        Self::LongName,
        Self::LinkField,
        Self::Absent,
        Self::Stale,
        Self::Steps,
        Self::Raced,
        Self::TooLong,
        Self::NoRoom,
        Self::Torn,
        Self::Exact,
        Self::Prefix,
    ];

    /// Its name and what became of the frame.
    pub fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Other => ("other", "passed on: not NDN"),
            Self::Elsewhere => ("elsewhere", "passed on: NDN for another address"),
            Self::Malformed => ("malformed", "passed on: not an Interest of the strict form"),
            Self::Data => ("data", "passed on: a Data packet"),
            Self::ForwarderOnly => (
                "forwarder_only",
                "passed on: parameters, a digest or a forwarding hint",
            ),
            Self::LongName => ("long_name", "passed on: the name is too long or too deep"),
            Self::LinkField => ("link_field", "passed on: a fragment, or other link fields"),
            Self::Absent => ("absent", "passed on: no such Data"),
            Self::Stale => ("stale", "passed on: none that is fresh"),
            Self::Steps => ("steps", "passed on: too many names below the prefix"),
            Self::Raced => ("raced", "passed on: the entry was being written"),
            Self::TooLong => ("too_long", "passed on: the reply is longer than a frame"),
            Self::NoRoom => (
                "no_room",
                "passed on: the driver's frame has no room for the reply",
            ),
            Self::Torn => ("torn", "dropped: the entry changed while it was copied"),
            Self::Exact => ("exact", "answered"),
            Self::Prefix => ("prefix", "answered with Data below the name"),
        }
    }

    /// True of Interests that were answered.
    pub fn is_hit(self) -> bool {
        matches!(self, Self::Exact | Self::Prefix)
    }

    /// True of Interests that were looked up and not answered.
    pub fn is_miss(self) -> bool {
        (Self::Absent as u32..=Self::Torn as u32).contains(&(self as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_at_its_number() {
        for (number, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, number);
            assert_ne!(outcome.is_hit(), outcome.is_miss() || number < 7);
        }
    }
}
