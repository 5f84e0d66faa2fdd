//! Names, hashes and addresses of traces to functions of one image.
//!
//! A trace may come from another build, another tool chain or another platform, so names are tried from the exact
//! one to ever looser spellings ([`Step`]). Each step decides only if exactly one function answers: a wrong function in a
//! trace is worse than a missing one.

mod digests;
mod hashes;
mod index;
mod likely;
mod load_address;
mod spelling;

#[cfg(test)]
mod tests;

use serde::Serialize;

use reorder_image::functions::FunctionIndex;

pub(super) use digests::DigestIndex;
pub(super) use hashes::HashIndex;
pub use index::NameIndex;
pub(super) use likely::LikelyNames;
pub(super) use load_address::{LoadAddress, PageOffsets};
pub use spelling::Spelling;
pub use spelling::{readable, root_name};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// This function alone answers to it.
    Function(FunctionIndex, Step),
    /// Several functions do.
    Ambiguous,
    /// No function does.
    Nowhere,
}

/// What decided which function an event means; earlier ones are believed before later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// An address of the same build.
    Address,
    /// An address in the process, after the load address was deduced from all of them.
    LoadAddress,
    /// The exact name.
    Name,
    /// The digest of a name.
    Hash,
    /// The name and the source file, where several functions have the name.
    SourceFile,
    /// The name and the size, where several functions have the name.
    Size,
    /// The name, in another source file than the trace says: an optimiser moved it, or it is a namesake.
    OtherFile,
    /// The name without the underscore that Mach-O prepends; for traces whose names all have it.
    Underscore,
    /// The name without suffixes that optimisers add (`.llvm.123`, `.constprop.0`).
    Suffix,
    /// The path of a Rust function without the hashes that differ from compiler to compiler.
    RustPath,
    /// The digest of its code and of that of the functions that it calls.
    CodeAndCalled,
    /// The digest of its code alone.
    Code,
}

impl Step {
    /// As in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::LoadAddress => "deduced load address",
            Self::Name => "name",
            Self::Hash => "hash of the name",
            Self::SourceFile => "source file and name",
            Self::Size => "name and size",
            Self::OtherFile => "name, in another source file",
            Self::Underscore => "name but for an underscore",
            Self::Suffix => "name but for suffixes",
            Self::RustPath => "Rust path but for hashes",
            Self::CodeAndCalled => "code, and that of called functions",
            Self::Code => "code",
        }
    }
}
