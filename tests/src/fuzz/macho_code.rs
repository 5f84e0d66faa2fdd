//! Any bytes as a Mach-O image for x86-64 and with metadata of Swift: code is decoded or pinned, records are read or left.
//! Half of an input that is not an image is put into one as its code, the other half as its records.

use std::ops::Range;

use reorder_base::address::Address;
use reorder_image::macho::analysis::x86_64::{X86Context, decode_atom, decode_fixed_section};
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::fixups::rebases;
use reorder_image::macho::swift;

pub(super) fn check(bytes: &[u8]) {
    match MachOFile::parse(bytes) {
        Ok(file) => examine(&file),
        Err(_) => {
            let image = image(bytes);
            examine(&MachOFile::parse(&image).expect("the image is whole"));
        }
    }
}

/// Size of each function; an address inside is an entry as well.
const ATOM: u64 = 64;

fn examine(file: &MachOFile<'_>) {
    let text = file.text().range();
    let starts: Vec<Address> =
        (text.start.0..text.end.0).step_by(ATOM as usize).take(1 << 12).map(Address).collect();
    let listed: Vec<Range<Address>> =
        starts.iter().step_by(7).map(|start| start.plus(8)..start.plus(24)).collect();
    let context = X86Context::new(file, &starts, &listed);
    for (index, &start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(text.end);
        let decoded = decode_atom(&context, start..end, &[start.plus(3)]);
        assert!(decoded.references.iter().all(|found| (start..end).contains(&found.place)));
        assert!(decoded.possible_targets.is_empty() || decoded.pin.is_some());
    }
    for section in &file.sections {
        let found = decode_fixed_section(file, section, &starts);
        assert!(found.iter().all(|found| text.contains(&found.target)));
    }
    let Ok(found) = swift::references(file, &rebases(file).unwrap_or_default(), &starts) else { return };
    for field in &found.references {
        let distance = file.word_at(field.place).map(|word| i64::from(word as i32) as u64);
        assert_eq!(distance.map(|distance| field.place.plus(distance)), Some(field.target));
        assert!(starts.binary_search(&field.target).is_ok());
    }
}

/// The sections of records.
const SECTIONS: [&str; 6] = [
    "__swift5_types",
    "__swift5_proto",
    "__swift5_protos",
    "__swift5_typeref",
    "__swift5_replace",
    "__const",
];
const SEGMENT_SIZE: usize = 72;
const SECTION_SIZE: usize = 80;

/// An image with the first half of `contents` as code and the other as records, an equal part for each section.
fn image(contents: &[u8]) -> Vec<u8> {
    let (code, records) = contents.split_at(contents.len() / 2);
    let part = records.len() / SECTIONS.len() / 4 * 4;
    let commands = SEGMENT_SIZE + SECTION_SIZE * (SECTIONS.len() + 1);
    let start = 32 + commands;
    let code_size = code.len().next_multiple_of(4);
    let size = start + code_size + part * SECTIONS.len();
    let mut image = Vec::with_capacity(size);
    let words = |image: &mut Vec<u8>, words: &[u32]| {
        image.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    let name = |image: &mut Vec<u8>, name: &str| {
        let mut padded = [0; 16];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        image.extend(padded);
    };
    words(&mut image, &[0xfeed_facf, 0x0100_0007, 3, 6, 1, commands as u32, 0, 0, 0x19, commands as u32]);
    name(&mut image, "__TEXT");
    let size_word = size as u32;
    words(&mut image, &[0, 0, size_word, 0, 0, 0, size_word, 0, 5, 5, SECTIONS.len() as u32 + 1, 0]);
    let mut place = start;
    for (section, size, flags) in std::iter::once(("__text", code.len(), 0x8000_0400))
        .chain(SECTIONS.into_iter().map(|section| (section, part, 0)))
    {
        name(&mut image, section);
        name(&mut image, "__TEXT");
        words(&mut image, &[place as u32, 0, size as u32, 0, place as u32, 2, 0, 0, flags, 0, 0, 0]);
        place += size.next_multiple_of(4);
    }
    image.extend_from_slice(code);
    image.resize(start + code_size, 0);
    image.extend_from_slice(&records[..part * SECTIONS.len()]);
    image
}
