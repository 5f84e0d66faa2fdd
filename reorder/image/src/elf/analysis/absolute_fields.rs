//! Absolute addresses of code in an image at a fixed address, as kept relocations list them.
//!
//! Takes the fields; gives findings: what must stay because of how an address of it is used. All other fields are
//! rewritten when their target moves.

use crate::boundaries::Boundaries;
use crate::elf::analysis::blocks::{BlockIndex, Partition};
use crate::elf::analysis::pointers::CodePointer;
use crate::elf::analysis::references::{Finding, check_data_target};
use crate::elf::code::CodeSpace;
use crate::elf::file::ElfFile;
use crate::pins::{Pin, PinReason};
use reorder_base::address::{Address, FileOffset};

/// What holds the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A word of data.
    Word,
    /// An operand that is the address itself.
    Immediate,
    /// An operand in memory at the address, or at a distance from it.
    Displacement,
}

/// One field; its contents are the low bytes of `target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AbsoluteField {
    /// First byte, in memory.
    pub place: Address,
    /// Four or eight bytes.
    pub width: u8,
    /// The address of code.
    pub target: Address,
    /// What holds it.
    pub role: Role,
}

impl AbsoluteField {
    /// Words that can hold any address are pointers like those that the loader writes.
    pub fn pointer(&self, file: &ElfFile<'_>) -> Option<CodePointer> {
        const POINTER_WIDTH: u8 = 8;
        let place_field: Option<FileOffset> = file.offset_of(self.place, u64::from(POINTER_WIDTH));
        (self.role == Role::Word && self.width == POINTER_WIDTH).then_some(CodePointer {
            target: self.target,
            place: self.place,
            addend_field: None,
            place_field,
        })
    }
}

/// Checks what each field refers to.
pub(crate) fn check_absolute_fields(
    code: &CodeSpace<'_>,
    partition: &Partition,
    boundaries: &Boundaries,
    fields: &[AbsoluteField],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for field in fields {
        let pin = |reason| Pin { reason, evidence: field.place };
        findings.extend(check_data_target(code, partition, boundaries, field.target, field.place));
        let Some(other) = partition.block_containing(field.target) else { continue };
        let is_own = partition.block_containing(field.place) == Some(other);
        let is_entry = partition.block(other).is_entry(field.target);
        match field.role {
            // What is read there may need its alignment, and may not be all that is read.
            Role::Displacement => findings.push(Finding::Pin(other, pin(PinReason::ReadAsData))),
            Role::Immediate if !is_entry && !is_own => {
                findings.push(Finding::Pin(other, pin(PinReason::InsideAddressed)));
            }
            Role::Immediate | Role::Word => {}
        }
    }
    findings
}

/// Blocks that are not trusted are never written, so what their fields lead to stays. Gives the fields of all others.
pub(crate) fn keep_targets_of_unwritten(
    partition: &Partition,
    is_unwritten: impl Fn(BlockIndex) -> bool,
    mut fields: Vec<AbsoluteField>,
) -> (Vec<AbsoluteField>, Vec<Finding>) {
    let mut findings = Vec::new();
    fields.retain(|field| {
        let Some(owner) = partition.block_containing(field.place).filter(|&owner| is_unwritten(owner)) else {
            return true;
        };
        let pin = Pin { reason: PinReason::AbsoluteAddress, evidence: field.place };
        findings.push(Finding::Pin(owner, pin));
        findings.extend(partition.block_containing(field.target).map(|block| Finding::Pin(block, pin)));
        false
    });
    (fields, findings)
}
