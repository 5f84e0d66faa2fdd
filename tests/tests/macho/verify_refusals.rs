//! Wrong Mach-O images that look right: only one check of `verify` can distinguish each from a right one.

use std::ops::Range;

use end_to_end::macho_pairs::{Pair, found_by_content, options, part, report, section};
use rayon::prelude::*;
use reorder_verify::{Check, verify_moves};

fn word(image: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(image[at..at + 4].try_into().unwrap())
}

fn set(image: &mut [u8], at: usize, word: u32) {
    image[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// Where the load commands of a kind are.
fn commands(image: &[u8], kind: u32) -> Vec<usize> {
    let mut at = 32;
    let mut found = Vec::new();
    for _ in 0..word(image, 16) {
        if word(image, at) == kind {
            found.push(at);
        }
        at += word(image, at + 4) as usize;
    }
    found
}

/// Positions in `text` where `pattern` occurs.
fn places(image: &[u8], text: Range<usize>, pattern: &[u8]) -> Vec<usize> {
    let windows = image[text.clone()].windows(pattern.len());
    windows.enumerate().filter(|(_, bytes)| *bytes == pattern).map(|(at, _)| text.start + at).collect()
}

#[test]
fn landing_pads_start_with_what_calls_preserve() {
    let source = ".text\n.globl _main\n.p2align 2\n_main:\n ret\n\
        .globl _target\n.p2align 2\n_target:\n mov w0, #1\n ret\n\
        .globl _lander\n.p2align 2\n_lander:\n stp x29, x30, [sp, #-32]!\n str x19, [sp, #16]\n\
        adrp x19, _target@PAGE\n bl _callee\n add x1, x19, _target@PAGEOFF\n b Lend\n\
        add x1, x19, _target@PAGEOFF\n\
        Lend:\n blr x1\n ldr x19, [sp, #16]\n ldp x29, x30, [sp], #32\n ret\n\
        .globl _callee\n.p2align 2\n_callee:\n mov w0, #3\n ret\n.subsections_via_symbols\n";
    let orders = ["_main _target _lander _callee", "_main _callee _lander _target"];
    let pair = Pair::of_assembly("arm64", source, orders);
    let proof = report(&pair.old, &pair.new);
    assert!(proof.is_proven() && proof.moved >= 2, "{:#?}", proof.differences);
    let uses = |image: &[u8]| -> Vec<usize> {
        let text = section(image, "__text");
        text.step_by(4).filter(|&at| word(image, at) & 0xffc0_03ff == 0x9100_0261).collect()
    };
    let (before, after) = (uses(&pair.old), uses(&pair.new));
    assert_eq!((before.len(), after.len()), (2, 2));
    let mut wrong = pair.new.clone();
    set(&mut wrong, after[1], word(&pair.old, before[1]));
    assert_ne!(wrong, pair.new, "the low bits follow");
    assert!(!found_by_content(&pair.old, &wrong).is_empty());
}

#[test]
fn numbers_outside_of_tables_are_no_distances() {
    for (name, pair) in Pair::all() {
        // A number before strings that, as a distance, gives an address in `_apply`, which has no indirect jump.
        let moves = reorder_verify::recover_moves(&pair.old, &pair.new).unwrap();
        let place = section(&pair.old, "__cstring").start.next_multiple_of(4);
        let base = 1u64 << 32;
        let mut is_tried = false;
        for atom in moves.iter().filter(|atom| atom.is_moved() && atom.size > 8) {
            let (mut old, mut new) = (pair.old.clone(), pair.new.clone());
            let start = (atom.old_start.0 - base) as usize;
            let code = &old[start..start + atom.size as usize];
            let jumps = match name.starts_with("arm64") {
                true => code.chunks_exact(4).any(|bytes| word(bytes, 0) & 0xfffe_0000 == 0xd61e_0000),
                false => code.windows(2).any(|bytes| bytes[0] == 0xff && bytes[1] >> 3 & 7 == 4),
            };
            if jumps {
                continue;
            }
            is_tried = true;
            let number = (atom.old_start.0 - base + 4).wrapping_sub(place as u64) as u32;
            set(&mut old, place, number);
            set(&mut new, place, number);
            assert!(found_by_content(&old, &new).is_empty(), "{name}: a number that stays");
            set(&mut new, place, number.wrapping_add(atom.delta() as u32));
            assert!(!found_by_content(&old, &new).is_empty(), "{name}: a number that changed");
        }
        assert!(is_tried, "{name}");
    }
}

#[test]
fn commands_that_are_not_understood_are_refused() {
    const DYLINKER: u32 = 0xe;
    const MAIN: u32 = 0x8000_0028;
    for (name, pair) in Pair::all() {
        let (mut old, mut new) = (pair.old.clone(), pair.new.clone());
        let at = commands(&old, DYLINKER)[0];
        assert!(word(&old, at + 4) >= 32, "{name}");
        // Initial registers, initialisers of old linkers, notes, an unknown kind, another entry point.
        for kind in [0x4, 0x5, 0x1a, 0x31, 0x36, 0x7f, MAIN] {
            for image in [&mut old, &mut new] {
                // The fields that are read of the longest of them: no registers.
                image[at + 8..at + 32].fill(0);
                set(image, at, kind);
            }
            assert!(!found_by_content(&old, &new).is_empty(), "{name}: {kind:#x}");
        }
        // The loader reads only the first one, but the second must not change either.
        let mut changed = old.clone();
        assert!(found_by_content(&old, &changed).is_empty(), "{name}: nothing moved");
        set(&mut changed, at + 8, 0x4000);
        assert!(!found_by_content(&old, &changed).is_empty(), "{name}: two starts");
        assert!(!found_by_content(&pair.old, &new).is_empty(), "{name}: a start that was not there");
    }
}

#[test]
fn encrypted_code_is_refused() {
    const DYLINKER: u32 = 0xe;
    let pair = Pair::new("arm64", 13);
    let (mut old, mut new) = (pair.old, pair.new);
    let at = commands(&old, DYLINKER)[0];
    for (system, is_right) in [(0, true), (1, false)] {
        for image in [&mut old, &mut new] {
            image[at + 8..at + 32].fill(0);
            set(image, at, 0x2c);
            set(image, at + 16, system);
        }
        assert_eq!(found_by_content(&old, &new).is_empty(), is_right);
    }
}

#[test]
fn bytes_of_linkedit_that_have_no_name_are_kept() {
    for (name, pair) in Pair::all() {
        let with = |image: &[u8], bytes: &[u8]| {
            let mut image = [image, bytes].concat();
            let title = *b"__LINKEDIT\0\0\0\0\0\0";
            let command = (32..4096).find(|&at| image[at..at + 16] == title).unwrap() - 8;
            let size = word(&image, command + 48) + bytes.len() as u32;
            set(&mut image, command + 48, size);
            set(&mut image, command + 32, size.next_multiple_of(0x4000));
            image
        };
        let old = with(&pair.old, b"nameless");
        assert!(found_by_content(&old, &with(&pair.new, b"nameless")).is_empty(), "{name}");
        assert!(!found_by_content(&old, &with(&pair.new, &[0; 8])).is_empty(), "{name}");
        assert!(!found_by_content(&old, &with(&pair.new, b"otherone")).is_empty(), "{name}");
    }
}

#[test]
fn every_change_of_the_signature_is_found() {
    for (name, pair) in Pair::all() {
        let signature = part(&pair.new, 0x1d, 8);
        let missed: Vec<(usize, u8)> = signature
            .clone()
            .into_par_iter()
            .flat_map_iter(|at| (0..8).map(move |bit| (at, bit)))
            .filter(|&(at, bit)| {
                let mut damaged = pair.new.clone();
                damaged[at] ^= 1 << bit;
                report(&pair.old, &damaged).is_proven()
            })
            .collect();
        let directory =
            u32::from_be_bytes(pair.new[signature.start + 16..][..4].try_into().unwrap()) as usize;
        // The flag 0x20000 says that the linker signed, so that other tools sign anew without asking. Systems treat an
        // ad hoc signature the same without it, and a relocator may leave it out.
        let is_linker_signed = (signature.start + directory + 13, 1);
        assert_eq!(missed, [is_linker_signed], "{name}: the signature is at {signature:x?}");
    }
}

#[test]
fn padding_is_no_tail_of_an_instruction() {
    // The call through memory ends with bytes that are no-operations by themselves.
    let source = ".text\n.globl _main\n.p2align 4\n_main:\n retq\n\
        .globl _tail\n.p2align 4\n_tail:\n .space 10, 0x90\n callq *-0x6f6f6f70(%rax)\n\
        .globl _after\n.p2align 4\n_after:\n movl $3, %eax\n retq\n\
        .globl _last\n.p2align 4\n_last:\n retq\n.subsections_via_symbols\n";
    let order = "_main _tail _after _last";
    let pair = Pair::of_assembly("x86_64", source, [order, order]);
    let mut claim = reorder_verify::recover_moves(&pair.old, &pair.old).unwrap().as_slice().to_vec();
    let after = claim.iter().position(|atom| {
        atom.old_start.0 % 16 == 0 && atom.size == 16 && {
            let at = (atom.old_start.0 - (1 << 32)) as usize;
            pair.old[at] == 0xb8
        }
    });
    let after = after.unwrap();
    claim[after].new_start.0 -= 2;
    claim[after - 1].size -= 2;
    let found = verify_moves(&pair.old, &pair.new, &claim, options()).unwrap();
    let says = format!("{:?}", found.differences);
    assert!(says.contains("two functions overlap"), "{says}");
}

/// An assembly program in which control never reaches `hidden`, between functions that move in the second order.
fn with_hidden(hidden: &str, orders: [&str; 2]) -> Pair {
    let source = format!(
        ".text\n.globl _main\n.p2align 4\n_main:\n retq\n\
         .globl _jumps\n.p2align 4\n_jumps:\n jmpq *%rdi\n{hidden} callq _target\n retq\n nop\n nop\n\
         .globl _target\n.p2align 4\n_target:\n movl $1, %eax\n retq\n\
         .globl _other\n.p2align 4\n_other:\n movl $2, %eax\n movl $3, %ecx\n movl $4, %edx\n movl $5, %esi\n retq\n\
         .globl _last\n.p2align 4\n_last:\n retq\n.subsections_via_symbols\n"
    );
    Pair::of_assembly("x86_64", &source, orders)
}

/// The wrong image: the bytes after `mark` are those of the old one.
fn with_old_call(pair: &Pair, mark: &[u8]) -> Vec<u8> {
    let place = |image: &[u8]| places(image, section(image, "__text"), mark)[0] + mark.len();
    let (from, to) = (place(&pair.old), place(&pair.new));
    let mut wrong = pair.new.clone();
    wrong[to..to + 5].copy_from_slice(&pair.old[from..from + 5]);
    assert_ne!(wrong, pair.new, "the call follows");
    wrong
}

#[test]
fn code_that_is_not_understood_does_not_move() {
    // No instruction begins with 6; the bytes after it are never decoded. The others begin one that includes the call.
    for (hidden, mark) in [(" .byte 6\n", &[0xe7, 6][..]), (" .byte 0x48, 0xb8\n", &[0xe7, 0x48, 0xb8])] {
        let pair =
            with_hidden(hidden, ["_main _jumps _target _other _last", "_main _other _jumps _target _last"]);
        assert!(found_by_content(&pair.old, &pair.old).is_empty());
        // Function and target moved alike, so the call is the same, and still its meaning is not known.
        assert_eq!(found_by_content(&pair.old, &pair.new).is_empty(), mark.len() == 3, "{hidden}");
        let orders = [
            // The function moves, but not its target; and the other way round.
            ["_main _jumps _other _target _last", "_main _other _jumps _target _last"],
            ["_main _jumps _other _target _last", "_main _jumps _target _other _last"],
        ];
        for order in orders {
            let pair = with_hidden(hidden, order);
            let wrong = with_old_call(&pair, mark);
            let found = found_by_content(&pair.old, &wrong);
            assert!(found.contains(&Check::Functions), "{hidden}{order:?}: {found:?}");
        }
    }
}

#[test]
fn tables_after_calls_that_never_return_are_tables() {
    // Read as code, the table jumps into the middle of the jump to `_target`.
    let source = ".text\n.globl _main\n.p2align 4\n_main:\n retq\n\
        .globl _switching\n.p2align 4\n_switching:\n cmpl $3, %edi\n ja Lfail\n leaq Ltable(%rip), %rcx\n\
        movslq (%rcx,%rdi,4), %rax\n addq %rcx, %rax\n jmpq *%rax\n\
        Lfirst:\n movl $1, %eax\n retq\n Lnear:\n .space 4355, 0x90\n retq\n\
        Lsecond:\n jmp _target\n Lthird:\n movl $-1, %ebx\n .byte 0xeb, 0xa0\n\
        Lfail:\n callq _abort\n nopl (%rax)\n\
        Ltable:\n .long Lfirst-Ltable\n .long Lsecond-Ltable\n .long Lthird-Ltable\n .long Lfail-Ltable\n\
        .globl _target\n.p2align 4\n_target:\n movl $1, %eax\n retq\n\
        .globl _last\n.p2align 4\n_last:\n retq\n.subsections_via_symbols\n";
    let pair = Pair::of_assembly(
        "x86_64",
        source,
        ["_main _switching _target _last", "_main _target _switching _last"],
    );
    let table = [0xe2, 0xee, 0xff, 0xff];
    assert_eq!(places(&pair.old, section(&pair.old, "__text"), &table).len(), 1);
    let proof = report(&pair.old, &pair.new);
    assert!(proof.is_proven() && proof.moved == 2, "{:#?}", proof.differences);
}

#[test]
fn equal_functions_are_told_apart_by_their_surroundings() {
    let runs_on = |number: u32| {
        format!(
            "_runs_{number}:\n mov x9, x0\n.globl _into_{number}\n.p2align 2\n_into_{number}:\n add x0, x9, #7\n ret\n.p2align 2\n"
        )
    };
    let source = format!(
        ".text\n.globl _main\n.p2align 2\n_main:\n b _into_1\n.p2align 2\n{}{}_three:\n mov x0, #3\n mov x1, #3\n ret\n\
         .p2align 2\n_listed_1:\n mov x0, #9\n ret\n.p2align 2\n_listed_2:\n mov x0, #9\n ret\n\
         .p2align 2\n_calls_1:\n b _called_1\n.p2align 2\n_calls_2:\n b _called_1\n.p2align 2\n_calls_3:\n b _called_2\n\
         .p2align 2\n_called_1:\n mov x5, #1\n ret\n.p2align 2\n_called_2:\n mov x5, #1\n ret\n\
         .section __TEXT,__const\n.p2align 2\n .long _listed_1-.\n .long _listed_2-.\n.subsections_via_symbols\n",
        runs_on(1),
        runs_on(2)
    )
    .replace(".globl _into_1\n", "")
    .replace(".globl _into_2\n", "");
    let old = "_main _runs_1 _into_1 _runs_2 _into_2 _three _listed_1 _listed_2 _calls_1 _calls_2 _calls_3 _called_1 _called_2";
    for new in [
        "_main _three _runs_1 _into_1 _runs_2 _into_2 _listed_2 _listed_1 _calls_3 _calls_1 _calls_2 _called_2 _called_1",
        "_main _runs_2 _into_2 _runs_1 _into_1 _three _listed_2 _listed_1 _calls_2 _calls_3 _calls_1 _called_1 _called_2",
        "_called_2 _called_1 _main _listed_2 _runs_2 _into_2 _three _calls_3 _calls_2 _calls_1 _runs_1 _into_1 _listed_1",
    ] {
        let pair = Pair::of_assembly("arm64", &source, [old, new]);
        let proof = report(&pair.old, &pair.new);
        assert!(proof.is_proven() && proof.moved > 0, "{new}: {:#?}", proof.differences);
        let back = report(&pair.new, &pair.old);
        assert!(back.is_proven(), "{new}: {:#?}", back.differences);
    }
}
