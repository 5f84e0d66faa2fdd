//! The basic blocks of a function whose code is certain.
//!
//! Takes the bytes of one function; gives [`Outline`], or the reason why there is none. Guarantee: the instructions
//! follow each other without a gap from the function's first byte to its last, every branch of the function that stays in
//! it leads to one of them, and the function neither reads its own bytes nor takes the address of a place inside itself.
//! So each block begins with the first byte of an instruction, and a breakpoint there changes no data of the function.
//!
//! A basic block here ends where control may leave it other than by a call: calls nearly always return.

mod aarch64;
mod apart;
mod loaded;
mod outline;
mod tables;
mod x86_64;

#[cfg(test)]
mod tests;

use std::ops::Range;

use reorder_base::address::Address;
use reorder_base::processor::Processor;

pub use apart::functions_apart;
pub use loaded::LoadedBytes;
pub use outline::{BasicBlock, Outline};

/// Why a function has no outline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclear {
    /// The file does not hold all of its bytes, or they are none, or more than 2³² − 1.
    NotInFile,
    /// Some bytes are no instruction that compilers write.
    NotDecodable,
    /// A branch leads into the middle of an instruction.
    IntoInstruction,
    /// It reads or writes its own bytes.
    OwnData,
    /// It takes the address of a place inside itself.
    OwnAddress,
}

/// The outline of the function at `range` in the image whose file is `bytes`.
///
/// # Errors
/// The reason why the code is not certain.
pub fn outline(loaded: &LoadedBytes, bytes: &[u8], range: Range<Address>) -> Result<Outline, Unclear> {
    let size =
        range.end.0.checked_sub(range.start.0).filter(|size| *size > 0 && u32::try_from(*size).is_ok());
    let code = size.and_then(|size| loaded.at(bytes, range.start, size)).ok_or(Unclear::NotInFile)?;
    let sketch = match loaded.processor {
        Processor::X86_64 => x86_64::sketch(loaded, code, &range)?,
        Processor::Aarch64 => aarch64::sketch(code, &range)?,
        Processor::Other => return Err(Unclear::NotDecodable),
    };
    sketch.finish(loaded, bytes, &range)
}
