//! What may refer to a block besides listed fields and pointers: needed before a function gets a second address.

use super::blocks::{BlockIndex, Partition};
use super::references::Finding;
use crate::elf::code::CodeSpace;
use crate::pins::PinReason;
use reorder_base::address::Address;
use reorder_base::processor::Processor;

/// Blocks that are referred to in ways that cannot be rewritten.
#[derive(Clone, Debug, Default)]
pub struct Exposure {
    may_be_addressed: Vec<bool>,
    inside: Vec<Option<Address>>,
}

impl Exposure {
    /// Collects it from what the analysis found in `code`.
    pub(super) fn new(code: &CodeSpace<'_>, partition: &Partition, findings: &[Finding]) -> Self {
        // In position-independent x86-64 code, bytes that are not understood can form an address only by `LEA`. The step that gives
        // functions a second address looks for `LEA` at every byte of code, so these pins need not count here.
        let forms_by_lea_alone = code.processor == Processor::X86_64 && !code.is_fixed_address;
        let count = partition.blocks.len();
        let mut exposure = Self { may_be_addressed: vec![false; count], inside: vec![None; count] };
        for finding in findings {
            let Finding::Pin(block, pin) = finding else { continue };
            let block = block.0 as usize;
            match pin.reason {
                PinReason::GapReference | PinReason::OpaqueReference if forms_by_lea_alone => {}
                PinReason::RelativePointer
                | PinReason::GapReference
                | PinReason::OpaqueReference
                | PinReason::ComputedAddress
                | PinReason::NamedSection
                | PinReason::StubArray
                | PinReason::RelocationDisagrees
                | PinReason::RelocationWithoutField
                | PinReason::Unreferenced => exposure.may_be_addressed[block] = true,
                // Which place of the page an unpaired half is for is not known, nor what distances between neighbours mean.
                PinReason::InsideAddressed
                | PinReason::PointerInside
                | PinReason::UnpairedAddress
                | PinReason::Undescribed => {
                    let known = &mut exposure.inside[block];
                    *known = Some(known.map_or(pin.evidence, |known| known.min(pin.evidence)));
                    exposure.may_be_addressed[block] = true;
                }
                _ => {}
            }
        }
        exposure
    }

    /// Something that is not listed may hold the block's address.
    #[must_use]
    pub fn may_be_addressed(&self, block: BlockIndex) -> bool {
        self.may_be_addressed[block.0 as usize]
    }

    /// Evidence that something refers to a place inside the block, or to its end.
    #[must_use]
    pub fn inside(&self, block: BlockIndex) -> Option<Address> {
        self.inside[block.0 as usize]
    }
}
