//! Code that is never written: gaps between functions, and the linker's stub sections. What it refers to stays.

use std::ops::Range;

use crate::aarch64::fixed::decode_fixed_section;
use crate::aarch64::{CodeContext, keep};
use crate::decode::aarch64_gap::falls_through;
use crate::elf::analysis::blocks::{GapContent, Partition};
use crate::elf::analysis::references::Finding;
use crate::elf::code::CodeSpace;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;

/// Pins what fixed code refers to; gives the places that it refers to.
pub(super) fn check_fixed_code(
    context: &CodeContext<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
    findings: &mut Vec<Finding>,
) -> Vec<Address> {
    let mut entered = Vec::new();
    for gap in &partition.gaps {
        let range = gap.start..gap.end;
        match gap.content {
            GapContent::Padding => {}
            GapContent::Code => {
                if falls_through(code.bytes(range.clone()), gap.start)
                    && let Some(next) = partition.block_containing(gap.end)
                {
                    let pin = Pin { reason: PinReason::GluedToGap, evidence: gap.end };
                    findings.push(Finding::Pin(next, pin));
                }
                entered.extend(check_section(context, partition, range, findings));
            }
            GapContent::Opaque => {
                let pin = Pin { reason: PinReason::OpaqueReference, evidence: gap.start };
                let targets = keep(context, range, pin).possible_targets;
                keep_targets(partition, &targets, pin, findings);
                entered.extend(targets);
            }
        }
    }
    for section in &code.fixed {
        entered.extend(check_section(context, partition, section.clone(), findings));
    }
    entered
}

fn check_section(
    context: &CodeContext<'_>,
    partition: &Partition,
    range: Range<Address>,
    findings: &mut Vec<Finding>,
) -> Vec<Address> {
    let evidence = range.start;
    let (references, mut targets) = decode_fixed_section(context, range);
    targets.extend(references.iter().map(|reference| reference.target));
    let pin = Pin { reason: PinReason::GapReference, evidence };
    keep_targets(partition, &targets, pin, findings);
    targets
}

/// What stands at these places stays.
pub(super) fn keep_targets(
    partition: &Partition,
    targets: &[Address],
    pin: Pin,
    findings: &mut Vec<Finding>,
) {
    for &target in targets {
        if let Some(block) = partition.block_containing(target) {
            findings.push(Finding::Pin(block, pin));
        } else if let Some(gap) = partition.gap_containing(target) {
            findings.push(Finding::KeepGap(gap));
        }
    }
}
