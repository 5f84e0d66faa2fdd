//! Damaged images, and files that are not images: every phase returns a value or an error with a message.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so where it stands")]

use std::process::Command;

use proptest::prelude::*;
use proptest::sample::Index;
use reorder_base::error::Result;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::origins::Origins;
use reorder_image::references::{FingerprintOptions, Fingerprints, References};
use reorder_layout::{LayoutRequest, Room, Strategy as LayoutStrategy, lay_out};
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::Arrangement;
use reorder_relocate::apply::elf::apply;
use reorder_verify::{VerifyOptions, verify};

/// A few kilobytes with every table, linked without startup files, so that most bytes have a meaning.
fn small_image(options: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kept_relocations/program.c");
    let mut command = Command::new("gcc");
    command.args(["-O2", "-fPIC", "-shared", "-nostartfiles", "-ffunction-sections"]).args(options);
    let output = command.arg(source).arg("-o").arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(path).unwrap()
}

/// Everything that `apply` does between reading and writing.
fn permute(bytes: &[u8]) -> Result<Vec<u8>> {
    let file = ElfFile::parse(bytes)?;
    let functions = ElfFunctions::collect(&file)?;
    let analysis = Analysis::new(&file, &functions)?;
    let layout =
        lay_out(&file, &functions.table, &[], Room::Linker, &LayoutRequest::of(LayoutStrategy::Random, 1))?;
    let arrangement = Arrangement::Order(&layout.order);
    Ok(apply(&file, &functions, analysis, arrangement, RelocateOptions::default())?.bytes)
}

/// Everything that `order` reads; a refusal must not prevent it.
fn read_references(bytes: &[u8]) -> Result<()> {
    let file = ElfFile::parse(bytes)?;
    let functions = ElfFunctions::collect(&file)?;
    let references = References::extract(&file, &functions.table)?;
    assert!(references.objects.is_sorted_by(|left, right| left.end <= right.start));
    let fingerprints = Fingerprints::extract(&file, &functions.table, FingerprintOptions::default())?;
    assert_eq!(fingerprints.windows.len(), functions.table.len());
    assert_eq!(Origins::collect(&functions).files.len(), functions.table.len());
    Ok(())
}

fn check(bytes: &[u8]) {
    if let Err(error) = read_references(bytes) {
        assert!(!error.to_string().is_empty());
    }
    match permute(bytes) {
        Ok(output) => {
            assert!(verify(bytes, &output, VerifyOptions::default()).unwrap().is_proven());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    // The verifier parses the file by itself.
    let _ = verify(bytes, bytes, VerifyOptions::default());
}

/// A file offset, and the bytes to write there.
fn damage() -> impl Strategy<Value = Vec<(Index, Vec<u8>)>> {
    let value = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        prop_oneof![Just(0u32), Just(u32::MAX), Just(1 << 31), any::<u32>()]
            .prop_map(|word| word.to_le_bytes().to_vec()),
        prop_oneof![Just(0u64), Just(u64::MAX), Just(1 << 63), any::<u64>()]
            .prop_map(|word| word.to_le_bytes().to_vec()),
    ];
    proptest::collection::vec((any::<Index>(), value), 1..4)
}

fn damaged(image: &[u8], damage: &[(Index, Vec<u8>)], length: Option<Index>) -> Vec<u8> {
    let mut bytes = image.to_vec();
    for (at, value) in damage {
        // Fields are aligned; single bytes can be at any offset.
        let at = at.index(bytes.len() - 8) / value.len() * value.len();
        bytes[at..at + value.len()].copy_from_slice(value);
    }
    if let Some(length) = length {
        bytes.truncate(length.index(image.len()));
    }
    bytes
}

#[test]
fn damaged_images_are_refused_or_relocated_correctly() {
    for options in
        [&["-Wl,--emit-relocs", "-Wl,-z,noseparate-code"][..], &["-s", "-Wl,-z,pack-relative-relocs"]]
    {
        let image = small_image(options);
        assert!(permute(&image).is_ok_and(|output| output != image), "{options:?}: the seed itself moves");
        let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
        proptest!(config, |(damage in damage(), length in proptest::option::weighted(0.1, any::<Index>()))| {
            check(&damaged(&image, &damage, length));
        });
    }
}

// case: core, object, truncated, overlapping, endless
#[test]
fn headers_with_any_field_are_read_or_refused() {
    let image = small_image(&[]);
    let header_fields = (0usize..64, any::<u64>());
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(fields in proptest::collection::vec(header_fields, 1..3))| {
        let mut bytes = image.clone();
        for (at, value) in fields {
            bytes[at.min(56)..][..8].copy_from_slice(&value.to_le_bytes());
        }
        check(&bytes);
    });
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_no_image(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        check(&bytes);
        check(&[b"\x7fELF\x02\x01\x01\x00", &bytes[..]].concat());
    }
}
