//! Data among the instructions of an AArch64 image, according to its mapping symbols.
//!
//! `$d` starts data and `$x` starts instructions, up to the next mark or the end of the section. Source: ELF for the Arm
//! 64-bit Architecture (IHI 0056), section 5.5.5. Stripped images have no mapping symbols: all their code sections count as
//! code.

use std::ops::Range;

use goblin::elf::section_header::SHT_SYMTAB;
use goblin::elf::sym::STT_NOTYPE;

use super::symbol_walk::symbol_at;
use crate::elf::view::SectionView;

/// The ranges of data in code sections, ascending and disjoint, as addresses of the image that has these sections.
pub(crate) fn data_in_code(sections: &[SectionView<'_>]) -> Vec<Range<u64>> {
    let mut marks: Vec<(u64, u32, bool)> = Vec::new();
    for table in sections.iter().filter(|section| section.kind == SHT_SYMTAB) {
        let Some(names) = sections.get(table.link as usize) else { continue };
        for symbol in (0..).map_while(|index| symbol_at(table, index)) {
            let is_mark = symbol.kind == STT_NOTYPE && symbol.size == 0;
            let home = sections.get(symbol.section as usize).filter(|home| is_mark && home.is_code());
            if home.is_some_and(|home| home.holds(symbol.value, symbol.value))
                && let Some(is_data) = names.bytes.get(symbol.name as usize..).and_then(data_mark)
            {
                marks.push((symbol.value, symbol.section, is_data));
            }
        }
    }
    // Where two marks are at one place, the mark of instructions wins: instructions may have to change, so they must be
    // checked.
    marks.sort_unstable_by_key(|&(value, section, is_data)| (section, value, !is_data));
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (index, &(start, section, is_data)) in marks.iter().enumerate() {
        let next = marks.get(index + 1).filter(|next| next.1 == section);
        let end = next.map_or_else(|| sections[section as usize].end(), |next| next.0);
        match ranges.last_mut() {
            _ if !is_data || start == end => {}
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.shrink_to_fit();
    ranges
}

/// Whether a name marks data (`$d`) or instructions (`$x`), alone or followed by a dot and anything.
fn data_mark(name: &[u8]) -> Option<bool> {
    let is_data = match name.get(..2)? {
        b"$d" => true,
        b"$x" => false,
        _ => return None,
    };
    matches!(name.get(2)?, 0 | b'.').then_some(is_data)
}
