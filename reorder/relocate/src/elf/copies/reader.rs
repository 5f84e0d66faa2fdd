//! Numbers as unwind tables and exception tables hold them.

use reorder_base::leb128;

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

    /// An unsigned number of variable length.
    pub(super) fn unsigned(&mut self) -> Option<u64> {
        let (value, size) = leb128::read_unsigned(self.bytes.get(self.position..)?).ok()?;
        self.position += size;
        Some(value)
    }

    /// A signed number of variable length.
    pub(super) fn signed(&mut self) -> Option<i64> {
        let (value, size) = leb128::read_signed(self.bytes.get(self.position..)?).ok()?;
        self.position += size;
        Some(value)
    }

    /// A block of bytes after its size.
    pub(super) fn block(&mut self) -> Option<&'data [u8]> {
        let size = usize::try_from(self.unsigned()?).ok()?;
        self.take(size)
    }
}
