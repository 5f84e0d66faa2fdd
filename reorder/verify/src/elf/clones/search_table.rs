//! The search table of the unwinder: sorted, with the rows of the old one and those of copies.

use crate::bytes::{displacement_at, u32_at};
use crate::elf::view::ElfView;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::NewAddress;

/// `PT_GNU_EH_FRAME`.
const SEARCH_TABLE: u32 = 0x6474_e550;
const SEARCH_HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const FIRST_ROW: usize = 12;
const ROW_SIZE: usize = 8;

/// Checks the search table: it is sorted, has all rows of the old one and those `added`, and names `frames` as the start of
/// the entries.
pub(super) fn check_search_table(
    (old, new): (&ElfView<'_>, &ElfView<'_>),
    added: Vec<(NewAddress, NewAddress)>,
    shift: u64,
    frames: NewAddress,
    findings: &mut Findings,
) {
    let differs = |what: &str| {
        Difference::new(
            Check::UnwindSearchTable,
            None,
            "the unwind search table",
            "all entries, sorted",
            what,
        )
    };
    let (Some((_, before)), Some((named, after))) = (search_table(old), search_table(new)) else {
        findings.differs(differs("no readable table"));
        return;
    };
    if named != frames.0 {
        findings.differs(differs("another address of the entries"));
    }
    if after.windows(2).any(|rows| rows[0].0 > rows[1].0) {
        findings.differs(differs("rows that are not sorted"));
    }
    // Originals keep their starts; all their entries moved by `shift`.
    let typed = |(start, entry)| (NewAddress(start), NewAddress(entry));
    let moved = before.iter().map(|(start, entry)| typed((*start, entry.wrapping_add(shift))));
    let mut expected: Vec<(NewAddress, NewAddress)> = moved.chain(added).collect();
    expected.sort_unstable();
    let mut found: Vec<(NewAddress, NewAddress)> = after.into_iter().map(typed).collect();
    found.sort_unstable();
    if expected != found {
        findings.differs(differs("other rows"));
    }
    findings.checked(Check::UnwindSearchTable, "rows", found.len());
}

/// The address of the entries that the search table names, and its rows: start and entry. Both images are read here, so
/// addresses are plain numbers.
fn search_table(image: &ElfView<'_>) -> Option<(u64, Vec<(u64, u64)>)> {
    let segment = image.segments.iter().find(|segment| segment.p_type == SEARCH_TABLE)?;
    let section = image.section(b".eh_frame_hdr")?;
    let is_one = (segment.p_vaddr, segment.p_offset) == (section.address, section.offset)
        && segment.p_filesz == section.bytes.len() as u64;
    (is_one && section.bytes.get(..4) == Some(&SEARCH_HEADER)).then_some(())?;
    let named = section.address.wrapping_add(4).wrapping_add(displacement_at(section.bytes, 4)?);
    let count = u32_at(section.bytes, 8)? as usize;
    let part = |at: usize| Some(section.address.wrapping_add(displacement_at(section.bytes, at)?));
    let room = section.bytes.len().saturating_sub(FIRST_ROW) / ROW_SIZE;
    let rows = (0..count.min(room)).filter_map(|row| {
        let at = FIRST_ROW + row * ROW_SIZE;
        Some((part(at)?, part(at + 4)?))
    });
    let rows: Vec<(u64, u64)> = rows.collect();
    (rows.len() == count).then_some((named, rows))
}
