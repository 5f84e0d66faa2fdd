//! Sections of code beside `__text`, which stay where they are.

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::fields::Field;
use crate::image::code_reference::CodeReference;
use crate::image::macho::file::MachOFile;
use crate::image::macho::section::Section;

/// The fields of `section` that refer to `__text`, found from its first byte to its last.
///
/// Only calls and addresses of four bytes count: linkers and compilers write nothing shorter from one section to
/// another. Bytes that are no instruction are skipped one by one.
#[must_use]
pub fn decode_fixed_section(file: &MachOFile<'_>, section: &Section<'_>) -> Vec<CodeReference> {
    let text = file.text().range();
    let bytes = file.section_bytes(section);
    let mut decoder = Decoder::with_ip(64, bytes, section.address.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut references = Vec::new();
    while decoder.can_decode() {
        let position = decoder.position();
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            let next = position + 1;
            if decoder.set_position(next).is_err() {
                break;
            }
            decoder.set_ip(section.address.plus(next as u64).0);
            continue;
        }
        let field = Field::of(&instruction, &decoder);
        let field = field.filter(|field| field.width == 4 && text.contains(&field.target));
        references.extend(field.map(|field| field.reference()));
    }
    references
}
