//! Images with copies of fragments: right ones are proven, and every change of a byte in the segment of copies is found.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod designs;
mod exceptions;
mod image;
mod jump_tables;

use designs::{FRAME_OFFSET, SAVED_RBP, advance, branch, to};
use image::Design;
use reorder_verify::{VerifyOptions, VerifyReport, verify};

fn report(old: &[u8], new: &[u8]) -> VerifyReport {
    verify(old, new, VerifyOptions::default()).unwrap()
}

/// No differences.
const NOTHING: [&str; 0] = [];

/// What the verifier says of a design; empty for a proof.
fn differences(design: &Design) -> Vec<String> {
    let differences = report(&design.without_copies(), &design.with_copies()).differences;
    differences
        .iter()
        .map(|found| format!("{}: {}, not {}", found.place, found.found, found.expected))
        .collect()
}

#[test]
fn right_copies_are_proven() {
    assert_eq!(differences(&Design::plain()), NOTHING);
    assert_eq!(differences(&Design::aarch64()), NOTHING);
    assert_eq!(differences(&Design::dispatching()), NOTHING);
}

/// Each byte of the segment is changed in four ways. What is accepted says the same: the highest bit makes a number of an
/// entry longer without another value, `DW_CFA_restore` of a register without a rule does nothing, and traps are traps.
#[test]
fn every_byte_of_the_segment_counts() {
    for design in [Design::plain(), Design::aarch64(), Design::dispatching()] {
        let (old, new) = (design.without_copies(), design.with_copies());
        let segment = image::SEGMENT_OFFSET as usize..(image::SEGMENT_OFFSET + image::SEGMENT_SIZE) as usize;
        let mut accepted = Vec::new();
        let mut tried = 0;
        for at in segment {
            for change in [0x01, 0x04, 0x80, 0xff] {
                let mut forged = new.clone();
                forged[at] ^= change;
                tried += 1;
                let word = u32::from_le_bytes(forged[at / 4 * 4..at / 4 * 4 + 4].try_into().unwrap());
                let is_trap = word & 0xffe0_001f == 0xd420_0000;
                if !is_trap && report(&old, &forged).is_proven() {
                    accepted.push((at, forged[at], new[at]));
                }
            }
        }
        assert_eq!(tried, 4 * image::SEGMENT_SIZE);
        accepted.retain(|(_, forged, was)| {
            !matches!((forged, was), (0xff, 0) | (0x80, 0) | (0x81, 1) | (0x82, 2))
        });
        assert!(accepted.is_empty(), "{accepted:x?}");
    }
}

/// The design with a fragment of other code, or other places.
fn changed(change: impl FnOnce(&mut Design)) -> Vec<String> {
    let mut design = Design::plain();
    change(&mut design);
    differences(&design)
}

#[track_caller]
fn is_refused(what: &str, change: impl FnOnce(&mut Design)) {
    let found = changed(change);
    assert!(found.iter().any(|found| found.contains(what)), "{found:#?}");
}

#[test]
fn places_are_checked() {
    is_refused("it shares bytes with another", |design| design.fragments[1].copy = 0x5008);
    is_refused("outside of the section of copies", |design| design.fragments[2].copy = 0x507d);
    is_refused("a second copy", |design| design.fragments[1].original = 0x1004);
    is_refused("not a part of one function", |design| design.fragments[2].size = 12);
    // The last instruction does not end with its fragment.
    is_refused("the copy of the instruction at 0x1012", |design| design.fragments[2].size = 6);
}

#[test]
fn what_runs_after_a_copy_is_checked() {
    let ending = |target| [to(&[0xe8], 0x500e, 0x5020), to(&[0xe9], 0x5013, target)].concat();
    is_refused("what follows the copy at 0x500e", |design| design.fragments[1].code = ending(0x100b));
    is_refused("what follows the copy at 0x500e", |design| design.fragments[1].code = ending(0x5020));
    is_refused("no jump", |design| design.fragments[1].code[5] = 0xe8);
    is_refused("what follows the copy at 0x500e", |design| design.fragments[1].code.truncate(5));
    // Not directly after the first copy, which runs on into it.
    is_refused("what follows the copy at 0x5009", |design| {
        design.fragments[1].copy = 0x5010;
        design.fragments[1].code = [to(&[0xe8], 0x5015, 0x5020), to(&[0xe9], 0x501a, 0x100a)].concat();
    });
}

