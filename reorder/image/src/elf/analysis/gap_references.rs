//! What code outside every function refers to.
//!
//! Gaps are never written, so whatever they refer to must stay. Gaps that decode name their targets; bytes that
//! do not decode may hide a reference at any position, so every position is taken for one.

use std::ops::Range;

use iced_x86::OpKind;

use crate::decode::gap::GapInstructions;
use crate::elf::analysis::blocks::{BlockIndex, Gap, GapContent, Partition};
use crate::elf::analysis::references::Finding;
use crate::elf::code::CodeSpace;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;

/// Furthest a one-byte displacement reaches, from its own first byte.
const SHORT_REACH: u64 = 130;
/// Largest distance from a displacement's end to its instruction's end: an eight-byte immediate does not occur
/// with a relative operand, four bytes do.
const MAX_IMMEDIATE: u64 = 4;

/// What code that is never written refers to.
#[derive(Debug, Default)]
pub(crate) struct UnwrittenReferences {
    /// What must stay for it.
    pub findings: Vec<Finding>,
    /// Data addresses that it forms.
    pub data: Vec<Address>,
}

/// What one gap refers to.
pub(crate) fn check_gap(code: &CodeSpace<'_>, partition: &Partition, gap: &Gap) -> UnwrittenReferences {
    match gap.content {
        GapContent::Padding => UnwrittenReferences::default(),
        GapContent::Code => check_code_gap(code, partition, gap),
        GapContent::Opaque => UnwrittenReferences {
            findings: check_opaque(code, partition, gap.start, gap.end),
            data: Vec::new(),
        },
    }
}

fn check_code_gap(code: &CodeSpace<'_>, partition: &Partition, gap: &Gap) -> UnwrittenReferences {
    let mut found = check_fixed_code(code, partition, gap.start..gap.end);
    let mut walk = GapInstructions::new(code.bytes(gap.start..gap.end), gap.start);
    walk.by_ref().for_each(drop);
    let falls_through = walk.falls_through();
    if falls_through && let Some(next) = partition.block_containing(gap.end) {
        let pin = Pin { reason: PinReason::GluedToGap, evidence: gap.end };
        found.findings.push(Finding::Pin(next, pin));
    }
    found
}

/// What code that is never written refers to: gaps, and the linker's stub sections.
pub(crate) fn check_fixed_code(
    code: &CodeSpace<'_>,
    partition: &Partition,
    range: Range<Address>,
) -> UnwrittenReferences {
    let mut found = UnwrittenReferences::default();
    for instruction in GapInstructions::new(code.bytes(range.clone()), range.start) {
        let target = if instruction.op0_kind() == OpKind::NearBranch64 {
            Address(instruction.near_branch_target())
        } else if instruction.is_ip_rel_memory_operand() {
            Address(instruction.ip_rel_memory_address())
        } else {
            continue;
        };
        let evidence = Address(instruction.ip());
        if let Some(block) = partition.block_containing(target) {
            found.findings.push(Finding::Pin(block, Pin { reason: PinReason::GapReference, evidence }));
        } else if let Some(gap) = partition.gap_containing(target) {
            found.findings.push(Finding::KeepGap(gap));
        } else {
            found.data.push(target);
        }
    }
    found
}

/// Pins everything that undecodable bytes in `start..end` could refer to.
pub fn check_opaque(
    code: &CodeSpace<'_>,
    partition: &Partition,
    start: Address,
    end: Address,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let bytes = code.bytes(start..end);
    let mut pin = |block: BlockIndex, evidence: Address| {
        findings.push(Finding::Pin(block, Pin { reason: PinReason::OpaqueReference, evidence }));
    };
    for (index, window) in bytes.windows(4).enumerate() {
        let displacement = i64::from(i32::from_le_bytes([window[0], window[1], window[2], window[3]]));
        let place = start.plus(index as u64);
        for immediate in [0, 1, 2, MAX_IMMEDIATE] {
            let target = place.plus(4 + immediate).plus(displacement as u64);
            if target >= start && target < end {
                continue;
            }
            if let Some(block) = partition.block_containing(target) {
                pin(block, place);
            }
        }
    }
    let near = partition.blocks.partition_point(|block| block.end.0.saturating_add(SHORT_REACH) <= start.0);
    for (index, block) in partition.blocks.iter().enumerate().skip(near) {
        if block.start.0 >= end.0.saturating_add(SHORT_REACH) {
            break;
        }
        pin(BlockIndex(index as u32), start);
    }
    findings
}
