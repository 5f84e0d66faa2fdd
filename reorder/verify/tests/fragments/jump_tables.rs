//! Copies of jump tables: their places, their entries, and the uses of their addresses.
//!
//! ```text
//! 0x1040 chosen: cmp edi, 2; ja 0x1060; mov eax, edi
//! 0x1047         lea rdx, [0x2800]; movsxd rax, [rdx + rax * 4]; add rax, rdx; jmp rax
//! 0x1057         xor eax, eax; ret                     entry 0
//! 0x105a         xor ecx, ecx; ret                     entry 1
//! 0x105d         xor edx, edx; ret                     entry 2
//! 0x1060         ret
//!
//! 0x5028 mov eax, edi; lea rdx, [0x5050]; …; jmp rax   copy of 0x1045..0x1057
//! 0x5050 the table                                     copy of 0x2800
//! 0x5060 xor ecx, ecx; ret                             copy of 0x105a..0x105d
//! ```

use crate::designs::{copy, function, to};
use crate::image::{Design, JumpTable, TABLES, put};
use crate::{NOTHING, differences};
use reorder_base::address::Address;
use reorder_verify::{ProvenUse, TableUse, provable_tables};

const TABLE: u64 = TABLES;
const COPY: u64 = 0x5050;
/// `movsxd rax, [rdx + rax * 4]; add rax, rdx; jmp rax`.
const DISPATCH: [u8; 9] = [0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0, 0xff, 0xe0];

/// `mov eax, edi` and the dispatch at `place`, through the table at `table`.
fn dispatch(place: u64, table: u64) -> Vec<u8> {
    [&[0x89, 0xf8][..], &to(&[0x48, 0x8d, 0x15], place + 9, table), &DISPATCH].concat()
}

impl Design {
    /// The functions of [`Design::plain`] and of the head of this file.
    pub(crate) fn dispatching() -> Self {
        let mut design = Self::plain();
        let code = [
            &[0x83, 0xff, 2, 0x77, 0x1b][..],
            &dispatch(0x1045, TABLE),
            &[0x31, 0xc0, 0xc3, 0x31, 0xc9, 0xc3, 0x31, 0xd2, 0xc3, 0xc3],
        ]
        .concat();
        for text in [&mut design.text, &mut design.new_text] {
            text.resize(0x70, 0xcc);
            put(text, 0x40, &code);
        }
        design.functions.push(function(0x1040, 0x21, &[]));
        design.fragments.push(copy(0x1045, 18, 0x5028, dispatch(0x5028, COPY), &[]));
        design.fragments.push(copy(0x105a, 3, 0x5060, vec![0x31, 0xc9, 0xc3], &[]));
        let targets = vec![(0x1057, 0x1057), (0x105a, 0x5060), (0x105d, 0x105d)];
        design.jump_tables.push(JumpTable { original: TABLE, copy: COPY, targets });
        design
    }
}

fn changed(change: impl FnOnce(&mut Design)) -> Vec<String> {
    let mut design = Design::dispatching();
    change(&mut design);
    differences(&design)
}

#[track_caller]
fn is_refused(what: &str, change: impl FnOnce(&mut Design)) {
    let found = changed(change);
    assert!(found.iter().any(|found| found.contains(what)), "{found:#?}");
}

/// A writer of copies may ask for what will be accepted.
#[test]
fn uses_that_would_be_accepted_are_known() {
    let usage = |place, count| TableUse { place: Address(place), table: Address(TABLE), entry: 4, count };
    // With two entries, a guard bounds the index.
    let uses = [usage(0x1047, 3), usage(0x1047, 2), usage(0x1047, 4), usage(0x1020, 3)];
    let image = Design::dispatching().without_copies();
    let entries =
        provable_tables(&image, &[], &uses).unwrap().into_iter().map(|proven| Some(proven?.entries));
    assert_eq!(entries.collect::<Vec<_>>(), [Some(3), Some(2), Some(3), None]);
}

/// Writes code at `address` in both images.
fn write(design: &mut Design, address: u64, code: &[u8]) {
    put(&mut design.text, address - 0x1000, code);
    put(&mut design.new_text, address - 0x1000, code);
}

#[test]
fn entries_lead_to_the_same_code() {
    assert_eq!(changed(|design| design.jump_tables[0].targets[1].1 = 0x105a), NOTHING, "the original");
    for (entry, target) in [(0, 0x5060), (1, 0x1057), (1, 0x5062), (2, 0x105e), (2, 0x9000)] {
        let what = format!("entry {entry} of the copied table");
        is_refused(&what, |design| design.jump_tables[0].targets[entry].1 = target);
    }
    is_refused("entry 2", |design| design.jump_tables[0].targets[2] = (0x9000, 0x9000));
}