/// `je` to a jump at the end of its copy, which leads on to the target.
#[test]
fn branches_may_lead_to_islands() {
    let with_island = |island: u64, tail: u8| {
        move |design: &mut Design| {
            let fragment = &mut design.fragments[1];
            // Both parts of `first` up to the call are one fragment.
            (fragment.original, fragment.size, fragment.copy) = (0x1000, 10, 0x5000);
            fragment.code = [
                &[0x55, 0x85, 0xff, 0x74, tail][..],
                &to(&[0xe8], 0x500a, 0x5020),
                &to(&[0xe9], 0x500f, 0x100a),
                &to(&[0xe9], 0x5014, island),
            ]
            .concat();
            fragment.rules = Some(vec![advance(1), FRAME_OFFSET, 16, SAVED_RBP, 2]);
            design.fragments.remove(0);
        }
    };
    assert_eq!(changed(with_island(0x100a, 10)), NOTHING);
    // The jump that control runs into serves as well, but then the island has no use.
    is_refused("what follows the copy at 0x500f", with_island(0x100a, 5));
    is_refused("what the copied instruction at 0x5003 states", with_island(0x100b, 10));
    is_refused("what the copied instruction at 0x5003 states", with_island(0x100a, 11));
}

#[test]
fn targets_are_copies_of_the_original_targets() {
    // Into the middle of a copied instruction, to another instruction, to the jump at the end of a copy.
    for target in [0x5001, 0x5004, 0x500e, 0x100b] {
        is_refused("what the copied instruction at 0x5003 states", |design| {
            design.fragments[0].code.splice(3.., to(&[0x0f, 0x84], 0x5009, target));
        });
    }
    // A copy of another function.
    is_refused("the instruction at 0x1030", |design| {
        design.new_text.splice(0x30..0x35, to(&[0xe8], 0x1035, 0x5020));
    });
    // An address of a function that is not everywhere that of the copy.
    is_refused("the function at 0x1010", |design| {
        design.new_text.splice(0x20..0x27, to(&[0x48, 0x8d, 0x05], 0x1027, 0x5020));
        design.text.splice(0x38..0x3f, to(&[0x48, 0x8d, 0x05], 0x103f, 0x1010));
        design.new_text.splice(0x38..0x3f, to(&[0x48, 0x8d, 0x05], 0x103f, 0x1010));
    });
}

#[test]
fn addresses_may_all_be_those_of_copies() {
    let found = changed(|design| {
        design.new_text.splice(0x20..0x27, to(&[0x48, 0x8d, 0x05], 0x1027, 0x5020));
    });
    assert_eq!(found, NOTHING);
}

/// `lea rax, [after the call]; call rax`, of which only the call has a copy.
#[test]
fn stated_return_addresses_have_no_copy() {
    is_refused("the function that contains 0x1009", |design| {
        let code = [&to(&[0x48, 0x8d, 0x05], 0x1007, 0x1009)[..], &[0xff, 0xd0, 0x90, 0x5d, 0xc3]].concat();
        design.text.splice(0..12, code.clone());
        design.new_text.splice(0..12, code);
        design.new_text.splice(0x30..0x35, to(&[0xe8], 0x1035, 0x1000));
        design.fragments.remove(0);
        let call = &mut design.fragments[0];
        (call.original, call.size) = (0x1007, 2);
        call.code = [vec![0xff, 0xd0], to(&[0xe9], 0x5010, 0x1009)].concat();
    });
}

#[test]
fn functions_that_call_their_middle_have_no_copy() {
    is_refused("what the copied instruction at 0x5009 states", |design| {
        design.text.splice(5..10, to(&[0xe8], 0x100a, 0x100a));
        design.new_text.splice(5..10, to(&[0xe8], 0x100a, 0x100a));
        design.fragments[1].code.splice(0..5, to(&[0xe8], 0x500e, 0x100a));
    });
}

