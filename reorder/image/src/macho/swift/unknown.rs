//! Words in Swift's metadata that would lead to a function but are not a field of a known record.

use std::collections::BTreeSet;

use rayon::prelude::*;

use crate::macho::file::MachOFile;
use crate::macho::reference::DataReference;
use crate::macho::section::Section;
use reorder_base::address::Address;

/// Adds all such words to `unknown`, sorted by place. Names may be anywhere, so every byte may begin a word.
pub(super) fn scan(
    file: &MachOFile<'_>,
    starts: &[Address],
    known: &[DataReference],
    unknown: &mut Vec<(Address, Address)>,
) {
    let text = file.text().range();
    let known: BTreeSet<Address> = known.iter().map(|reference| reference.place).collect();
    for section in file.sections.iter().filter(|section| may_hold_records(section)) {
        let bytes = file.section_bytes(section);
        let found = bytes.par_windows(4).enumerate().with_min_len(1 << 14).filter_map(|(index, word)| {
            let place = section.address.plus(index as u64);
            let distance = i64::from(i32::from_le_bytes([word[0], word[1], word[2], word[3]]));
            let target = place.plus(distance as u64);
            let is_start = text.contains(&target) && starts.binary_search(&target).is_ok();
            (is_start && !known.contains(&place)).then_some((place, target))
        });
        unknown.par_extend(found);
    }
    unknown.sort_unstable();
    unknown.dedup();
}

/// Sections where Swift's compiler puts records.
fn may_hold_records(section: &Section<'_>) -> bool {
    let is_data = section.has_bytes() && !section.is_code();
    let is_constant = section.is(b"__TEXT", b"__const") || section.is(b"__TEXT", b"__constg_swiftt");
    is_data && (is_constant || section.name.starts_with(b"__swift"))
}
