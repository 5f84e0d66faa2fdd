//! Places in x86-64 code that control reaches although no instruction names them: starts of functions, targets of pointers
//! in data (labels of computed jumps), and landing pads.
//!
//! Code reached from them has known instruction boundaries. Tables that are damaged or not understood contribute nothing;
//! their targets are judged like all code that control is not seen to reach.

use super::super::processor::Processor;
use super::fixups::for_each_slot;
use super::frames::frame_entries;
use super::tables::function_starts;
use super::unwind::UnwindTable;
use super::view::MachView;
use crate::exception_table::read_table;

/// All such places of `image`, ascending; none for arm64, where every word is an instruction.
pub(super) fn entries(image: &MachView<'_>) -> Vec<u64> {
    if image.processor == Processor::Aarch64 {
        return Vec::new();
    }
    let mut entries = function_starts(image).unwrap_or_default();
    // A damaged table is reported by its own check.
    let _ = for_each_slot(image, |slot| entries.push(slot.target));
    landing_pads(image, &mut entries);
    let code: Vec<_> =
        image.sections.iter().filter(|section| section.is_code()).map(|section| section.range()).collect();
    entries.retain(|entry| code.iter().any(|range| range.contains(entry)));
    entries.sort_unstable();
    entries.dedup();
    entries
}

fn landing_pads(image: &MachView<'_>, pads: &mut Vec<u64>) {
    let rows = UnwindTable::read(image).unwrap_or_default().rows;
    let in_rows = rows.iter().filter(|row| row.exceptions != 0).map(|row| (row.start, row.exceptions));
    let frames = frame_entries(image).unwrap_or_default();
    let in_frames = frames.iter().filter_map(|frame| Some((frame.start, frame.exception_table?)));
    // Functions do not share tables, so a valid image has fewer call sites than bytes.
    let mut budget = image.bytes.len();
    for (start, table) in in_rows.chain(in_frames) {
        let bytes = image.section_at(table).and_then(|section| {
            section.bytes.get(usize::try_from(table.wrapping_sub(section.address)).ok()?..)
        });
        let mut sites = Vec::new();
        let known = bytes.and_then(|bytes| read_table(bytes, start, &mut budget, &mut sites));
        pads.extend(sites.iter().map(|site| site.pad));
        if known.is_none() && budget == 0 {
            break;
        }
    }
}
