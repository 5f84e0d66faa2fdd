//! Images at fixed addresses whose linker kept relocations, made by real compilers and linkers: stored addresses are
//! updated, constants are not, and damaged relocations or a relocator that misses a field are detected.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

#[path = "../kept_relocations/subject.rs"]
mod subject;
#[path = "../kept_relocations/toolchain.rs"]
mod toolchain;

use std::sync::OnceLock;

use reorder_base::address::Address;
use reorder_base::tool_versions::llvm;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::pins::PinReason;
use reorder_relocate::warning::Warning;
use reorder_verify::{VerifyOptions, verify};
use subject::{analyse, permute};
use toolchain::{Built, LINKERS, Scratch, run};

const PROGRAM: &str = include_str!("program.c");
const FIXED: [&str; 5] = ["-O2", "-fno-pie", "-no-pie", "-fcf-protection=none", "-Wl,--build-id=none"];

/// The program by gcc and GNU ld.
fn sample() -> &'static [u8] {
    static SAMPLE: OnceLock<Vec<u8>> = OnceLock::new();
    SAMPLE.get_or_init(|| Scratch::new().build("gcc", "bfd", PROGRAM, &FIXED).bytes)
}

/// File offset of `address`.
fn offset(bytes: &[u8], address: Address) -> usize {
    ElfFile::parse(bytes).unwrap().offset_of(address, 1).unwrap().0 as usize
}

