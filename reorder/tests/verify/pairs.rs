//! Pairs that a linker made: proven unchanged, reported when one kind of reference was not updated.

use crate::layout::{add, header_field, section, sections};
use crate::mutation::assert_kept_relocations_are_checked;
use crate::proof::{assert_proven, count, report};
use crate::relinked::Relinked;
use reorder_verify::Check;
use reorder_verify::remark::Remark;

#[test]
fn an_installed_program_is_itself() {
    for program in ["/bin/bash", "/usr/bin/perl", "/lib/x86_64-linux-gnu/libc.so.6"] {
        let bytes = std::fs::read(program).expect("it is part of the base system");
        let report = assert_proven(&bytes, &bytes);
        assert_eq!(report.moved, 0, "{program}");
        assert!(count(&report, Check::Functions) > 10_000, "{program}: {:?}", report.checks);
    }
}

#[test]
fn two_links_of_one_program_are_proven_in_both_directions() {
    for options in [
        &[][..],
        &["-O0"],
        &["-Os"],
        &["-fcf-protection=none"],
        &["-s"],
        &["-shared", "-Wl,-Bsymbolic"],
        &["-static-pie"],
        &["-Wl,-z,pack-relative-relocs"],
    ] {
        let pair = Relinked::build(options);
        let report = assert_proven(&pair.old, &pair.new);
        assert!(report.moved >= 5, "{options:?}: only {} moved", report.moved);
        assert_proven(&pair.new, &pair.old);
    }
}

#[test]
fn every_kind_of_reference_is_counted() {
    let pair = Relinked::build(&["-O2"]);
    let report = assert_proven(&pair.old, &pair.new);
    for check in [
        Check::Functions,
        Check::Reverse,
        Check::UnwindEntries,
        Check::UnwindSearchTable,
        Check::LoaderPointers,
        Check::Symbols,
        Check::JumpTables,
        Check::Gaps,
        Check::Padding,
        Check::Notes,
        Check::Unchanged,
    ] {
        assert!(count(&report, check) > 0, "{check:?} looked at nothing: {:?}", report.checks);
    }
}

#[test]
fn kept_relocations_describe_the_new_image_or_are_reported() {
    assert_kept_relocations_are_checked(
        Relinked::build(&["-Wl,--emit-relocs"]),
        &[(".rela.text", 0), (".rela.text", 16), (".rela.rodata", 16), (".rela.data.rel.ro", 16)],
        1,
    );
}

#[test]
fn a_stale_table_word_is_reported() {
    let pair = Relinked::build(&[]);
    let sections = sections(&pair.new);
    let constants = section(&sections, ".rodata");
    let range = constants.offset..constants.offset + constants.size;
    let words: Vec<usize> =
        range.step_by(4).filter(|&at| pair.old[at..at + 4] != pair.new[at..at + 4]).collect();
    assert!(words.len() >= 7, "the switch has seven cases, {} words changed", words.len());
    for at in words {
        let mut new = pair.new.clone();
        new[at..at + 4].copy_from_slice(&pair.old[at..at + 4]);
        let report = report(&pair.old, &new);
        // A changed table does not explain its other words either.
        let first = report.differences.first().unwrap();
        assert_eq!(first.check, Check::JumpTables, "{:#?}", report.differences);
        assert_eq!(first.offset.map(|offset| offset.0), Some(at as u64), "{:#?}", report.differences);
        let explained = [Check::JumpTables, Check::Unchanged];
        assert!(report.differences.iter().all(|found| explained.contains(&found.check)), "{report:#?}");
    }
}

#[test]
fn dropped_debug_data_is_accepted_only_when_it_is_gone() {
    let old = Relinked::build(&["-g"]).old;
    let mut new = old.clone();
    let headers = header_field(&old, 0x28);
    let all = sections(&old);
    for (index, section) in all.iter().enumerate().filter(|(_, section)| section.name.starts_with(".debug_"))
    {
        new[section.offset..section.offset + section.size].fill(0);
        new[headers + index * 64 + 32..][..8].fill(0);
    }
    let proven = assert_proven(&old, &new);
    assert!(
        proven.remarks.iter().any(|remark| matches!(remark, Remark::DebugSectionsDropped(_))),
        "{:?}",
        proven.remarks
    );
    let information = section(&all, ".debug_info");
    add(&mut new, information.offset + information.size / 2, 1);
    assert_eq!(report(&old, &new).differences[0].check, Check::Unchanged);
}

