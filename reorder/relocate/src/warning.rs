//! What an output lacks, or what has to be done with it again.

use crate::elf::copies::{AssumedPointers, LostNote};

/// One of these things. A command turns it into text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Mach-O: the unwind information has no room for the order as it was wanted.
    FewerPlacedFirst {
        /// Units that were placed first.
        placed: usize,
        /// Units that should have been.
        wanted: usize,
    },
    /// ELF: the image is Bun without an application, and `bun build --compile` would write one over the copies.
    ApplicationMustComeFirst,
    /// ELF: relocations that the linker kept in the compact form (CREL) no longer fit.
    CompactRelocationsEmptied {
        /// The name of their section.
        section: String,
    },
    /// ELF: relocations that the linker kept would not describe copies.
    KeptRelocationsLeftOut {
        /// The name of their section.
        section: String,
    },
    /// ELF: numbers were taken for pointers.
    PointersAssumed(AssumedPointers),
    /// ELF: the segment of copies has the program header of a note.
    ProgramHeaderTaken(LostNote),
    /// Mach-O: the output has no developer's signature any more, only an ad hoc one.
    DeveloperSignatureLost {
        /// The developer's team, if the signature named one.
        team: Option<String>,
    },
    /// Mach-O: the output does not ask for the hardened runtime any more.
    HardenedRuntimeOff,
    /// Mach-O: a part of the signature is lost.
    SignatureSlotLost(u32),
}
