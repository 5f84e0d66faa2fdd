//! A checked reader of the tables: numbers, LEB128 and strings, with the place in every error.
//!
//! Source of LEB128: DWARF 5, section 7.6.

use reorder_base::error::{Error, Result};

/// Reads one table from front to back.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'data> {
    bytes: &'data [u8],
    position: usize,
    /// Where the table starts in the image.
    origin: u64,
    /// What the table is, for errors.
    what: &'static str,
}

impl<'data> Reader<'data> {
    /// Starts before `bytes`, which lie at `origin` in the image.
    pub(crate) fn new(bytes: &'data [u8], origin: u64, what: &'static str) -> Self {
        Self { bytes, position: 0, origin, what }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Goes to a position from the table's start.
    pub(crate) fn seek(&mut self, position: usize) -> Result<()> {
        if position > self.bytes.len() {
            return Err(self.error("refers to a place after its end"));
        }
        self.position = position;
        Ok(())
    }

    /// What was not read.
    pub(crate) fn rest(&self) -> &'data [u8] {
        &self.bytes[self.position..]
    }

    /// An error at the current place: "the NAME `problem`".
    pub(crate) fn error(&self, problem: &str) -> Error {
        Error::malformed(self.origin + self.position as u64, format!("the {} {problem}", self.what))
    }

    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'data [u8]> {
        let Some(taken) = self.rest().get(..count) else { return Err(self.error("ends too early")) };
        self.position += count;
        Ok(taken)
    }

    fn array<const SIZE: usize>(&mut self) -> Result<[u8; SIZE]> {
        let Some(taken) = self.rest().first_chunk() else { return Err(self.error("ends too early")) };
        self.position += SIZE;
        Ok(*taken)
    }

    /// One byte.
    pub(crate) fn byte(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Two bytes.
    pub(crate) fn half(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub(crate) fn word(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub(crate) fn long(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// An unsigned number of variable length.
    pub(crate) fn uleb(&mut self) -> Result<u64> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // Bits that do not fit would be lost; padding with empty groups is legal.
            if bits != 0 && (shift >= 64 || (bits << shift) >> shift != bits) {
                return Err(self.error("has a number of more than 64 bits"));
            }
            value |= bits.checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            shift = shift.saturating_add(7);
        }
    }

    /// A string up to its zero byte, which is read but not given.
    pub(crate) fn string(&mut self) -> Result<&'data [u8]> {
        let Some(length) = self.rest().iter().position(|byte| *byte == 0) else {
            return Err(self.error("has a name without an end"));
        };
        let string = &self.rest()[..length];
        self.position += length + 1;
        Ok(string)
    }
}

/// Appends an unsigned number of variable length in its shortest form.
pub(crate) fn write_uleb(output: &mut Vec<u8>, mut value: u64) {
    loop {
        let group = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            return output.push(group);
        }
        output.push(group | 0x80);
    }
}

/// How many bytes [`write_uleb`] appends.
pub(crate) fn uleb_size(value: u64) -> usize {
    (64 - (value | 1).leading_zeros()).div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Reader, uleb_size, write_uleb};

    #[test]
    fn numbers_end_at_64_bits() {
        let read = |bytes: &[u8]| Reader::new(bytes, 0, "table").uleb().ok();
        let longest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(read(&longest), Some(u64::MAX));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), None);
        assert_eq!(read(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), Some(0));
        assert_eq!(read(&[0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]), None);
        assert_eq!(read(&[0x80]), None);
        assert_eq!(read(&[]), None);
    }

    proptest! {
        #[test]
        fn numbers_survive_a_round_trip(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            write_uleb(&mut bytes, value);
            prop_assert_eq!(bytes.len(), uleb_size(value));
            prop_assert_eq!(Reader::new(&bytes, 0, "table").uleb().ok(), Some(value));
        }
    }
}
