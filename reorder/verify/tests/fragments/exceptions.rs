//! Exceptions that pass copies are caught where they were caught.

use crate::designs::{FRAME_OFFSET, SAVED_RBP, advance, to};
use crate::image::{Design, NEW_TABLES, TABLES};
use crate::{NOTHING, changed, is_refused};

/// Address of the word that a type entry refers to.
const TYPE: u64 = 0x2f10;
/// Where exceptions of the call in `first` are caught.
const PAD: u64 = 0x100a;

/// An exception table at `address`, whose pads count from 0x1000 and which has one filter, number 1, for `TYPE`. Call sites
/// are start, length, pad and action.
fn table(address: u64, sites: &[[u8; 4]]) -> Vec<u8> {
    let mut table = to(&[0x1b], address + 1, 0x1000);
    let actions = [1, 0];
    let size = 4 * sites.len() as u8;
    // The distance from here to the end of the types.
    table.extend([0x9b, 2 + size + actions.len() as u8 + 4]);
    table.extend([1, size]);
    table.extend(sites.concat());
    table.extend(actions);
    let place = address + table.len() as u64;
    table.extend(((TYPE.wrapping_sub(place)) as u32).to_le_bytes());
    table
}

/// The call of `first` has a landing pad, and so has the copy of the call.
fn caught() -> Design {
    let mut design = Design::plain();
    design.has_tables = true;
    design.functions[0].table = Some(table(TABLES, &[[5, 5, 10, 1]]));
    design.fragments[1].table = Some((NEW_TABLES, table(NEW_TABLES, &[[0, 5, 10, 1]])));
    design
}

fn with_sites(old: &[[u8; 4]], new: Option<&[[u8; 4]]>) -> impl FnOnce(&mut Design) {
    let old = table(TABLES, old);
    let new = new.map(|sites| (NEW_TABLES, table(NEW_TABLES, sites)));
    move |design| {
        *design = caught();
        design.functions[0].table = Some(old);
        design.fragments[1].table = new;
    }
}

#[test]
fn calls_are_caught_at_the_pads_of_the_original() {
    assert_eq!(changed(|design| *design = caught()), NOTHING);
}

#[test]
fn what_no_exception_passes_is_right_too() {
    let is_refused =
        |design: Box<dyn FnOnce(&mut Design)>| is_refused("says more than the original's", design);
    // The jump after the copy of the call.
    is_refused(Box::new(with_sites(&[[5, 5, 10, 1]], Some(&[[0, 10, 10, 1]]))));
    let damaged = |at: usize| {
        move |design: &mut Design| {
            with_sites(&[[5, 5, 0, 0]], Some(&[[0, 5, 0, 0]]))(design);
            let (_, table) = design.fragments[1].table.as_mut().unwrap();
            table[at] ^= 1;
        }
    };
    // What pads would count from, an action and a type that no site leads to.
    for at in [1, 13, 16] {
        is_refused(Box::new(damaged(at)));
    }
}

#[test]
fn other_pads_and_filters_are_refused() {
    let original = [[5, 5, 10, 1]];
    let other: [&[[u8; 4]]; 6] = [
        &[[0, 5, 11, 1]],
        &[[0, 5, 10, 0]],
        &[[0, 5, 0, 0]],
        &[[0, 4, 10, 1]],
        &[],
        // The search ends at the first site.
        &[[5, 1, 10, 1], [0, 5, 10, 1]],
    ];
    for sites in other {
        is_refused("the unwind entry of the copy at 0x5009", with_sites(&original, Some(sites)));
    }
    is_refused("other exceptions are caught at 0x5009", with_sites(&original, None));
    is_refused("other exceptions are caught at 0x5009", |design| {
        *design = caught();
        // The type.
        let (_, table) = design.fragments[1].table.as_mut().unwrap();
        *table.last_mut().unwrap() ^= 1;
    });
}

#[test]
fn a_table_may_be_absent_if_exceptions_go_on_to_the_caller() {
    assert_eq!(changed(with_sites(&[[5, 5, 0, 0]], None)), NOTHING);
    assert_eq!(changed(with_sites(&[[5, 5, 0, 0]], Some(&[[0, 5, 0, 0]]))), NOTHING);
    // No site at all: the original terminates.
    is_refused("other exceptions are caught at 0x5009", with_sites(&[], None));
    assert_eq!(changed(with_sites(&[], Some(&[]))), NOTHING);
    is_refused("other exceptions are caught at 0x5009", with_sites(&[[5, 5, 0, 0]], Some(&[])));
}

#[test]
fn a_pad_may_be_the_copy_of_the_pad() {
    let copied_pad = |copy: u64| {
        move |design: &mut Design| {
            *design = caught();
            let sites = [[0, 5, (copy - 0x5000) as u8, 1]];
            let mut table = table(NEW_TABLES, &sites);
            // Pads count from 0x5000.
            table.splice(0..5, to(&[0x1b], NEW_TABLES + 1, 0x5000));
            design.fragments[1].table = Some((NEW_TABLES, table));
            // A copy of `pop rbp; ret`, with the rules of both.
            let mut pad = design.fragments[2].clone();
            (pad.original, pad.size, pad.copy) = (PAD, 2, 0x5030);
            pad.code = vec![0x5d, 0xc3];
            pad.rules = Some(vec![FRAME_OFFSET, 16, SAVED_RBP, 2, advance(1), FRAME_OFFSET, 8, 0xc6]);
            design.fragments.push(pad);
        }
    };
    assert_eq!(changed(copied_pad(0x5030)), NOTHING);
    is_refused("other exceptions are caught at 0x5009", copied_pad(0x5031));
}

#[test]
fn sizes_of_arguments_on_which_unwinders_disagree_are_refused() {
    is_refused("sizes of arguments on which unwinders disagree", |design| {
        *design = caught();
        // DW_CFA_remember_state, DW_CFA_GNU_args_size 16, DW_CFA_restore_state.
        design.functions[0].rules.extend([0x0a, 0x2e, 16, 0x0b]);
    });
}
