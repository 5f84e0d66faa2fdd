//! Pins functions between which data holds distances, for x86-64: see [`crate::stored_distances`].

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::blocks::BlockIndex;
use super::computed_addresses::{CodeView, OtherWords, far_addresses};
use super::pointers::{CodePointer, PointersByPlace};
use super::references::Finding;
use crate::decode::x86_64::{DecodedBlock, FieldKind};
use crate::decoded_atom::beyond_sums;
use crate::elf::code::Region;
use crate::elf::relocation::LoaderRelocation;
use crate::pins::{Pin, PinReason};
use crate::stored_distances::{DistanceSearch, NamedAddresses, StoredDistances, stored_address, words_from};
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::refusal::RefusalCode;

/// Addresses that the loader stores, by place.
pub(super) struct Loaded {
    code: PointersByPlace,
    data: PointersByPlace,
}

impl Loaded {
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

/// What each block names that names a function and data.
pub(super) fn named_addresses(
    view: CodeView<'_, '_>,
    decoded: &[DecodedBlock],
    loaded: &Loaded,
) -> Vec<(BlockIndex, NamedAddresses)> {
    let is_function = |address: &Address| view.partition.entered_at(view.code, *address).is_some();
    let named = decoded.par_iter().enumerate().with_min_len(64).filter_map(|(index, block)| {
        if block.data_references.is_empty() && block.own_places.is_empty() {
            return None;
        }
        let index = BlockIndex(index as u32);
        let far = far_addresses(view, index, block).unwrap_or_default();
        let data = || block.data_references.iter().chain(&far).copied();
        let words = data().flat_map(words_from);
        let read: BTreeSet<Address> = words.filter_map(|word| loaded.at(view, word)).collect();
        let taken = block.fields.iter().filter(|field| field.kind == FieldKind::AddressOf);
        let bases: BTreeSet<Address> = taken
            .map(|field| field.target(view.code))
            .chain(block.absolute_candidates.iter().copied())
            .chain(read.iter().chain(&far).copied())
            .filter(is_function)
            // The block that takes the address of one of its own places may count from there.
            .chain(block.own_places.iter().copied())
            .collect();
        let places = data().chain(read);
        let places: BTreeSet<Address> =
            places.filter(|place| view.code.region(*place) == Region::Data).collect();
        let size = view.partition.block(index).size();
        Some((index, NamedAddresses { bases, places, size }))
    });
    named.filter(|(_, named)| !named.bases.is_empty() && !named.places.is_empty()).collect()
}

/// Pins for the functions between which data that one block names holds distances. The words of `others` are none.
///
/// # Errors
/// R7 if a block names too many addresses to try.
pub(super) fn check_stored_distances(
    view: CodeView<'_, '_>,
    named: &[(BlockIndex, NamedAddresses)],
    others: OtherWords<'_>,
) -> Result<Vec<Finding>> {
    let search = DistanceSearch {
        image: view.file,
        text: view.text(),
        is_start: &|address| view.partition.entered_at(view.code, address).is_some(),
        is_other: &|place, width| others.contains(place, width),
    };
    let found: Vec<(BlockIndex, Option<Vec<StoredDistances>>)> =
        named.par_iter().map(|(index, named)| (*index, search.distances(named))).collect();
    let mut findings = Vec::new();
    for (index, found) in found {
        let evidence = view.partition.block(index).start;
        let found = found.ok_or_else(|| beyond_sums(RefusalCode::PrivateRuntimeTables, evidence))?;
        for distances in found {
            let pin = Pin { reason: PinReason::ComputedAddress, evidence: distances.table };
            let functions = distances.reached.iter().chain([&distances.base]);
            let blocks = functions.filter_map(|function| view.partition.block_containing(*function));
            findings.extend(blocks.map(|block| Finding::Pin(block, pin)));
        }
    }
    Ok(findings)
}
