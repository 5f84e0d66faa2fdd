//! Little-endian words at places in bytes.

/// The word of two bytes at `at`; `None` beyond the end of `bytes`.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

/// The word of four bytes at `at`; `None` beyond the end of `bytes`.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

/// The word of eight bytes at `at`; `None` beyond the end of `bytes`.
#[must_use]
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

fn array_at<const LENGTH: usize>(bytes: &[u8], at: usize) -> Option<[u8; LENGTH]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_inside() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(u16_at(&bytes, 7), Some(0x0908));
        assert_eq!(u32_at(&bytes, 1), Some(0x0504_0302));
        assert_eq!(u64_at(&bytes, 0), Some(0x0807_0605_0403_0201));
        assert_eq!(u64_at(&bytes, 2), None);
        assert_eq!(u16_at(&bytes, 9), None);
        assert_eq!(u32_at(&bytes, usize::MAX), None);
    }
}
