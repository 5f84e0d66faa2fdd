//! Relocations that the linker kept, compared with our analysis of images from real compilers and linkers: both agree on
//! sound images, before and after functions moved, and a damaged entry is detected.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so where it stands")]

mod subject;
mod toolchain;

use reorder_base::address::Address;
use reorder_base::tool_versions::llvm;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::pins::PinReason;
use subject::{analyse, permute};
use toolchain::{LINKERS, Scratch, emulate, run};

const PROGRAM: &str = include_str!("program.c");

const R_X86_64_32: u64 = 10;

/// Entries of a relocation section: (file offset, place, type).
fn entries(bytes: &[u8], name: &[u8]) -> Vec<(usize, Address, u64)> {
    let file = ElfFile::parse(bytes).unwrap();
    let section = file.section(name).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (section.offset.0 as usize..(section.offset.0 + section.size) as usize)
        .step_by(24)
        .map(|at| (at, Address(word(at)), word(at + 8) & 0xffff_ffff))
        .collect()
}

fn function_at(bytes: &[u8], address: Address) -> Option<String> {
    let file = ElfFile::parse(bytes).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap().table;
    Some(functions.display_name(functions.containing(address)?))
}

/// An image as one toolchain makes it, to be damaged.
fn sample() -> Vec<u8> {
    Scratch::new().build("gcc", "bfd", PROGRAM, &["-O2", "-fPIE", "-pie", "-ffunction-sections"]).bytes
}

#[test]
fn permuted_images_agree_with_their_relocations_and_run() {
    let scratch = Scratch::new();
    for compiler in ["gcc", &llvm("clang")] {
        for linker in LINKERS {
            for options in [
                &["-O2", "-fPIE", "-pie"][..],
                &["-O2", "-fPIE", "-pie", "-ffunction-sections"],
                &["-O0", "-fPIE", "-pie", "-ffunction-sections"],
                &["-O2", "-fPIC", "-static-pie", "-ffunction-sections"],
            ] {
                // gold cannot link static position-independent programs.
                if linker == "gold" && options.contains(&"-static-pie") {
                    continue;
                }
                let case = format!("{compiler} {linker} {options:?}");
                let original = scratch.build(compiler, linker, PROGRAM, options);
                let before = analyse(&original.bytes);
                let kept = before.kept.expect(&case);
                assert_eq!((kept.disagreeing, kept.is_ignored), (0, false), "{case}: {kept:?}");
                assert!(kept.evaluated >= 20, "{case}: {kept:?}");
                for name in ["relative_one", "relative_two", "relative_three"] {
                    let reason = before.pins.get(name);
                    assert_eq!(reason, Some(&PinReason::RelativePointer), "{case}: {name}");
                }
                let expected = run(&original.path);
                let mut bytes = original.bytes;
                for seed in [1, 2] {
                    bytes = permute(&bytes, seed).expect(&case).bytes;
                    let again = analyse(&bytes).kept.expect(&case);
                    assert_eq!(again, kept, "{case} after permutation {seed}");
                    assert_eq!(run(&scratch.write("moved", &bytes)), expected, "{case} after {seed}");
                }
            }
        }
    }
}

#[test]
fn shared_objects_agree_although_calls_go_through_stubs() {
    let scratch = Scratch::new();
    for linker in LINKERS {
        let library = scratch.build("gcc", linker, PROGRAM, &["-O2", "-fPIC", "-shared"]);
        let kept = analyse(&library.bytes).kept.unwrap();
        assert_eq!((kept.disagreeing, kept.is_ignored), (0, false), "{linker}: {kept:?}");
        let moved = permute(&library.bytes, 3).expect(linker);
        assert_eq!(analyse(&moved.bytes).kept.unwrap(), kept, "{linker}");
    }
}

#[test]
fn an_image_without_kept_relocations_has_no_comparison() {
    let mut bytes = sample();
    let file = ElfFile::parse(&bytes).unwrap();
    let headers: Vec<usize> = file
        .sections
        .iter()
        .filter(|section| section.name.starts_with(b".rela.") && !section.is_loaded())
        .map(|section| section.header_offset.0 as usize)
        .collect();
    for header in headers {
        bytes[header + 4] = 1; // SHT_PROGBITS: bytes without a meaning
    }
    assert!(analyse(&bytes).kept.is_none());
}

#[test]
fn a_damaged_addend_keeps_both_functions_where_they_are() {
    let bytes = sample();
    let healthy = analyse(&bytes).pins;
    let mut noticed = 0;
    for (at, place, kind) in entries(&bytes, b".rela.text") {
        if !matches!(kind, 2 | 4) || function_at(&bytes, place).as_deref() != Some("pick") {
            continue;
        }
        let mut damaged = bytes.clone();
        damaged[at + 16] ^= 0x40;
        let analysed = analyse(&damaged);
        let kept = analysed.kept.unwrap();
        assert!(!kept.is_ignored);
        if kept.disagreeing > 0 {
            assert!(!healthy.contains_key("pick"));
            assert_eq!(analysed.pins.get("pick"), Some(&PinReason::RelocationDisagrees));
            noticed += 1;
        }
    }
    // Calls of `triple` and `fivefold`; wrong entries for imported functions and for data do no harm.
    assert!(noticed >= 3, "{noticed}");
}

