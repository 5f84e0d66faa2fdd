//! Which basic blocks of a function ran first, and for which code that holds.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use reorder_image::code_digest::CodeDigest;

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

/// As the blocks themselves: serde's own support for shared values is a feature that nothing else needs.
pub(crate) fn serialize<S: Serializer>(
    blocks: &Option<Arc<RecordedBlocks>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    blocks.as_deref().serialize(serializer)
}
