//! Pins code that only symbols describe, in an image whose compilers write unwind entries.
//!
//! Compilers write an unwind entry for every function or, if told so, for none. So if others have entries, functions without
//! one come from another source: hand-written assembly, or a generator, as in the case of V8's built-in functions. Such code
//! may be entered in ways that neither code nor data shows: by the distance from the first function, stored in a table of an
//! unknown form, or by adding sizes. A symbol does not rule that out.
//!
//! A function is *reached* if a branch or an address formed elsewhere, a pointer or an exported name leads to it. An
//! unreached function is dead or entered in an unknown way; then its neighbours without entries, reached or not, may be
//! entered in that way as well. How strong this evidence is depends on the share of the code that has no entries:
//!
//! * **Small** (at most an eighth of all functions): neighbours without entries stay if one of them is unreached.
//! * **Larger**, as in static programs with a C library that was built without entries, whose unreached functions are dead:
//!   neighbours stay if a quarter of them is unreached. In compiled code up to a sixth is unreached, in generated blobs nine
//!   tenths. If it is less, those stay around which unreached functions are dense.
//! * **All**, except the startup code: no compiler wrote entries, so none is missing. Symbols are enough.

use std::ops::Range;

use object::elf::DT_SONAME;

use crate::elf::analysis::blocks::{Block, BlockIndex, Partition};
use crate::elf::analysis::fields::CodeFields;
use crate::elf::analysis::pointers::CodePointer;
use crate::elf::analysis::references::Finding;
use crate::elf::code::CodeSpace;
use crate::elf::dynamic::DynamicEntry;
use crate::elf::functions::ElfFunctions;
use crate::functions::FunctionTable;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;

/// If at most one in so many functions has no entry, compilers wrote entries for all functions that they compiled.
const FEW: usize = 8;

/// Compiled code has fewer than one in so many unreached functions.
const UNREACHED: usize = 4;

/// Number of neighbours examined together if few of all are unreached; these stay if half of them are.
const WINDOW: usize = 8;

/// The references known so far.
pub(super) struct Known<'run, 'data> {
    pub(super) code: &'run CodeSpace<'data>,
    pub(super) functions: &'run ElfFunctions<'data>,
    pub(super) partition: &'run Partition,
    pub(super) dynamic: &'run [DynamicEntry],
    pub(super) fields: &'run CodeFields,
    pub(super) pointers: &'run [CodePointer],
    /// Code addresses that the headers hold.
    pub(super) roots: &'run [Address],
}

/// Pins such code; `earlier` are the findings of all other checks.
pub(super) fn check_undescribed_code(known: &Known<'_, '_>, earlier: &[Finding]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_described = described_blocks(&known.functions.table, known.partition);
    let undescribed = is_described.iter().filter(|is_described| !**is_described).count();
    let start_up =
        |index: usize| known.roots.iter().any(|root| known.partition.blocks[index].is_entry(*root));
    let has_entries = (0..is_described.len()).any(|index| is_described[index] && !start_up(index));
    if undescribed == 0 || !has_entries {
        return findings;
    }
    let is_reached = reached_blocks(known, earlier);
    let tolerated = if undescribed * FEW <= is_described.len() { 0 } else { UNREACHED };
    let runs = runs(&known.partition.blocks, &is_described);
    let staying = runs.into_iter().flat_map(|run| suspicious(run, &is_reached, tolerated));
    for run in staying {
        let evidence = known.partition.blocks[run.start].start;
        let pin = Pin { reason: PinReason::Undescribed, evidence };
        findings.extend(gaps_between(known.partition, &run).map(Finding::KeepGap));
        findings.extend(run.map(|index| Finding::Pin(BlockIndex(index as u32), pin)));
    }
    findings
}

/// Padding inside of a run. A function placed there would split the run, and its parts would look harmless when the result
/// is analysed again.
fn gaps_between(partition: &Partition, run: &Range<usize>) -> Range<usize> {
    let (first, last) = (partition.blocks[run.start].end, partition.blocks[run.end - 1].start);
    let before = |address: Address| partition.gaps.partition_point(|gap| gap.start < address);
    before(first)..before(last).max(before(first))
}

/// For each block, whether an unwind entry covers some of it.
fn described_blocks(functions: &FunctionTable<'_>, partition: &Partition) -> Vec<bool> {
    let mut is_described = vec![false; partition.blocks.len()];
    for (_, function) in functions.iter().filter(|(_, function)| function.has_unwind_entry) {
        if let Some(block) = partition.block_containing(function.start) {
            is_described[block.0 as usize] = true;
        }
    }
    is_described
}

