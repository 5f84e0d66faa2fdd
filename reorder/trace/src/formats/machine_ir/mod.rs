//! Machine IR Profile (`-fmachine-profile-generate`): a fork of LLVM that instruments machine code.
//!
//! In: what a run wrote (`.mipraw`) with the map that the compiler made (`.mipmap`), as companion or beside it; or
//! runs added up (`.mip`). Out: one trace of names as the platform's linker spells them.
//!
//! The system was never part of a release of LLVM and its tools are not available; the layout follows its published
//! sources.

mod header;
mod map;
mod merged;
mod raw;

#[cfg(test)]
mod tests;

use crate::{Input, Reading};
use header::{Header, Kind};
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;

/// Whether it starts as all files of the system do.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    bytes.starts_with(&header::MAGIC)
}

/// The functions of one run, or of several by mean time.
///
/// # Errors
/// Maps, which hold no run; runs without a map; damage before the first function.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let header = Header::read(input.bytes, 0)?;
    match header.kind {
        Kind::Raw => raw::read(input),
        Kind::Merged => merged::read(input, &header),
        Kind::Map => Err(Error::malformed(0, "a map of functions, not a profile").with_hint(
            Hint::companion("give the .mipraw file that the program wrote, and this one", "FILE"),
        )),
    }
}
