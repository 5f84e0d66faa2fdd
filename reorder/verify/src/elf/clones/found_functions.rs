//! Checks that the functions that the record claims, but nothing describes, are code.
//!
//! The writer follows control from one instruction to the next. Here the claimed ranges are read from their first byte to their
//! last instead, all of them, and must fit together: they decode to the last byte; each branch that leads into one of them leads
//! to an instruction; none of their bytes is read as data; and each start is named by the loader, by an instruction of another claimed
//! or described function, or, in an image at a fixed address, by a number in that code or in data. Data that happens to decode might pass. So pointers lead to the copy of a range only if it is *evident*: the
//! entry point, a constructor or destructor array, a dynamic symbol or a branch names its start; or one of its own branches leads
//! to a function or to a stub of the linker, and none leads out of the code; or a pointer to it lies near a pointer to an evident
//! or described function.

use std::ops::Range;

use fixedbitset::FixedBitSet;
use goblin::elf::header::ET_EXEC;
use goblin::elf::section_header::{SHT_DYNSYM, SHT_FINI_ARRAY, SHT_INIT_ARRAY, SHT_PREINIT_ARRAY};
use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};
use rayon::prelude::*;

use super::code::aligned_words;
use super::conventions::PreservedRegisters;
use crate::elf::pointers::{loaded_pointers, relative_pointers};
use crate::elf::symbol_walk::{SymbolView, symbols};
use crate::elf::view::{ElfView, SectionView};
use crate::moves::{AddressMoves, Move};
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::Address;

/// What the instructions of one range state.
#[derive(Default)]
struct Swept {
    /// Where they begin.
    begins: Vec<u64>,
    /// Where they jump or call.
    targets: Vec<u64>,
    /// Where they do so outside of the range.
    outer_targets: Vec<u64>,
    /// Where they do so outside of the range with four bytes of distance: one byte fits by chance.
    far_targets: Vec<u64>,
    /// Addresses outside of the range that they keep.
    kept: Vec<u64>,
    /// Registers that calls preserve.
    registers: PreservedRegisters,
    /// Places that they read or write.
    read: Vec<u64>,
    /// Numbers that they hold, not in the range, which may be addresses of code, because the image is at a fixed address.
    numbers: Vec<u64>,
}

/// Checks the functions that a record claims to have `found` in `image`, besides the `described` ones; gives the starts of those
/// that are evident, ascending.
pub(super) fn check_found(
    image: &ElfView<'_>,
    found: &[Range<Address>],
    described: &AddressMoves,
    findings: &mut Findings,
) -> Result<Vec<Address>, Difference> {
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let wrong = |place: Address, what: &str| {
        let name = format!("the found function at {place}");
        Difference::new(Check::Copies, None, name, "code that fits the rest", what)
    };
    let is_apart = |range: &&Range<Address>| {
        let next = described.following(range.start);
        described.containing(range.start).is_none() && next.is_none_or(|next| range.end <= next.old_start)
    };
    let numbers = numbers(image);
    let swept = |range: &Range<Address>| {
        let code = image.code_at(range.start.0, range.end.0);
        let section = code.filter(|_| image.processor == Processor::X86_64 && is_apart(&range));
        let bytes =
            section.and_then(|section| section.at(range.start.0, range.end.distance_from(range.start)));
        sweep(
            bytes.ok_or_else(|| wrong(range.start, "not code, or code of a described function"))?,
            range.start,
            &numbers,
        )
        .ok_or_else(|| wrong(range.start, "bytes that are no instructions"))
    };
    let all: Vec<Swept> = found.par_iter().map(swept).collect::<Result<_, _>>()?;
    let places = Places::new(image, found, &all);
    let fits = |(range, swept): (&Range<Address>, &Swept)| {
        if swept.targets.iter().any(|target| places.is_inside(*target)) {
            return Err(wrong(range.start, "a branch into an instruction"));
        }
        if swept.registers.are_expected() {
            return Err(wrong(
                range.start,
                "code that addresses memory through a register that it never names otherwise",
            ));
        }
        match swept.read.iter().any(|place| places.is_claimed(*place)) {
            true => Err(wrong(range.start, "an instruction that reads code")),
            false => Ok(()),
        }
    };
    found.par_iter().zip(&all).map(fits).collect::<Result<(), _>>()?;
    let described_code = described_code(image, described, &numbers);
    if described_code.iter().flat_map(|swept| &swept.targets).any(|target| places.is_inside(*target)) {
        return Err(wrong(found[0].start, "a branch of a described function into an instruction"));
    }
    if described_code.iter().flat_map(|swept| &swept.read).any(|place| places.is_claimed(*place)) {
        return Err(wrong(found[0].start, "a described function that reads code"));
    }
    let named = named(image, (&all, &described_code));
    let unnamed = found.par_iter().find_first(|range| named.binary_search(&range.start.0).is_err());
    if let Some(range) = unnamed {
        return Err(wrong(range.start, "nothing that names it"));
    }
    findings.checked(Check::Copies, "functions that control was followed to", found.len());
    Ok(evident(image, (found, &all), described, rooted(image, &described_code)))
}

