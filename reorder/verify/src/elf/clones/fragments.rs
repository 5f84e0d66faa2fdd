//! Where the copies of fragments lead: each address that a copied instruction states is the original's, or a copy of it; and
//! what runs after a copy is what runs after its original.
//!
//! Computed jumps compute with the same values in a copy, and with no addresses of copies except starts of functions, so they
//! lead where the original's lead. Return addresses differ; programs are assumed not to compute with them, except after calls
//! into a function's own middle, and where a function states the address after one of its calls.

use super::copies::Copies;
use super::instruction::{Pair, Use, jump_target};
use super::pairing::{PairWalk, Repeated};
use super::record::Copied;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::NewAddress;

/// Checks all fragments; gives the number of instructions.
pub(super) fn check_fragments(copies: &mut Copies<'_>, findings: &mut Findings) -> usize {
    let fragments = std::mem::take(&mut copies.by_copy);
    for copied in &fragments {
        if let Err(difference) = check_fragment(copies, copied) {
            findings.differs(difference);
        }
    }
    copies.by_copy = fragments;
    copies.fragments().map_or(0, |map| map.len())
}

/// Checks what one copy states, and its end. The error is the first difference.
fn check_fragment(copies: &mut Copies<'_>, copied: &Copied) -> Result<(), Difference> {
    let mut end = copied.copy;
    let mut continues = true;
    for step in PairWalk::of(copies.old, copies.section, copied) {
        // The walk succeeded when the map was made.
        let Ok((at, pair)) = step else { break };
        check_stated(copies, at, pair)?;
        end = at.copy.plus(pair.new_length);
        continues = pair.continues;
    }
    let ending = copied.original_end();
    let rest = copied.copy_end().distance_from(end);
    if rest == 0 {
        let follows = copies.original(end) == Some(ending);
        return match !continues || follows {
            true => Ok(()),
            false => {
                Err(wrong_end(copies, end, "the copy of what follows the original, or a jump", "neither"))
            }
        };
    }
    match copies.copied(end).and_then(|bytes| jump_target(copies.new.processor, bytes, end)) {
        Some((target, length)) if length == rest && copies.leads_to(ending, target) => Ok(()),
        Some((target, _)) => {
            Err(wrong_end(copies, end, &format!("one jump to {ending} or its copy"), &target.to_string()))
        }
        None => Err(wrong_end(copies, end, "one jump to what follows the original", "no jump")),
    }
}

fn wrong_end(copies: &Copies<'_>, end: NewAddress, expected: &str, found: &str) -> Difference {
    let name = format!("what follows the copy at {end}");
    Difference::new(Check::Copies, copies.offset(end), name, expected, found)
}

/// Checks the address that a copied instruction states, and notes where calls return to.
fn check_stated(copies: &mut Copies<'_>, at: Repeated, pair: Pair) -> Result<(), Difference> {
    if pair.is_call {
        copies.returned_to.insert(at.original.plus(pair.old_length));
    }
    let Some((before, after, usage)) = pair.stated else { return Ok(()) };
    // The return address of a call is a place in the copy. Code that calls into its own function's middle computes with it.
    let learns_place = usage == Use::Call && copies.is_middle(at.original, before);
    let is_same = match usage {
        Use::Jump | Use::Call => copies.leads_to(before, after),
        Use::Value => copies.stands_for(before, after),
        Use::Same => before.0 == after.0,
    };
    if is_same && !learns_place {
        return Ok(());
    }
    let name = format!("what the copied instruction at {} states", at.copy);
    let expected = format!("{before} or its copy");
    Err(Difference::new(Check::Copies, copies.offset(at.copy), name, expected, after.to_string()))
}
