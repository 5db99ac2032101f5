//! The word of a slot: generation, state and tag in 64 bits, changed by compare-and-swap only (LF-3).

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Nothing; may be claimed.
    Free = 0,
    /// Its claimer writes the record.
    Claimed = 1,
    /// The record is complete, but whether it is the one of its key is not settled.
    Tentative = 2,
    /// The one record of its key.
    Live = 3,
    /// Removed; reusable when no reader can hold it.
    Dead = 4,
    /// Lost against another record of the same key; its claimer frees it.
    Aborted = 5,
}

const STATE_SHIFT: u32 = 29;
const TAG_MASK: u64 = (1 << STATE_SHIFT) - 1;

/// Generation (32 bits), state (3), tag (29).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    #[inline(always)]
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn state(self) -> Option<State> {
        match (self.0 >> STATE_SHIFT) as u8 & 7 {
            0 => Some(State::Free),
            1 => Some(State::Claimed),
            2 => Some(State::Tentative),
            3 => Some(State::Live),
            4 => Some(State::Dead),
            5 => Some(State::Aborted),
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn is(self, state: State) -> bool {
        (self.0 >> STATE_SHIFT) as u8 & 7 == state as u8
    }

    pub(crate) fn tag(self) -> u32 {
        (self.0 & TAG_MASK) as u32
    }

    /// The same slot in another state.
    pub(crate) fn to(self, state: State) -> Self {
        Self(self.0 & !(7 << STATE_SHIFT) | (state as u64) << STATE_SHIFT)
    }

    /// The same slot, claimed for a key of this tag.
    pub(crate) fn claimed(self, tag: u32) -> Self {
        Self((self.0 >> 32) << 32 | (State::Claimed as u64) << STATE_SHIFT | u64::from(tag))
    }

    /// The slot free again: the next generation (`step` is 1; 0 in the model that shows why).
    pub(crate) fn freed(self, step: u32) -> Self {
        Self(u64::from(self.generation().wrapping_add(step)) << 32)
    }

    /// A word that a lookup for `tag` must look into.
    #[inline(always)]
    pub(crate) fn is_live_with(self, tag: u32) -> bool {
        self.0 as u32 == Self::live_with(tag)
    }

    /// The low half of a live record's word.
    #[inline(always)]
    pub(crate) fn live_with(tag: u32) -> u32 {
        (State::Live as u32) << STATE_SHIFT | tag
    }

    /// The tag of a key: the low bits of its hash.
    #[inline(always)]
    pub(crate) fn tag_of(hash: u64) -> u32 {
        (hash & TAG_MASK) as u32
    }
}
