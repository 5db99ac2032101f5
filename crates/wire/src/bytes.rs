//! Reads of fixed-size fields that cannot panic, whatever the length of the slice.

/// Returns the `N` bytes that start at `at`, or `None` if the slice ends before them.
#[inline(always)]
pub(crate) const fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    match bytes.split_at_checked(at) {
        Some((_, rest)) => rest.first_chunk::<N>(),
        None => None,
    }
}

/// Returns the `N` writable bytes that start at `at`, or `None` if the slice ends before them.
#[inline(always)]
pub(crate) const fn chunk_mut<const N: usize>(bytes: &mut [u8], at: usize) -> Option<&mut [u8; N]> {
    match bytes.split_at_mut_checked(at) {
        Some((_, rest)) => rest.first_chunk_mut::<N>(),
        None => None,
    }
}

/// Reads a big-endian 16-bit field of a fixed-size header.
macro_rules! be16 {
    ($array:expr, $at:expr) => {
        u16::from_be_bytes([$array[$at], $array[$at + 1]])
    };
}
/// Reads a big-endian 32-bit field of a fixed-size header.
macro_rules! be32 {
    ($array:expr, $at:expr) => {
        u32::from_be_bytes([
            $array[$at],
            $array[$at + 1],
            $array[$at + 2],
            $array[$at + 3],
        ])
    };
}
pub(crate) use {be16, be32};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_stops_at_the_end() {
        let bytes = [1, 2, 3, 4];
        assert_eq!(chunk::<2>(&bytes, 2), Some(&[3, 4]));
        assert_eq!(chunk::<2>(&bytes, 3), None);
        assert_eq!(chunk::<0>(&bytes, 4), Some(&[]));
        assert_eq!(chunk::<0>(&bytes, 5), None);
        assert_eq!(chunk::<1>(&bytes, usize::MAX), None);
    }
}
