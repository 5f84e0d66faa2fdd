//! Changes of a few bytes, and the numbers that choose them.

use std::ops::Range;

/// Another value for one bit of the range.
pub(super) fn flip(bytes: &mut [u8], range: Range<usize>, random: &mut Random) -> Option<()> {
    let at = range.start + random.below(range.len());
    *bytes.get_mut(at).filter(|_| !range.is_empty())? ^= 1 << random.below(8);
    Some(())
}

/// Adds to a number of `width` bytes.
pub(super) fn add(bytes: &mut [u8], at: usize, width: usize, value: u64) -> Option<()> {
    let field = bytes.get_mut(at..at + width)?;
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(field);
    let sum = u64::from_le_bytes(wide).wrapping_add(value).to_le_bytes();
    field.copy_from_slice(&sum[..width]);
    Some(())
}

/// SplitMix64: enough for damage, and the same everywhere.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or zero.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// One of the items; nothing when there are none.
    pub(super) fn of<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let at = self.below(items.len());
        items.get(at)
    }
}
