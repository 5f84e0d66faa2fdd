//! Pins functions between which data holds distances, for x86-64: see [`crate::stored_distances`].

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::Coverage;
use super::blocks::BlockIndex;
use super::computed_addresses::{CodeView, OtherWords};
use super::named_addresses::{LoadedAddresses, Naming};
use super::references::Finding;
use crate::decode::x86_64::DecodedBlock;
use crate::decoded_atom::check_budget;
use crate::pins::{Pin, PinReason};
use crate::stored_distances::{DistanceSearch, NamedAddresses, SumBudget};
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::refusal::RefusalCode;

/// Functions, each with a table that leads to it.
type Reached = BTreeMap<Address, Address>;

/// Pins for the functions between which data that one block or gap names holds distances. The words of `others` are none.
///
/// # Errors
/// R7 if there are more sums than are tried.
pub(super) fn check_stored_distances(
    view: CodeView<'_, '_>,
    (decoded, distrusted, coverage): (&[DecodedBlock], &[BlockIndex], Coverage),
    loaded: &LoadedAddresses,
    others: OtherWords<'_>,
) -> Result<Vec<Finding>> {
    let text = view.text();
    let budget = SumBudget::for_code(text.end.distance_from(text.start));
    let search = DistanceSearch {
        image: view.file,
        text: text.clone(),
        is_start: &|address| view.partition.entered_at(view.code, address).is_some(),
        is_other: &|place, width| others.contains(place, width),
        budget: &budget,
    };
    let naming = Naming { view, loaded, budget: &budget };
    // If there are too many, the whole image is refused.
    let reached = |named: NamedAddresses| search.distances(&named).unwrap_or_default();
    let of_blocks = decoded.par_iter().enumerate().with_min_len(64).map(|(index, block)| {
        let index = BlockIndex(index as u32);
        let named = naming.of_block(index, block, distrusted.binary_search(&index).is_ok());
        named.map_or_else(Reached::new, reached)
    });
    // Where functions are only copied, distances between originals hold, and gaps may be nearly all of the code.
    let gaps = view.partition.gaps.par_iter().filter(|_| coverage == Coverage::Half);
    let of_gaps = gaps.map(|gap| naming.of_gap(gap).into_iter().map(reached).fold(Reached::new(), joined));
    let functions = joined(of_blocks.reduce(Reached::new, joined), of_gaps.reduce(Reached::new, joined));
    check_budget(&budget, text.start, RefusalCode::PrivateRuntimeTables)?;
    let pins = functions.into_iter().filter_map(|(function, evidence)| {
        let block = view.partition.block_containing(function)?;
        Some(Finding::Pin(block, Pin { reason: PinReason::ComputedAddress, evidence }))
    });
    Ok(pins.collect())
}

/// Both, with the first table of each.
fn joined(mut all: Reached, some: Reached) -> Reached {
    for (function, table) in some {
        let evidence = all.entry(function).or_insert(table);
        *evidence = table.min(*evidence);
    }
    all
}
