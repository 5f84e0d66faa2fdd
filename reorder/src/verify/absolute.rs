//! A program at a fixed address stores code addresses as plain constants that nothing lists. The move is sound only
//! if no constant can mean a function that moved, or the place right behind one.

use goblin::elf::header::ET_EXEC;
use goblin::elf::section_header::SHT_PROGBITS;
use iced_x86::{Decoder, DecoderOptions, OpKind};
use rayon::prelude::*;

use crate::address::Address;
use crate::verify::elf_view::SectionView;
use crate::verify::pair::ImagePair;
use crate::verify::report::{Check, Difference, Findings};

/// Looks at all data and all instructions of the old image.
pub(super) fn check_absolute_addresses(pair: ImagePair<'_>, findings: &mut Findings) {
    if pair.old.header.e_type != ET_EXEC || pair.moves.moved() == 0 {
        return;
    }
    let is_moved = |value: u64| {
        let moved =
            |address: u64| pair.moves.containing(Address(address)).is_some_and(|range| range.is_moved());
        moved(value) || value.checked_sub(1).is_some_and(moved)
    };
    let mut constants: Vec<(u64, u64)> = Vec::new();
    let mut looked_at = 0;
    for section in pair.old.sections.iter().filter(|section| section.is_loaded()) {
        if section.is_code() {
            looked_at += section.bytes.len();
            constants.extend(code_constants(section).filter(|&(_, value)| is_moved(value)));
        } else if section.kind == SHT_PROGBITS && !section.name.starts_with(b".eh_frame") {
            looked_at += section.bytes.len();
            let hits = (0..section.bytes.len()).into_par_iter().with_min_len(1 << 16);
            let hits = hits.filter_map(|position| {
                let place = section.address + position as u64;
                data_constant(section.bytes, position, place)
                    .filter(|&value| is_moved(value))
                    .map(|value| (place, value))
            });
            constants.extend(hits.collect::<Vec<_>>());
        }
    }
    findings.checked(Check::AbsoluteAddresses, "bytes", looked_at);
    for (place, value) in constants {
        findings.differs(Difference::new(
            Check::AbsoluteAddresses,
            None,
            format!("the constant at {place:#x}"),
            "no address of a function that moved",
            format!("{value:#x}"),
        ));
    }
}

/// Eight bytes at any place, or four at an aligned one.
fn data_constant(bytes: &[u8], position: usize, place: u64) -> Option<u64> {
    let wide = bytes.get(position..)?.first_chunk::<8>().map(|word| u64::from_le_bytes(*word));
    if let Some(value) = wide.filter(|value| *value <= u64::from(u32::MAX)) {
        return Some(value);
    }
    if !place.is_multiple_of(4) {
        return None;
    }
    bytes.get(position..)?.first_chunk::<4>().map(|word| u64::from(u32::from_le_bytes(*word)))
}

/// Immediates and displacements of at least four bytes: (address of the instruction, value).
fn code_constants<'a>(section: &'a SectionView<'_>) -> impl Iterator<Item = (u64, u64)> + 'a {
    let decoder = Decoder::with_ip(64, section.bytes, section.address, DecoderOptions::NONE);
    decoder.into_iter().flat_map(|instruction| {
        let is_branch = instruction.op0_kind() == OpKind::NearBranch64;
        let has_plain_displacement =
            !is_branch && instruction.memory_displ_size() >= 4 && !instruction.is_ip_rel_memory_operand();
        let displacement = has_plain_displacement.then(|| instruction.memory_displacement64());
        let operands = if is_branch { 0 } else { instruction.op_count() };
        let immediates = (0..operands).filter_map(move |operand| instruction.try_immediate(operand).ok());
        displacement.into_iter().chain(immediates).map(move |value| (instruction.ip(), value))
    })
}
