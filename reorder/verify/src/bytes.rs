//! Checked reads: the only way in which this crate reads numbers from a file.
//!
//! Every reader returns `None` instead of reading past the end, so hostile sizes lead to a report and not to a panic.

/// The `LENGTH` bytes at `offset`.
pub(crate) fn array<const LENGTH: usize>(bytes: &[u8], offset: usize) -> Option<[u8; LENGTH]> {
    bytes.get(offset..offset.checked_add(LENGTH)?)?.try_into().ok()
}

/// The unsigned 16-bit number at `offset`.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    array(bytes, offset).map(u16::from_le_bytes)
}

/// The unsigned 32-bit number at `offset`.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    array(bytes, offset).map(u32::from_le_bytes)
}

/// The unsigned 32-bit number at `offset`, most significant byte first.
pub(crate) fn big_endian_u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    array(bytes, offset).map(u32::from_be_bytes)
}

/// The unsigned 64-bit number at `offset`.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    array(bytes, offset).map(u64::from_le_bytes)
}

/// The signed 32-bit number at `offset`, widened as the processor widens displacements.
pub(crate) fn displacement_at(bytes: &[u8], offset: usize) -> Option<u64> {
    array(bytes, offset).map(|word| i64::from(i32::from_le_bytes(word)) as u64)
}

/// The subslice `size` bytes from `offset`, or `None` when it does not lie inside `bytes`.
pub(crate) fn range(bytes: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    bytes.get(start..end)
}

/// The unsigned LEB128 number at `position`, which moves past it; `None` if it does not fit into 64 bits.
pub(crate) fn read_uleb128(bytes: &[u8], position: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*position)?;
        *position += 1;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The LEB128 number of at most ten bytes at `position`, which moves past it; bits beyond the 64th are ignored, as unwinders do.
/// Here pass numbers that [`read_uleb128`] rejects: signed ones, of which only the length matters, are skipped with it.
pub(crate) fn unsigned_leb128(bytes: &[u8], position: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*position)?;
        *position += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The signed LEB128 number of at most ten bytes at `position`, which moves past it.
pub(crate) fn signed_leb128(bytes: &[u8], position: &mut usize) -> Option<i64> {
    let start = *position;
    let value = unsigned_leb128(bytes, position)? as i64;
    let unused = 64_u32.saturating_sub(7 * u32::try_from(*position - start).ok()?);
    Some(value << unused >> unused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_numbers_have_the_sign_of_their_last_bit() {
        let number = |bytes: &[u8]| signed_leb128(bytes, &mut 0);
        assert_eq!((number(&[0x3f]), number(&[0x40]), number(&[0x7f])), (Some(63), Some(-64), Some(-1)));
        assert_eq!((number(&[0xff, 0]), number(&[0x80, 0x7f])), (Some(127), Some(-128)));
        let lowest = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f];
        assert_eq!(number(&lowest), Some(i64::MIN));
    }
}
