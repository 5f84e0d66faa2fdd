//! Follows every way into the copy of a whole function: each instruction that can run there does what the original's does.
//!
//! Bytes that control cannot reach are not checked. Computed jumps are not followed: they compute with the same values in
//! the copy, and with no addresses of copies except starts of functions, so they lead into the original. Only return
//! addresses differ; programs are assumed not to compute with them, except after calls into a function's own middle.

use super::conventions::check_callee;
use super::copies::Copies;
use super::instruction::{Pair, Use, compare, jump_target};
use super::skipped_return::check_next;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::{Address, NewAddress};

/// Follows control from all known ways in; gives the number of instructions.
pub(super) fn follow(copies: &mut Copies<'_>, findings: &mut Findings) -> usize {
    while let Some(start) = copies.waiting.pop() {
        if let Err(difference) = follow_from(copies, start) {
            findings.differs(difference);
        }
    }
    copies.followed.len()
}

fn follow_from(copies: &mut Copies<'_>, start: NewAddress) -> Result<(), Difference> {
    let mut address = start;
    let Some(mut original) = copies.original(start) else { return Ok(()) };
    loop {
        // After the last byte of a copy another copy may begin, which is not of this original.
        if copies.original(address) != Some(original) {
            return check_end(copies, address, original);
        }
        if !copies.followed.insert(address) {
            return Ok(());
        }
        let pair = copies
            .originals(original)
            .zip(copies.copied(address))
            .and_then(|(old, new)| compare(copies.old.processor, (old, original), (new, address)))
            .filter(|pair| !pair.is_placed);
        let is_known =
            |pair: &Pair| pair.kept.is_none_or(|(before, after)| copies.is_assumed_pointer(before, after));
        let pair = pair.filter(is_known);
        let Some((pair, length)) = pair.and_then(|pair| Some((pair, pair.common_length()?))) else {
            let name = format!("the copy of the instruction at {original}");
            let offset = copies.offset(address);
            return Err(Difference::new(Check::Copies, offset, name, "the same", "another one"));
        };
        if let Some((before, after, usage)) = pair.stated {
            // The return address of a call is a place in the copy. Code that calls into its own function's middle
            // computes with it.
            let learns_place = usage == Use::Call && copies.is_middle(original, before);
            let is_same = match usage {
                Use::Jump | Use::Call => copies.leads_to(before, after),
                Use::Value => copies.stands_for(before, after),
                Use::Same | Use::Entry => before.0 == after.0,
            };
            if !is_same || learns_place {
                let name = format!("what the copied instruction at {address} states");
                let expected = format!("{before} or its copy");
                let found = after.to_string();
                return Err(Difference::new(Check::Copies, copies.offset(address), name, expected, found));
            }
        }
        if pair.is_call {
            check_next(copies, (address, original), original.plus(length))?;
            check_callee(copies, (address, original))?;
        }
        if !pair.continues {
            return Ok(());
        }
        address = address.plus(length);
        original = original.plus(length);
    }
}

/// Checks that a copy whose end control reaches is followed by a jump to the code after the original.
fn check_end(copies: &mut Copies<'_>, address: NewAddress, ending: Address) -> Result<(), Difference> {
    let target = copies.copied(address).and_then(|bytes| jump_target(copies.new.processor, bytes, address));
    match target {
        Some((target, _)) if copies.leads_to(ending, target) => Ok(()),
        _ => {
            let name = format!("what follows the copy at {address}");
            let found = target.map_or_else(|| "no jump".to_owned(), |(found, _)| found.to_string());
            Err(Difference::new(Check::Copies, copies.offset(address), name, "a jump back", found))
        }
    }
}