#[test]
fn unwind_entries_are_those_of_the_originals() {
    let entry = "the unwind entry of the copy at 0x5009";
    is_refused(entry, |design| design.fragments[1].rules = None);
    is_refused("other rules at 0x5009", |design| design.fragments[1].rules = Some(vec![]));
    is_refused("other rules at 0x5009", |design| design.fragments[1].rules = Some(vec![FRAME_OFFSET, 16]));
    // The first row lasts one byte too long, and the last one ends before the jump.
    is_refused("other rules at 0x5001", |design| {
        design.fragments[0].rules = Some(vec![advance(3), FRAME_OFFSET, 16, SAVED_RBP, 2]);
    });
    is_refused("other rules at 0x500e", |design| {
        design.fragments[1].rules = Some(vec![FRAME_OFFSET, 16, SAVED_RBP, 2, advance(5), FRAME_OFFSET, 8]);
    });
    // Rules that say the same in another way.
    let found = changed(|design| {
        let rules = vec![FRAME_OFFSET, 16, SAVED_RBP, 3, SAVED_RBP, 2, advance(2), FRAME_OFFSET, 16];
        design.fragments[1].rules = Some(rules);
    });
    assert_eq!(found, NOTHING);
}

#[test]
fn rules_that_use_the_program_counter_have_no_copy() {
    // DW_CFA_def_cfa_expression: breg7 (rsp) + 8, then breg16 (rip) + 0, dropped.
    let expression = vec![0x0f, 5, 0x77, 8, 0x80, 0, 0x13];
    is_refused("a rule at 0x5020 that uses the place of its instruction", |design| {
        design.functions[1].rules = expression.clone();
        design.fragments[2].rules = Some(expression);
    });
    let harmless = vec![0x0f, 2, 0x77, 8];
    let found = changed(|design| {
        design.functions[1].rules = harmless.clone();
        design.fragments[2].rules = Some(harmless);
    });
    assert_eq!(found, NOTHING);
}

#[test]
fn copies_for_aarch64_are_checked() {
    let refused = |change: fn(&mut Design)| {
        let mut design = Design::aarch64();
        change(&mut design);
        differences(&design)
    };
    let contains =
        |found: &[String], what: &str| assert!(found.iter().any(|found| found.contains(what)), "{found:#?}");
    let found = refused(|design| {
        let to_middle = branch(0x9400_0000, 0x5008, 0x5024);
        design.fragments[1].code.splice(0..4, to_middle.to_le_bytes());
    });
    contains(&found, "what the copied instruction at 0x5008 states");
    let found = refused(|design| {
        let to_other = branch(0x1400_0000, 0x500c, 0x1010);
        design.fragments[1].code.splice(4..8, to_other.to_le_bytes());
    });
    contains(&found, "what follows the copy at 0x500c");
    contains(&refused(|design| design.fragments[1].rules = Some(vec![])), "other rules at 0x5008");
    // An instruction that signs with the program counter.
    let found = refused(|design| {
        for code in [&mut design.text, &mut design.new_text, &mut design.fragments[0].code] {
            code.splice(0..4, 0xdac1_a3fe_u32.to_le_bytes());
        }
    });
    contains(&found, "the copy of the instruction at 0x1000");
}

#[test]
fn restartable_sequences_have_no_copy() {
    let design = Design::plain();
    let (mut old, mut new) = (design.without_copies(), design.with_copies());
    // The section of exception tables takes the name of the list.
    for image in [&mut old, &mut new] {
        let name = b".gcc_except_table\0";
        let places = (0..image.len() - name.len()).filter(|at| image[*at..].starts_with(name));
        for at in places.collect::<Vec<usize>>() {
            image[at..at + name.len()].copy_from_slice(b"__rseq_cs\0\0\0\0\0\0\0\0\0");
        }
        image[0x2808..0x2810].copy_from_slice(&0x1003_u64.to_le_bytes());
    }
    let found = report(&old, &new).differences;
    assert!(found.iter().any(|found| found.place == "the function that contains 0x1003"), "{found:#?}");
}
