//! Any bytes as a Mach-O image: every table is read or refused, and what was read can be written.

use reorder_image::exception_table::TableBudget;
use reorder_image::macho::checks::refuse_unmovable;
use reorder_image::macho::eh_frame::frame_entries;
use reorder_image::macho::export_trie;
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::fixups::rebases;
use reorder_image::macho::function_starts::function_starts;
use reorder_image::macho::init_offsets::initializer_offsets;
use reorder_image::macho::landing_pads::landing_pads;
use reorder_image::macho::method_lists::implementations;
use reorder_image::macho::unwind_info::UnwindInfo;
use reorder_relocate::address_map::AddressMap;
use reorder_relocate::macho::finish::finish;

pub(super) fn check(bytes: &[u8]) {
    if let Ok(exports) = export_trie::parse(bytes) {
        let mut sorted = exports.clone();
        sorted.sort_by(|left, right| left.name.cmp(&right.name));
        sorted.dedup_by(|later, first| later.name == first.name);
        assert!(exports.len() <= bytes.len());
        assert!(export_trie::parse(&export_trie::encode(&exports)).is_ok_and(|again| again == sorted));
    }
    let Ok(file) = MachOFile::parse(bytes) else { return };
    let _ = refuse_unmovable(&file);
    let (_, _) = (function_starts(&file), initializer_offsets(&file));
    if let Ok(slots) = rebases(&file) {
        assert!(slots.len() <= bytes.len() / 8);
        let _ = implementations(&file, &slots);
    }
    if let Ok(Some(unwind)) = UnwindInfo::parse(&file) {
        let mut budget = TableBudget::new(file.bytes.len());
        for (function, table) in &unwind.exception_tables {
            let _ = landing_pads(&file, *table, *function, &mut budget);
        }
    }
    let _ = frame_entries(&file);
    if let Ok(finished) = finish(&file, &AddressMap::default(), bytes.to_vec()) {
        assert!(MachOFile::parse(&finished.bytes).is_ok());
    }
}
