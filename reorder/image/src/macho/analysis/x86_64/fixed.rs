//! Sections of code other than `__text`, which are left in place.

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::fields::Field;
use crate::code_reference::CodeReference;
use crate::macho::file::MachOFile;
use crate::macho::section::Section;
use reorder_base::address::Address;

/// The fields of `section` that refer to `__text`, found by decoding from its first byte to its last and again from each of
/// `starts`, which are sorted: padding before a function may decode as an instruction that includes its first bytes.
///
/// Only calls and addresses of four bytes count: linkers and compilers write nothing shorter from one section to
/// another. Bytes that are not an instruction are skipped one by one.
#[must_use]
pub fn decode_fixed_section(
    file: &MachOFile<'_>,
    section: &Section<'_>,
    starts: &[Address],
) -> Vec<CodeReference> {
    let bytes = file.section_bytes(section);
    let range = section.range();
    let inner = starts
        .iter()
        .filter(|start| range.contains(start))
        .map(|start| start.distance_from(section.address) as usize);
    let cuts: Vec<usize> = std::iter::once(0).chain(inner).chain([bytes.len()]).collect();
    let mut references = Vec::new();
    for cut in cuts.windows(2) {
        let piece = bytes.get(cut[0]..cut[1]).unwrap_or_default();
        decode_piece(file, piece, section.address.plus(cut[0] as u64), &mut references);
    }
    references
}

fn decode_piece(file: &MachOFile<'_>, bytes: &[u8], address: Address, references: &mut Vec<CodeReference>) {
    let text = file.text().range();
    let mut decoder = Decoder::with_ip(64, bytes, address.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let position = decoder.position();
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            let next = position + 1;
            if decoder.set_position(next).is_err() {
                break;
            }
            decoder.set_ip(address.plus(next as u64).0);
            continue;
        }
        let field = Field::of(&instruction, &decoder);
        let field = field.filter(|field| field.width == 4 && text.contains(&field.target));
        references.extend(field.map(|field| field.reference()));
    }
}
