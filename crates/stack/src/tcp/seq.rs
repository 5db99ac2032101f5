//! Sequence number arithmetic (RFC 9293 3.4): 32-bit numbers that wrap.

use core::fmt;

/// A TCP sequence number. There is no total order: two numbers compare only within half of the space.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Seq(pub(crate) u32);

impl Seq {
    /// Returns how far `self` lies after `other`, bytes; negative if before.
    #[inline]
    pub(crate) const fn diff(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
    /// Returns the bytes from `start` to `self`, modulo 2^32.
    #[inline]
    pub(crate) const fn since(self, start: Self) -> u32 {
        self.0.wrapping_sub(start.0)
    }
    /// Returns the number `bytes` later.
    #[inline]
    #[must_use]
    pub(crate) const fn plus(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
    /// Returns the number `bytes` earlier.
    #[inline]
    #[must_use]
    pub(crate) const fn minus(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
    /// Says whether `self` is earlier than `other`.
    #[inline]
    pub(crate) const fn before(self, other: Self) -> bool {
        self.diff(other) < 0
    }
    /// Says whether `self` is later than `other`.
    #[inline]
    pub(crate) const fn after(self, other: Self) -> bool {
        self.diff(other) > 0
    }
    /// Says whether `self` is `other` or earlier.
    #[inline]
    pub(crate) const fn at_or_before(self, other: Self) -> bool {
        self.diff(other) <= 0
    }
    /// Says whether `self` is `other` or later.
    #[inline]
    pub(crate) const fn at_or_after(self, other: Self) -> bool {
        self.diff(other) >= 0
    }
    /// Returns the later of two.
    #[inline]
    #[must_use]
    pub(crate) const fn later(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }
    /// Returns the earlier of two.
    #[inline]
    #[must_use]
    pub(crate) const fn earlier(self, other: Self) -> Self {
        if self.after(other) { other } else { self }
    }
    /// Says whether `self` lies in `[start, end)`.
    #[inline]
    pub(crate) const fn is_within(self, start: Self, end: Self) -> bool {
        self.since(start) < end.since(start)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The oracle counts in 64 bits, where nothing wraps.
        #[test]
        fn order_equals_that_of_unbounded_numbers(base in any::<u64>(), a in 0_i64..1 << 30, b in 0_i64..1 << 30) {
            let base = i128::from(base);
            let wrap = |n: i128| Seq(n.rem_euclid(1 << 32) as u32);
            let (x, y) = (base + i128::from(a), base + i128::from(b));
            let (p, q) = (wrap(x), wrap(y));
            prop_assert_eq!(p.before(q), x < y);
            prop_assert_eq!(p.after(q), x > y);
            prop_assert_eq!(p.at_or_before(q), x <= y);
            prop_assert_eq!(p.at_or_after(q), x >= y);
            prop_assert_eq!(i128::from(p.diff(q)), x - y);
            prop_assert_eq!(p.later(q), wrap(x.max(y)));
            prop_assert_eq!(p.earlier(q), wrap(x.min(y)));
            prop_assert_eq!(p.plus(5).minus(5), p);
            let mid = wrap(base + i128::from(a / 2));
            prop_assert_eq!(mid.is_within(wrap(base), p), a > 0);
            prop_assert!(!q.is_within(q, q));
        }
    }
}