/// Value of the symbol `name`.
fn symbol(bytes: &[u8], name: &str) -> Address {
    let file = ElfFile::parse(bytes).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap();
    let found = functions.symbols.iter().find(|symbol| symbol.name == name.as_bytes());
    found.unwrap().value
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Entries of a relocation section: (file offset, place, type, addend).
fn entries(bytes: &[u8], name: &[u8]) -> Vec<(usize, Address, u64, u64)> {
    let file = ElfFile::parse(bytes).unwrap();
    let section = file.section(name).unwrap();
    let start = section.offset.0 as usize;
    (start..start + section.size as usize)
        .step_by(24)
        .map(|at| (at, Address(word(bytes, at)), word(bytes, at + 8) & 0xffff_ffff, word(bytes, at + 16)))
        .collect()
}

/// The number of differences that the verifier lists.
fn differences(old: &[u8], new: &[u8]) -> u64 {
    verify(old, new, VerifyOptions::default()).unwrap().difference_count
}

// case: static at a fixed address with kept relocations; slots that have no entry
#[test]
fn operands_words_and_slots_follow_in_images_of_every_linker() {
    let scratch = Scratch::new();
    for compiler in ["gcc", &llvm("clang")] {
        for linker in LINKERS {
            for link in [&[][..], &["-static"]] {
                let options = [&FIXED[..], link].concat();
                let case = format!("{compiler} {linker} {link:?}");
                let Built { path, bytes } = scratch.build(compiler, linker, PROGRAM, &options);
                let kept = analyse(&bytes).kept.unwrap();
                assert_eq!((kept.disagreeing, kept.is_ignored), (0, false), "{case}");
                let expected = run(&path);
                let mut moved = bytes;
                for seed in [1, 2, 3] {
                    let applied = permute(&moved, seed).unwrap();
                    let summary = &applied.summary;
                    let share = summary.functions_movable as f64 / summary.functions as f64;
                    // Each order makes other numbers look like addresses.
                    let least = if seed == 1 { 0.85 } else { 0.8 };
                    assert!(share > least, "{case}: {share}");
                    assert_eq!(run(&scratch.write("moved", &applied.bytes)), expected, "{case}, {seed}");
                    moved = applied.bytes;
                }
                assert_eq!(analyse(&moved).kept.unwrap(), kept, "{case}: entries are kept true");
            }
        }
    }
}

// case: fixed address without kept relocations: what a constant may mean stays
#[test]
fn without_relocations_whatever_a_constant_may_mean_stays() {
    let mut bytes = sample().to_vec();
    let file = ElfFile::parse(sample()).unwrap();
    for section in file.sections.iter().filter(|section| section.name.starts_with(b".rela.")) {
        if !section.is_loaded() {
            bytes[section.header_offset.0 as usize + 4] = 1; // SHT_PROGBITS: bytes without a meaning
        }
    }
    let analysed = analyse(&bytes);
    assert!(analysed.kept.is_none());
    for name in ["first", "second", "third", "jump", "bystander"] {
        assert_eq!(analysed.pins.get(name), Some(&PinReason::AbsoluteAddress), "{name}");
    }
    assert!(analyse(sample()).pins.is_empty());
}

#[test]
fn a_number_that_looks_like_an_address_is_none() {
    let mut bytes = sample().to_vec();
    let inside = symbol(&bytes, "choose").plus(5);
    let numbers = symbol(&bytes, "numbers");
    let at = offset(&bytes, numbers);
    bytes[at..at + 8].copy_from_slice(&inside.0.to_le_bytes());
    let scratch = Scratch::new();
    let expected = run(&scratch.write("original", &bytes));
    let mut has_moved = false;
    for seed in [1, 2, 3] {
        let moved = permute(&bytes, seed).unwrap().bytes;
        assert_eq!(word(&moved, at), inside.0);
        has_moved |= symbol(&moved, "choose") != symbol(&bytes, "choose");
        assert_eq!(run(&scratch.write("moved", &moved)), expected);
    }
    assert!(has_moved);
}

#[test]
fn a_number_equal_to_a_functions_address_pins_it() {
    let mut bytes = sample().to_vec();
    let at = offset(&bytes, symbol(&bytes, "numbers"));
    let start = symbol(&bytes, "choose");
    bytes[at..at + 8].copy_from_slice(&start.0.to_le_bytes());
    let pins = analyse(&bytes).pins;
    assert_eq!(pins.get("choose"), Some(&PinReason::AbsoluteAddress));
    assert_eq!(pins.len(), 1);
}

#[test]
fn an_entry_that_the_word_contradicts_keeps_both_functions() {
    let bytes = sample();
    let table = symbol(bytes, "third");
    let (at, place, ..) = [&b".rela.rodata"[..], b".rela.data"]
        .into_iter()
        .flat_map(|table| entries(bytes, table))
        .find(|&(_, place, kind, _)| kind == 1 && word(bytes, offset(bytes, place)) == table.0)
        .unwrap();
    let mut damaged = bytes.to_vec();
    damaged[at + 16] ^= 0x10;
    let analysed = analyse(&damaged);
    assert_eq!(analysed.kept.unwrap().disagreeing, 1);
    assert!(analysed.pins.contains_key("third"), "{place}");
    let moved = permute(&damaged, 4).unwrap().bytes;
    assert_eq!(differences(&damaged, &moved), 0);
}

#[test]
fn an_entry_beside_its_operand_makes_the_function_untrusted() {
    let bytes = sample();
    let (at, place, ..) =
        entries(bytes, b".rela.text").into_iter().find(|&(_, _, kind, _)| matches!(kind, 10 | 11)).unwrap();
    let mut damaged = bytes.to_vec();
    damaged[at..at + 8].copy_from_slice(&place.plus(1).0.to_le_bytes());
    let analysed = analyse(&damaged);
    let owner =
        analysed.functions.iter().filter(|(_, start)| **start <= place).max_by_key(|(_, start)| **start);
    assert_eq!(analysed.pins.get(owner.unwrap().0), Some(&PinReason::RelocationWithoutField));
}

#[test]
fn tables_that_contradict_the_image_are_ignored() {
    let bytes = sample();
    let mut damaged = bytes.to_vec();
    for (at, _, kind, _) in entries(bytes, b".rela.rodata") {
        if kind == 1 {
            damaged[at + 16] ^= 0x10;
        }
    }
    let analysed = analyse(&damaged);
    assert!(analysed.kept.unwrap().is_ignored);
    for name in ["first", "second", "third", "jump"] {
        assert_eq!(analysed.pins.get(name), Some(&PinReason::AbsoluteAddress), "{name}");
    }
}

// case: several symbols for one section, named by chance
#[test]
fn the_symbol_of_a_section_counts_by_the_sections_header_too() {
    let bytes = sample();
    let file = ElfFile::parse(bytes).unwrap();
    let text = file.section(b".text").unwrap();
    let functions = ElfFunctions::collect(&file).unwrap();
    let field = functions
        .symbols
        .iter()
        .find(|symbol| symbol.is_section() && symbol.defining_section() == Some(text.index))
        .unwrap()
        .value_field;
    let mut wrong = bytes.to_vec();
    wrong[field.0 as usize..field.0 as usize + 8].copy_from_slice(&text.address.plus(0x40).0.to_le_bytes());
    let analysed = analyse(&wrong);
    assert_eq!(analysed.kept.unwrap().disagreeing, 0);
    assert!(analysed.pins.is_empty(), "{:?}", analysed.pins);
    let scratch = Scratch::new();
    let expected = run(&scratch.write("original", &wrong));
    let moved = permute(&wrong, 5).unwrap().bytes;
    assert_eq!(run(&scratch.write("moved", &moved)), expected);
    assert_eq!(analyse(&moved).kept.unwrap().disagreeing, 0, "the new addends count from the header, too");
}

// case: kept relocations in compact form
#[test]
fn compact_tables_serve_as_evidence_and_are_emptied() {
    let scratch = Scratch::new();
    let compact = ["-Wa,--crel,--allow-experimental-crel"];
    let options = [&FIXED[..], &compact].concat();
    let Built { path, bytes } = scratch.build(&llvm("clang"), "lld", PROGRAM, &options);
    let file = ElfFile::parse(&bytes).unwrap();
    let section = *file.section(b".crel.text").unwrap();
    let analysed = analyse(&bytes);
    assert!(analysed.pins.is_empty(), "{:?}", analysed.pins);
    assert!(analysed.kept.unwrap().evaluated > 20);
    let applied = permute(&bytes, 6).unwrap();
    assert!(
        applied
            .summary
            .warnings
            .contains(&Warning::CompactRelocationsEmptied { section: ".crel.text".to_owned() })
    );
    assert_eq!(run(&scratch.write("moved", &applied.bytes)), run(&path));
    let start = section.offset.0 as usize;
    assert!(applied.bytes[start..start + section.size as usize].iter().all(|&byte| byte == 0));
    // Entries for the old addresses would be wrong.
    let mut stale = applied.bytes.clone();
    stale[start..start + section.size as usize].copy_from_slice(file.section_bytes(&section));
    assert!(differences(&bytes, &stale) > 0);
}

/// The verifier alone detects every stored code address that was set back to its old value, and every constant that was
/// changed.
#[test]
fn the_verifier_notices_each_address_that_did_not_follow() {
    let old = sample();
    let new = permute(old, 7).unwrap().bytes;
    assert_eq!(differences(old, &new), 0);
    let mut tried = 0;
    for (table, widths) in [(&b".rela.text"[..], &[(10, 4), (11, 4)][..]), (b".rela.rodata", &[(1, 8)])] {
        let pairs = entries(old, table).into_iter().zip(entries(&new, table));
        for ((_, old_place, kind, _), (_, new_place, ..)) in pairs {
            let Some(&(_, width)) = widths.iter().find(|(wanted, _)| *wanted == kind) else { continue };
            let (from, to) = (offset(old, old_place), offset(&new, new_place));
            if old[from..from + width] == new[to..to + width] {
                continue;
            }
            let mut stale = new.clone();
            stale[to..to + width].copy_from_slice(&old[from..from + width]);
            assert!(differences(old, &stale) > 0, "{old_place}");
            let mut other = new.clone();
            other[to] ^= 1;
            assert!(differences(old, &other) > 0, "{old_place}");
            tried += 1;
        }
    }
    assert!(tried >= 6, "{tried}");
    let mut changed = new.clone();
    changed[offset(&new, symbol(&new, "numbers"))] ^= 1;
    assert!(differences(old, &changed) > 0);
}

// case: static at a fixed address with kept relocations; slots that have no entry
#[test]
fn the_verifier_notices_a_slot_that_did_not_follow() {
    let scratch = Scratch::new();
    let old = scratch.build("gcc", "bfd", PROGRAM, &[&FIXED[..], &["-static"]].concat()).bytes;
    let new = permute(&old, 8).unwrap().bytes;
    let file = ElfFile::parse(&old).unwrap();
    let bystander = symbol(&old, "bystander");
    let slots = file.section(b".got").unwrap();
    let start = slots.offset.0 as usize;
    let at =
        (start..start + slots.size as usize).step_by(8).find(|&at| word(&old, at) == bystander.0).unwrap();
    assert_eq!(word(&new, at), symbol(&new, "bystander").0);
    assert_ne!(word(&new, at), bystander.0);
    let mut stale = new.clone();
    stale[at..at + 8].copy_from_slice(&bystander.0.to_le_bytes());
    assert!(differences(&old, &stale) > 0);
}
