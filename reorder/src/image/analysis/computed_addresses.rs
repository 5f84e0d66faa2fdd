//! Code that computes addresses of functions from constants: nothing that moves may take part.
//!
//! Four forms occur. The large code model adds a constant of eight bytes to the address of the global offset table, which it
//! computes from its own place. Position-independent code learns its own place by a call of the next instruction. Stored
//! distances lead from one function to others, and what becomes of the sum does not matter. Linkers define `__start_X` and
//! `__stop_X` around sections whose names are C identifiers, and the first function of such a section has the address of the
//! section itself.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};
use rayon::prelude::*;

use crate::address::Address;
use crate::error::Result;
use crate::image::analysis::blocks::{BlockIndex, GapContent, Partition};
use crate::image::analysis::code_sums::{SumContext, code_sums};
use crate::image::analysis::pins::{Pin, PinReason};
use crate::image::analysis::pointers::PointersByPlace;
use crate::image::analysis::references::Finding;
use crate::image::analysis::stored_distances::StoredDistances;
use crate::image::analysis::sum_parts::Sum;
use crate::image::code::{CodeSpace, Region};
use crate::image::decode::gap::GapInstructions;
use crate::image::decode::x86_64::{DecodedBlock, FieldKind};
use crate::image::decoded_atom::beyond_sums;
use crate::image::elf::file::ElfFile;
use crate::image::refusal::RefusalCode;

/// Longest table of stored distances that is looked through, in entries.
pub(crate) const LONGEST_TABLE: usize = 1 << 12;

/// Sums that are tried for one block; no hand-written dispatch has more.
pub(crate) const MOST_SUMS: usize = 1 << 20;

/// Whether `distance` leads into `text` from an address between the first and the last of `bases`.
pub(crate) fn may_lead_to_code(bases: (Address, Address), distance: u64, text: &Range<Address>) -> bool {
    let from = |base: Address| i128::from(base.0) + i128::from(distance as i64);
    from(bases.0) < i128::from(text.end.0) && from(bases.1) >= i128::from(text.start.0)
}

/// What x86-64 code is looked up in.
#[derive(Clone, Copy)]
pub struct CodeView<'a, 'data> {
    /// The image.
    pub file: &'a ElfFile<'data>,
    /// Its code.
    pub code: &'a CodeSpace<'data>,
    /// Blocks and gaps.
    pub partition: &'a Partition,
    /// What words of data hold.
    pub pointers: &'a PointersByPlace,
}

/// Pins for the first form: all that constants of the image lead to from any place that code may count from.
pub fn check_wide_constants(view: CodeView<'_, '_>, decoded: &[DecodedBlock], findings: &mut Vec<Finding>) {
    let CodeView { file, code, partition, .. } = view;
    let named = [&b".got.plt"[..], b".got"].into_iter().filter_map(|name| file.section(name));
    let mut bases: BTreeSet<Address> = named.map(|section| section.address).collect();
    for block in decoded {
        let constants = || block.wide_constants.iter();
        let sums =
            block.own_places.iter().flat_map(|place| constants().map(|constant| place.plus(*constant)));
        bases.extend(sums.filter(|sum| code.region(*sum) == Region::Data));
    }
    for (index, block) in decoded.iter().enumerate().filter(|(_, block)| !block.wide_constants.is_empty()) {
        let index = BlockIndex(index as u32);
        let evidence = partition.block(index).start;
        let pin = |block| Finding::Pin(block, Pin { reason: PinReason::ComputedAddress, evidence });
        if !block.own_places.is_empty() {
            findings.push(pin(index));
        }
        for &constant in &block.wide_constants {
            let targets = bases.iter().chain(&block.own_places).map(|base| base.plus(constant));
            findings.extend(targets.filter_map(|target| partition.block_containing(target)).map(pin));
        }
    }
}

/// Pins for the second and the third form.
///
/// # Errors
/// R7 where there are more sums than are tried.
pub fn check_code_sums(
    view: CodeView<'_, '_>,
    decoded: &[DecodedBlock],
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let distances = StoredDistances::new(view.file, view.code);
    let entries: Vec<Entry> = (0..)
        .zip(&view.partition.blocks)
        .flat_map(|(index, block)| block.function_starts().map(move |start| (start, BlockIndex(index))))
        .collect();
    let context = SumContext { code: view.code, pointers: view.pointers };
    let of_blocks = decoded
        .par_iter()
        .enumerate()
        .filter(|(_, block)| may_add_to_code(view, block))
        .map_init(InstructionInfoFactory::new, |factory, (index, _)| {
            let index = BlockIndex(index as u32);
            let range = view.partition.block(index).code();
            let bytes = view.code.bytes(range.clone());
            let decoder = Decoder::with_ip(64, bytes, range.start.0, DecoderOptions::NONE);
            let instructions: Vec<Instruction> = decoder.into_iter().collect();
            let sums = code_sums(context, &instructions, factory);
            kept_by_sums((view, &entries), &distances, Some(index), range.start, &sums)
        });
    let code_gaps = view.partition.gaps.par_iter().filter(|gap| gap.content == GapContent::Code);
    let of_gaps = code_gaps.map_init(InstructionInfoFactory::new, |factory, gap| {
        let instructions: Vec<Instruction> =
            GapInstructions::new(view.code.bytes(gap.start..gap.end), gap.start).collect();
        let sums = code_sums(context, &instructions, factory);
        kept_by_sums((view, &entries), &distances, None, gap.start, &sums)
    });
    for kept in of_blocks.chain(of_gaps).collect::<Vec<_>>() {
        findings.extend(kept?);
    }
    Ok(())
}

