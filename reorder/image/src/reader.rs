//! A checked reader of the tables: numbers, LEB128 and strings, with the place in every error.

use reorder_base::error::{Error, Result};
use reorder_base::leb128::{self, Leb128Error};

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
        match leb128::read_unsigned(self.rest()) {
            Ok((value, size)) => {
                self.position += size;
                Ok(value)
            }
            Err(Leb128Error::Truncated) => Err(self.error("ends too early")),
            Err(Leb128Error::TooLarge) => Err(self.error("has a number of more than 64 bits")),
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