#[test]
fn places_of_tables_are_checked() {
    let moved = |copy: u64| {
        move |design: &mut Design| {
            design.jump_tables[0].copy = copy;
            design.fragments[3].code = dispatch(0x5028, copy);
        }
    };
    assert_eq!(changed(moved(0x5064)), NOTHING);
    is_refused("not aligned in the section of copies", moved(0x5051));
    is_refused("not aligned in the section of copies", moved(0x5078));
    is_refused("the copy of the instruction at 0x105a", moved(0x5058));
    is_refused("not of constants", |design| design.jump_tables[0].targets.clear());
    is_refused("not of constants", |design| design.jump_tables[0].original = 0x1060);
    is_refused("it shares bytes with another copy", |design| {
        let table = design.jump_tables[0].clone();
        design.jump_tables.push(table);
    });
    // Another table.
    is_refused("what the copied instruction at 0x502a states", |design| {
        design.jump_tables[0].original = TABLE + 0x10;
    });
    // The original must not state it: control may come from there with any index.
    is_refused("the instruction at 0x1047", |design| {
        put(&mut design.new_text, 0x45, &dispatch(0x1045, COPY));
    });
}

#[test]
fn jumps_read_only_what_the_copy_has() {
    is_refused("a jump at 0x1055 that may read entry 3", |design| write(design, 0x1040, &[0x83, 0xff, 3]));
    // Without the comparison's branch and without a guard.
    is_refused("a jump of unknown range at 0x1055", |design| write(design, 0x1043, &[0x90, 0x90]));
    assert_eq!(changed(|design| write(design, 0x1040, &[0x83, 0xff, 1])), NOTHING, "fewer entries");
}

#[test]
fn nothing_else_uses_the_address() {
    // push rdx; nop; ret
    is_refused("another use at 0x1057", |design| write(design, 0x1057, &[0x52, 0x90, 0xc3]));
    // The sum: push rax; nop; ret
    is_refused("another use at 0x105d", |design| write(design, 0x105d, &[0x50, 0x90, 0xc3]));
    // je, which depends on the sum.
    is_refused("another use at 0x1057", |design| write(design, 0x1057, &[0x74, 0, 0xc3]));
    // The dispatch through a register that nothing was read from: add rax, rcx.
    is_refused("another use at 0x1052", |design| {
        write(design, 0x1052, &[0x48, 0x01, 0xc8]);
        put(&mut design.fragments[3].code, 13, &[0x48, 0x01, 0xc8]);
    });
}

/// The dispatch without the comparison's branch, so that nothing bounds the index, and a copy with a guard of `limit` that leads to `exit`.
fn guarded(compare: [u8; 3], limit: u8, exit: u64) -> Design {
    let mut design = Design::dispatching();
    write(&mut design, 0x1043, &[0x90, 0x90]);
    let guard = [&compare[..], &[limit], &to(&[0x0f, 0x83], 0x5034, exit)].concat();
    let dispatched = dispatch(0x5032, COPY);
    design.fragments[3].code = [&dispatched[..2], &guard, &dispatched[2..]].concat();
    design
}

/// `cmp rax, …`.
const COMPARE: [u8; 3] = [0x48, 0x83, 0xf8];

#[test]
fn a_guard_bounds_the_index() {
    assert_eq!(differences(&guarded(COMPARE, 3, 0x1047)), NOTHING);
    assert_eq!(differences(&guarded(COMPARE, 2, 0x1047)), NOTHING, "fewer entries");
    let is_refused = |what: &str, design: Design| {
        let found = differences(&design);
        assert!(found.iter().any(|found| found.contains(what)), "{what}: {found:#?}");
    };
    is_refused("a jump at 0x1055 that may read entry 4", guarded(COMPARE, 4, 0x1047));
    is_refused("the comparison before", guarded(COMPARE, 3, 0x1045));
    is_refused("the comparison before", guarded(COMPARE, 3, 0x502a));
    is_refused("a jump of unknown range at 0x1055", guarded([0x48, 0x83, 0xf9], 3, 0x1047));
    // Elsewhere, a comparison would change flags that something may read.
    let mut elsewhere = Design::dispatching();
    let guard = [&COMPARE[..], &[3], &to(&[0x0f, 0x83], 0x506a, 0x105a)].concat();
    elsewhere.fragments[4].code = [&guard[..], &[0x31, 0xc9, 0xc3]].concat();
    is_refused("the comparison before", elsewhere);
}

#[test]
fn nothing_enters_a_dispatch_after_its_guard() {
    let mut design = guarded(COMPARE, 3, 0x1047);
    // jmp 0x104e, where the address of the table is still in its register.
    write(&mut design, 0x1057, &[0xeb, 0xf5, 0xc3]);
    let found = differences(&design);
    assert!(found.iter().any(|found| found.contains("a jump of unknown range at 0x104e")), "{found:#?}");
}

#[test]
fn the_register_of_a_guard_is_known() {
    let mut design = Design::dispatching();
    write(&mut design, 0x1043, &[0x90, 0x90]);
    let usage = TableUse { place: Address(0x1047), table: Address(TABLE), entry: 4, count: 3 };
    let proven = provable_tables(&design.without_copies(), &[], &[usage]).unwrap();
    assert_eq!(proven, [Some(ProvenUse { entries: 3, guarded_register: Some(0) })]);
}