#[test]
fn code_that_control_runs_into_must_follow_it() {
    let split = "__asm__(\".section .text.fivefold,\\\"ax\\\"\\n .subsection 1\\n .globl runner\\n .type runner,@function\\nrunner:\\n\"
                \" .cfi_startproc\\n lea 1(%rdi),%eax\\n .cfi_endproc\\n .size runner,.-runner\\n .text\");";
    let pair = Relinked::build_with(&[], split);
    let report = report(&pair.old, &pair.new);
    let is_seen = report.differences.iter().any(|found| found.place.contains("the end of"));
    assert!(is_seen, "{:#?}", report.differences);
}

#[test]
fn an_empty_function_moves_with_the_one_after_it() {
    let empty = "__asm__(\".section .text.fivefold,\\\"ax\\\"\\n .globl empty\\n .type empty,@function\\nempty:\\n\"
                \" .size empty,0\\n .balign 16\\n .section .data.rel.ro,\\\"aw\\\"\\n .quad empty\\n .text\");";
    for options in [&[][..], &["-Wl,-z,pack-relative-relocs"]] {
        let pair = Relinked::build_with(options, empty);
        assert_proven(&pair.old, &pair.new);
        assert_proven(&pair.new, &pair.old);
    }
}

#[test]
fn labels_outside_of_the_loaded_image_are_not_code_addresses() {
    // The label's value is relative to its section, which has no address: it equals an address inside the code.
    let plain = Relinked::build(&[]);
    for (name, old, new) in plain.symbols.iter().filter(|(_, old, new)| old != new) {
        let distance = old + 1;
        let label = format!(
            "__asm__(\".section .remarks,\\\"\\\"\\n .zero {distance}\\n unloaded: .byte 0\\n .text\");"
        );
        let pair = Relinked::build_with(&[], &label);
        assert!(pair.symbols.contains(&(name.clone(), *old, *new)), "the label changed the layout");
        assert_proven(&pair.old, &pair.new);
    }
}

#[test]
fn a_short_jump_to_the_end_of_its_function_goes_with_it() {
    let jump = "__asm__(\".section .text.fivefold,\\\"ax\\\"\\n .subsection 1\\n .balign 16\\n .type jumper,@function\\n\"
               \"jumper: .cfi_startproc\\n test %edi,%edi\\n je 9f\\n ret\\n .balign 16,0xcc\\n9: .cfi_endproc\\n\"
               \" .size jumper,.-jumper\\n .text\");";
    let pair = Relinked::build_with(&[], jump);
    assert_proven(&pair.old, &pair.new);
    assert_proven(&pair.new, &pair.old);
}

#[test]
fn code_outside_of_functions_must_not_refer_to_what_moved() {
    let stub = "__asm__(\".section .text.last,\\\"ax\\\"\\nstub:\\n call triple\\n ret\\n .text\");";
    let pair = Relinked::build_with(&[], stub);
    let report = report(&pair.old, &pair.new);
    let is_seen = report.differences.iter().any(|found| {
        found.check == Check::Gaps
            && found.place.contains("outside of functions")
            && found.found.contains("moved")
    });
    assert!(is_seen, "{:#?}", report.differences);
}

#[test]
fn probes_follow_the_code_they_watch() {
    let probe = "__asm__(\".section .text.triple,\\\"ax\\\"\\n\"
                 \" .pushsection .note.stapsdt,\\\"\\\",\\\"note\\\"\\n .balign 4\\n .4byte 8,9f-8f,3\\n .asciz \\\"stapsdt\\\"\\n\"
                 \"8: .8byte triple+4,0,0\\n .asciz \\\"p\\\",\\\"n\\\",\\\"\\\"\\n9: .balign 4\\n .popsection\\n .text\");";
    let pair = Relinked::build_with(&[], probe);
    assert_proven(&pair.old, &pair.new);
    let sections = sections(&pair.new);
    let note = section(&sections, ".note.stapsdt");
    assert_ne!(pair.old[note.offset..][..note.size], pair.new[note.offset..][..note.size], "the probe moved");
    let mut stale = pair.new.clone();
    stale[note.offset..][..note.size].copy_from_slice(&pair.old[note.offset..][..note.size]);
    assert_eq!(report(&pair.old, &stale).differences[0].check, Check::Notes);
}
