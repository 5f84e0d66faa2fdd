//! The bytes of the segment of copies that nothing else explains: between copies only traps, elsewhere only traps or zeros.

use std::iter;
use std::ops::Range;

use goblin::elf::ProgramHeader;

use super::copies::Copies;
use crate::bytes::{range, u32_at};
use crate::padding::starts_with_trap;
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::NewAddress;

/// Checks the bytes of `segment` outside of the copies, their jump tables, the unwind tables and the exception tables.
pub(super) fn check_filler(copies: &Copies<'_>, segment: &ProgramHeader, findings: &mut Findings) {
    let code = copies.section.address..copies.section.end();
    let mut explained: Vec<Range<u64>> =
        copies.by_copy.iter().map(|copied| copied.copy.0..copied.copy_end().0).collect();
    explained.extend(copies.tables.iter().map(|table| table.copy.0..table.copy_end().0));
    for name in [&b".eh_frame"[..], b".eh_frame_hdr"] {
        let Some(section) = copies.new.section(name) else { continue };
        let size = match name {
            b".eh_frame" => section.bytes.len() as u64,
            // The header of the table, and its rows.
            _ => 12 + 8 * u64::from(u32_at(section.bytes, 8).unwrap_or(0)),
        };
        explained.push(section.address..section.address.saturating_add(size));
    }
    explained.extend_from_slice(&copies.exception_tables);
    // What follows code is aligned anew, since only traps have to lie between copies.
    explained.extend([code.start..code.start, code.end..code.end]);
    explained.sort_unstable_by_key(|range| (range.start, range.end));
    let end = segment.p_vaddr.saturating_add(segment.p_filesz);
    let mut start = segment.p_vaddr;
    for next in explained.into_iter().chain(iter::once(end..end)) {
        if next.start > start {
            check_between(copies, segment, start..next.start.min(end), code.contains(&start), findings);
        }
        start = start.max(next.end);
    }
}

/// Checks the bytes of `segment` in a range of addresses.
fn check_between(
    copies: &Copies<'_>,
    segment: &ProgramHeader,
    place: Range<u64>,
    is_code: bool,
    findings: &mut Findings,
) {
    let processor = copies.old.processor;
    let step = match processor {
        Processor::X86_64 => 1,
        Processor::Aarch64 => 4,
    };
    let (Some(from), Some(size)) =
        (place.start.checked_sub(segment.p_vaddr), place.end.checked_sub(place.start))
    else {
        return;
    };
    let offset = segment.p_offset + from;
    let bytes = range(copies.new.bytes, offset, size).unwrap_or_default();
    if !is_code && bytes.iter().all(|byte| *byte == 0) {
        return;
    }
    if let Some(at) = bytes.chunks(step).position(|bytes| !starts_with_trap(processor, bytes)) {
        let at = (at * step) as u64;
        let name = format!("the byte at {}, which nothing explains", NewAddress(place.start + at));
        let expected = if is_code { "traps" } else { "zeros or traps" };
        findings.differs(Difference::new(Check::Copies, Some(offset + at), name, expected, "others"));
    }
}
