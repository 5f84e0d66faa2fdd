//! Why an image or a function is not moved: the closed lists that SUPPORT.md explains.

use std::fmt;

use serde::Serialize;

use crate::address::Address;

/// A global obligation that failed; the whole image is left untouched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum RefusalCode {
    /// Not a linked little-endian ELF64 image for x86-64 or AArch64.
    R1,
    /// Reserved: programs at a fixed address are analysed.
    R2,
    /// Text relocations, or a segment both writable and executable.
    R3,
    /// No section headers to find functions by.
    R4,
    /// Too little of the text belongs to known functions.
    R5,
    /// Too much text cannot be decoded.
    R6,
    /// A language runtime that keeps code addresses in private tables.
    R7,
    /// Unwind data in an unknown encoding.
    R8,
    /// A section whose code addresses cannot be rewritten.
    R9,
    /// Debug information that cannot be brought up to date.
    R10,
    /// Reserved: static relocations that contradict the code pin what they name, or are ignored.
    R11,
    /// An address field that cannot reach its target after the move.
    R12,
    /// An image that has copies of functions, or no room for them.
    R13,
    /// A signature covers the file.
    R14,
    /// The output failed verification.
    R16,
    /// A program that loads a memory dump of itself, which holds addresses of its functions.
    R17,
    /// Mach-O: not for arm64 or x86-64.
    M1,
    /// Mach-O: neither program, library nor bundle, or a program at a fixed address.
    M2,
    /// Mach-O: a load command that may hold or protect code addresses in an unknown way.
    M3,
    /// Mach-O: not exactly one `__TEXT,__text`.
    M4,
    /// Mach-O: no table of function starts and no symbols to find functions by.
    M5,
    /// Mach-O: a language runtime that keeps code addresses in private tables.
    M6,
    /// Mach-O: DTrace's probes with offsets of functions.
    M7,
    /// Mach-O: code that is addressed by its distance from the start of a block.
    M8,
    /// Mach-O: fixups in an unknown format.
    M9,
    /// Mach-O: tables of the old static linker in a finished image.
    M10,
    /// Mach-O: unwind entries or exception tables in an unknown encoding.
    M11,
    /// Mach-O: lists of Objective-C methods that are not covered completely.
    M12,
    /// Mach-O: compact unwind information in an unknown form.
    M13,
    /// Mach-O: the new compact unwind information does not fit.
    M14,
    /// Reserved: Mach-O, the room between functions that stay cannot be filled exactly.
    M15,
    /// Mach-O: information for the shared cache that cannot be dropped.
    M16,
    /// Mach-O: bytes at the end of the file that no load command names.
    M17,
    /// Mach-O: too much of what should come first has to stay.
    M18,
    /// Mach-O: records of Swift whose functions have to stay.
    M19,
    /// Mach-O: the output failed verification.
    M20,
    /// Reserved: Mach-O, damaged tables.
    M21,
}

/// A refusal: the code, the exact reason, the place, and the cure.
#[derive(Clone, Debug, Serialize)]
pub struct Refusal {
    /// Which obligation failed.
    pub code: RefusalCode,
    /// One sentence naming the object and what was found.
    pub reason: String,
    /// Where in the image, if the reason has a place.
    pub address: Option<Address>,
    /// What the user can do about it.
    pub cure: String,
}

impl Refusal {
    /// A refusal of the whole image.
    pub fn new(code: RefusalCode, reason: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), address: None, cure: cure.into() }
    }

    /// Names the place.
    #[must_use]
    pub fn at(mut self, address: Address) -> Self {
        self.address = Some(address);
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "refused ({:?}): {}", self.code, self.reason)?;
        if let Some(address) = self.address {
            write!(formatter, " at {address}")?;
        }
        Ok(())
    }
}