/// Whether the block knows an address of code that is not merely called.
fn may_add_to_code(view: CodeView<'_, '_>, block: &DecodedBlock) -> bool {
    let is_known = |address: Address| match view.code.region(address) {
        Region::Arena => true,
        _ => view.pointers.at(address).is_some(),
    };
    let mut taken =
        block.fields.iter().filter(|field| matches!(field.kind, FieldKind::AddressOf | FieldKind::Memory));
    block.invalid_at.is_none()
        && (!block.own_places.is_empty()
            || !block.absolute_candidates.is_empty()
            || taken.any(|field| is_known(field.target(view.code)))
            || view.code.is_fixed_address && block.data_references.iter().any(|place| is_known(*place)))
}

/// Where a function starts, and its block.
type Entry = (Address, BlockIndex);

/// What stays because of the sums of a block, or of code that belongs to none. Either the distances or the entries are tried,
/// whichever are fewer.
fn kept_by_sums(
    (view, entries): (CodeView<'_, '_>, &[Entry]),
    distances: &StoredDistances<'_, '_>,
    own: Option<BlockIndex>,
    evidence: Address,
    sums: &[Sum],
) -> Result<Vec<Finding>> {
    let pin = |block| Finding::Pin(block, Pin { reason: PinReason::ComputedAddress, evidence });
    let entry_at = |target: Address| {
        let block = view.partition.block_containing(target)?;
        view.partition.block(block).is_entry(target).then_some(block)
    };
    let mut budget = MOST_SUMS;
    let mut kept: BTreeSet<BlockIndex> = BTreeSet::new();
    for sum in sums {
        let stored = stored_in_sum(distances, sum);
        for &base in &sum.bases {
            let home = view.partition.block_containing(base);
            // Labels of the code itself, of which jumps inside of it are made.
            let is_inside = home == own && entry_at(base).is_none();
            let mut reached = run_of(entry_at, base, &sum.steps);
            let tries = stored.len().min(entries.len());
            budget = budget.checked_sub(tries).ok_or_else(|| beyond_sums(RefusalCode::R7, evidence))?;
            if tries == stored.len() {
                reached.extend(stored.iter().filter_map(|distance| entry_at(base.plus(*distance))));
            } else {
                let is_stored = |start: Address| stored.binary_search(&start.0.wrapping_sub(base.0)).is_ok();
                reached
                    .extend(entries.iter().filter(|(start, _)| is_stored(*start)).map(|(_, block)| *block));
            }
            reached.retain(|block| Some(*block) != home);
            if !is_inside || !reached.is_empty() {
                kept.extend(home);
            }
            kept.extend(reached);
        }
    }
    Ok(kept.into_iter().map(pin).collect())
}

/// Bytes of the narrowest number that counts wherever it is stored.
const MIN_WIDTH_ANYWHERE: u64 = 4;

/// The stored distances of a sum, each once.
fn stored_in_sum(distances: &StoredDistances<'_, '_>, sum: &Sum) -> Vec<u64> {
    let mut found = BTreeSet::new();
    for &width in &sum.widths {
        match &sum.tables {
            Some(tables) => tables.iter().for_each(|table| found.append(&mut distances.at(*table, width))),
            // Narrow numbers are everywhere: they would keep all functions close by.
            None if width >= MIN_WIDTH_ANYWHERE => found.extend(distances.anywhere(width)),
            None => {}
        }
    }
    let scales = if sum.scales.is_empty() { &[1] } else { sum.scales.as_slice() };
    let scaled = found.iter().flat_map(|distance| scales.iter().map(|scale| distance.wrapping_mul(*scale)));
    let mut all: Vec<u64> = scaled.collect();
    if sum.is_negated {
        let negated: Vec<u64> = all.iter().map(|distance| distance.wrapping_neg()).collect();
        all.extend(negated);
    }
    let span = distances.text().end.distance_from(distances.text().start);
    all.retain(|distance| (*distance as i64).unsigned_abs() < span);
    all.sort_unstable();
    all.dedup();
    all
}

/// Functions that stand in a row, each so many bytes after or before the one before it.
fn run_of(
    entry_at: impl Fn(Address) -> Option<BlockIndex>,
    base: Address,
    steps: &[u64],
) -> BTreeSet<BlockIndex> {
    let mut found = BTreeSet::new();
    for &step in steps.iter().filter(|step| **step != 0) {
        for step in [step, step.wrapping_neg()] {
            let places = (1..LONGEST_TABLE as u64).map(|count| base.plus(step.wrapping_mul(count)));
            found.extend(places.map_while(&entry_at));
        }
    }
    found
}

/// Pins what stands in a section whose start and end the linker marks.
pub fn check_named_sections(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
    findings: &mut Vec<Finding>,
) {
    for (index, block) in partition.blocks.iter().enumerate() {
        let section = file.section_at(code.arenas[block.arena as usize].section);
        if section.is_some_and(|section| is_c_identifier(section.name)) {
            let pin = Pin { reason: PinReason::NamedSection, evidence: block.start };
            findings.push(Finding::Pin(BlockIndex(index as u32), pin));
        }
    }
}

fn is_c_identifier(name: &[u8]) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.first().is_some_and(|first| !first.is_ascii_digit()) && name.iter().all(is_word)
}
