//! Code that is never written: gaps between functions, and the linker's stub sections. What it refers to stays.

use std::ops::Range;

use crate::aarch64::fixed::decode_fixed_section;
use crate::aarch64::stored_distances::functions_at_distances;
use crate::aarch64::{CodeContext, possible_targets};
use crate::decode::aarch64_gap::falls_through;
use crate::elf::analysis::Coverage;
use crate::elf::analysis::blocks::{Gap, GapContent, Partition};
use crate::elf::analysis::references::Finding;
use crate::elf::code::CodeSpace;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;

/// The places that fixed code refers to, and pins for what stands there.
pub(super) fn check_fixed_code(
    context: &CodeContext<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
    coverage: Coverage,
) -> (Vec<Address>, Vec<Finding>) {
    let (mut entered, mut findings) = (Vec::new(), Vec::new());
    let mut add = |(targets, found): (Vec<Address>, Vec<Finding>)| {
        entered.extend(targets);
        findings.extend(found);
    };
    for gap in &partition.gaps {
        let range = gap.start..gap.end;
        match gap.content {
            GapContent::Padding => {}
            GapContent::Code => {
                let pin = Pin { reason: PinReason::GluedToGap, evidence: gap.end };
                let next = falls_through(code.bytes(range.clone()), gap.start)
                    .then(|| partition.block_containing(gap.end))
                    .flatten();
                add((Vec::new(), next.into_iter().map(|next| Finding::Pin(next, pin)).collect()));
                add(check_section(context, partition, range));
            }
            GapContent::Opaque => {
                let pin = Pin { reason: PinReason::OpaqueReference, evidence: gap.start };
                let targets = possible_targets(context, range);
                let found = keep_targets(partition, &targets, pin);
                add((targets, found));
            }
        }
    }
    // Where functions are only copied, distances between originals hold, and gaps may be nearly all of the code.
    let gaps = partition.gaps.iter().filter(|gap| gap.content != GapContent::Padding);
    for piece in gaps.filter(|_| coverage == Coverage::Half).flat_map(Gap::pieces) {
        for (function, evidence) in functions_at_distances(context, piece) {
            let pin = Pin { reason: PinReason::ComputedAddress, evidence };
            add((Vec::new(), keep_targets(partition, &[function], pin)));
        }
    }
    for section in &code.fixed {
        add(check_section(context, partition, section.clone()));
    }
    (entered, findings)
}

fn check_section(
    context: &CodeContext<'_>,
    partition: &Partition,
    range: Range<Address>,
) -> (Vec<Address>, Vec<Finding>) {
    let evidence = range.start;
    let (references, mut targets) = decode_fixed_section(context, range);
    targets.extend(references.iter().map(|reference| reference.target));
    let pin = Pin { reason: PinReason::GapReference, evidence };
    let findings = keep_targets(partition, &targets, pin);
    (targets, findings)
}

/// What stands at these places stays.
pub(super) fn keep_targets(partition: &Partition, targets: &[Address], pin: Pin) -> Vec<Finding> {
    let mut findings = Vec::new();
    for &target in targets {
        if let Some(block) = partition.block_containing(target) {
            findings.push(Finding::Pin(block, pin));
        } else if let Some(gap) = partition.gap_containing(target) {
            findings.push(Finding::KeepGap(gap));
        }
    }
    findings
}
