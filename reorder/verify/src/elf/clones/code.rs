//! The code outside of the copies: unchanged, except for branches and addresses that lead to copies.

use std::collections::{BTreeMap, BTreeSet};

use goblin::elf::section_header::{
    SHT_DYNAMIC, SHT_DYNSYM, SHT_GNU_HASH, SHT_HASH, SHT_NOTE, SHT_RELA, SHT_STRTAB,
};

use super::copies::Copies;
use super::instruction::{Use, compare};
use crate::aarch64::{Form, form, page};
use crate::bytes::{displacement_at, range, u32_at, u64_at};
use crate::elf::pointers::SHT_RELR;
use crate::elf::view::SectionView;
use crate::moves::AddressMoves;
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use crate::unchanged::Claims;
use reorder_base::address::{Address, NewAddress};

/// Checks all functions of the old image and claims those that changed.
pub(super) fn check_originals(
    copies: &mut Copies<'_>,
    functions: &AddressMoves,
    claims: &mut Claims,
    findings: &mut Findings,
) {
    let mut changed = 0;
    for function in functions.as_slice() {
        let (start, size) = (function.old_start, function.size);
        let Some(offset) = copies.old.offset_of(start.0).map(|offset| offset.0) else { continue };
        let (Some(old), Some(new)) =
            (range(copies.old.bytes, offset, size), range(copies.new.bytes, offset, size))
        else {
            continue;
        };
        if old == new {
            continue;
        }
        changed += 1;
        claims.add(offset, size);
        // What is not evident may be data.
        let may_change = !functions.is_found(start) || copies.is_start(start);
        let checked = if may_change { check_function(copies, (old, new), start) } else { Err(start) };
        if let Err(at) = checked {
            let name = format!("the instruction at {at}");
            let expected = "the same, or one that leads to a copy of what it led to";
            let offset = Some(offset + at.distance_from(start));
            findings.differs(Difference::new(Check::Copies, offset, name, expected, "another one"));
        }
    }
    findings.checked(Check::Copies, "functions that lead to copies", changed);
}

/// Compares a function, which kept its place, in both images. The error is the address of the first instruction that differs
/// in more than a reference to a copy.
fn check_function(
    copies: &mut Copies<'_>,
    (old, new): (&[u8], &[u8]),
    start: Address,
) -> Result<(), Address> {
    let mut position = 0;
    while let (Some(before), Some(after)) = (old.get(position..), new.get(position..)) {
        let address = start.plus(position as u64);
        if before == after {
            return Ok(());
        }
        let pair = compare(copies.old.processor, (before, address), (after, NewAddress(address.0)))
            .ok_or(address)?;
        // Originals keep all their places.
        let length = pair.common_length().ok_or(address)?;
        if let Some((before, after, usage)) = pair.stated {
            let is_same = match usage {
                Use::Jump | Use::Call => copies.leads_to(before, after),
                Use::Value => copies.stands_for(before, after),
                Use::Same | Use::Entry => before.0 == after.0,
            };
            if !is_same {
                return Err(address);
            }
        }
        if pair.kept.is_some_and(|(before, after)| !copies.is_assumed_pointer(before, after)) {
            return Err(address);
        }
        position += length as usize;
    }
    Ok(())
}

/// Addresses among `wanted` that code of the new image may compute, at any division into instructions, each with a place
/// that does so. Originals keep their addresses, so `wanted` are addresses of the old image.
pub(super) fn formed(copies: &Copies<'_>, wanted: &BTreeSet<Address>) -> BTreeMap<Address, NewAddress> {
    let mut found = BTreeMap::new();
    for section in copies.new.code_sections() {
        match copies.new.processor {
            Processor::X86_64 => formed_x86_64(section, wanted, &mut found),
            Processor::Aarch64 => formed_aarch64(section, wanted, &mut found),
        }
    }
    found
}

/// Only `LEA` keeps an address, and its displacement is its last field.
fn formed_x86_64(
    section: &SectionView<'_>,
    wanted: &BTreeSet<Address>,
    found: &mut BTreeMap<Address, NewAddress>,
) {
    let formed = lea_targets(section).map(|(target, place)| (Address(target), NewAddress(place)));
    let formed = formed.filter(|(target, _)| wanted.contains(target));
    found.extend(formed);
}

/// For every byte sequence that is an `LEA` relative to the instruction pointer: the address that it computes, and the place
/// of its displacement.
pub(in crate::elf) fn lea_targets<'view>(
    section: &'view SectionView<'_>,
) -> impl Iterator<Item = (u64, u64)> + 'view {
    section.bytes.windows(2).enumerate().filter_map(|(position, bytes)| {
        let is_lea = bytes[0] == 0x8d && bytes[1] & 0xc7 == 0x05;
        let distance = is_lea.then(|| displacement_at(section.bytes, position + 2))??;
        let place = section.address.wrapping_add(position as u64 + 2);
        Some((place.wrapping_add(4).wrapping_add(distance), place))
    })
}

/// The instruction that completes a page is not searched for: all addresses of a computed page count.
fn formed_aarch64(
    section: &SectionView<'_>,
    wanted: &BTreeSet<Address>,
    found: &mut BTreeMap<Address, NewAddress>,
) {
    for (kind, target, place) in distances(section) {
        let formed = match kind {
            Form::Adr => Address(target)..Address(target.saturating_add(1)),
            Form::Adrp => Address(page(target))..Address(page(target).saturating_add(0x1000)),
            _ => continue,
        };
        found.extend(wanted.range(formed).map(|address| (*address, NewAddress(place))));
    }
}

/// All words read as AArch64 instructions: form, stated address, place.
pub(super) fn distances<'view>(
    section: &'view SectionView<'_>,
) -> impl Iterator<Item = (Form, u64, u64)> + 'view {
    (0..section.bytes.len()).step_by(4).filter_map(|position| {
        let word = u32_at(section.bytes, position)?;
        let place = section.address.wrapping_add(position as u64);
        Some((form(word), form(word).target(word, place), place))
    })
}

/// Whether this is a table of the loader or of the unwinder: the program compares nothing with what it holds.
pub(super) fn has_known_format(section: &SectionView<'_>) -> bool {
    const KINDS: [u32; 8] =
        [SHT_RELA, SHT_RELR, SHT_DYNSYM, SHT_STRTAB, SHT_HASH, SHT_GNU_HASH, SHT_DYNAMIC, SHT_NOTE];
    KINDS.contains(&section.kind) || section.name.starts_with(b".eh_frame")
}

/// Eight bytes at each multiple of four, as (place, value).
pub(super) fn aligned_words<'view>(
    section: &'view SectionView<'_>,
) -> impl Iterator<Item = (u64, u64)> + 'view {
    let places = (section.address..section.end()).filter(|place| place.is_multiple_of(4));
    places.filter_map(|place| {
        let position = usize::try_from(place - section.address).ok()?;
        Some((place, u64_at(section.bytes, position)?))
    })
}
