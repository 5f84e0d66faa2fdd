//! Data words that hold a distance to a function: invisible to the loader, hence pins.
//!
//! Compilers write them for relative virtual tables and some runtimes; hand-written code does too. Three scans:
//! words relative to themselves in all data, words relative to an address that code forms or a pointer holds, and words that
//! are named themselves, relative to what is named before them.

use rayon::prelude::*;

use crate::elf::analysis::blocks::{BlockIndex, Partition};
use crate::elf::analysis::computed_addresses::MAX_TABLE_WORDS;
use crate::elf::analysis::jump_tables::JumpTable;
use crate::elf::analysis::references::Finding;
use crate::elf::code::CodeSpace;
use crate::elf::file::ElfFile;
use crate::elf::section::Section;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;
use reorder_base::processor::Processor;

/// Entries of an unrolled loop that may be named before one, and how far before.
const MAX_UNROLLED: usize = 64;
const MAX_UNROLLED_BYTES: u64 = 512;

/// Words of a table that are read after the next place that is named. More would let a damaged file with many names cost their
/// number times the size of the table.
const MAX_WORDS_AFTER_NAME: u64 = MAX_TABLE_WORDS as u64;

/// Addresses that words may count from; both lists are sorted.
#[derive(Clone, Copy)]
pub struct Bases<'a> {
    /// What code or the loader names.
    pub named: &'a [Address],
    /// What code may compute from constants.
    pub far: &'a [Address],
}

/// Pins for all words relative to themselves or to one of `bases`.
pub(crate) fn check_relative_pointers(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
    tables: &[JumpTable],
    bases: Bases<'_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let candidates = bases.named;
    let sections: Vec<&Section<'_>> =
        file.sections.iter().filter(|section| may_hold_words(section)).collect();
    let in_table = &|place: Address| {
        let after = tables.partition_point(|table| table.base <= place);
        after > 0 && place < tables[after - 1].end()
    };
    let mut pin = |block: BlockIndex, evidence: Address| {
        findings.push(Finding::Pin(block, Pin { reason: PinReason::RelativePointer, evidence }));
    };
    for section in &sections {
        let start = section.address.plus(section.address.0.wrapping_neg() % 4);
        let skipped = start.distance_from(section.address) as usize;
        let bytes = file.section_bytes(section).get(skipped..).unwrap_or(&[]);
        let hits: Vec<(Address, BlockIndex)> = bytes
            .par_chunks(1 << 16)
            .enumerate()
            .flat_map_iter(|(chunk, bytes)| {
                let start = start.plus((chunk << 16) as u64);
                bytes.chunks_exact(4).enumerate().filter_map(move |(index, word)| {
                    let place = start.plus(4 * index as u64);
                    let block = entry_at(code, partition, place, place, word)?;
                    (!in_table(place)).then_some((place, block))
                })
            })
            .collect();
        hits.into_iter().for_each(|(place, block)| pin(block, place));
    }
    // A loop over a table that the compiler unrolled names each entry: those count from what is named before them, too.
    let is_base = |base: &Address| tables.binary_search_by_key(base, |table| table.base).is_err();
    let hits: Vec<(Address, BlockIndex)> = candidates
        .par_iter()
        .enumerate()
        .with_min_len(64)
        .flat_map_iter(|(index, &place)| {
            let section =
                sections.iter().find(|section| section.contains(place) && place.0.is_multiple_of(4))?;
            let start = place.distance_from(section.address) as usize;
            let word = file.section_bytes(section).get(start..start + 4)?;
            let before = candidates[..index].iter().rev().take(MAX_UNROLLED);
            let bases = before.take_while(|base| place.distance_from(**base) <= MAX_UNROLLED_BYTES);
            let blocks = bases.filter(|base| is_base(base) && section.contains(**base));
            let blocks = blocks.filter_map(|&base| entry_at(code, partition, base, place, word));
            (!in_table(place)).then(|| blocks.map(move |block| (place, block)).collect::<Vec<_>>())
        })
        .flatten_iter()
        .collect();
    hits.into_iter().for_each(|(place, block)| pin(block, place));
    let named = candidates.par_iter().map(|&base| (base, usize::MAX));
    let far = bases.far.par_iter().map(|&base| (base, MAX_TABLE_WORDS));
    let hits: Vec<(Address, BlockIndex)> = named
        .chain(far)
        .with_min_len(64)
        .flat_map_iter(|(base, most)| {
            let section = sections.iter().find(|section| section.contains(base))?;
            // What is named next bounds all scans together by the size of the data. It need not end the table: code names places
            // before an array to index it from one. So some words from there on count, as long as each leads to a function.
            let next = candidates.get(candidates.partition_point(|&named| named <= base));
            let next = next.map_or(section.end(), |&next| next.min(section.end()));
            let start = base.distance_from(section.address) as usize;
            let words = file.section_bytes(section)[start..].chunks_exact(4).enumerate().take(most);
            let words = words.map(move |(index, word)| {
                let place = base.plus(4 * index as u64);
                (place, entry_at(code, partition, base, place, word))
            });
            let room = next.plus(MAX_WORDS_AFTER_NAME * 4);
            let words =
                words.take_while(move |(place, block)| *place < next || *place < room && block.is_some());
            Some(words.filter_map(move |(place, block)| Some((place, block.filter(|_| !in_table(place))?))))
        })
        .flatten_iter()
        .collect();
    hits.into_iter().for_each(|(place, block)| pin(block, place));
    findings
}

/// Addresses of data that literal pools of AArch64 code hold, sorted: in the large code model tables are named only there. Any
/// two words of code that look like such an address count, so tables may be among the addresses, and most may be none.
pub(crate) fn literal_bases(file: &ElfFile<'_>) -> Vec<Address> {
    if file.processor != Processor::Aarch64 {
        return Vec::new();
    }
    let data: Vec<&Section<'_>> = file.sections.iter().filter(|section| may_hold_words(section)).collect();
    let code = file.sections.iter().filter(|section| section.is_loaded() && section.is_executable());
    let mut found: Vec<Address> = code
        .flat_map(|section| file.section_bytes(section).windows(8).step_by(4))
        .filter_map(|word| Some(Address(u64::from_le_bytes(word.try_into().ok()?))))
        .filter(|address| data.iter().any(|section| section.contains(*address)))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The block that starts, or has a function that starts, at `base` plus the distance in `word`.
fn entry_at(
    code: &CodeSpace<'_>,
    partition: &Partition,
    base: Address,
    place: Address,
    word: &[u8],
) -> Option<BlockIndex> {
    let distance = i64::from(i32::from_le_bytes(word.try_into().ok()?));
    let target = base.plus(distance as u64);
    code.arena_of(target)?;
    partition.entered_at(code, target).filter(|_| place != target)
}

/// Loaded data whose format is not known word by word.
fn may_hold_words(section: &Section<'_>) -> bool {
    const KNOWN: [&[u8]; 3] = [b".eh_frame", b".eh_frame_hdr", b".gnu.hash"];
    section.is_loaded()
        && !section.is_executable()
        && section.kind == object::elf::SHT_PROGBITS.0
        && section.has_bytes()
        && !KNOWN.contains(&section.name)
}
