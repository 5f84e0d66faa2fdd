//! Why an image or a function is not moved: the closed lists that SUPPORT.md explains.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::address::Address;
use crate::hint::Hint;

/// A global obligation that failed; the whole image is left untouched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalCode {
    /// Not a linked little-endian ELF64 image for x86-64 or AArch64.
    UnsupportedFile,
    /// Text relocations, or a segment both writable and executable.
    ChangingCode,
    /// No section headers to find functions by.
    NoSectionHeaders,
    /// Too little of the text belongs to known functions.
    UnknownCode,
    /// Too much text cannot be decoded.
    UndecodableCode,
    /// A language runtime that keeps code addresses in private tables.
    PrivateRuntimeTables,
    /// Unwind data in an unknown encoding.
    UnwindEncoding,
    /// A section whose code addresses cannot be rewritten.
    UnknownCodeAddresses,
    /// Debug information that cannot be brought up to date.
    DebugInformation,
    /// An address field that cannot reach its target after the move.
    OutOfReach,
    /// An image that has copies of functions, or no room for them.
    Copies,
    /// A signature covers the file.
    Signed,
    /// The output failed verification.
    FailedVerification,
    /// A program that loads a memory dump of itself, which holds addresses of its functions.
    MemoryDump,
    /// Mach-O: not for arm64 or x86-64.
    MachOProcessor,
    /// Mach-O: neither program, library nor bundle, or a program at a fixed address.
    MachOKind,
    /// Mach-O: a load command that may hold or protect code addresses in an unknown way.
    MachOLoadCommand,
    /// Mach-O: not exactly one `__TEXT,__text`.
    MachOText,
    /// Mach-O: no table of function starts and no symbols to find functions by.
    MachOUnknownFunctions,
    /// Mach-O: a language runtime that keeps code addresses in private tables.
    MachORuntimeTables,
    /// Mach-O: DTrace's probes with offsets of functions.
    MachOProbes,
    /// Mach-O: code that is addressed by its distance from the start of a block.
    MachOBlockDistances,
    /// Mach-O: fixups in an unknown format.
    MachOFixups,
    /// Mach-O: tables of the old static linker in a finished image.
    MachOLinkerTables,
    /// Mach-O: unwind entries or exception tables in an unknown encoding.
    MachOUnwindEncoding,
    /// Mach-O: lists of Objective-C methods that are not covered completely.
    MachOMethodLists,
    /// Mach-O: compact unwind information in an unknown form.
    MachOUnwindForm,
    /// Mach-O: the new compact unwind information does not fit.
    MachOUnwindRoom,
    /// Mach-O: information for the shared cache that cannot be dropped.
    MachOSharedCache,
    /// Mach-O: bytes at the end of the file that no load command names.
    MachOTrailingBytes,
    /// Mach-O: too much of what should come first has to stay.
    MachOPinnedStart,
    /// Mach-O: records of Swift whose functions have to stay.
    MachOSwiftRecords,
    /// Mach-O: the output failed verification.
    MachOFailedVerification,
}

impl RefusalCode {
    /// The code in messages, JSON and SUPPORT.md. A published number keeps its meaning; R2, R11, R15, M15 and M21 are
    /// retired and must not be reused.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::UnsupportedFile => "R1",
            Self::ChangingCode => "R3",
            Self::NoSectionHeaders => "R4",
            Self::UnknownCode => "R5",
            Self::UndecodableCode => "R6",
            Self::PrivateRuntimeTables => "R7",
            Self::UnwindEncoding => "R8",
            Self::UnknownCodeAddresses => "R9",
            Self::DebugInformation => "R10",
            Self::OutOfReach => "R12",
            Self::Copies => "R13",
            Self::Signed => "R14",
            Self::FailedVerification => "R16",
            Self::MemoryDump => "R17",
            Self::MachOProcessor => "M1",
            Self::MachOKind => "M2",
            Self::MachOLoadCommand => "M3",
            Self::MachOText => "M4",
            Self::MachOUnknownFunctions => "M5",
            Self::MachORuntimeTables => "M6",
            Self::MachOProbes => "M7",
            Self::MachOBlockDistances => "M8",
            Self::MachOFixups => "M9",
            Self::MachOLinkerTables => "M10",
            Self::MachOUnwindEncoding => "M11",
            Self::MachOMethodLists => "M12",
            Self::MachOUnwindForm => "M13",
            Self::MachOUnwindRoom => "M14",
            Self::MachOSharedCache => "M16",
            Self::MachOTrailingBytes => "M17",
            Self::MachOPinnedStart => "M18",
            Self::MachOSwiftRecords => "M19",
            Self::MachOFailedVerification => "M20",
        }
    }
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.code())
    }
}

impl Serialize for RefusalCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

/// A refusal: the code, the exact reason, the place, and the cure.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Which obligation failed.
    pub code: RefusalCode,
    /// One sentence naming the object and what was found.
    pub reason: String,
    /// Where in the image, if the reason has a place.
    pub address: Option<Address>,
    /// What the user can do about it.
    pub cure: Hint,
}

impl Refusal {
    /// A refusal of the whole image.
    pub fn new(code: RefusalCode, reason: impl Into<String>, cure: impl Into<Hint>) -> Self {
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
        write!(formatter, "refused ({}): {}", self.code, self.reason)?;
        if let Some(address) = self.address {
            write!(formatter, " at {address}")?;
        }
        Ok(())
    }
}
