//! Proves that one image is another with its functions moved, without trusting whoever moved them.
//!
//! ```text
//! old bytes ─┐                    ┌─> each check: findings + claims (bytes it answers for)
//!            ├─> recover: moves ──┤
//! new bytes ─┘                    └─> unchanged: all other bytes are the same, or table words that followed
//! ```
//!
//! This crate does not depend on those that read, analyse or relocate images, so that it cannot repeat their mistakes.
//! Memory: the two files plus small tables per function; nothing is kept per instruction.

#![forbid(unsafe_code)] // the system is asked in reorder-system alone

mod aarch64;
mod bytes;
mod debug;
mod elf;
mod exception_table;
mod fields;
mod macho;
mod moves;
mod padding;
mod placed_copies;
mod processor;
pub mod remark;
pub mod report;
mod unchanged;

pub use moves::{AddressMoves, Move};
pub use placed_copies::{PlacedCopy, PlacedTable};
pub use report::{Check, CheckSummary, Difference, VerifyReport};

use std::ops::Range;

use reorder_base::address::Address;
use reorder_base::error::Result;

/// What is checked, and how much a report lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Differences listed in full; all are counted.
    pub listed_differences: usize,
    /// Functions whose addresses are taken must keep their old alignment, because programs may store flags in the low bits
    /// of such addresses. An image that a linker made anew guarantees only the alignment that was asked for.
    pub keeps_alignment: bool,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self { listed_differences: 20, keeps_alignment: false }
    }
}

/// An instruction that forms the address of a jump table, in an image without copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableUse {
    /// The instruction.
    pub place: Address,
    /// First address of the table.
    pub table: Address,
    /// Bytes of an entry: four of a distance from the table, eight of an address.
    pub entry: u64,
    /// Number of entries that a copy of the table would have.
    pub count: u64,
}

/// Which starts of functions may have the addresses of their copies, as far as the image alone tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JudgedStarts {
    /// Of functions that the image does not describe: those whose pointers may lead to copies, ascending.
    pub evident: Vec<Address>,
    /// Those whose addresses must stay those of the originals, because callers may read the bytes before them, ascending.
    pub read_from_before: Vec<Address>,
}

/// What [`verify`] accepts of the functions that start at `starts`, ascending, and of those `found`, which `image` does not describe. If
/// it would not accept `found` as functions, none of them is evident.
///
/// # Errors
/// `image` is not an ELF image that can be read.
pub fn judge_starts(image: &[u8], found: &[Range<Address>], starts: &[Address]) -> Result<JudgedStarts> {
    elf::judge_starts(image, found, starts)
}

/// What a copied table needs where an instruction forms its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProvenUse {
    /// Number of entries.
    pub entries: u64,
    /// Number of the register with the index, if a guard must come before the instruction: it branches to the original unless the
    /// index is below `entries`. None where the code itself bounds the index.
    pub guarded_register: Option<u8>,
}

/// For each of `uses`, how many entries a copied table needs for [`verify`] to accept its address there, if the copy is right: only
/// jumps through the table use the address, at indices below that number, which is not above the count. `None` if it would not.
/// `found` are functions that nothing describes, ascending and disjoint.
///
/// # Errors
/// `image` is not an ELF image that can be read.
pub fn provable_tables(
    image: &[u8],
    found: &[Range<Address>],
    uses: &[TableUse],
) -> Result<Vec<Option<ProvenUse>>> {
    elf::provable_tables(image, found, uses)
}

/// For each of `words`, eight bytes of data in an x86-64 program at a fixed address, whether some instruction uses it otherwise
/// than as a whole: [`verify`] would not accept the address of a copy there.
///
/// # Errors
/// `image` is not an ELF image that can be read.
pub fn words_read_as_numbers(image: &[u8], words: &[Address]) -> Result<Vec<bool>> {
    elf::words_read_as_numbers(image, words)
}

/// Checks that the file `new` is the file `old` with functions moved and every reference adjusted.
///
/// A new image that cannot be read, or whose functions do not correspond, is a finding in the report.
///
/// # Errors
/// The *old* file is not an image that can be read.
pub fn verify(old: &[u8], new: &[u8], options: VerifyOptions) -> Result<VerifyReport> {
    match macho::is_macho(old) {
        true => macho::verify(old, new, None, options),
        false => elf::verify(old, new, options),
    }
}

/// [`verify`] for a Mach-O image with one slice, with the map given by `moves` instead of recovered; the map is checked too.
///
/// Each move covers whole functions; all other code stays at its address.
///
/// # Errors
/// As [`verify`], and for images of other formats.
pub fn verify_moves(old: &[u8], new: &[u8], moves: &[Move], options: VerifyOptions) -> Result<VerifyReport> {
    match macho::is_macho(old) {
        true => macho::verify(old, new, Some(moves), options),
        false => elf::verify(old, new, options),
    }
}

/// Pairs the functions of the `old` file with those of the `new` one, and with the copies of them that it says it has.
///
/// # Errors
/// `Malformed` when a file cannot be read; `Verification` when the two images do not correspond, disagree about a move,
/// or describe functions that overlap or leave their section; `Usage` for universal files with several images.
pub fn recover_moves(old: &[u8], new: &[u8]) -> Result<AddressMoves> {
    recover_moves_for(old, new, None)
}

/// The same between the images for `architecture` of two universal files.
///
/// # Errors
/// As [`recover_moves`].
pub fn recover_moves_for(old: &[u8], new: &[u8], architecture: Option<&str>) -> Result<AddressMoves> {
    match macho::is_macho(old) {
        true => macho::recover_moves_for(old, new, architecture),
        false => elf::recover_moves(old, new),
    }
}