#[test]
fn a_relocation_inside_an_instruction_pins_the_function() {
    let bytes = sample();
    let (at, place, _) = entries(&bytes, b".rela.text")
        .into_iter()
        .find(|(_, place, kind)| *kind == 4 && function_at(&bytes, *place).as_deref() == Some("pick"))
        .unwrap();
    let mut damaged = bytes.clone();
    damaged[at..at + 8].copy_from_slice(&place.plus(1).0.to_le_bytes());
    let analysed = analyse(&damaged);
    assert_eq!(analysed.pins.get("pick"), Some(&PinReason::RelocationWithoutField));
    assert_eq!(analysed.kept.unwrap().disagreeing, 1);
}

#[test]
fn absolute_relocations_in_relative_code_pin_it() {
    let bytes = sample();
    let mut found = 0;
    for (at, place, kind) in entries(&bytes, b".rela.text") {
        if kind != 4 || function_at(&bytes, place).as_deref() != Some("pick") {
            continue;
        }
        let mut damaged = bytes.clone();
        damaged[at + 8..at + 12].copy_from_slice(&(R_X86_64_32 as u32).to_le_bytes());
        let analysed = analyse(&damaged);
        // An imported function has no address here.
        found += u64::from(analysed.pins.get("pick") == Some(&PinReason::RelocationDisagrees));
    }
    assert!(found >= 2, "{found}");
}

#[test]
fn both_targets_of_a_damaged_word_stay() {
    let bytes = sample();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (_, place, _) = *entries(&bytes, b".rela.rodata")
        .iter()
        .find(|(_, _, kind)| *kind == 24)
        .expect("the eight-byte word");
    let file = ElfFile::parse(&bytes).unwrap();
    let at = file.offset_of(place, 8).unwrap().0 as usize;
    let functions = ElfFunctions::collect(&file).unwrap().table;
    let (_, other) = functions
        .iter()
        .find(|(index, _)| functions.display_name(*index) == "bystander")
        .expect("a function that can move");
    assert!(!analyse(&bytes).pins.contains_key("bystander"));
    let mut damaged = bytes.clone();
    assert_ne!(word(at), other.start.distance_from(place));
    damaged[at..at + 8].copy_from_slice(&other.start.distance_from(place).to_le_bytes());
    let analysed = analyse(&damaged);
    assert_eq!(analysed.kept.unwrap().disagreeing, 1);
    assert_eq!(analysed.pins.get("bystander"), Some(&PinReason::RelativePointer));
    assert_eq!(analysed.pins.get("relative_two"), Some(&PinReason::RelativePointer));
}

#[test]
fn tables_that_contradict_the_code_throughout_are_ignored() {
    let bytes = sample();
    let healthy = analyse(&bytes);
    let mut damaged = bytes.clone();
    for (at, _, kind) in entries(&bytes, b".rela.text") {
        if matches!(kind, 2 | 4) {
            damaged[at + 16] ^= 0x40;
        }
    }
    let analysed = analyse(&damaged);
    let kept = analysed.kept.unwrap();
    assert!(kept.is_ignored && kept.disagreeing > 2, "{kept:?}");
    assert_eq!(analysed.pins.get("pick"), healthy.pins.get("pick"));
}

#[test]
fn indices_and_places_out_of_range_are_ignored() {
    let bytes = sample();
    let (at, _, _) = entries(&bytes, b".rela.text")[0];
    for field in [at, at + 12] {
        let mut damaged = bytes.clone();
        damaged[field..field + 4].fill(0xff);
        assert!(analyse(&damaged).kept.unwrap().is_ignored);
    }
}

// case: entries that gold misplaces: ignored
/// gold 1.16 puts some entries on the wrong instruction and loses others: no entry of a table with such an entry is used.
#[test]
fn misplaced_entries_of_gold_for_aarch64_are_ignored() {
    let scratch = Scratch::new();
    for options in [
        &["-O2", "-fPIE", "-pie"][..],
        &["-O2", "-fno-pie", "-no-pie"],
        &["-O2", "-fno-pie", "-no-pie", "-static"],
    ] {
        let case = format!("{options:?}");
        let original = scratch.build("aarch64-linux-gnu-gcc", "gold", PROGRAM, options);
        let kept = analyse(&original.bytes).kept.expect(&case);
        assert!(kept.is_ignored && kept.disagreeing > 0, "{case}: {kept:?}");
        let expected = emulate(&original.path);
        let mut bytes = original.bytes;
        for seed in [1, 2, 3] {
            let applied = permute(&bytes, seed).expect(&case);
            assert!(applied.summary.functions_moved > 0, "{case}");
            bytes = applied.bytes;
            assert_eq!(emulate(&scratch.write("moved", &bytes)), expected, "{case} after {seed}");
        }
    }
}
