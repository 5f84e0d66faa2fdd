//! Why a block stays where it is.

use std::fmt;

use serde::Serialize;

use crate::elf::analysis::Analysis;
use crate::elf::analysis::units::unit_containing;
use reorder_base::address::Address;

/// The obligation that failed for a block; of several, the first in this order is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PinReason {
    /// Some bytes are not instructions, so references from here cannot be listed.
    NotDecodable,
    /// A branch lands inside an instruction.
    BranchInsideInstruction,
    /// A branch of this block leads out of the image's code.
    BranchOutsideCode,
    /// Other code forms an address inside the block.
    InsideAddressed,
    /// Other code reads or writes bytes of the block.
    ReadAsData,
    /// A pointer in data refers to a place inside that starts no instruction, or to the block's end.
    PointerInside,
    /// A jump through a register whose targets cannot be listed.
    UnresolvedJump,
    /// A jump table whose end cannot be proven.
    UnprovenTable,
    /// A jump table used by two units.
    SharedTable,
    /// A record of Swift's metadata of an unknown kind refers to it; such a word is a relative pointer as well, which says less.
    SwiftRecord,
    /// Data holds the distance to the block in a form that no dispatch explains.
    RelativePointer,
    /// Code that belongs to no function refers to the block.
    GapReference,
    /// Bytes that cannot be decoded may refer to the block.
    OpaqueReference,
    /// Code without a known function runs into or is glued to the block.
    GluedToGap,
    /// Landing pads with a base of their own.
    LandingPadBase,
    /// Code computes addresses from its own place, or calls a sum with the block's address.
    ComputedAddress,
    /// The linker marks start and end of the section, and the first function has the address of its start.
    NamedSection,
    /// One of an array of jump stubs, whose order and spacing have a meaning.
    StubArray,
    /// The bytes before it are not mapped, where callers of other functions may read.
    SegmentStart,
    /// In an image at a fixed address: a constant that may be the address of this block.
    AbsoluteAddress,
    /// A relocation that the linker kept names another target than the code has.
    RelocationDisagrees,
    /// A relocation that the linker kept names a place where no address was decoded.
    RelocationWithoutField,
    /// The two instructions that form an address cannot be paired with certainty.
    UnpairedAddress,
    /// A reference that cannot be made longer would not reach its target from everywhere.
    ShortReference,
    /// No known reference leads to it, so an unknown one may.
    Unreferenced,
    /// Only symbols describe it although compilers wrote unwind entries for the rest: it may be addressed by a distance.
    Undescribed,
    /// It is aligned on purpose, and the format's text has no room to keep that.
    Aligned,
    /// No free place was large enough in the new layout.
    NoRoom,
}

impl fmt::Display for PinReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NotDecodable => "some bytes are not instructions",
            Self::BranchInsideInstruction => "a branch lands inside an instruction",
            Self::BranchOutsideCode => "a branch leads out of the image's code",
            Self::InsideAddressed => "other code takes an address inside",
            Self::ReadAsData => "other code reads it as data",
            Self::PointerInside => "a pointer refers to its inside or end",
            Self::UnresolvedJump => "a computed jump has unknown targets",
            Self::UnprovenTable => "a jump table's end is not proven",
            Self::SharedTable => "its jump table is shared with another function",
            Self::RelativePointer => "data holds a relative pointer to it",
            Self::GapReference => "code outside every function refers to it",
            Self::OpaqueReference => "undecodable bytes may refer to it",
            Self::GluedToGap => "code outside every function runs into it",
            Self::LandingPadBase => "its landing pads have a base of their own",
            Self::ComputedAddress => "code computes an address with its place",
            Self::NamedSection => "its section's start and end are marked by symbols",
            Self::StubArray => "it is one of an array of jump stubs",
            Self::SegmentStart => "the bytes before it, which callers may read, are not mapped",
            Self::AbsoluteAddress => "a constant may be its absolute address",
            Self::RelocationDisagrees => "a relocation that the linker kept contradicts the code",
            Self::RelocationWithoutField => "a relocation that the linker kept names no address in the code",
            Self::UnpairedAddress => "the two halves of an address cannot be paired",
            Self::ShortReference => "a reference with a short reach cannot be made longer",
            Self::Unreferenced => "no known reference leads to it",
            Self::Undescribed => "it has no unwind entry although other code has",
            Self::Aligned => "it is aligned to more than the default",
            Self::SwiftRecord => "a record of Swift of an unknown kind refers to it",
            Self::NoRoom => "no free place was large enough",
        })
    }
}

/// A reason with the place that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Pin {
    /// Which obligation failed.
    pub reason: PinReason,
    /// The instruction, data word or byte that shows it.
    pub evidence: Address,
}

impl Analysis<'_> {
    /// Why the function at `address` stays; `None` for those that can be moved.
    pub fn pin_at(&self, address: Address) -> Option<Pin> {
        let unit = unit_containing(&self.units, address)?;
        self.units[unit.0 as usize].pin
    }
}
