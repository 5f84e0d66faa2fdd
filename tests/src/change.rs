//! Changes of a few bytes, and the numbers that choose them.

use std::ops::Range;

use crate::random::Random;

/// Another value for one bit of the range.
pub(crate) fn flip(bytes: &mut [u8], range: Range<usize>, random: &mut Random) -> Option<()> {
    let at = range.start + random.below(range.len());
    *bytes.get_mut(at).filter(|_| !range.is_empty())? ^= 1 << random.below(8);
    Some(())
}

/// Adds to a number of `width` bytes.
pub(crate) fn add(bytes: &mut [u8], at: usize, width: usize, value: u64) -> Option<()> {
    let field = bytes.get_mut(at..at + width)?;
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(field);
    let sum = u64::from_le_bytes(wide).wrapping_add(value).to_le_bytes();
    field.copy_from_slice(&sum[..width]);
    Some(())
}
