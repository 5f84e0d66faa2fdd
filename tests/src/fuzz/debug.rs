//! Any bytes as a section of debug information: written again, or an error with its place.

use reorder_base::address::{Address, NewAddress};
use reorder_relocate::address_map::{AddressMap, Move};
use reorder_relocate::debug::pieces::Pieces;
use reorder_relocate::debug::sections::DebugSection;
use reorder_relocate::debug::{aranges, frames, lines, mini};

pub(super) fn check(bytes: &[u8]) {
    let section = DebugSection::detached(".debug", bytes);
    let moved = |old, new| Move { old: Address(old), new: NewAddress(new), size: 0x10 };
    let map = AddressMap::new([moved(0x110, 0x240), moved(0x120, 0x210)]).expect("they do not overlap");
    let pieces = Pieces::new(&map, vec![Address(0x100)..Address(0x300)], &[]).limited(bytes.len() as u64);
    let _ = lines::move_lines(&section, &pieces);
    let _ = aranges::move_aranges(&section, &pieces);
    let _ = aranges::move_gdb_index(&section, &pieces);
    let _ = frames::move_frames(&section, &pieces);
    let _ = mini::move_mini(&section, &pieces);
}
