//! Functions whose preceding bytes are not mapped.
//!
//! Callers that clang built with `-fsanitize=function` read the eight bytes before every function they call, even if that
//! has no signature. Such a read faults where a segment starts with the function and the page before it is not mapped.

use super::blocks::{BlockIndex, Partition};
use super::references::Finding;
use crate::elf::code::CodeSpace;
use crate::elf::file::ElfFile;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;

/// Bytes before a function that its callers may read.
const READ_BEFORE: u64 = 8;
/// The smallest page of the known processors; larger pages map at least as much.
const PAGE: u64 = 4096;

/// Pins what stands at the start of an arena without mapped bytes before it, so that no other function moves there.
pub(super) fn check_segment_starts(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for arena in &code.arenas {
        let evidence = arena.start;
        if evidence.0.checked_sub(READ_BEFORE).is_some_and(|address| is_mapped(file, Address(address))) {
            continue;
        }
        let end = evidence.plus(READ_BEFORE);
        let first = partition.blocks.partition_point(|block| block.end <= evidence);
        let blocks = partition.blocks[first..].iter().take_while(|block| block.start < end).count();
        let pin = Pin { reason: PinReason::SegmentStart, evidence };
        findings.extend((first..first + blocks).map(|index| Finding::Pin(BlockIndex(index as u32), pin)));
        let first = partition.gaps.partition_point(|gap| gap.end <= evidence);
        let gaps = partition.gaps[first..].iter().take_while(|gap| gap.start < end).count();
        findings.extend((first..first + gaps).map(Finding::KeepBytes));
    }
    findings
}

fn is_mapped(file: &ElfFile<'_>, address: Address) -> bool {
    let loaded = file.segments.iter().filter(|segment| segment.is_load() && segment.memory_size > 0);
    loaded.into_iter().any(|segment| {
        let start = segment.address.0 / PAGE * PAGE;
        let end = segment.address.0.saturating_add(segment.memory_size).div_ceil(PAGE).saturating_mul(PAGE);
        (start..end).contains(&address.0)
    })
}
