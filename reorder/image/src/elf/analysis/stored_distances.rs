//! Pins functions between which data holds distances, for x86-64: see [`crate::stored_distances`].

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::blocks::BlockIndex;
use super::computed_addresses::{CodeView, OtherWords, far_addresses, far_constants};
use super::pointers::{CodePointer, PointersByPlace};
use super::references::Finding;
use crate::decode::x86_64::{DecodedBlock, FieldKind};
use crate::decoded_atom::check_budget;
use crate::elf::code::Region;
use crate::elf::relocation::LoaderRelocation;
use crate::pins::{Pin, PinReason};
use crate::stored_distances::{DistanceSearch, NamedAddresses, SumBudget, stored_address, words_read};
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::refusal::RefusalCode;

/// Pins for the functions between which data that one block names holds distances. The words of `others` are none.
///
/// # Errors
/// R7 if there are more sums than are tried.
pub(super) fn check_stored_distances(
    view: CodeView<'_, '_>,
    (decoded, distrusted): (&[DecodedBlock], &[BlockIndex]),
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
    let blocks = decoded.par_iter().enumerate().with_min_len(64);
    let found = blocks.map(|(index, block)| {
        let index = BlockIndex(index as u32);
        let is_distrusted = distrusted.binary_search(&index).is_ok();
        let named = named_addresses(view, (index, block, is_distrusted), loaded, &budget);
        // If there are too many, the whole image is refused.
        named.and_then(|named| search.distances(&named)).unwrap_or_default()
    });
    let functions = found.reduce(BTreeMap::new, |mut all, some| {
        for (function, table) in some {
            let evidence = all.entry(function).or_insert(table);
            *evidence = table.min(*evidence);
        }
        all
    });
    check_budget(&budget, text.start, RefusalCode::PrivateRuntimeTables)?;
    let pins = functions.into_iter().filter_map(|(function, evidence)| {
        let block = view.partition.block_containing(function)?;
        Some(Finding::Pin(block, Pin { reason: PinReason::ComputedAddress, evidence }))
    });
    Ok(pins.collect())
}

/// Addresses that the loader stores, by place.
pub(super) struct LoadedAddresses {
    code: PointersByPlace,
    data: PointersByPlace,
}

impl LoadedAddresses {
    pub(super) fn new(
        view: CodeView<'_, '_>,
        pointers: &[CodePointer],
        relocations: &[LoaderRelocation],
    ) -> Self {
        Self {
            code: PointersByPlace::new(pointers).with_symbols(view.code, relocations),
            data: PointersByPlace::of_data(view.code, relocations),
        }
    }

    /// The address in the eight bytes at `place`.
    fn at(&self, view: CodeView<'_, '_>, place: Address) -> Option<Address> {
        let loaded = self.code.at(place).or_else(|| self.data.at(place));
        loaded.or_else(|| stored_address(view.file, place))
    }
}

/// The addresses that a block forms or loads; `None` if there are too many.
fn named_addresses(
    view: CodeView<'_, '_>,
    (index, block, is_distrusted): (BlockIndex, &DecodedBlock, bool),
    loaded: &LoadedAddresses,
    budget: &SumBudget,
) -> Option<NamedAddresses> {
    let is_data = |place: &Address| view.code.region(*place) == Region::Data;
    let is_code = |place: &Address| matches!(view.code.region(*place), Region::Arena | Region::FixedCode);
    let targets = |kind| -> BTreeSet<Address> {
        let fields = block.fields.iter().filter(|field| field.kind == kind);
        fields.map(|field| field.target(view.code)).collect()
    };
    let (accessed, formed) = (targets(FieldKind::Memory), targets(FieldKind::AddressOf));
    let constants = far_constants(view, index, block).len();
    budget.spend(block.data_references.len().saturating_mul(constants))?;
    let Some(mut far) = far_addresses(view, index, block) else {
        return budget.spend(usize::MAX).and(None);
    };
    if is_distrusted {
        far.extend(possible_addresses(view, index));
    }
    let mut names: BTreeSet<Address> = block.data_references.iter().chain(&far).copied().collect();
    names.retain(is_data);
    // A variable of another object is loaded from where its address is loaded from.
    let variables: Vec<Address> =
        names.iter().filter_map(|place| loaded.at(view, *place)).filter(is_data).collect();
    // Constants may be addresses that the code forms.
    let is_only_accessed = |place: &Address| accessed.contains(place) && !formed.contains(place);
    let words = names.iter().flat_map(|place| words_read(*place, !is_only_accessed(place)));
    let words = words.chain(variables.iter().flat_map(|place| words_read(*place, false)));
    let read: BTreeSet<Address> = words.filter_map(|word| loaded.at(view, word)).collect();
    names.extend(variables);
    names.extend(read.iter().copied());
    let stated = block.absolute_candidates.iter().chain(&accessed).chain(&read).chain(&far).copied();
    // Code of no function never moves, but functions do at distances from it.
    let may_be_base = |address: &Address| match view.partition.block_containing(*address) {
        Some(_) => view.partition.entered_at(view.code, *address).is_some(),
        None => is_code(address),
    };
    let bases = stated.filter(may_be_base).chain(formed.iter().copied().filter(is_code));
    // The block that takes the address of one of its own places may count from there.
    let bases = bases.chain(block.own_places.iter().copied()).collect();
    Some(NamedAddresses { bases, places: names.into_iter().filter(is_data).collect() })
}

/// Addresses that the bytes of a block may hold, or the distances to them, wherever its instructions start.
fn possible_addresses(view: CodeView<'_, '_>, index: BlockIndex) -> impl Iterator<Item = Address> {
    /// Bytes of an immediate number after the distance.
    const IMMEDIATES: [u64; 4] = [0, 1, 2, 4];
    let block = view.partition.block(index);
    let ends = (4..).map(|end| block.start.plus(end));
    let windows = view.code.bytes(block.start..block.end).windows(4).zip(ends);
    let distances = windows.filter_map(|(window, end)| {
        let distance = i64::from(i32::from_le_bytes(*window.first_chunk()?)).cast_unsigned();
        let relative = IMMEDIATES.map(|immediate| end.plus(immediate).plus(distance));
        let stated = view.code.is_fixed_address.then_some(Address(distance));
        Some(relative.into_iter().chain(stated))
    });
    distances.flatten().filter(move |address| view.code.region(*address) != Region::Outside)
}
