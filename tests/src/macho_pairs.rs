//! Pairs of Mach-O images that a linker made of the same objects in two orders: `verify` must prove them.
//!
//! Two things differ between links but not between relocated images: the name of the output is the identifier of the
//! signature, so both have the same; x86-64 functions are padded to 16 bytes except the last, so the last stays the last.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use reorder_verify::{Check, VerifyOptions, VerifyReport, verify};
use tempfile::TempDir;

use crate::process::shell;

/// The longest time a compiler or linker may take.
pub const LIMIT: Duration = Duration::from_secs(120);
const SOURCES: [(&str, &str); 5] = [
    ("first.c", include_str!("../macho/verify/first.c")),
    ("cleanup.c", include_str!("../macho/verify/cleanup.c")),
    ("last.c", include_str!("../macho/verify/last.c")),
    ("arm64.s", include_str!("../macho/verify/arm64.s")),
    ("x86_64.s", include_str!("../macho/verify/x86_64.s")),
];
const ORDER: &str =
    "_guarded_too\n_hoisted\n_many\n_early\n_table_b\n_framed\n_main\n_local\n_in_frame\n_apply\n_guarded\n";

/// A pair of links, and where its parts are.
pub struct Pair {
    /// The image in the order of the objects.
    pub old: Vec<u8>,
    /// The image in the other order.
    pub new: Vec<u8>,
    _directory: TempDir,
    /// Where the objects are.
    pub path: PathBuf,
}

impl Pair {
    /// Links for an architecture and a version of macOS: 12 has opcodes, 13 chained fixups.
    #[must_use]
    pub fn new(architecture: &str, version: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_path_buf();
        for (name, source) in SOURCES {
            std::fs::write(path.join(name), source).unwrap();
        }
        std::fs::write(path.join("order"), ORDER).unwrap();
        let compile = format!(
            "clang$LLVM --target={architecture}-apple-macos{version} -fexceptions -funwind-tables -O1"
        );
        let link = format!(
            "ld64.lld$LLVM -arch {architecture} -platform_version macos {version}.0 {version}.0 -undefined dynamic_lookup \
             -no_uuid -adhoc_codesign first.o {architecture}.o cleanup.o last.o"
        );
        let line = format!(
            "cd '{}' && for unit in first cleanup last; do {compile} -fno-builtin -c $unit.c -o $unit.o; done && \
             {compile} -c {architecture}.s -o {architecture}.o && mkdir a b && {link} -o a/program && \
             {link} -o b/program -order_file order",
            path.display()
        );
        shell(&line, LIMIT).unwrap();
        let read = |name: &str| std::fs::read(path.join(name)).unwrap();
        Self { old: read("a/program"), new: read("b/program"), _directory: directory, path }
    }

    /// Links one assembly source for macOS 13 in two orders; only global symbols are kept.
    #[must_use]
    pub fn of_assembly(architecture: &str, source: &str, orders: [&str; 2]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_path_buf();
        std::fs::write(path.join("unit.s"), source).unwrap();
        for (name, order) in ["a", "b"].iter().zip(orders) {
            std::fs::create_dir(path.join(name)).unwrap();
            std::fs::write(path.join(name).join("order"), order.replace(' ', "\n")).unwrap();
        }
        let line = format!(
            "cd '{}' && clang$LLVM --target={architecture}-apple-macos13 -c unit.s -o unit.o && for name in a b; do \
             ld64.lld$LLVM -arch {architecture} -platform_version macos 13.0 13.0 -undefined dynamic_lookup -no_uuid \
             -adhoc_codesign -x unit.o -o $name/program -order_file $name/order; done",
            path.display()
        );
        shell(&line, LIMIT).unwrap();
        let read = |name: &str| std::fs::read(path.join(name)).unwrap();
        Self { old: read("a/program"), new: read("b/program"), _directory: directory, path }
    }

    /// Both architectures, both kinds of tables for the loader.
    #[must_use]
    pub fn all() -> Vec<(String, Self)> {
        [("arm64", 12), ("arm64", 13), ("x86_64", 12), ("x86_64", 13)]
            .map(|(architecture, version)| {
                (format!("{architecture} {version}"), Self::new(architecture, version))
            })
            .into()
    }
}

/// Lists all differences.
#[must_use]
pub fn options() -> VerifyOptions {
    VerifyOptions { listed_differences: 1000, ..VerifyOptions::default() }
}

/// The report of `verify`.
#[must_use]
pub fn report(old: &[u8], new: &[u8]) -> VerifyReport {
    verify(old, new, options()).unwrap()
}

/// The differences besides the hash of the page, which changes with every byte.
#[must_use]
pub fn found_by_content(old: &[u8], new: &[u8]) -> Vec<Check> {
    let mut checks: Vec<Check> =
        report(old, new).differences.iter().map(|difference| difference.check).collect();
    checks.retain(|check| *check != Check::Signature);
    checks
}

/// Where the header of a section is.
#[must_use]
pub fn section_header(image: &[u8], name: &str) -> usize {
    let mut padded = [0u8; 16];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize;
    let commands = 32 + word(20);
    (32..commands).step_by(4).find(|&at| image[at..at + 16] == padded).unwrap()
}

/// The bytes of a section in the file.
#[must_use]
pub fn section(image: &[u8], name: &str) -> Range<usize> {
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize;
    let header = section_header(image, name);
    word(header + 48)..word(header + 48) + word(header + 40)
}

/// Where a part of `__LINKEDIT` is: the two words at `field` of the first command of this kind.
#[must_use]
pub fn part(image: &[u8], kind: u32, field: usize) -> Range<usize> {
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let mut at = 32;
    while word(at) != kind {
        at += word(at + 4) as usize;
    }
    let (offset, size) = (word(at + field) as usize, word(at + field + 4) as usize);
    offset..offset + if kind == 2 && field == 8 { size * 16 } else { size }
}

/// The rows of the first page of unwind information, which is compressed; the linker pads pages to 4 KiB.
#[must_use]
pub fn rows(image: &[u8]) -> Range<usize> {
    let table = section(image, "__unwind_info").start;
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize;
    let page = table + word(table + word(table + 20) + 4);
    assert_eq!(word(page), 3, "a compressed page");
    let (start, count) = (page + (word(page + 4) & 0xffff), word(page + 4) >> 16);
    start..start + count * 4
}
