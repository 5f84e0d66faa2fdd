//! Pointers that were stored or formed with something added, which code takes off again before it calls them: where that
//! leads from one function, or from between two, to the start of another, the distance must stay.
//!
//! Programs mark pointers that way, and with a small function right before the next the marked pointer is the address of that.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::absolute_addresses::possible_places;
use super::blocks::{GapContent, Partition};
use super::computed_addresses::CodeView;
use super::pointers::CodePointer;
use super::references::Finding;
use crate::decode::sums::CallOffset;
use crate::decode::x86_64::{DecodedBlock, FieldKind, own_addresses};
use crate::decoded_atom::beyond_sums;
use crate::elf::code::{CodeSpace, Region};
use crate::elf::relocation::{LoaderAction, LoaderRelocation};
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::refusal::RefusalCode;

/// An address that something holds: where it leads, where it stands, and whether it certainly is an address.
pub(super) type Held = (Address, Address, bool);

/// Different constants that are tried with each address: programs have a few.
const MAX_OFFSETS: usize = 256;

/// Pins for x86-64 code.
///
/// # Errors
/// R7 where code takes off more different constants than are tried.
pub(super) fn check_call_offsets(
    view: CodeView<'_, '_>,
    decoded: &[DecodedBlock],
    pointers: &[CodePointer],
    relocations: &[LoaderRelocation],
) -> Result<Vec<Finding>> {
    let CodeView { file, code, partition } = view;
    let offsets: BTreeSet<CallOffset> =
        decoded.iter().flat_map(|block| block.call_offsets.iter().copied()).collect();
    if offsets.is_empty() {
        return Ok(Vec::new());
    }
    let constants: Vec<Address> =
        if code.is_fixed_address { possible_places(file, code).collect() } else { Vec::new() };
    let operands = decoded.iter().flat_map(|block| block.absolute_candidates.iter().copied());
    // For numbers that are only perhaps addresses, only certain offsets count.
    let numbers = constants.into_iter().chain(operands).map(|target| (target, target, false));
    let stored = pointers.iter().map(|pointer| (pointer.target, pointer.place, true));
    let stored = stored.chain(stored_elsewhere(code, relocations));
    let formed = decoded.iter().flat_map(|block| &block.fields);
    let formed = formed.filter(|field| field.kind == FieldKind::AddressOf);
    let formed = formed.map(|field| (field.target(code), code.address(field.place), true));
    let own: Vec<Held> = partition
        .blocks
        .par_iter()
        .flat_map_iter(|block| {
            own_addresses(code, block.code()).into_iter().map(|target| (target, block.start, true))
        })
        .collect();
    keep_distances(code, partition, &offsets, stored.chain(numbers).chain(formed).chain(own))
}

/// The addresses that the loader stores, outside of movable code. One can be the end of a function, where a section begins that stays.
pub(super) fn stored_elsewhere(
    code: &CodeSpace<'_>,
    relocations: &[LoaderRelocation],
) -> impl Iterator<Item = Held> {
    relocations.iter().filter_map(|relocation| match relocation.action {
        LoaderAction::Relative(target) | LoaderAction::Symbolic(Some(target)) => {
            code.arena_of(target).is_none().then_some((target, relocation.place, true))
        }
        _ => None,
    })
}

/// Pins what each offset leads to from each address, with what the address leads to.
///
/// # Errors
/// R7 for more offsets than are tried.
pub(super) fn keep_distances(
    code: &CodeSpace<'_>,
    partition: &Partition,
    offsets: &BTreeSet<CallOffset>,
    addresses: impl Iterator<Item = Held>,
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    if offsets.len() > MAX_OFFSETS {
        let evidence = partition.blocks.first().map_or(Address(0), |block| block.start);
        return Err(beyond_sums(RefusalCode::PrivateRuntimeTables, evidence).into());
    }
    for (target, evidence, is_address) in addresses {
        let home = partition.block_containing(target);
        let pin = |block| Finding::Pin(block, Pin { reason: PinReason::ComputedAddress, evidence });
        // What leads to the start of a function, or to code without a name, may well be meant as it is.
        let is_marked = || match (home, partition.gap_containing(target)) {
            (Some(home), _) => !partition.block(home).is_entry(target),
            (None, gap) => gap.is_none_or(|gap| partition.gaps[gap].content == GapContent::Padding),
        };
        for CallOffset { offset, is_certain } in offsets {
            let place = target.plus(*offset);
            let Some(called) = partition.entered_at(code, place) else {
                // Stubs of the linker are called, too, and never move.
                if *is_certain && code.region(place) == Region::FixedCode {
                    findings.extend(home.map(pin));
                    findings.extend(partition.gap_containing(target).map(Finding::KeepGap));
                }
                continue;
            };
            if home != Some(called) && (*is_certain || is_address && is_marked()) {
                findings.extend(home.into_iter().chain([called]).map(pin));
                findings.extend(partition.gap_containing(target).map(Finding::KeepGap));
            }
        }
    }
    Ok(findings)
}
