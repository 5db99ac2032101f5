//! Which slots of the region the kernel has from us.

/// One bit a slot: set while the slot is in the kernel's hands by this queue.
///
/// It makes taking frames back from the kernel sound without trusting what is in shared memory (a
/// slot comes back once, and only if it was given), and tells at closing exactly what was still out.
#[derive(Debug)]
pub(super) struct Held {
    words: Vec<u64>,
    count: u32,
}

impl Held {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            words: vec![0; (slots as usize).div_ceil(64)],
            count: 0,
        }
    }

    /// Notes that a slot was given; `false` if it cannot be (no such slot, or given already).
    #[inline]
    pub(super) fn give(&mut self, slot: u32) -> bool {
        let bit = 1 << (slot % 64);
        match self.words.get_mut((slot / 64) as usize) {
            Some(word) if *word & bit == 0 => {
                *word |= bit;
                self.count += 1;
                true
            }
            _ => false,
        }
    }

    /// Notes that a slot came back; `false` if it was not given.
    #[inline]
    pub(super) fn take(&mut self, slot: u64) -> bool {
        let bit = 1 << (slot % 64);
        match usize::try_from(slot / 64)
            .ok()
            .and_then(|index| self.words.get_mut(index))
        {
            Some(word) if *word & bit != 0 => {
                *word &= !bit;
                self.count -= 1;
                true
            }
            _ => false,
        }
    }

    /// Returns how many slots are out.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Takes all slots that are out.
    pub(super) fn take_all(&mut self) -> Vec<u32> {
        let mut slots = Vec::with_capacity(self.count as usize);
        for (index, word) in self.words.iter_mut().enumerate() {
            while *word != 0 {
                slots.push(index as u32 * 64 + word.trailing_zeros());
                *word &= *word - 1;
            }
        }
        self.count = 0;
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_comes_back_once_and_only_if_given() {
        let mut held = Held::new(100);
        assert!(held.give(70));
        assert!(!held.give(70), "given twice");
        assert!(!held.give(200), "no such slot");
        assert!(!held.take(3), "never given");
        assert!(!held.take(u64::MAX), "no such slot");
        assert_eq!(held.count(), 1);
        assert!(held.take(70));
        assert!(!held.take(70), "came back twice");
        assert_eq!(held.count(), 0);
    }

    #[test]
    fn what_is_out_is_listed_once() {
        let mut held = Held::new(256);
        for slot in [0, 63, 64, 255] {
            assert!(held.give(slot));
        }
        assert_eq!(held.take_all(), [0, 63, 64, 255]);
        assert_eq!((held.count(), held.take_all().len()), (0, 0));
    }
}
