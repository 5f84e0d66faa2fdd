//! Which basic blocks of a function ran first, and for which code that holds.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use reorder_base::hexadecimal::decode;
use reorder_image::basic_blocks::Outline;

/// The basic blocks of one function that a run executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordedBlocks {
    /// Of the function's code: in an image whose function has another one, the blocks mean nothing.
    pub digest: CodeDigest,
    /// In order of first execution, each once; never empty.
    pub blocks: Vec<RecordedBlock>,
}

/// The first execution of one basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RecordedBlock {
    /// Bytes from the function's start to the block.
    pub offset: u32,
    /// Bytes of the block; never zero.
    pub size: u32,
    /// Time since the program's start.
    pub nanoseconds: u64,
}

/// The first eight bytes of the SHA-256 of a function's bytes, in which all fields are zero that state addresses outside
/// of the function ([`Outline::masked`]). So functions that did not change have the same digest in another build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeDigest(pub u64);

impl CodeDigest {
    /// The digest of a function.
    pub fn of(outline: &Outline) -> Self {
        let digest: [u8; 32] = Sha256::digest(&outline.masked).into();
        Self(digest.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// The digest that is written as these sixteen hexadecimal digits.
    pub(crate) fn read(word: &[u8]) -> Option<Self> {
        Some(Self(u64::from_be_bytes(decode(word)?.try_into().ok()?)))
    }
}

impl fmt::Display for CodeDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

impl Serialize for CodeDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// As the blocks themselves: serde's own support for shared values is a feature that nothing else needs.
pub(crate) fn serialize<S: Serializer>(
    blocks: &Option<Arc<RecordedBlocks>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    blocks.as_deref().serialize(serializer)
}
