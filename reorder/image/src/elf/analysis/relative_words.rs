//! Data words that, as kept relocations tell, hold a distance to code.
//!
//! A relocation gives the sum of the target and the word's distance from the address that the distances count from,
//! but not that address. It is the word itself, the start of the run of such words, or what code refers to before
//! it; everything these lead to stays.

use crate::elf::analysis::blocks::{BlockIndex, Partition};
use crate::elf::analysis::jump_tables::JumpTable;
use crate::elf::analysis::references::Finding;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;

/// One word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelativeWord {
    /// The word.
    pub place: Address,
    /// The first of the words that stand without a space before this one.
    pub run_start: Address,
    /// S + A: what the word leads to if it counts from itself.
    pub value: Address,
    /// The relocation's symbol, if it is a place in code and not a whole section.
    pub named: Option<Address>,
}

/// Pins what the words refer to, except entries of proven jump tables, which follow their targets.
///
/// `tables` are sorted by base, `data_references` by address.
pub(crate) fn check_relative_words(
    partition: &Partition,
    words: &[RelativeWord],
    tables: &[JumpTable],
    data_references: &[Address],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for word in words {
        let after = tables.partition_point(|table| table.base <= word.place);
        if after > 0 && word.place < tables[after - 1].end() {
            continue;
        }
        let pin = Pin { reason: PinReason::RelativePointer, evidence: word.place };
        let blocks = match word.named.and_then(|named| partition.block_containing(named)) {
            Some(block) => vec![block],
            None => possible_blocks(partition, word, data_references),
        };
        findings.extend(blocks.into_iter().map(|block| Finding::Pin(block, pin)));
        // The end of a function, written as a distance: its start would move away from it.
        if let Some(gap) = partition.gap_containing(word.value) {
            findings.push(Finding::KeepBytes(gap));
            let before = partition.block_containing(Address(word.value.0.wrapping_sub(1)));
            findings.extend(before.map(|block| Finding::Pin(block, pin)));
        }
    }
    findings
}

/// Blocks that the word leads to from any of the bases; only those entered at a function's start if there are any.
fn possible_blocks(
    partition: &Partition,
    word: &RelativeWord,
    data_references: &[Address],
) -> Vec<BlockIndex> {
    let after = data_references.partition_point(|address| *address <= word.place);
    let referred = after.checked_sub(1).map(|index| data_references[index]);
    let targets = [Some(word.place), Some(word.run_start), referred]
        .into_iter()
        .flatten()
        .map(|base| Address(word.value.0.wrapping_sub(word.place.distance_from(base))));
    let found: Vec<(BlockIndex, bool)> = targets
        .filter_map(|target| {
            let index = partition.block_containing(target)?;
            Some((index, partition.block(index).is_entry(target)))
        })
        .collect();
    let has_entry = found.iter().any(|(_, is_entry)| *is_entry);
    found.into_iter().filter(|(_, is_entry)| *is_entry || !has_entry).map(|(block, _)| block).collect()
}
