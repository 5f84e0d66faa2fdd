//! Functions that nothing describes, which the record claims, are code.
//!
//! The writer follows control from one instruction to the next. Here the claimed ranges are read from their first byte to their
//! last instead, all of them, and must fit together: they decode to the last byte; each branch that leads into one of them leads
//! to an instruction; none of their bytes is read as data; and the loader, or an instruction of a claimed or described function,
//! names each start. A range with data in it, or one that begins in the middle of an instruction, would have to state distances
//! that fit by chance.

use std::ops::Range;

use fixedbitset::FixedBitSet;
use goblin::elf::header::ET_EXEC;
use goblin::elf::section_header::{SHT_DYNSYM, SHT_FINI_ARRAY, SHT_INIT_ARRAY, SHT_PREINIT_ARRAY};
use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};
use rayon::prelude::*;

use super::code::aligned_words;
use super::pointers::held_addresses;
use crate::elf::symbol_walk::symbols;
use crate::elf::view::ElfView;
use crate::moves::AddressMoves;
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::Address;

/// What the instructions of one range state.
struct Swept {
    /// Where they begin.
    begins: Vec<u64>,
    /// Where they jump or call.
    targets: Vec<u64>,
    /// Addresses that they keep.
    kept: Vec<u64>,
    /// Places that they read or write.
    read: Vec<u64>,
}

/// Checks the functions that a record claims to have `found` in `image`, besides the `described` ones.
pub(super) fn check_found(
    image: &ElfView<'_>,
    found: &[Range<Address>],
    described: &AddressMoves,
    findings: &mut Findings,
) -> Result<(), Difference> {
    if found.is_empty() {
        return Ok(());
    }
    let wrong = |place: Address, what: &str| {
        let name = format!("the found function at {place}");
        Difference::new(Check::Copies, None, name, "code that fits to all other code", what)
    };
    let is_apart = |range: &&Range<Address>| {
        let next = described.following(range.start);
        described.containing(range.start).is_none() && next.is_none_or(|next| range.end <= next.old_start)
    };
    let swept = |range: &Range<Address>| {
        let code = image.code_at(range.start.0, range.end.0);
        let section = code.filter(|_| image.processor == Processor::X86_64 && is_apart(&range));
        let bytes =
            section.and_then(|section| section.at(range.start.0, range.end.distance_from(range.start)));
        sweep(bytes.ok_or_else(|| wrong(range.start, "no code apart from described functions"))?, range.start)
            .ok_or_else(|| wrong(range.start, "bytes that are no instructions"))
    };
    let all: Vec<Swept> = found.par_iter().map(swept).collect::<Result<_, _>>()?;
    let places = Places::new(image, found, &all);
    let fits = |(range, swept): (&Range<Address>, &Swept)| {
        if swept.targets.iter().any(|target| places.is_inside(*target)) {
            return Err(wrong(range.start, "a branch into an instruction"));
        }
        match swept.read.iter().any(|place| places.is_claimed(*place)) {
            true => Err(wrong(range.start, "an instruction that reads code")),
            false => Ok(()),
        }
    };
    found.par_iter().zip(&all).map(fits).collect::<Result<(), _>>()?;
    let named = named(image, described, &all);
    let unnamed = found.par_iter().find_first(|range| named.binary_search(&range.start.0).is_err());
    if let Some(range) = unnamed {
        return Err(wrong(range.start, "no instruction and no word that names it"));
    }
    findings.checked(Check::Copies, "functions that control was followed to", found.len());
    Ok(())
}

/// All instructions of `bytes`; `None` where they do not end with one.
fn sweep(bytes: &[u8], start: Address) -> Option<Swept> {
    let mut swept = Swept { begins: Vec::new(), targets: Vec::new(), kept: Vec::new(), read: Vec::new() };
    for instruction in Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE) {
        if instruction.is_invalid() {
            return None;
        }
        swept.begins.push(instruction.ip());
        if instruction.op0_kind() == OpKind::NearBranch64 {
            swept.targets.push(instruction.near_branch_target());
        } else if instruction.is_ip_rel_memory_operand() {
            let places =
                if instruction.mnemonic() == Mnemonic::Lea { &mut swept.kept } else { &mut swept.read };
            places.push(instruction.ip_rel_memory_address());
        }
    }
    Some(swept)
}

/// Which bytes of code are claimed, and where instructions begin there.
struct Places {
    sections: Vec<(u64, FixedBitSet, FixedBitSet)>,
}

impl Places {
    fn new(image: &ElfView<'_>, found: &[Range<Address>], all: &[Swept]) -> Self {
        let mut sections = Vec::new();
        for section in image.code_sections() {
            let of_size = || FixedBitSet::with_capacity(section.bytes.len());
            let (mut claimed, mut begins) = (of_size(), of_size());
            let here = found.iter().zip(all).filter(|(range, _)| section.holds(range.start.0, range.end.0));
            for (range, swept) in here {
                let position = |address: u64| (address - section.address) as usize;
                claimed.insert_range(position(range.start.0)..position(range.end.0));
                swept.begins.iter().for_each(|begin| begins.insert(position(*begin)));
            }
            sections.push((section.address, claimed, begins));
        }
        Self { sections }
    }

    fn at(&self, address: u64) -> Option<(bool, bool)> {
        let after = self.sections.partition_point(|(start, ..)| *start <= address);
        let (start, claimed, begins) = self.sections.get(after.checked_sub(1)?)?;
        let position = usize::try_from(address - start).ok()?;
        Some((claimed.contains(position), begins.contains(position)))
    }

    fn is_claimed(&self, address: u64) -> bool {
        self.at(address).is_some_and(|(is_claimed, _)| is_claimed)
    }

    /// Whether a byte is claimed, and no first byte of an instruction.
    fn is_inside(&self, address: u64) -> bool {
        self.at(address).is_some_and(|(is_claimed, begins)| is_claimed && !begins)
    }
}

/// Addresses that the image names, ascending.
fn named(image: &ElfView<'_>, described: &AddressMoves, all: &[Swept]) -> Vec<u64> {
    let mut named = vec![image.header.e_entry];
    named.extend(all.iter().flat_map(|swept| swept.targets.iter().chain(&swept.kept)));
    named.extend(held_addresses(image, image.bytes).iter().map(|held| held.before.0));
    named.extend(symbols(image, SHT_DYNSYM).map(|symbol| symbol.value));
    if image.header.e_type == ET_EXEC {
        let arrays = [SHT_INIT_ARRAY, SHT_FINI_ARRAY, SHT_PREINIT_ARRAY];
        let listed = image.sections.iter().filter(|section| arrays.contains(&section.kind));
        named.extend(listed.flat_map(aligned_words).map(|(_, value)| value));
    }
    for range in described.iter() {
        let section = image.code_at(range.old_start.0, range.old_end().0);
        let bytes = section.and_then(|section| section.at(range.old_start.0, range.size));
        let swept = bytes.and_then(|bytes| sweep(bytes, range.old_start));
        named.extend(swept.into_iter().flat_map(|swept| swept.targets.into_iter().chain(swept.kept)));
    }
    named.retain(|address| image.code_at(*address, *address).is_some());
    named.par_sort_unstable();
    named.dedup();
    named
}
