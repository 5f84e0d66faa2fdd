//! Proven pairs, and what happens to the proof when anything in the new image is damaged.

use crate::layout::{Section, header_field, sections};
use crate::relinked::Relinked;
use reorder::address::{Address, NewAddress};
use reorder::verify::{Check, VerifyOptions, VerifyReport, recover_moves, verify};

fn report(old: &[u8], new: &[u8]) -> VerifyReport {
    verify(old, new, VerifyOptions::default()).expect("the old image can be read")
}

fn assert_proven(old: &[u8], new: &[u8]) -> VerifyReport {
    let report = report(old, new);
    assert!(report.is_proven(), "{:#?}", report.differences);
    report
}

fn count(report: &VerifyReport, check: Check) -> u64 {
    report.checks.iter().filter(|summary| summary.check == check).map(|summary| summary.count).sum()
}

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
fn kept_relocations_describe_the_new_image_or_are_reported() {
    let mut pair = Relinked::build(&["-Wl,--emit-relocs"]);
    keep_relocations_in_old_order(&mut pair);
    let report_of_pair = assert_proven(&pair.old, &pair.new);
    assert!(count(&report_of_pair, Check::StaticRelocations) > 50, "{:?}", report_of_pair.checks);
    let sections = sections(&pair.new);
    for (name, field) in
        [(".rela.text", 0), (".rela.text", 16), (".rela.rodata", 16), (".rela.data.rel.ro", 16)]
    {
        let table = section(&sections, name);
        for entry in (table.offset..table.offset + table.size).step_by(24) {
            let mut new = pair.new.clone();
            add(&mut new, entry + field, 1);
            let report = report(&pair.old, &new);
            let is_seen = report.differences.iter().any(|found| found.check == Check::StaticRelocations);
            assert!(is_seen, "{name}, entry at {entry:#x}, field {field}: {:#?}", report.differences);
        }
    }
}

/// Linkers sort these tables by place; relocating in place keeps their order.
fn keep_relocations_in_old_order(pair: &mut Relinked) {
    let moves = recover_moves(&pair.old, &pair.new).expect("the pair corresponds");
    let sections = sections(&pair.new);
    let table = section(&sections, ".rela.text");
    let entries = |image: &[u8]| -> Vec<(u64, Vec<u8>)> {
        image[table.offset..table.offset + table.size]
            .chunks(24)
            .map(|entry| (header_field(entry, 0) as u64, entry.to_vec()))
            .collect()
    };
    let mut linked = entries(&pair.new);
    for (index, (place, _)) in entries(&pair.old).into_iter().enumerate() {
        let followed = moves.map(Address(place)).0;
        let at =
            linked.iter().position(|(place, _)| *place == followed).expect("an entry for the same place");
        let (_, entry) = linked.remove(at);
        let offset = table.offset + index * 24;
        pair.new[offset..offset + 24].copy_from_slice(&entry);
    }
}

#[test]
fn a_table_word_that_stayed_behind_is_reported() {
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
        let checks: Vec<Check> = report.differences.iter().map(|found| found.check).collect();
        assert_eq!(checks, [Check::JumpTables], "{:#?}", report.differences);
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
    assert!(proven.remarks.iter().any(|remark| remark.contains("dropped")), "{:?}", proven.remarks);
    let information = section(&all, ".debug_info");
    add(&mut new, information.offset + information.size / 2, 1);
    assert_eq!(report(&old, &new).differences[0].check, Check::Unchanged);
}

#[test]
fn code_that_control_runs_into_must_stay_behind_it() {
    let split = "__asm__(\".section .text.fivefold,\\\"ax\\\"\\n .subsection 1\\n .globl runner\\n .type runner,@function\\nrunner:\\n\"
                \" .cfi_startproc\\n lea 1(%rdi),%eax\\n .cfi_endproc\\n .size runner,.-runner\\n .text\");";
    let pair = Relinked::build_with(&[], split);
    let report = report(&pair.old, &pair.new);
    let is_seen = report.differences.iter().any(|found| found.place.contains("the end of"));
    assert!(is_seen, "{:#?}", report.differences);
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

/// One deliberate kind of damage, and the check that has to see it.
struct Damage {
    name: &'static str,
    check: Check,
    apply: fn(&mut Vec<u8>, &[Section], &Relinked),
}

fn add(bytes: &mut [u8], offset: usize, amount: u8) {
    bytes[offset] = bytes[offset].wrapping_add(amount);
}

fn section<'a>(sections: &'a [Section], name: &str) -> &'a Section {
    sections.iter().find(|section| section.name == name).unwrap_or_else(|| panic!("{name} is missing"))
}

