//! The processors whose code can be moved.

use object::elf::{EM_AARCH64, EM_X86_64};

/// A processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// x86-64, in 64-bit mode.
    X86_64,
    /// AArch64, little-endian.
    Aarch64,
    /// Any other: its code is neither decoded nor written.
    Other,
}

impl Machine {
    /// The processor that an ELF header names.
    #[must_use]
    pub fn of_header(machine: object::elf::Machine) -> Self {
        match machine {
            EM_X86_64 => Self::X86_64,
            EM_AARCH64 => Self::Aarch64,
            _ => Self::Other,
        }
    }
}