/// The starts of `found` functions, whose code is `all`, that are `rooted`, or follow from these: a branch of an evident function leads
/// there; a branch from there leads to an evident or described function or to a stub of the linker, and none leads out of the code;
/// or a pointer there lies at most two words before or after a pointer to an evident or described function.
fn evident(
    image: &ElfView<'_>,
    (found, all): (&[Range<Address>], &[Swept]),
    described: &AddressMoves,
    rooted: Vec<u64>,
) -> Vec<Address> {
    /// What follows from what takes few rounds in compiled code; the rest is not evident.
    const MAX_ROUNDS: usize = 64;
    let claimed = |target: u64| found.binary_search_by_key(&target, |range| range.start.0).ok();
    let mut is_evident = vec![false; found.len()];
    let mut waiting: Vec<usize> = rooted.into_iter().filter_map(claimed).collect();
    let pointers = relative_pointers(image);
    for _ in 0..MAX_ROUNDS {
        while let Some(number) = waiting.pop() {
            if !std::mem::replace(&mut is_evident[number], true) {
                waiting.extend(all[number].far_targets.iter().filter_map(|target| claimed(*target)));
            }
        }
        let is_function = |target: u64| match claimed(target) {
            Some(number) => is_evident[number],
            None => described.starting_at(Address(target)).is_some() || is_stub(image, target),
        };
        let leads_to_function = |number: &usize| {
            let swept = &all[*number];
            let is_code = |target: &u64| image.code_at(*target, *target).is_some();
            swept.far_targets.iter().any(|target| is_function(*target)) && swept.targets.iter().all(is_code)
        };
        let unknown = (0..found.len()).into_par_iter().filter(|number| !is_evident[*number]);
        waiting.extend(unknown.filter(leads_to_function).collect::<Vec<_>>());
        let listed = pointers.iter().filter_map(|(place, target)| Some((place, claimed(*target)?)));
        let listed = listed.filter(|(place, number)| {
            let near = [8, 16].map(|distance| [place.wrapping_sub(distance), place.wrapping_add(distance)]);
            let mut near = near.into_iter().flatten().filter_map(|near| pointers.get(&near));
            !is_evident[*number] && near.any(|target| is_function(*target))
        });
        let listed: Vec<usize> = listed.map(|(_, number)| number).collect();
        waiting.extend(listed);
        if waiting.is_empty() {
            break;
        }
    }
    let starts = found.iter().zip(is_evident).filter(|(_, is_evident)| *is_evident);
    starts.map(|(range, _)| range.start).collect()
}

/// Bytes of the shortest branch with four bytes of distance.
const FAR: usize = 5;

