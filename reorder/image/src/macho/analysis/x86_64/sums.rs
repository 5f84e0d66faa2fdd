//! Calls and jumps to sums: the address of a function plus a distance that the program keeps in its data.
//!
//! Such distances count from a function and not from their own place, so no list and no scan of the data knows them. Where
//! the code of an atom goes to a register that may hold a sum, the functions whose addresses it takes stay, and so do all
//! that the words of the tables it addresses lead to from there. Which of them are in the sum is not followed: too much
//! costs a function its freedom.

use std::collections::BTreeSet;
use std::ops::Range;

use super::X86Context;
use super::fields::Use;
use super::sum_flow::goes_to_sum;
use super::walk::Walk;
use crate::elf::analysis::computed_addresses::{MAX_SUMS, MAX_TABLE_WORDS, may_lead_to_code};
use reorder_base::address::Address;

/// Bytes of the distances that programs store.
const WIDTHS: [u64; 2] = [4, 8];

/// Possible targets of sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    /// Functions that must stay, sorted.
    pub(super) functions: Vec<Address>,
}

/// Possible targets of the sums that `atom` branches to. `explained` are its jumps whose targets are known.
pub(super) fn reached(
    context: &X86Context<'_>,
    atom: &Range<Address>,
    walk: &Walk<'_>,
    is_explained: impl Fn(Address) -> bool,
) -> Reached {
    let text = context.file.text().range();
    let taken = walk.fields.iter().filter(|field| field.used == Use::Take).map(|field| field.target);
    let bases: BTreeSet<Address> =
        taken.filter(|target| text.contains(target) && !atom.contains(target)).collect();
    let (Some(lowest), Some(highest)) = (bases.first().copied(), bases.last().copied()) else {
        return Reached::default();
    };
    if !goes_to_sum(&walk.instructions(), |jump| is_explained(Address(jump))) {
        return Reached::default();
    }
    let mut functions = bases.clone();
    let tables: BTreeSet<Address> = walk
        .fields
        .iter()
        .filter(|field| matches!(field.used, Use::Take | Use::Memory))
        .map(|field| field.target)
        .filter(|place| !context.is_code(*place))
        .collect();
    let mut budget = MAX_SUMS;
    for (table, width) in tables.iter().flat_map(|table| WIDTHS.map(|width| (*table, width))) {
        let words = (0..MAX_TABLE_WORDS as u64).map_while(|index| {
            let place = table.plus(width * index);
            match width {
                4 => context.file.word_at(place).map(|word| i64::from(word as i32) as u64),
                _ => context.file.long_at(place),
            }
        });
        for word in words.filter(|word| *word != 0 && may_lead_to_code((lowest, highest), *word, &text)) {
            let Some(rest) = budget.checked_sub(bases.len()) else {
                // A function with this many tables is a large one of another kind, whose sum may be a false alarm of the
                // marks.
                return Reached { functions: functions.into_iter().collect() };
            };
            budget = rest;
            let targets = bases.iter().map(|base| base.plus(word));
            functions.extend(targets.filter(|target| context.starts.binary_search(target).is_ok()));
        }
    }
    Reached { functions: functions.into_iter().collect() }
}
