//! Which functions are copied, and what of each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::inside::Insides;
use super::obstacle::Obstacle;
use super::return_address::ReturnAddresses;
use super::step::{Guard, Step};
use super::walk::{Walk, Walker};
use super::{aarch64, x86_64};
use reorder_base::address::Address;
use reorder_base::processor::Processor;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::blocks::BlockIndex;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::elf::note::probe_addresses;
use reorder_image::functions::FunctionIndex;

/// A function, or several that share bytes, of which there will be a copy.
#[derive(Clone, Debug)]
pub(super) struct Body {
    /// Its number in the partition.
    pub block: BlockIndex,
    /// Where it is.
    pub range: Range<Address>,
    /// Starts of the functions in it, ascending.
    pub function_starts: Vec<Address>,
    /// What of it is copied.
    pub walk: Walk,
}

/// A block that should have had a copy, why it has none, and the place that shows it.
pub(super) type Skipped = (BlockIndex, Obstacle, Address);

/// The same bodies with `guards` before the copies of the instructions at these places.
pub(super) fn guarded(mut bodies: Vec<Body>, guards: &BTreeMap<Address, Guard>) -> Vec<Body> {
    for body in &mut bodies {
        for (place, guard) in guards.range(body.range.clone()) {
            let offset = place.distance_from(body.range.start) as u32;
            if let Ok(position) = body.walk.steps.binary_search_by_key(&offset, |(offset, _)| *offset) {
                body.walk.steps[position].1.guard = Some(*guard);
            }
        }
    }
    bodies
}

/// The decoder for a processor.
fn decoder(processor: Processor) -> fn(&[u8], Address) -> Option<Step> {
    match processor {
        Processor::Aarch64 => aarch64::step,
        Processor::X86_64 | Processor::Other => x86_64::step,
    }
}

/// Walks the blocks of `wanted`, in that order, each once. `ran` are ranges of instructions that were executed, ascending:
/// control may enter there, too.
pub(super) fn collect(
    file: &ElfFile<'_>,
    functions: &ElfFunctions<'_>,
    analysis: &Analysis<'_>,
    wanted: &[FunctionIndex],
    ran: &[Range<Address>],
) -> (Vec<Body>, Vec<Skipped>) {
    let mut blocks = Vec::new();
    let mut is_listed = vec![false; analysis.partition.blocks.len()];
    for &function in wanted {
        let start = functions.table.get(function).start;
        let Some(block) = analysis.partition.block_containing(start) else { continue };
        if !std::mem::replace(&mut is_listed[block.0 as usize], true) {
            blocks.push(block);
        }
    }
    let named = named_places(file, analysis);
    let mut skipped = Vec::new();
    let mut bodies = Vec::new();
    let mut entries = Vec::new();
    for block in blocks {
        match entries_of(analysis, &named, block) {
            Ok(mut found) => {
                let known = analysis.partition.block(block);
                let function_starts = known.function_starts().collect();
                // Bytes before the entry, such as room for a patch, are read through the original's address.
                let range = known.first_function..known.end;
                found.extend(inner_entries(file, analysis, block, &range, ran));
                bodies.push(Body { block, range, function_starts, walk: Walk::default() });
                entries.push(found);
            }
            Err((obstacle, place)) => skipped.push((block, obstacle, place)),
        }
    }
    let known = Insides::find(file, analysis, &functions.found, &bodies);
    let mut kept = (Vec::with_capacity(bodies.len()), Vec::with_capacity(bodies.len()));
    for ((body, entries), evidence) in bodies.into_iter().zip(entries).zip(known) {
        match evidence {
            Some(place) => skipped.push((body.block, Obstacle::InsideKnown, place)),
            None => {
                kept.0.push(body);
                kept.1.push(entries);
            }
        }
    }
    (settle(analysis, kept.0, kept.1, &mut skipped), skipped)
}