/// Maximal runs of neighbouring undescribed blocks in one section.
fn runs(blocks: &[Block], is_described: &[bool]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for index in (0..blocks.len()).filter(|&index| !is_described[index]) {
        match runs.last_mut() {
            Some(run) if run.end == index && blocks[run.start].arena == blocks[index].arena => run.end += 1,
            _ => runs.push(index..index + 1),
        }
    }
    runs
}

/// The parts of a run that stay, if one in `tolerated` of its blocks is unreached; 0 tolerates none.
fn suspicious(run: Range<usize>, is_reached: &[bool], tolerated: usize) -> Vec<Range<usize>> {
    let unreached = |range: Range<usize>| is_reached[range].iter().filter(|is_reached| !**is_reached).count();
    let in_run = unreached(run.clone());
    if in_run > 0 && (tolerated == 0 || in_run * tolerated >= run.len()) {
        return vec![run];
    }
    let windows = (run.start..run.end.saturating_sub(WINDOW - 1)).map(|start| start..start + WINDOW);
    windows.filter(|window| unreached(window.clone()) * 2 >= WINDOW).collect()
}

/// For each block, whether a known reference from outside leads to it.
fn reached_blocks(known: &Known<'_, '_>, findings: &[Finding]) -> Vec<bool> {
    let partition = known.partition;
    let mut is_reached = vec![false; partition.blocks.len()];
    let mut reach = |target: Address| {
        if let Some(block) = partition.block_containing(target) {
            is_reached[block.0 as usize] = true;
        }
    };
    known.pointers.iter().for_each(|pointer| reach(pointer.target));
    known.roots.iter().for_each(|&root| reach(root));
    match known.fields {
        CodeFields::X86_64(fields) => {
            let all = fields.of(0..partition.blocks.len() as u32).iter();
            all.for_each(|field| reach(field.target(known.code)));
        }
        CodeFields::Aarch64(references) => {
            for (index, block) in partition.blocks.iter().enumerate() {
                let outside = references
                    .of_atom(index, block.start)
                    .filter(|reference| !(block.start..block.end).contains(&reference.target));
                outside.for_each(|reference| reach(reference.target));
            }
        }
    }
    // Programs export functions for plugins that may not exist; a library is entered through any exported name.
    if known.dynamic.iter().any(|entry| entry.tag == DT_SONAME.0) {
        let exported = known.functions.dynamic_symbols.iter();
        exported.filter(|symbol| symbol.defining_section().is_some()).for_each(|symbol| reach(symbol.value));
    }
    // Functions that stay because an unknown reference may lead to them.
    for finding in findings {
        if let Finding::Pin(block, Pin { reason: PinReason::AbsoluteAddress | PinReason::GapReference, .. }) =
            finding
        {
            is_reached[block.0 as usize] = true;
        }
    }
    is_reached
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)] // runs are ranges
    use super::{UNREACHED, suspicious};

    #[test]
    fn runs_stay_where_much_of_them_is_unreached() {
        let with = |reached: &[u8], tolerated| {
            let is_reached: Vec<bool> = reached.iter().map(|letter| *letter == b'r').collect();
            suspicious(0..is_reached.len(), &is_reached, tolerated)
        };
        let run = |reached: &[u8]| with(reached, UNREACHED);
        assert_eq!(with(b"rrrrrrrrr-", 0), [0..10]);
        assert_eq!(with(b"rrrrrrrrrr", 0), []);
        assert_eq!(run(b"r-r-"), [0..4], "a blob is entered by its start and what that calls");
        assert_eq!(run(b"rrrr"), [], "every way is known");
        assert_eq!(run(b"-"), [0..1]);
        let compiled = [b"rrr-rrrrr-rrrrrrr".as_slice(); 4].concat();
        assert_eq!(run(&compiled), []);
        let with_blob = [&compiled[..], b"r-------r", &compiled[..]].concat();
        let (start, end) = (compiled.len(), compiled.len() + 9);
        let staying = run(&with_blob);
        assert!((start..end).all(|index| staying.iter().any(|window| window.contains(&index))));
        assert!(staying.iter().all(|window| window.start + 8 > start && window.end < end + 8));
    }
}
