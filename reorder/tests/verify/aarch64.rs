//! AArch64 pairs that a linker made: proven unchanged, reported when one kind of reference was not updated.

use crate::layout::{section, sections};
use crate::mutation::{
    assert_damages_are_seen, assert_flips_are_noticed, assert_kept_relocations_are_checked,
};
use crate::proof::{assert_proven, count, report};
use crate::relinked::{Relinked, Toolchain};
use reorder_verify::Check;

const TOOLCHAINS: [Toolchain; 2] = [Toolchain::Aarch64, Toolchain::LlvmAarch64];

#[test]
fn an_installed_library_is_itself() {
    for library in ["libc.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-aarch64.so.1"] {
        let path = format!("/usr/aarch64-linux-gnu/lib/{library}");
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let report = assert_proven(&bytes, &bytes);
        assert_eq!(report.moved, 0, "{library}");
        assert!(count(&report, Check::Functions) > 10_000, "{library}: {:?}", report.checks);
    }
}

#[test]
fn two_links_of_one_program_are_proven_in_both_directions() {
    for toolchain in TOOLCHAINS {
        for options in [
            &[][..],
            &["-O0"],
            &["-Os"],
            &["-mbranch-protection=standard"],
            &["-s"],
            &["-shared", "-Wl,-Bsymbolic"],
            &["-static-pie"],
            &["-Wl,-z,pack-relative-relocs"],
        ] {
            let pair = Relinked::build_by(toolchain, options, "");
            let report = assert_proven(&pair.old, &pair.new);
            assert!(report.moved >= 5, "{toolchain:?} {options:?}: only {} moved", report.moved);
            assert_proven(&pair.new, &pair.old);
        }
    }
}

#[test]
fn every_kind_of_reference_is_counted() {
    for toolchain in TOOLCHAINS {
        let pair = Relinked::build_by(toolchain, &[], "");
        let report = assert_proven(&pair.old, &pair.new);
        for check in [
            Check::Functions,
            Check::Reverse,
            Check::UnwindEntries,
            Check::UnwindSearchTable,
            Check::LoaderPointers,
            Check::Symbols,
            Check::Gaps,
            Check::Padding,
            Check::Notes,
            Check::Unchanged,
        ] {
            assert!(count(&report, check) > 0, "{check:?} looked at nothing: {:?}", report.checks);
        }
    }
}

#[test]
fn each_kind_of_damage_is_seen_by_the_check_for_it() {
    assert_damages_are_seen(&Relinked::build_by(Toolchain::Aarch64, &[], ""), 0);
}

#[test]
fn no_flipped_bit_goes_unnoticed() {
    let options = ["-Wl,-z,max-page-size=4096", "-Wl,-z,common-page-size=4096", "-Wl,-z,noseparate-code"];
    assert_flips_are_noticed(&Relinked::build_by(Toolchain::Aarch64, &options, ""));
}

/// A table of distances from its own start, as in hand-written assembly.
const TABLE: &str = r#"
__asm__(".section .text.prepare,\"ax\",@progbits\n .balign 16\n .type jumper,@function\njumper: .cfi_startproc\n"
        " adrp x1, distances\n add x1, x1, :lo12:distances\n ldrsw x2, [x1, w0, uxtw #2]\n add x1, x1, x2\n br x1\n"
        "7: mov w0, 1\n ret\n8: mov w0, 2\n ret\n .cfi_endproc\n .size jumper,.-jumper\n"
        " .section .rodata.distances,\"a\",@progbits\n .balign 4\ndistances: .word 7b-distances, 8b-distances, 7b-distances\n"
        " .text");
"#;

#[test]
fn a_stale_table_word_is_reported() {
    let pair = Relinked::build_by(Toolchain::Aarch64, &[], TABLE);
    assert_proven(&pair.new, &pair.old);
    let proven = assert_proven(&pair.old, &pair.new);
    assert!(count(&proven, Check::JumpTables) >= 3, "{:?}", proven.checks);
    let sections = sections(&pair.new);
    let constants = section(&sections, ".rodata");
    let range = constants.offset..constants.offset + constants.size;
    let words: Vec<usize> =
        range.step_by(4).filter(|&at| pair.old[at..at + 4] != pair.new[at..at + 4]).collect();
    assert_eq!(words.len(), 3, "the table has three words");
    for at in words {
        let mut new = pair.new.clone();
        new[at..at + 4].copy_from_slice(&pair.old[at..at + 4]);
        let report = report(&pair.old, &new);
        assert!(report.differences.iter().any(|found| found.check == Check::JumpTables), "{report:#?}");
    }
}

/// A table of distances to functions. Code stores the sums; what calls them is elsewhere.
const STORED_SUMS: &str = r#"
extern const int numbers[2];
static void *volatile sum;
KEEP void choose(int at) { sum = (char *)numbers + numbers[at]; }
__asm__(".section .rodata.numbers,\"a\",@progbits\n .balign 4\n .globl numbers\n .hidden numbers\n"
        "numbers: .word triple-numbers, fivefold-numbers\n .text");
