//! Numbers as unwind tables and exception tables hold them.
//! Source: DWARF 5, section 7.6.

/// Reads from the beginning of some bytes; `None` after their end.
pub(super) struct Reader<'data> {
    bytes: &'data [u8],
    position: usize,
}

impl<'data> Reader<'data> {
    /// At the first of `bytes`.
    pub(super) fn new(bytes: &'data [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// The next bytes.
    pub(super) fn take(&mut self, count: usize) -> Option<&'data [u8]> {
        let end = self.position.checked_add(count)?;
        let taken = self.bytes.get(self.position..end)?;
        self.position = end;
        Some(taken)
    }

    /// The next byte.
    pub(super) fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    /// A number of at most eight bytes.
    pub(super) fn little_endian(&mut self, width: usize) -> Option<u64> {
        Some(self.take(width)?.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// An unsigned number below 2⁶³.
    pub(super) fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A signed number of at most 63 bits.
    pub(super) fn signed(&mut self) -> Option<i64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= i64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let unused = 64 - 7 - shift;
                return Some(value << unused >> unused);
            }
        }
        None
    }

    /// A block of bytes after its size.
    pub(super) fn block(&mut self) -> Option<&'data [u8]> {
        let size = usize::try_from(self.unsigned()?).ok()?;
        self.take(size)
    }
}

/// Appends an unsigned number.
pub(super) fn put_unsigned(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a signed number.
pub(super) fn put_signed(bytes: &mut Vec<u8>, mut value: i64) {
    while !(-0x40..0x40).contains(&value) {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8 & 0x7f);
}

/// Appends a distance in four bytes, if it fits.
pub(super) fn put_signed_word(bytes: &mut Vec<u8>, distance: u64) -> Option<()> {
    bytes.extend(i32::try_from(distance as i64).ok()?.to_le_bytes());
    Some(())
}