/// Places in code that pointers, headers or probes name, ascending.
fn named_places(file: &ElfFile<'_>, analysis: &Analysis<'_>) -> Vec<Address> {
    let mut named: Vec<Address> = analysis.pointers.iter().map(|pointer| pointer.target).collect();
    named.extend(probe_addresses(file).map(|(_, address)| address));
    named.sort_unstable();
    named.dedup();
    named
}
/// Where control may enter the copy of a block, as distances from its start.
fn entries_of(
    analysis: &Analysis<'_>,
    named: &[Address],
    block: BlockIndex,
) -> std::result::Result<BTreeSet<u32>, (Obstacle, Address)> {
    let known = analysis.partition.block(block);
    if let Some(evidence) = analysis.exposure.inside(block) {
        return Err((Obstacle::InsideKnown, evidence));
    }
    let first = named.partition_point(|address| *address <= known.start);
    let mut inside = named[first..].iter().copied().take_while(|address| *address < known.end);
    if let Some(named) = inside.find(|named| !known.is_entry(*named)) {
        return Err((Obstacle::InsideKnown, named));
    }
    let bytes = analysis.partition.bytes_before(&analysis.code, block);
    if let Some(bytes) = bytes.filter(|_| analysis.code.processor != Processor::Aarch64) {
        return Err((Obstacle::BytesBeforeEntry, bytes));
    }
    let first = known.first_function;
    let mut entries = BTreeSet::new();
    for start in known.function_starts() {
        entries.insert(start.distance_from(first) as u32);
    }
    Ok(entries)
}

/// Where a table of `block` leads, and where execution in `range` was seen to begin, as distances from its start.
fn inner_entries(
    file: &ElfFile<'_>,
    analysis: &Analysis<'_>,
    block: BlockIndex,
    range: &Range<Address>,
    ran: &[Range<Address>],
) -> BTreeSet<u32> {
    let tables = analysis.tables.iter().filter(|table| table.owner == block);
    let targets = tables.flat_map(|table| table.targets(file));
    let first = ran.partition_point(|one| one.start < range.start);
    let began = ran[first..].iter().map(|one| one.start);
    let inside = began.take_while(|start| *start < range.end).chain(targets);
    inside
        .filter(|entry| range.contains(entry))
        .map(|entry| entry.distance_from(range.start) as u32)
        .collect()
}

/// Walks all bodies, each from its own entries and from the branches of the others. Each place is walked once.
fn settle(
    analysis: &Analysis<'_>,
    mut bodies: Vec<Body>,
    entries: Vec<BTreeSet<u32>>,
    skipped: &mut Vec<Skipped>,
) -> Vec<Body> {
    let decode = decoder(analysis.code.processor);
    let mut by_start: Vec<(Address, usize)> =
        bodies.iter().enumerate().map(|(index, body)| (body.range.start, index)).collect();
    by_start.sort_unstable();
    let mut walkers: Vec<Option<Walker<'_>>> = bodies
        .iter()
        .map(|body| {
            let code = analysis.code.bytes(body.range.clone());
            Some(Walker::new(code, body.range.clone(), &body.function_starts))
        })
        .collect();
    let own = entries.iter().enumerate();
    let mut waiting: Vec<(usize, u32)> =
        own.flat_map(|(index, entries)| entries.iter().map(move |entry| (index, *entry))).collect();
    let mut leaving = Vec::new();
    let mut return_addresses = ReturnAddresses::new(&analysis.code);
    while let Some((index, entry)) = waiting.pop() {
        let Some(walker) = &mut walkers[index] else { continue };
        if let Err((obstacle, place)) = walker.enter(entry, decode, &mut return_addresses, &mut leaving) {
            walkers[index] = None;
            skipped.push((bodies[index].block, obstacle, place));
        }
        for target in leaving.drain(..) {
            let after = by_start.partition_point(|(start, _)| *start <= target);
            if let Some(&(start, other)) = by_start[..after].last()
                && bodies[other].range.contains(&target)
            {
                waiting.push((other, target.distance_from(start) as u32));
            }
        }
    }
    let walks: Vec<_> = walkers
        .into_iter()
        .map(|walker| walker.map(|walker| walker.finish(analysis.code.is_fixed_address)))
        .collect();
    let mut kept = Vec::with_capacity(bodies.len());
    for (mut body, walk) in bodies.drain(..).zip(walks) {
        match walk {
            Some(Ok(walk)) => {
                body.walk = walk;
                kept.push(body);
            }
            Some(Err((obstacle, place))) => skipped.push((body.block, obstacle, place)),
            None => {}
        }
    }
    kept
}