/// All instructions of `bytes`; `None` where they do not end with one. `numbers` is the range of values that may be addresses of
/// code.
fn sweep(bytes: &[u8], start: Address, numbers: &Range<u64>) -> Option<Swept> {
    let mut swept = Swept::default();
    let end = start.0.saturating_add(bytes.len() as u64);
    // No function vouches for itself.
    let is_other = |address: &u64| !(start.0..end).contains(address);
    for instruction in Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE) {
        if instruction.is_invalid() {
            return None;
        }
        swept.begins.push(instruction.ip());
        swept.registers.note(&instruction);
        if instruction.op0_kind() == OpKind::NearBranch64 {
            let target = instruction.near_branch_target();
            swept.targets.push(target);
            if is_other(&target) {
                swept.outer_targets.push(target);
                swept.far_targets.extend((instruction.len() >= FAR).then_some(target));
            }
        } else if instruction.is_ip_rel_memory_operand() {
            let place = instruction.ip_rel_memory_address();
            match instruction.mnemonic() {
                Mnemonic::Lea => swept.kept.extend(Some(place).filter(is_other)),
                _ => swept.read.push(place),
            }
        }
        let held = (0..instruction.op_count()).filter_map(|operand| instruction.try_immediate(operand).ok());
        swept.numbers.extend(held.filter(|number| numbers.contains(number) && is_other(number)));
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
            let first = found.partition_point(|range| range.start.0 < section.address);
            let here = found[first..].iter().zip(&all[first..]);
            for (range, swept) in here.take_while(|(range, _)| section.holds(range.start.0, range.end.0)) {
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

/// Which numbers may be addresses of code: none where the loader chooses them.
fn numbers(image: &ElfView<'_>) -> Range<u64> {
    let sections = || image.code_sections().filter(|_| image.header.e_type == ET_EXEC);
    let start = sections().map(|section| section.address).min().unwrap_or(0);
    start..sections().map(SectionView::end).max().unwrap_or(0)
}

/// The code of described functions that decodes whole.
fn described_code(image: &ElfView<'_>, described: &AddressMoves, numbers: &Range<u64>) -> Vec<Swept> {
    let swept = |range: &Move| {
        let section = image.code_at(range.old_start.0, range.old_end().0)?;
        sweep(section.at(range.old_start.0, range.size)?, range.old_start, numbers)
    };
    described.as_slice().par_iter().filter_map(swept).collect()
}

/// Whether a stub that a linker makes for a function of another image begins at `address`.
fn is_stub(image: &ElfView<'_>, address: u64) -> bool {
    let section = image.code_at(address, address).filter(|section| section.name.starts_with(b".plt"));
    section.is_some_and(|section| (address - section.address).is_multiple_of(8))
}

/// Where the program, its constructors and destructors begin, and where described functions branch to, ascending.
fn rooted(image: &ElfView<'_>, described: &[Swept]) -> Vec<u64> {
    let mut rooted = vec![image.header.e_entry];
    rooted.extend(described.iter().flat_map(|swept| &swept.far_targets));
    rooted
        .extend(symbols(image, SHT_DYNSYM).filter(SymbolView::is_sized_function).map(|symbol| symbol.value));
    let arrays = [SHT_INIT_ARRAY, SHT_FINI_ARRAY, SHT_PREINIT_ARRAY];
    let arrays: Vec<_> = image.sections.iter().filter(|section| arrays.contains(&section.kind)).collect();
    rooted.extend(arrays.iter().flat_map(|section| aligned_words(section)).map(|(_, value)| value));
    let pointers = relative_pointers(image);
    rooted.extend(
        arrays
            .iter()
            .flat_map(|section| pointers.range(section.address..section.end()))
            .map(|(_, value)| value),
    );
    rooted.par_sort_unstable();
    rooted.dedup();
    rooted
}

/// Addresses of code that the image names, ascending.
fn named(image: &ElfView<'_>, (found, described): (&[Swept], &[Swept])) -> Vec<u64> {
    let mut named = rooted(image, described);
    let all = || found.iter().chain(described);
    named.extend(all().flat_map(|swept| swept.outer_targets.iter().chain(&swept.kept).chain(&swept.numbers)));
    named.extend(loaded_pointers(image).iter().map(|held| held.0));
    named.extend(symbols(image, SHT_DYNSYM).map(|symbol| symbol.value));
    if image.header.e_type == ET_EXEC {
        let data = image.sections.iter().filter(|section| section.is_loaded() && !section.is_code());
        // Most words are no addresses of code, and are not kept.
        let words = data.flat_map(aligned_words).map(|(_, value)| value);
        named.extend(words.filter(|address| image.code_at(*address, *address).is_some()));
    }
    named.retain(|address| image.code_at(*address, *address).is_some());
    named.par_sort_unstable();
    named.dedup();
    named
}
