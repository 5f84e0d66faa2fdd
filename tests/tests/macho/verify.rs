//! `verify` of Mach-O images compared with an oracle: the same objects linked again in another order are the first image
//! with its functions moved, so they must be proven, and the same with any damage must not be.
//!
//! Two things differ between links but not between relocated images: the name of the output is the identifier of the
//! signature, so both have the same; x86-64 functions are padded to 16 bytes except the last, so the last stays the last.

use std::ops::Range;

use end_to_end::macho_pairs::{
    LIMIT, Pair, found_by_content, options, part, report, rows, section, section_header,
};
use end_to_end::process::shell;
use rayon::prelude::*;
use reorder_verify::{Check, recover_moves, verify, verify_moves};

#[test]
fn another_order_of_the_same_objects_is_proven() {
    for (name, pair) in Pair::all() {
        let report = report(&pair.old, &pair.new);
        assert!(report.is_proven(), "{name}: {:#?}", report.differences);
        assert!(report.moved >= 12, "{name}: {} of {}", report.moved, report.functions);
        for check in [
            Check::Functions,
            Check::LoaderPointers,
            Check::UnwindEntries,
            Check::Symbols,
            Check::Exports,
            Check::FunctionStarts,
            Check::DataInCode,
            Check::Signature,
            Check::Unchanged,
        ] {
            let count: u64 =
                report.checks.iter().filter(|found| found.check == check).map(|found| found.count).sum();
            assert!(count > 0, "{name}: nothing was looked at by {check:?}");
        }
    }
}

#[test]
fn the_way_back_is_proven_too() {
    for (name, pair) in Pair::all() {
        let report = report(&pair.new, &pair.old);
        assert!(report.is_proven(), "{name}: {:#?}", report.differences);
    }
}

#[test]
fn every_image_is_itself() {
    for (name, pair) in Pair::all() {
        for image in [&pair.old, &pair.new] {
            let report = report(image, image);
            assert!(report.is_proven() && report.moved == 0, "{name}: {:#?}", report.differences);
        }
    }
}

#[test]
fn a_claimed_map_is_checked() {
    let pair = Pair::new("arm64", 13);
    let moves = recover_moves(&pair.old, &pair.new).unwrap();
    let mut claim = moves.as_slice().to_vec();
    assert!(verify_moves(&pair.old, &pair.new, &claim, options()).unwrap().is_proven());
    let moved: Vec<usize> = (0..claim.len()).filter(|&index| claim[index].is_moved()).collect();
    let swapped = (claim[moved[0]].new_start, claim[moved[1]].new_start);
    (claim[moved[1]].new_start, claim[moved[0]].new_start) = swapped;
    assert!(!verify_moves(&pair.old, &pair.new, &claim, options()).unwrap().is_proven());
}

/// Positions in `range` whose change is not detected by the contents.
fn unnoticed(pair: &Pair, range: Range<usize>) -> Vec<usize> {
    range
        .into_par_iter()
        .filter(|&at| {
            let mut damaged = pair.new.clone();
            // Every bit is tested somewhere.
            damaged[at] ^= 1 << (at * 5 % 8);
            found_by_content(&pair.old, &damaged).is_empty()
        })
        .collect()
}

#[test]
fn any_change_of_a_byte_of_code_or_data_is_found() {
    for (name, pair) in Pair::all() {
        let mut sections = vec!["__text", "__stubs", "__cstring", "__eh_frame", "__gcc_except_tab", "__data"];
        sections.push(if name.ends_with("12") { "__mod_init_func" } else { "__init_offsets" });
        for title in sections {
            let range = section(&pair.new, title);
            assert!(!range.is_empty(), "{name}: {title}");
            let missed = unnoticed(&pair, range.clone());
            assert!(missed.is_empty(), "{name}: {title} at {range:x?}: {missed:x?}");
        }
    }
}

#[test]
fn any_change_of_the_load_commands_is_found() {
    for (name, pair) in Pair::all() {
        let commands = u32::from_le_bytes(pair.new[20..24].try_into().unwrap()) as usize;
        let mut missed = unnoticed(&pair, 0..32 + commands);
        // The room for unwind rows may end with unused bytes.
        let header = section_header(&pair.new, "__unwind_info");
        missed.retain(|at| !(header + 40..header + 48).contains(at));
        assert!(missed.is_empty(), "{name}: {missed:x?}");
    }
}

#[test]
fn any_change_of_a_table_of_addresses_is_found() {
    for (name, pair) in Pair::all() {
        let exports = if name.ends_with("12") { (0x8000_0022, 40) } else { (0x8000_0033, 8) };
        for (title, kind, field) in [
            ("symbols", 2, 8),
            ("strings", 2, 16),
            ("function starts", 0x26, 8),
            ("data in code", 0x29, 8),
            ("exports", exports.0, exports.1),
        ] {
            let range = part(&pair.new, kind, field);
            let mut missed = unnoticed(&pair, range.clone());
            // Padding before the next table belongs to no node of the trie.
            let is_padding = |at: usize| {
                title == "exports"
                    && range.end - at < 8
                    && pair.new[at..range.end].iter().all(|&byte| byte == 0)
            };
            missed.retain(|&at| !is_padding(at));
            assert!(missed.is_empty(), "{name}: {title} at {range:x?}: {missed:x?}");
        }
        let rows = rows(&pair.new);
        let missed = unnoticed(&pair, rows.clone());
        assert!(missed.is_empty(), "{name}: rows at {rows:x?}: {missed:x?}");
    }
}

