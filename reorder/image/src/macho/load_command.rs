//! Load commands and the parts of `__LINKEDIT` that they name.
//!
//! Source: `mach-o/loader.h` of Apple's cctools.

/// One load command, whose bytes lie inside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadCommand {
    /// `cmd`, `LC_REQ_DYLD` included.
    pub kind: u32,
    /// Where the command starts in the image.
    pub offset: usize,
    /// `cmdsize`.
    pub size: usize,
}

/// The loader rejects an image with an unknown command that has this bit.
pub(crate) const LC_REQ_DYLD: u32 = 0x8000_0000;

/// A part of `__LINKEDIT` that a load command names by its offset and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkEditPart {
    /// Opcodes that list the slots to rebase.
    Rebase,
    /// Opcodes that bind slots at load time.
    Bind,
    /// Bindings that may be coalesced.
    WeakBind,
    /// Opcodes that bind slots on the first call.
    LazyBind,
    /// The trie of exported symbols, of `LC_DYLD_INFO` or of `LC_DYLD_EXPORTS_TRIE`.
    Exports,
    /// Header and imports of chained fixups; the chains are in the data.
    ChainedFixups,
    /// Differences between function starts.
    FunctionStarts,
    /// Ranges of data in code.
    DataInCode,
    /// References between sections, for the shared cache.
    SplitInfo,
    /// The symbol table.
    Symbols,
    /// Indices of the symbols of stubs and pointers.
    IndirectSymbols,
    /// Names of symbols.
    Strings,
    /// The signature: always the last part.
    Signature,
}

/// Where a part is, and the fields that hold its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEditRange {
    /// What it is.
    pub part: LinkEditPart,
    /// Start in the image.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Where the load command has the offset, four bytes.
    pub offset_field: usize,
    /// Where the load command has the size in bytes; for tables of entries, their number.
    pub size_field: usize,
}
