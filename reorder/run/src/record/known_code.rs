//! How much of an image's code is in functions that are known: what runs elsewhere is not recorded.

use std::path::PathBuf;

use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::is_linker_stub_section;
use reorder_image::functions::{FunctionTable, MIN_UNKNOWN_BYTES};

/// An image most of whose code is in no known function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LittleKnown {
    /// Where it was read from.
    pub path: PathBuf,
    /// The share of its code that is in no known function, in percent, not counting learned functions.
    pub unknown_percent: u64,
    /// Functions that were learned because control was seen to enter them; `None` where none can be.
    pub learned: Option<usize>,
}

/// From this share on most of what runs may be missing.
pub(super) const MAX_UNKNOWN_PERCENT: u64 = 50;

/// The share of the code of `file` that is in none of its `functions`, in percent; 0 where that is little code.
pub(super) fn unknown_percent(file: &ElfFile<'_>, functions: &FunctionTable<'_>) -> u64 {
    let sections = file.sections.iter();
    let code: u64 = sections
        .filter(|section| section.is_loaded() && section.is_executable() && section.has_bytes())
        .filter(|section| !is_linker_stub_section(section.name))
        .map(|section| section.end().distance_from(section.address))
        .fold(0, u64::saturating_add);
    let unknown = code.saturating_sub(functions.covered_bytes());
    match unknown < MIN_UNKNOWN_BYTES {
        true => 0,
        false => unknown.saturating_mul(100).checked_div(code).unwrap_or(0),
    }
}
