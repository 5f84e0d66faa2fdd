//! Where the copies of fragments lead: each address that a copied instruction states is the original's, or a copy of it; and
//! what runs after a copy is what runs after its original.
//!
//! Computed jumps compute with the same values in a copy, and with no addresses of copies except starts of functions, so they
//! lead where the original's lead. Return addresses differ; programs are assumed not to compute with them, except after calls
//! into a function's own middle, and where a function states the address after one of its calls.

use super::conventions::check_callee;
use super::copies::Copies;
use super::guard::Guard;
use super::instruction::{Pair, Use, jump_target};
use super::pairing::{PairWalk, Repeated};
use super::record::Copied;
use super::skipped_return::check_next;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::{Address, NewAddress};

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

/// A jump after the last instruction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TailJump {
    /// Its first byte.
    pub(super) place: NewAddress,
    /// Where it leads.
    pub(super) target: NewAddress,
}

/// The jumps that fill a copy from `place` to its `end`; `None` if anything else is there.
pub(super) fn tail(copies: &Copies<'_>, mut place: NewAddress, end: NewAddress) -> Option<Vec<TailJump>> {
    let mut jumps = Vec::new();
    while place < end {
        let (target, length) = jump_target(copies.new.processor, copies.copied(place)?, place)?;
        jumps.push(TailJump { place, target });
        place = place.plus(length);
    }
    (place == end).then_some(jumps)
}

/// Checks what one copy states, and its end. The error is the first difference.
fn check_fragment(copies: &mut Copies<'_>, copied: &Copied) -> Result<(), Difference> {
    // The walk succeeded when the map was made.
    let walk = || PairWalk::of(copies.old, copies.section, copied).map_while(Result::ok);
    let steps: Vec<(Repeated, Pair)> = walk().collect();
    let last = steps.last().map(|(at, pair)| (at.copy.plus(pair.new_length), pair.continues));
    let (end, continues) = last.unwrap_or((copied.copy, true));
    let Some(islands) = tail(copies, end, copied.copy_end()) else {
        return Err(wrong_end(copies, end, "jumps", "no jump"));
    };
    let ending = copied.original_end();
    let mut used = vec![false; islands.len()];
    match islands.first().copied() {
        // Control runs on.
        None if continues && copies.original(end) != Some(ending) => {
            let expected = "the copy of what follows the original, or a jump";
            return Err(wrong_end(copies, end, expected, "neither"));
        }
        Some(jump) if copies.leads_to(ending, jump.target) => {
            used[0] = true;
        }
        Some(jump) if continues => {
            let expected = format!("a jump to {ending} or its copy");
            return Err(wrong_end(copies, end, &expected, &jump.target.to_string()));
        }
        _ => {}
    }
    for (at, pair) in steps {
        check_stated(copies, (at, pair), (&islands, &mut used))?;
    }
    match islands.iter().zip(used).find(|(_, is_used)| !is_used) {
        None => Ok(()),
        Some((island, _)) => {
            Err(wrong_end(copies, island.place, "what a branch of the copy leads to", "an unused jump"))
        }
    }
}

fn wrong_end(copies: &Copies<'_>, end: NewAddress, expected: &str, found: &str) -> Difference {
    let name = format!("what follows the copy at {end}");
    Difference::new(Check::Copies, copies.offset(end), name, expected, found)
}

/// Checks the address that a copied instruction states, and notes where calls return to. Branches that do not reach their
/// target may lead to an island, a jump at the end of the same copy.
fn check_stated(
    copies: &mut Copies<'_>,
    (at, pair): (Repeated, Pair),
    (islands, used): (&[TailJump], &mut [bool]),
) -> Result<(), Difference> {
    if pair.is_call {
        let next = at.original.plus(pair.old_length);
        check_next(copies, (at.copy, at.original), next)?;
        check_callee(copies, (at.copy, at.original))?;
        copies.returned_to.insert(next);
    }
    if let Some((before, after)) =
        pair.kept.filter(|(before, after)| !copies.is_assumed_pointer(*before, *after))
    {
        return Err(wrong_address(copies, at.copy, before, after));
    }
    if let Some(guard) = pair.guard {
        return check_guard(copies, (at, pair), guard);
    }
    let Some((before, after, usage)) = pair.stated else { return Ok(()) };
    // The return address of a call is a place in the copy. Code that calls into its own function's middle computes with it.
    let learns_place = usage == Use::Call && copies.is_middle(at.original, before);
    let island = islands.binary_search_by_key(&after, |island| island.place).ok();
    let is_same = match (usage, island) {
        (Use::Jump, Some(island)) => {
            used[island] = true;
            copies.leads_to(before, islands[island].target)
        }
        (Use::Value | Use::Entry, _) if copies.forms_table((at.original, usage), before, after) => true,
        (usage, _) => leads_alike(copies, usage, before, after),
    };
    if is_same && !learns_place {
        return Ok(());
    }
    Err(wrong_address(copies, at.copy, before, after))
}

/// Checks a copied instruction after a guard: it forms the address of a copied table, and the guard leads to its original.
fn check_guard(
    copies: &mut Copies<'_>,
    (at, pair): (Repeated, Pair),
    guard: Guard,
) -> Result<(), Difference> {
    let forms_table = pair.stated.is_some_and(|(before, after, usage)| {
        usage == Use::Value && copies.forms_table((at.original, usage), before, after)
    });
    if forms_table && guard.exit.0 == at.original.0 {
        copies.guards.insert(at.original, guard);
        return Ok(());
    }
    let name = format!("the comparison before the copied instruction at {}", at.copy);
    let expected = format!("a dispatch through a copied table, and a branch to {}", at.original);
    Err(Difference::new(Check::Copies, copies.offset(at.copy), name, expected, guard.exit.to_string()))
}

fn wrong_address(copies: &Copies<'_>, place: NewAddress, before: Address, after: NewAddress) -> Difference {
    let name = format!("what the copied instruction at {place} states");
    let expected = format!("{before} or its copy");
    Difference::new(Check::Copies, copies.offset(place), name, expected, after.to_string())
}

/// Whether an address may be stated instead of another one.
fn leads_alike(copies: &mut Copies<'_>, usage: Use, before: Address, after: NewAddress) -> bool {
    match usage {
        Use::Jump | Use::Call => copies.leads_to(before, after),
        Use::Value => copies.stands_for(before, after),
        Use::Same | Use::Entry => before.0 == after.0,
    }
}
