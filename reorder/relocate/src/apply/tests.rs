//! Results that the verifier rejects are refused, with the code for the kind of image; maps lead back.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fmt::Write as _;

use super::macho::{MachOOptions, apply, layout_map};
use super::{Arrangement, judge};
use reorder_base::error::{Error, ErrorKind};
use reorder_base::refusal::RefusalCode;
use reorder_image::functions::FunctionIndex;
use reorder_image::macho::analysis::MachOAnalysis;
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::linked::library;
use reorder_image::macho::load_command::LinkEditPart;
use reorder_verify::{VerifyOptions, verify};

#[test]
fn what_is_not_proven_is_refused() {
    let image = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let mut other = image.clone();
    // The file's identity and padding of its first bytes, which must not change.
    other[9] ^= 1;
    let refusal = |new: &[u8], code| match judge(verify(&image, new, VerifyOptions::default()), code) {
        Err(Error { kind: ErrorKind::Refused(refusal), .. }) => Some((refusal.code, refusal.reason)),
        _ => None,
    };
    for code in [RefusalCode::FailedVerification, RefusalCode::MachOFailedVerification] {
        let (found, reason) = refusal(&other, code).unwrap();
        assert_eq!(found, code);
        assert!(reason.contains("1 differences, the first at"), "{reason}");
        let (found, reason) = refusal(&image[..100], code).unwrap();
        assert_eq!(found, code, "{reason}");
    }
    assert_eq!(refusal(&image, RefusalCode::MachOFailedVerification), None);
}

/// The same image with a table of exports that is longer by `more` zeros, as another linker would write it.
fn with_longer_exports(bytes: &[u8], more: usize) -> Vec<u8> {
    let file = MachOFile::parse(bytes).unwrap();
    let exports = file.link_edit_range(LinkEditPart::Exports).unwrap();
    let end = exports.offset + exports.size;
    let mut longer = bytes.to_vec();
    let mut put = |at: usize, value: usize| longer[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
    put(exports.size_field, exports.size + more);
    for part in file.link_edit.iter().chain(&file.empty_link_edit).filter(|part| part.offset >= end) {
        put(part.offset_field, part.offset + more);
    }
    let segment = file.segment(b"__LINKEDIT").unwrap();
    put(segment.command_offset + 48, segment.file_size + more);
    put(segment.command_offset + 32, (segment.file_size + more).next_multiple_of(0x1000));
    longer.splice(end..end, std::iter::repeat_n(0, more));
    longer
}

#[test]
fn maps_restore_tables_that_changed_their_size() {
    // Names, which come after the exports, make up most of the file.
    let mut source = String::new();
    for number in 0..600 {
        let name = format!("a_function_of_a_library_of_which_most_of_the_bytes_are_names_{number:04}");
        let hidden = if number < 9 { "" } else { "__attribute__((visibility(\"hidden\")))" };
        writeln!(source, "{hidden} int {name}(int n) {{ return n * {number} + n % 7; }}").unwrap();
    }
    let bytes = with_longer_exports(&library("x86_64", "c", &source, &["-O1"], &[]), 32);
    let file = MachOFile::parse(&bytes).unwrap();
    let names = file.code_names().unwrap();
    let functions = names.functions_within(file.text().range());
    let analysis = MachOAnalysis::new(&file).unwrap();
    let mut order: Vec<FunctionIndex> = functions.iter().map(|(index, _)| index).collect();
    order.reverse();
    let apply = |file: &MachOFile<'_>, arrangement: Arrangement<'_>| {
        apply(file, &functions, &analysis, arrangement, MachOOptions::default()).unwrap()
    };
    let applied = apply(&file, Arrangement::Order(&order));
    let map = layout_map(&file, &functions, &applied).unwrap();
    assert!(!map.copies.is_empty());
    let repeated: usize = map.fills.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(repeated < bytes.len() / 20, "{repeated} of {} bytes", bytes.len());
    let moved = MachOFile::parse(&applied.bytes).unwrap();
    assert!(apply(&moved, Arrangement::Map(&map)).bytes == bytes);
    assert!(apply(&file, Arrangement::Map(&map)).bytes == applied.bytes);
}