#[test]
fn restored_pairs_of_shortened_addresses_are_proven() {
    let pair = Pair::new("arm64", 12);
    let path = &pair.path;
    // `near` is within reach of `subject` in one order and not in the other.
    let source = "\
        .text\n.globl _main\n.p2align 2\n_main:\n ret\n\
        .globl _subject\n.p2align 2\n_subject:\nLa:\n adrp x0, _near@PAGE\nLb:\n add x0, x0, _near@PAGEOFF\n\
        Lc:\n adrp x1, _value@PAGE\nLd:\n ldr x1, [x1, _value@PAGEOFF]\n ret\n\
        .loh AdrpAdd La, Lb\n.loh AdrpLdr Lc, Ld\n\
        .globl _filler\n.p2align 2\n_filler:\n .space 1200000, 0x1f\n ret\n\
        .globl _near\n.p2align 2\n_near:\n ret\n\
        .globl _last\n.p2align 2\n_last:\n ret\n\
        .section __TEXT,__const\n.globl _value\n.p2align 3\n_value:\n .quad 7\n\
        .subsections_via_symbols\n";
    std::fs::write(path.join("far.s"), source).unwrap();
    std::fs::write(path.join("near_order"), "_main\n_filler\n_subject\n_near\n_last\n").unwrap();
    std::fs::write(path.join("far_order"), "_main\n_subject\n_filler\n_near\n_last\n").unwrap();
    let link = "ld64.lld$LLVM -arch arm64 -platform_version macos 12.0 12.0 -undefined dynamic_lookup -no_uuid far.o";
    let line = format!(
        "cd '{}' && clang$LLVM --target=arm64-apple-macos12 -c far.s -o far.o && \
         {link} -o a/far -order_file near_order && {link} -o b/far -order_file far_order",
        path.display()
    );
    shell(&line, LIMIT).unwrap();
    let (near, far) =
        (std::fs::read(path.join("a/far")).unwrap(), std::fs::read(path.join("b/far")).unwrap());
    let nop = 0xd503_201fu32.to_le_bytes();
    let count = |image: &[u8]| image.chunks_exact(4).filter(|word| **word == nop).count();
    assert_eq!((count(&near), count(&far)), (2, 0), "the linker shortens what is near");
    let proof = report(&near, &far);
    assert!(proof.is_proven(), "{:#?}", proof.differences);
    assert!(!report(&far, &near).is_proven(), "nothing shortens addresses but the linker");
    let mut pair = pair;
    (pair.old, pair.new) = (near, far);
    let start = section(&pair.new, "__text").start;
    let missed = unnoticed(&pair, start..start + 24);
    assert!(missed.is_empty(), "{missed:x?}");
}

#[test]
fn universal_files_are_checked_image_by_image() {
    let (arm, intel) = (Pair::new("arm64", 13), Pair::new("x86_64", 13));
    let universal = |images: [(&[u8], u32, u32); 2]| {
        let mut file = [0xcafe_babeu32, 2].map(u32::to_be_bytes).concat();
        let mut at = 0x4000u32;
        for (image, processor, variant) in images {
            let fields = [processor, variant, at, image.len() as u32, 14];
            file.extend(fields.map(u32::to_be_bytes).concat());
            at = (at + image.len() as u32).next_multiple_of(0x4000);
        }
        for (image, _, _) in images {
            file.resize(file.len().next_multiple_of(0x4000), 0);
            file.extend(image);
        }
        file
    };
    let both = |intel: &[u8], arm: &[u8]| universal([(intel, 0x0100_0007, 3), (arm, 0x0100_000c, 0)]);
    let old = both(&intel.old, &arm.old);
    for new in
        [both(&intel.new, &arm.new), both(&intel.old, &arm.new), both(&intel.new, &arm.old), old.clone()]
    {
        let report = report(&old, &new);
        assert!(report.is_proven(), "{:#?}", report.differences);
    }
    let turned = universal([(&arm.new, 0x0100_000c, 0), (&intel.new, 0x0100_0007, 3)]);
    assert!(!report(&old, &turned).is_proven());
    assert!(!report(&old, &arm.new).is_proven() && !report(&arm.old, &old).is_proven());
    let mut damaged = both(&intel.new, &arm.new);
    let last = damaged.len() - arm.new.len() + section(&arm.new, "__text").start;
    damaged[last] ^= 1;
    let report = report(&old, &damaged);
    assert!(report.differences.iter().any(|difference| difference.place.starts_with("arm64: ")));
}

#[test]
fn cut_files_are_errors_or_findings() {
    let pair = Pair::new("arm64", 13);
    for length in (0..pair.new.len()).step_by(97) {
        assert!(!report(&pair.old, &pair.new[..length]).is_proven(), "{length}");
        let _ = verify(&pair.new[..length], &pair.old, options());
    }
}
