//! Bytes read one after the other, each access checked, each failure with its offset.

use reorder_base::error::{Error, Result};
use reorder_base::leb128::{self, Leb128Error};

/// Which byte of a number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

/// A position in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'data> {
    bytes: &'data [u8],
    position: usize,
    order: ByteOrder,
    /// Offset of `bytes` in the file, for messages.
    base: u64,
}

impl<'data> Cursor<'data> {
    pub(super) fn new(bytes: &'data [u8], order: ByteOrder) -> Self {
        Self { bytes, position: 0, order, base: 0 }
    }

    /// A cursor over a part of a file that starts at `base` there.
    pub(super) fn part(bytes: &'data [u8], order: ByteOrder, base: u64) -> Self {
        Self { bytes, position: 0, order, base }
    }

    pub(super) fn order(&self) -> ByteOrder {
        self.order
    }

    /// Offset in the file.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.position as u64
    }

    /// Bytes that are left.
    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.remaining() == 0
    }

    /// What is left, without moving on.
    pub(super) fn rest(&self) -> &'data [u8] {
        &self.bytes[self.position..]
    }

    /// The next `length` bytes.
    pub(super) fn take(&mut self, length: u64) -> Result<&'data [u8]> {
        let taken = usize::try_from(length).ok().and_then(|length| self.rest().get(..length));
        let taken = taken.ok_or_else(|| {
            let left = self.remaining();
            Error::malformed(self.offset(), format!("{length} bytes are expected, {left} are left"))
        })?;
        self.position += taken.len();
        Ok(taken)
    }

    /// The next `count` times `size` bytes; a product beyond the file is an error before anything is allocated.
    pub(super) fn take_array(&mut self, count: u64, size: u64) -> Result<&'data [u8]> {
        match count.checked_mul(size) {
            Some(length) => self.take(length),
            None => Err(Error::malformed(self.offset(), format!("{count} records cannot be in any file"))),
        }
    }

    pub(super) fn skip(&mut self, length: u64) -> Result<()> {
        self.take(length).map(|_| ())
    }

    /// Moves on to a multiple of `alignment` bytes from the start of the cursor's bytes, as far as there are any.
    pub(super) fn align_to(&mut self, alignment: usize) {
        self.position = self.position.next_multiple_of(alignment).min(self.bytes.len());
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        let bytes = self.array()?;
        Ok(match self.order {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        })
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        let bytes = self.array()?;
        Ok(match self.order {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        })
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        let bytes = self.array()?;
        Ok(match self.order {
            ByteOrder::Little => u64::from_le_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        })
    }

    /// An unsigned LEB128 number of at most 64 bits.
    pub(super) fn uleb128(&mut self) -> Result<u64> {
        match leb128::read_unsigned(self.rest()) {
            Ok((value, size)) => {
                self.position += size;
                Ok(value)
            }
            Err(Leb128Error::Truncated) => {
                Err(Error::malformed(self.offset(), "a LEB128 number without an end"))
            }
            Err(Leb128Error::TooLarge) => {
                Err(Error::malformed(self.offset(), "a LEB128 number of more than 64 bits"))
            }
        }
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH]> {
        let taken = self.take(LENGTH as u64)?;
        // `take` gave exactly this many bytes.
        Ok(taken.first_chunk::<LENGTH>().copied().unwrap_or([0; LENGTH]))
    }
}
