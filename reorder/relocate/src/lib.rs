//! Order → new addresses → patched bytes → proof.
//!
//! In: image, analysis, wanted order. Out: the new image's bytes and the address map. Guarantee: the bytes differ from the
//! input only where the ledger lists a write, and what [`apply`] returns has passed `reorder-verify`.

#![forbid(unsafe_code)] // the system is asked in reorder-system alone

pub mod address_map;
pub mod apply;
mod code_reference;
pub mod debug;
pub mod elf;
pub mod layout_map;
pub mod ledger;
pub mod macho;
pub mod warning;

use debug::DebugPolicy;
use elf::copies::{KeptRelocations, UnlistedPointers};

/// The user's choices.
#[derive(Clone, Copy, Debug, Default)]
pub struct RelocateOptions {
    /// The treatment of debug information.
    pub debug: DebugPolicy,
    /// Keep the build-id although the layout differs.
    pub keep_build_id: bool,
    /// What copies do with relocations that the linker kept; functions that move take theirs along.
    pub relocations: KeptRelocations,
    /// Sort unwind entries by the starts of their functions, so that a compressed file is smaller.
    pub sort_unwind_entries: bool,
    /// What copies do with numbers that may be pointers, where nothing lists pointers.
    pub unlisted: UnlistedPointers,
}
