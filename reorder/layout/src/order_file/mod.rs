//! Order files: written for a linker, and read back as an order of functions.
//!
//! | module | in → out |
//! |---|---|
//! | [`read`] | a list of functions from any source → functions of the image |
//! | [`sections`] | layout + link map → input sections of the chosen part, each once |
//! | [`lld`] | layout → symbols, one a line, for `--symbol-ordering-file` |
//! | [`lld_script`] | sections → script for lld's `-T`; the unit is the input section, so namesakes are distinct |
//! | [`bfd_script`] | sections + default script → script for GNU ld's `-T`; sections or symbols → an `INSERT` script |
//! | [`gold`] | sections or symbols → names of sections for `--section-ordering-file` |
//! | [`ld64`] | layout of a Mach-O image → symbols with their object files for `-order_file` |
//! | [`data`] | image → data objects, similar contents next to each other |
//! | [`hand_off`] | any of them, with the comments that say where the order comes from |
//!
//! `file_pattern` names object files for scripts, `section_names` guesses the sections of functions, `origin` writes the
//! comments.

pub mod bfd_script;
pub mod data;
mod file_pattern;
pub mod gold;
pub mod hand_off;
pub mod ld64;
pub mod lld;
pub mod lld_script;
pub mod origin;
pub mod read;
mod section_names;
pub mod sections;
mod symbol_names;
#[cfg(test)]
mod tests;

use clap::ValueEnum;
use serde::Serialize;

pub use bfd_script::bfd_script;
pub use gold::gold_sections;
pub use lld_script::{Anchor, lld_script};
pub use sections::ordered_sections;

/// The linker whose dialect is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Linker {
    /// --symbol-ordering-file of lld for ELF; with --link-map a script for its -T
    Lld,
    /// -order_file of Apple's linkers and ld64.lld
    Ld64,
    /// --section-ordering-file of gold
    Gold,
    /// A script for -T of GNU ld
    Bfd,
}