"#;

#[test]
fn distances_whose_functions_moved_are_reported() {
    for toolchain in TOOLCHAINS {
        let pair = Relinked::build_by(toolchain, &["-fvisibility=hidden"], STORED_SUMS);
        // The linker updates them. A program that computes with them in other ways would not bear that.
        let updated = report(&pair.old, &pair.new);
        assert!(updated.differences.iter().any(|found| found.check == Check::Unchanged), "{updated:#?}");
        let sections = sections(&pair.new);
        let constants = section(&sections, ".rodata");
        let range = constants.offset..constants.offset + constants.size;
        let mut new = pair.new.clone();
        new[range.clone()].copy_from_slice(&pair.old[range]);
        let stale = report(&pair.old, &new);
        assert!(stale.differences.iter().any(|found| found.check == Check::JumpTables), "{stale:#?}");
    }
}

#[test]
fn kept_relocations_describe_the_new_image_or_are_reported() {
    assert_kept_relocations_are_checked(
        Relinked::build_by(Toolchain::Aarch64, &["-Wl,--emit-relocs"], ""),
        &[(".rela.text", 0), (".rela.text", 16), (".rela.data.rel.ro", 0), (".rela.data.rel.ro", 16)],
        4,
    );
}

#[test]
fn code_that_control_runs_into_must_follow_it() {
    let split = r#"
__asm__(".section .text.fivefold,\"ax\",@progbits\n .subsection 1\n .globl runner\n .type runner,@function\nrunner:\n"
        " .cfi_startproc\n add w0, w0, 1\n .cfi_endproc\n .size runner,.-runner\n .text");
"#;
    let pair = Relinked::build_by(Toolchain::Aarch64, &[], split);
    let report = report(&pair.old, &pair.new);
    let is_seen = report.differences.iter().any(|found| found.place.contains("the end of"));
    assert!(is_seen, "{:#?}", report.differences);
}

#[test]
fn code_outside_of_functions_may_follow_what_moved_and_must() {
    let stub = r#"__asm__(".section .text.last,\"ax\",@progbits\nstub:\n bl triple\n ret\n .text");"#;
    let pair = Relinked::build_by(Toolchain::Aarch64, &[], stub);
    assert_proven(&pair.old, &pair.new);
    let sections = sections(&pair.new);
    let text = section(&sections, ".text");
    let place = (text.offset..text.offset + text.size)
        .step_by(4)
        .rfind(|&at| pair.new[at + 3] & 0xfc == 0x94 && pair.new[at + 4..at + 8] == [0xc0, 3, 0x5f, 0xd6])
        .expect("the stub calls");
    let mut new = pair.new.clone();
    new[place..place + 4].copy_from_slice(&pair.old[place..place + 4]);
    let report = report(&pair.old, &new);
    let is_seen = report.differences.iter().any(|found| found.check == Check::Gaps);
    assert!(is_seen, "{:#?}", report.differences);
}

#[test]
fn a_page_in_a_register_reaches_every_case_of_a_table() {
    let cases: String = (0..3).map(|_| " add x9, x9, :lo12:triple\\n b 9f\\n").collect();
    let switch = format!(
        r#"
__asm__(".section .text.fivefold,\"ax\",@progbits\n .balign 16\n .globl switch\n .type switch,@function\nswitch:\n"
        " .cfi_startproc\n adrp x9, triple\n cmp w0, #2\n adrp x3, cases\n b.hi 8f\n add x3, x3, :lo12:cases\n"
        " ldrb w4, [x3, w0, uxtw]\n adr x5, 7f\n add x4, x5, w4, sxtb #2\n br x4\n7:{cases}8: mov x9, x3\n"
        "9: mov x0, x9\n ret\n .cfi_endproc\n .size switch, . - switch\n"
        " .section .rodata\ncases: .byte 0, 2, 4\n .balign 8\n .text");
"#
    );
    for toolchain in TOOLCHAINS {
        let pair = Relinked::build_by(toolchain, &[], &switch);
        assert_proven(&pair.old, &pair.new);
        let sections = sections(&pair.new);
        let text = section(&sections, ".text");
        let word = |image: &[u8], at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        let lows = |image: &[u8]| -> Vec<usize> {
            let places = (text.offset..text.offset + text.size).step_by(4);
            places.filter(|&at| word(image, at) & 0xffc0_03ff == 0x9100_0129).collect()
        };
        let (before, after) = (lows(&pair.old), lows(&pair.new));
        assert_eq!((before.len(), after.len()), (3, 3), "{toolchain:?}");
        for (from, to) in before.into_iter().zip(after) {
            let mut new = pair.new.clone();
            new[to..to + 4].copy_from_slice(&pair.old[from..from + 4]);
            assert_ne!(new, pair.new, "the low bits are others");
            let report = report(&pair.old, &new);
            let is_seen = report.differences.iter().any(|found| found.check == Check::Functions);
            assert!(is_seen, "{toolchain:?} {to:#x}: {:#?}", report.differences);
        }
    }
}
