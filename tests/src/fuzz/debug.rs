//! Any bytes as a section of debug information: written again or an error with its place.

use std::borrow::Cow;

use reorder::address::{Address, FileOffset, NewAddress};
use reorder::image::elf::section::{Section, SectionIndex};
use reorder::relocate::address_map::{AddressMap, Move};
use reorder::relocate::debug::pieces::Pieces;
use reorder::relocate::debug::sections::{DebugSection, Packing};
use reorder::relocate::debug::{aranges, frames, lines, mini};

pub(super) fn check(bytes: &[u8]) {
    let section = Section {
        index: SectionIndex(1),
        header_offset: FileOffset(0),
        name: b".debug",
        kind: 1,
        flags: 0,
        address: Address(0),
        offset: FileOffset(0),
        size: bytes.len() as u64,
        link: 0,
        info: 0,
        entry_size: 0,
    };
    let name = ".debug".to_owned();
    let section = DebugSection { section, name, packing: Packing::Plain, bytes: Cow::Borrowed(bytes) };
    let moved = |old, new| Move { old: Address(old), new: NewAddress(new), size: 0x10 };
    let map = AddressMap::new([moved(0x110, 0x240), moved(0x120, 0x210)]).expect("they do not overlap");
    let pieces = Pieces::new(&map, vec![Address(0x100)..Address(0x300)], &[]).limited(bytes.len() as u64);
    let _ = lines::move_lines(&section, &pieces);
    let _ = aranges::move_aranges(&section, &pieces);
    let _ = aranges::move_gdb_index(&section, &pieces);
    let _ = frames::move_frames(&section, &pieces);
    let _ = mini::move_mini(&section, &pieces);
}