const DAMAGES: [Damage; 12] = [
    Damage {
        name: "unwind search table out of order",
        check: Check::UnwindSearchTable,
        apply: |bytes, sections, _| {
            let rows = section(sections, ".eh_frame_hdr").offset + 12;
            for byte in 0..8 {
                bytes.swap(rows + byte, rows + 8 + byte);
            }
        },
    },
    Damage {
        name: "relocation addend",
        check: Check::LoaderPointers,
        apply: |bytes, sections, _| add(bytes, section(sections, ".rela.dyn").offset + 16, 1),
    },
    Damage {
        name: "relocation place",
        check: Check::Unchanged,
        apply: |bytes, sections, _| add(bytes, section(sections, ".rela.dyn").offset, 8),
    },
    Damage {
        name: "value of an unmoved symbol",
        check: Check::Symbols,
        apply: |bytes, sections, _| {
            let table = section(sections, ".symtab");
            let last = (table.offset..table.offset + table.size)
                .step_by(24)
                .find(|&at| bytes[at + 4] & 15 == 2 && bytes[at + 16] == 0 && bytes[at + 6] != 0);
            add(bytes, last.expect("a function of unknown size") + 8, 16);
        },
    },
    Damage {
        name: "name of a symbol",
        check: Check::Unchanged,
        apply: |bytes, sections, _| add(bytes, section(sections, ".symtab").offset + 48, 1),
    },
    Damage { name: "entry point", check: Check::LoaderPointers, apply: |bytes, _, _| add(bytes, 0x18, 4) },
    Damage { name: "header byte", check: Check::Unchanged, apply: |bytes, _, _| add(bytes, 0x30, 1) },
    Damage {
        name: "section header byte",
        check: Check::Unchanged,
        apply: |bytes, _, _| {
            let headers = header_field(bytes, 0x28);
            add(bytes, headers + 64 + 48, 1);
        },
    },
    Damage {
        name: "initialiser in .dynamic",
        check: Check::LoaderPointers,
        apply: |bytes, sections, _| {
            let dynamic = section(sections, ".dynamic");
            let initialiser =
                (dynamic.offset..dynamic.offset + dynamic.size).step_by(16).find(|&at| bytes[at] == 12);
            add(bytes, initialiser.expect("DT_INIT") + 8, 1);
        },
    },
    Damage {
        name: "length of the build-id",
        check: Check::Unchanged,
        apply: |bytes, sections, _| add(bytes, section(sections, ".note.gnu.build-id").offset + 4, 252),
    },
    Damage {
        name: "padding over start code",
        check: Check::Gaps,
        apply: |bytes, sections, pair| {
            let text = section(sections, ".text");
            let at = text.offset + (pair.start_code.start - text.address) as usize;
            bytes[at..at + 4].fill(0xcc);
        },
    },
    Damage {
        name: "string",
        check: Check::Unchanged,
        apply: |bytes, sections, _| add(bytes, section(sections, ".rodata").offset + 4, 1),
    },
];

#[test]
fn each_kind_of_damage_is_seen_by_the_check_for_it() {
    let pair = Relinked::build(&[]);
    let sections = sections(&pair.new);
    assert_proven(&pair.old, &pair.new);
    for damage in DAMAGES {
        let mut new = pair.new.clone();
        (damage.apply)(&mut new, &sections, &pair);
        assert_ne!(new, pair.new, "{} did nothing", damage.name);
        let report = report(&pair.old, &new);
        let checks: Vec<Check> = report.differences.iter().map(|difference| difference.check).collect();
        assert!(checks.contains(&damage.check), "{}: {:#?}", damage.name, report.differences);
    }
}

/// Each byte of the file in turn, with one flipped bit: only identities and filler may go unnoticed.
#[test]
fn no_flipped_bit_goes_unnoticed() {
    let pair = Relinked::build(&["-Wl,-z,max-page-size=4096", "-Wl,-z,noseparate-code"]);
    assert_proven(&pair.old, &pair.new);
    let sections = sections(&pair.new);
    let build_id = section(&sections, ".note.gnu.build-id");
    let identity = build_id.offset + 16..build_id.offset + build_id.size;
    let mut new = pair.new.clone();
    // Filler between functions may be any filler; start code between functions may not.
    let moves = recover_moves(&pair.old, &pair.new).expect("the pair corresponds");
    let text = section(&sections, ".text");
    let is_filler = |at: usize| {
        let address = text.address.wrapping_add((at as u64).wrapping_sub(text.offset as u64));
        (text.offset..text.offset + text.size).contains(&at)
            && moves.containing_new(NewAddress(address)).is_none()
            && !pair.start_code.contains(&address)
    };
    let mut unnoticed = Vec::new();
    for at in 0..new.len() {
        let bit = 1u8 << (at % 8);
        new[at] ^= bit;
        if report(&pair.old, &new).is_proven() && !identity.contains(&at) && !is_filler(at) {
            unnoticed.push(at);
        }
        new[at] ^= bit;
    }
    assert!(unnoticed.is_empty(), "flips at {unnoticed:x?} were not noticed");
}

/// Bytes that the verifier must not trust may be anything: reports and errors, never a panic or a hang.
#[test]
fn hostile_images_end_in_a_report_or_an_error() {
    let pair = Relinked::build(&[]);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut noticed = 0;
    for _ in 0..3000 {
        let mut image = pair.new.clone();
        for _ in 0..1 + random() % 8 {
            let at = random() as usize % image.len();
            let value = [0, 0xff, 0x7f, 0x80, random() as u8][random() as usize % 5];
            let end = (at + 1 + random() as usize % 8).min(image.len());
            image[at..end].fill(value);
        }
        noticed += usize::from(!report(&pair.old, &image).is_proven());
        // As the old image it may be refused; it must not be believed to be a relocated form of the other.
        let _ = verify(&image, &pair.new, VerifyOptions::default());
        let _ = verify(&image, &image, VerifyOptions::default());
    }
    assert!(noticed > 2500, "only {noticed} of 3000 damaged images were noticed");
}
