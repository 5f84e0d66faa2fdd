//! Instructions that use, move and lose the address of a copied table.

use iced_x86::{Decoder, DecoderOptions};

use super::*;

/// Applies code after the address of a table was formed in RDX; gives whether all of it is allowed, and the state.
fn run(code: &[u8]) -> (bool, Registers) {
    let mut registers = Registers::default();
    registers.form(2);
    let is_allowed = apply_all(&mut registers, code);
    (is_allowed, registers)
}

fn apply_all(registers: &mut Registers, code: &[u8]) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let decoder = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE);
    decoder.into_iter().all(|instruction| {
        assert!(!instruction.is_invalid());
        registers.apply(&instruction, &mut factory)
    })
}

/// movslq (%rdx,%rax,4), %rax
const READ: [u8; 4] = [0x48, 0x63, 0x04, 0x82];
/// add %rdx, %rax
const ADD: [u8; 3] = [0x48, 0x01, 0xd0];

#[test]
fn a_distance_is_added_to_the_address_that_it_was_read_from() {
    let (is_allowed, after) = run(&[&READ[..], &ADD].concat());
    assert!(is_allowed && after.is_sum(0));
    // The other order: add %rax, %rdx.
    let (is_allowed, after) = run(&[&READ[..], &[0x48, 0x01, 0xc2]].concat());
    assert!(is_allowed && after.is_sum(2));
    // mov %rdx, %rcx before and after the read; add %rcx, %rax.
    for code in [
        [&[0x48, 0x89, 0xd1][..], &READ, &[0x48, 0x01, 0xc8]],
        [&READ[..], &[0x48, 0x89, 0xd1], &[0x48, 0x01, 0xc8]],
    ] {
        let (is_allowed, after) = run(&code.concat());
        assert!(is_allowed && after.is_sum(0) && !after.is_sum(1));
    }
    // Another value in %rdx: mov $5, %edx.
    assert!(!run(&[&READ[..], &[0xba, 5, 0, 0, 0], &ADD].concat()).0);
    // The table again, formed at another time.
    let (_, mut after) = run(&READ);
    after.form(2);
    assert!(!apply_all(&mut after, &ADD));
    // The address twice; a sum and an address.
    assert!(!run(&[0x48, 0x01, 0xd2]).0);
    assert!(!run(&[&READ[..], &ADD, &ADD].concat()).0);
}

#[test]
fn other_uses_are_refused() {
    let refused: [&[u8]; 14] = [
        &[0x48, 0x39, 0xca],             // cmp %rcx, %rdx
        &[0x48, 0x89, 0x14, 0x24],       // mov %rdx, (%rsp)
        &[0x52],                         // push %rdx
        &[0x48, 0x83, 0xc2, 4],          // add $4, %rdx
        &[0x8b, 0x02],                   // mov (%rdx), %eax
        &[0x8b, 0x04, 0x82],             // mov (%rdx,%rax,4), %eax
        &[0x48, 0x63, 0x44, 0x82, 4],    // movslq 4(%rdx,%rax,4), %rax
        &[0x48, 0x63, 0x04, 0xc2],       // movslq (%rdx,%rax,8), %rax
        &[0x48, 0x63, 0x04, 0x92],       // movslq (%rdx,%rdx,4), %rax
        &[0x64, 0x48, 0x63, 0x04, 0x82], // movslq %fs:(%rdx,%rax,4), %rax
        &[0x89, 0xd0],                   // mov %edx, %eax
        &[0x48, 0x0f, 0x44, 0xc2],       // cmove %rdx, %rax
        &[0x48, 0x87, 0xd0],             // xchg %rdx, %rax
        &[0x66, 0x48, 0x0f, 0x6e, 0xc2], // movq %rdx, %xmm0
    ];
    for code in refused {
        assert!(!run(code).0, "{code:x?}");
    }
    // push %rax, of a distance and of a sum.
    assert!(!run(&[&READ[..], &[0x50]].concat()).0);
    assert!(!run(&[&READ[..], &ADD, &[0x50]].concat()).0);
}

#[test]
fn overwritten_registers_are_those_of_the_original() {
    // mov $5, %edx; xor %edx, %edx; pop %rdx
    for code in [&[0xba, 5, 0, 0, 0][..], &[0x31, 0xd2], &[0x5a]] {
        let (is_allowed, after) = run(code);
        assert!(is_allowed && after.are_originals(), "{code:x?}");
    }
    // Half of the register: mov $5, %dl; then mov %rdx, %rax is a mixture, which nothing may use.
    let (is_allowed, mut after) = run(&[0xb2, 5]);
    assert!(is_allowed && !after.are_originals() && !apply_all(&mut after, &READ));
    // setne %dl, then movzbl %dl, %eax; add %dl, %al; movzwl %dx, %eax; mov %dh, %al; mov %edx, %eax.
    let (is_allowed, lowest) = run(&[0x0f, 0x95, 0xc2]);
    assert!(is_allowed && lowest == lowest.joined(&Registers::default()));
    let allows = |code: &[u8]| apply_all(&mut { lowest }, code);
    assert!(allows(&[0x0f, 0xb6, 0xc2]) && allows(&[0x00, 0xd0]));
    assert!(!allows(&[0x0f, 0xb7, 0xc2]) && !allows(&[0x88, 0xf0]) && !allows(&[0x89, 0xd0]));
    // or %al, %dl leaves the rest.
    assert!(allows(&[0x08, 0xc2]) && !allows(&[0x08, 0xc2, 0x89, 0xd0]));
    let (_, mut whole) = run(&[]);
    assert!(!apply_all(&mut whole.joined(&lowest), &[0x0f, 0xb6, 0xc2]));
    assert!(!apply_all(&mut whole, &[0x08, 0xc2]), "or %al, %dl");
}

#[test]
fn flags_of_a_sum_are_not_used() {
    // je, after the sum; and after test %ecx, %ecx.
    let sum = [&READ[..], &ADD].concat();
    assert!(!run(&[&sum[..], &[0x74, 0]].concat()).0);
    assert!(run(&[&sum[..], &[0x85, 0xc9, 0x74, 0]].concat()).0);
    // shl $2, %esi replaces them.
    assert!(run(&[&sum[..], &[0xc1, 0xe6, 2, 0x74, 0]].concat()).0);
    // shl %cl, %esi and shl $0, %esi may leave them.
    assert!(!run(&[&sum[..], &[0xc1, 0xe6, 0, 0x74, 0]].concat()).0);
    assert!(!run(&[&sum[..], &[0xd3, 0xe6, 0x74, 0]].concat()).0);
}

#[test]
fn what_fits_on_one_way_alone_does_not_fit() {
    let (_, read) = run(&READ);
    // On the other way %rax holds an original distance, but %rdx the copy's address.
    let (_, unread) = run(&[0x31, 0xc0]);
    assert!(!apply_all(&mut read.joined(&unread), &ADD));
    // On the other way both are the original's.
    let mut both = read.joined(&Registers::default());
    assert!(apply_all(&mut both, &ADD) && both.is_sum(0));
    assert_eq!(read.joined(&read), read);
}

#[test]
fn calls_return_nothing_of_a_table() {
    let (_, mut after) = run(&[0x48, 0x89, 0xd3]); // mov %rdx, %rbx
    after.call(0);
    assert!(!after.holds_other(2) && after.holds_other(3));
    let (_, mut after) = run(&[]);
    after.call(1 << 2);
    assert!(after.holds_other(2), "the callee keeps it");
    after.pass_arguments();
    assert!(after.are_originals());
}
