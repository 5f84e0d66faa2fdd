//! Pins functions whose addresses code computes from constants.
//!
//! Three forms occur. Code of the large code model computes the address of the global offset table from its
//! own and adds a constant of eight bytes to it; other code obtains its own address by calling the next
//! instruction. Hand-written dispatch
//! adds a stored distance of four or eight bytes to the address of a function, and calls the sum or keeps it. Linkers define
//! `__start_X` and `__stop_X` around sections whose names are C identifiers, and the first function of such a section has
//! the address of the section itself.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::decode::x86_64::{DecodedBlock, FieldKind, wide_operands};
use crate::decoded_atom::beyond_sums;
use crate::elf::analysis::blocks::{BlockIndex, Partition};
use crate::elf::analysis::jump_tables::JumpTable;
use crate::elf::analysis::references::Finding;
use crate::elf::code::{CodeSpace, Region};
use crate::elf::file::ElfFile;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::refusal::RefusalCode;

/// Bound on the length of a table of stored distances, in entries.
pub(crate) const MAX_TABLE_WORDS: usize = 1 << 12;

/// Bound on the sums with addresses that code loads, of all blocks.
const MAX_LOADED_SUMS: usize = 1 << 28;

/// Bound on the words on either side of an address that code names, where the other part of the sum is loaded.
const MAX_LOADED_WORDS: usize = 64;

/// Bound on the sums of one block; hand-written dispatch has fewer.
pub(crate) const MAX_SUMS: usize = 1 << 20;

/// Bound on the tables of one block that may be at a constant distance from an address that it names.
const MAX_FAR_TABLES: usize = 1 << 10;

/// Bound on the addresses in data that code may compute from constants: each may begin a table of [`MAX_TABLE_WORDS`].
const MAX_FAR_BASES: usize = 1 << 16;

/// How many words next to the address that code names may each count as evidence alone: of those from the address on in an
/// image at a fixed address, and of those before the address in any image.
const MAX_LONE_WORDS: usize = 4;

/// Whether `distance` leads into `text` from an address between the first and the last of `bases`.
pub(crate) fn may_lead_to_code(bases: (Address, Address), distance: u64, text: &Range<Address>) -> bool {
    let from = |base: Address| i128::from(base.0) + i128::from(distance as i64);
    from(bases.0) < i128::from(text.end.0) && from(bases.1) >= i128::from(text.start.0)
}

/// The image, its code and its partition, for x86-64.
#[derive(Clone, Copy)]
pub(crate) struct CodeView<'a, 'data> {
    /// The image.
    pub file: &'a ElfFile<'data>,
    /// Its code.
    pub code: &'a CodeSpace<'data>,
    /// Blocks and gaps.
    pub partition: &'a Partition,
}

/// Pins for the first form: every function to which a constant leads from any address that code may add it to. Also returns,
/// sorted, the addresses in data to which constants lead: tables whose words are relative to them may start there.
///
/// # Errors
/// R7 if there are too many sums to try.
pub(crate) fn check_wide_constants(
    view: CodeView<'_, '_>,
    decoded: &[DecodedBlock],
) -> Result<(Vec<Finding>, Vec<Address>)> {
    let mut findings = Vec::new();
    let CodeView { file, code, partition } = view;
    let named = [&b".got.plt"[..], b".got"].into_iter().filter_map(|name| file.section(name));
    let mut bases: BTreeSet<Address> = named.map(|section| section.address).collect();
    let mut budget = MAX_SUMS;
    let mut spend = |tries: usize, block: usize| {
        budget = budget.checked_sub(tries).ok_or_else(|| {
            beyond_sums(RefusalCode::PrivateRuntimeTables, partition.block(BlockIndex(block as u32)).start)
        })?;
        Ok::<(), Error>(())
    };
    let counting: Vec<(usize, &DecodedBlock, Vec<u64>)> = decoded
        .iter()
        .enumerate()
        .map(|(index, block)| (index, block, far_constants(view, BlockIndex(index as u32), block)))
        .filter(|(_, _, constants)| !constants.is_empty())
        .collect();
    if counting.is_empty() {
        return Ok((findings, Vec::new()));
    }
    for (index, block, constants) in &counting {
        spend(block.own_places.len().saturating_mul(constants.len()), *index)?;
        let sums =
            block.own_places.iter().flat_map(|place| constants.iter().map(|constant| place.plus(*constant)));
        bases.extend(sums.filter(|sum| code.region(*sum) == Region::Data));
    }
    let mut data = bases.clone();
    for (index, block, constants) in counting {
        let places = bases.len().saturating_add(block.own_places.len());
        spend(places.saturating_mul(constants.len()), index)?;
        let index = BlockIndex(index as u32);
        let evidence = partition.block(index).start;
        let pin = |block| Finding::Pin(block, Pin { reason: PinReason::ComputedAddress, evidence });
        if !block.own_places.is_empty() {
            findings.push(pin(index));
        }
        for constant in constants {
            let targets = bases.iter().chain(&block.own_places).map(|base| base.plus(constant));
            for target in targets {
                findings.extend(partition.block_containing(target).map(pin));
                if code.region(target) == Region::Data {
                    data.insert(target);
                }
            }
        }
    }
    if data.len() > MAX_FAR_BASES {
        let evidence = partition.blocks.first().map_or(Address(0), |block| block.start);
        return Err(beyond_sums(RefusalCode::PrivateRuntimeTables, evidence).into());
    }
    Ok((findings, data.into_iter().collect()))
}

/// The constants that a block may add to addresses of the image to obtain others. Code that obtains its own address by a call also
/// adds constants of four bytes.
pub(crate) fn far_constants(view: CodeView<'_, '_>, index: BlockIndex, block: &DecodedBlock) -> Vec<u64> {
    let mut constants = match block.calls_own_place {
        true => wide_operands(view.code, view.partition.block(index).code()),
        false => block.wide_constants.clone(),
    };
    // Most constants of eight bytes are keys and factors: no sum with them lies in the image.
    let extent = view.code.extent();
    constants.retain(|constant| constant.cast_signed().unsigned_abs() <= extent);
    constants
}

/// The targets of such constants, from the block's own addresses and from the data that these lead to. `None` if there are
/// too many to try.
pub(crate) fn far_addresses(
    view: CodeView<'_, '_>,
    index: BlockIndex,
    block: &DecodedBlock,
) -> Option<BTreeSet<Address>> {
    let constants = far_constants(view, index, block);
    let data = block.data_references.iter().copied().collect::<BTreeSet<Address>>();
    let sums = |from: BTreeSet<Address>| {
        let tries = from.len().checked_mul(constants.len())?;
        let all = from.iter().flat_map(|from| constants.iter().map(|constant| from.plus(*constant)));
        (tries <= MAX_SUMS).then(|| all.collect::<BTreeSet<Address>>())
    };
    let is_data = |address: &Address| view.code.region(*address) == Region::Data;
    let mut near = sums(block.own_places.iter().copied().collect())?;
    let mut far = sums(data.into_iter().chain(near.iter().copied().filter(is_data)).collect())?;
    far.append(&mut near);
    Some(far)
}

/// Pins for the second form: calls of sums, and values that are added to addresses of functions.
///
/// # Errors
/// R7 if there are too many called sums to try.
pub(crate) fn check_computed_calls(view: CodeView<'_, '_>, decoded: &[DecodedBlock]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (index, block) in decoded.iter().enumerate() {
        if !block.has_computed_call && !block.adds_to_code {
            continue;
        }
        let index = BlockIndex(index as u32);
        let evidence = view.partition.block(index).start;
        let Some(sums) = called_by_sum(view, index, block, OtherWords::default()) else {
            if block.has_computed_call {
                return Err(beyond_sums(RefusalCode::PrivateRuntimeTables, evidence).into());
            }
            continue;
        };
        if sums.bases.is_empty() || sums.reached.is_empty() && !block.has_computed_call {
            continue;
        }
        findings.extend(sums.pins(index, evidence));
    }
    Ok(findings)
}

/// Words of data that are known not to be distances between functions: by chance they lead to functions, too.
#[derive(Clone, Copy, Default)]
pub(crate) struct OtherWords<'a> {
    /// Proven jump tables, sorted by base.
    pub(crate) tables: &'a [JumpTable],
    /// Sorted places that the loader writes.
    pub(crate) loader_places: &'a [Address],
}

impl OtherWords<'_> {
    /// Whether the word of `width` bytes at `place` is one of them.
    pub(crate) fn contains(&self, place: Address, width: u64) -> bool {
        const LOADED_WIDTH: u64 = 8;
        let after = self.tables.partition_point(|table| table.base <= place);
        let in_table = after > 0 && place < self.tables[after - 1].end();
        let before = self.loader_places.partition_point(|written| written.plus(LOADED_WIDTH) <= place);
        in_table || self.loader_places.get(before).is_some_and(|written| *written < place.plus(width))
    }
}

/// Pins for blocks that only jump to sums, but for those whose jumps are `explained` without.
pub(crate) fn check_computed_jumps(
    view: CodeView<'_, '_>,
    decoded: &[DecodedBlock],
    explained: &[BlockIndex],
    others: OtherWords<'_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, block) in decoded.iter().enumerate() {
        if !block.has_computed_jump || block.has_computed_call || block.adds_to_code {
            continue;
        }
        let index = BlockIndex(index as u32);
        if explained.binary_search(&index).is_ok() {
            continue;
        }
        // Large functions jump through many tables, hardly ever from the address of a function.
        let Some(sums) = called_by_sum(view, index, block, others) else { continue };
        // Jump tables count from data or from labels: a jump alone is no evidence.
        if !sums.bases.is_empty() && !sums.reached.is_empty() {
            findings.extend(sums.pins(index, view.partition.block(index).start));
        }
    }
    findings
}

/// Pins for `jumpers`, blocks that jump to the sum of a stored distance and an address that they load from memory: it may be
/// that of any function whose address `held` has.
///
/// # Errors
/// R7 if there are too many sums to try.
pub(crate) fn check_jumps_from_loaded_addresses(
    view: CodeView<'_, '_>,
    (decoded, jumpers): (&[DecodedBlock], &[BlockIndex]),
    held: &BTreeSet<Address>,
    others: OtherWords<'_>,
) -> Result<Vec<Finding>> {
    let partition = view.partition;
    let entry_at = |target: Address| partition.entered_at(view.code, target);
    let text = view.text();
    let (Some(&lowest), Some(&highest)) = (held.first(), held.last()) else { return Ok(Vec::new()) };
    let may_lead = |word: u64| word != 0 && may_lead_to_code((lowest, highest), word, &text);
    let mut findings = Vec::new();
    let mut budget = MAX_LOADED_SUMS;
    for &index in jumpers {
        let block = &decoded[index.0 as usize];
        let evidence = partition.block(index).start;
        let named: BTreeSet<Address> = block.data_references.iter().copied().collect();
        let (mut bases, mut reached) = (BTreeSet::new(), BTreeSet::new());
        for (table, is_forward) in named.iter().flat_map(|table| [(*table, true), (*table, false)]) {
            for width in [8, 4] {
                let words = distances_at(view.file, table, width, is_forward, others, MAX_LOADED_WORDS);
                for pair in words
                    .windows(2)
                    .filter(|pair| pair[0] != pair[1] && pair.iter().all(|word| may_lead(*word)))
                {
                    budget = budget
                        .checked_sub(held.len())
                        .ok_or_else(|| beyond_sums(RefusalCode::PrivateRuntimeTables, evidence))?;
                    for &base in held {
                        let Some(first) = entry_at(base.plus(pair[0])) else { continue };
                        let Some(second) = entry_at(base.plus(pair[1])) else { continue };
                        bases.extend(partition.block_containing(base));
                        reached.extend([first, second]);
                    }
                }
            }
        }
        if !reached.is_empty() {
            let sums = ComputedTargets {
                bases: bases.into_iter().collect(),
                reached: reached.into_iter().collect(),
            };
            findings.extend(sums.pins(index, evidence));
        }
    }
    Ok(findings)
}

/// Addresses of functions that pointers or code hold: `fields` of all blocks, and the targets of `pointers`.
pub(crate) fn held_addresses(
    view: CodeView<'_, '_>,
    decoded: &[DecodedBlock],
    pointers: impl Iterator<Item = Address>,
) -> BTreeSet<Address> {
    let formed = decoded.iter().flat_map(|block| {
        let taken = block.fields.iter().filter(|field| field.kind == FieldKind::AddressOf);
        taken.map(|field| field.target(view.code)).chain(block.absolute_candidates.iter().copied())
    });
    formed
        .chain(pointers)
        .filter(|address| view.partition.entered_at(view.code, *address).is_some())
        .collect()
}

/// Pins functions in a section whose start and end the linker marks.
pub(crate) fn check_named_sections(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, block) in partition.blocks.iter().enumerate() {
        let section = file.section_at(code.arenas[block.arena as usize].section);
        if section.is_some_and(|section| is_c_identifier(section.name)) {
            let pin = Pin { reason: PinReason::NamedSection, evidence: block.start };
            findings.push(Finding::Pin(BlockIndex(index as u32), pin));
        }
    }
    findings
}

impl CodeView<'_, '_> {
    /// From the first to the last byte of code.
    pub(crate) fn text(&self) -> Range<Address> {
        let arenas = || self.code.arenas.iter();
        let (first, last) = (arenas().map(|arena| arena.start).min(), arenas().map(|arena| arena.end).max());
        first.unwrap_or(Address(0))..last.unwrap_or(Address(0))
    }
}

/// Functions that are part of sums.
#[derive(Default)]
struct ComputedTargets {
    /// Functions whose addresses the block takes.
    bases: Vec<BlockIndex>,
    /// Functions at stored distances from them.
    reached: Vec<BlockIndex>,
}

impl ComputedTargets {
    /// All of them stay, and so does the block `index` that computes the sums.
    fn pins(self, index: BlockIndex, evidence: Address) -> impl Iterator<Item = Finding> {
        let all: BTreeSet<BlockIndex> = self.bases.into_iter().chain(self.reached).chain([index]).collect();
        let pin = Pin { reason: PinReason::ComputedAddress, evidence };
        all.into_iter().map(move |block| Finding::Pin(block, pin))
    }
}

/// The functions to which sums of the block may lead; `None` if there are too many to try.
///
/// In a block that only jumps to sums and adds nothing to the address of a function, a word counts only if its neighbour
/// leads to another function as well: small numbers lead to some function by chance.
fn called_by_sum(
    view: CodeView<'_, '_>,
    index: BlockIndex,
    block: &DecodedBlock,
    others: OtherWords<'_>,
) -> Option<ComputedTargets> {
    let CodeView { file, code, partition } = view;
    // In the large code model, addresses of tables and functions are formed from other addresses and constants.
    let far = far_addresses(view, index, block)?;
    let taken = block.fields.iter().filter(|field| field.kind == FieldKind::AddressOf);
    // Code at a fixed address also holds addresses as plain constants.
    let bases = taken.map(|field| field.target(code)).chain(block.absolute_candidates.iter().copied());
    let bases = bases.chain(far.iter().copied());
    let bases: BTreeSet<Address> = bases.filter(|&target| code.arena_of(target).is_some()).collect();
    let far: Vec<Address> = far.into_iter().filter(|address| code.region(*address) == Region::Data).collect();
    if far.len() > MAX_FAR_TABLES {
        return None;
    }
    let tables: BTreeSet<Address> = block.data_references.iter().copied().chain(far).collect();
    let mut found = ComputedTargets {
        bases: bases.iter().filter_map(|&base| partition.block_containing(base)).collect(),
        reached: Vec::new(),
    };
    let (Some(&lowest), Some(&highest)) = (bases.first(), bases.last()) else { return Some(found) };
    let text = view.text();
    let entry_at = |target: Address| partition.entered_at(code, target);
    let is_certain = block.has_computed_call || block.adds_to_code;
    // Code at a fixed address holds many plain addresses that are part of no sum. So after the first few words of a table, a
    // word counts only if its neighbour does; the same holds for words before the address that the code names.
    let alone =
        |is_forward: bool| if code.is_fixed_address || !is_forward { MAX_LONE_WORDS } else { usize::MAX };
    let mut budget = MAX_SUMS;
    // A word that counts by itself leads to the same function wherever it is stored.
    let mut tried: BTreeSet<u64> = BTreeSet::new();
    for (&table, is_forward) in tables.iter().flat_map(|table| [(table, true), (table, false)]) {
        for width in [8, 4] {
            let words = distances_at(file, table, width, is_forward, others, MAX_TABLE_WORDS);
            // Zeros lead to the bases themselves.
            let may_lead = |word: u64| word != 0 && may_lead_to_code((lowest, highest), word, &text);
            for (position, &word) in words.iter().enumerate().filter(|(_, word)| may_lead(**word)) {
                let is_lone = is_certain && position < alone(is_forward);
                if is_lone && !tried.insert(word) {
                    continue;
                }
                budget = budget.checked_sub(bases.len())?;
                for &base in bases.iter().filter(|base| base.plus(word) != table) {
                    let Some(reached) = entry_at(base.plus(word)) else { continue };
                    let leads_on = |next: Option<&u64>| {
                        next.is_some_and(|&next| {
                            next != 0 && next != word && entry_at(base.plus(next)).is_some()
                        })
                    };
                    let before = position.checked_sub(1).and_then(|before| words.get(before));
                    if is_lone || leads_on(before) || leads_on(words.get(position + 1)) {
                        found.reached.push(reached);
                    }
                }
            }
        }
    }
    Some(found)
}

/// Signed words of `width` bytes from `table` on, or backwards from there: loops that count up to zero name a table's end. Those of
/// `others` are zeros.
fn distances_at(
    file: &ElfFile<'_>,
    table: Address,
    width: u64,
    is_forward: bool,
    others: OtherWords<'_>,
    most: usize,
) -> Vec<u64> {
    let place = |index: u64| match is_forward {
        true => table.plus(width * index),
        false => table.plus((width * (index + 1)).wrapping_neg()),
    };
    let words = (0..most as u64).map_while(|index| Some((place(index), file.bytes_at(place(index), width)?)));
    let signed = words.map(|(place, bytes)| match bytes.first_chunk::<8>() {
        _ if others.contains(place, width) => 0,
        Some(word) => u64::from_le_bytes(*word),
        None => bytes.first_chunk().map_or(0, |word| i64::from(i32::from_le_bytes(*word)) as u64),
    });
    signed.collect()
}

fn is_c_identifier(name: &[u8]) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.first().is_some_and(|first| !first.is_ascii_digit()) && name.iter().all(is_word)
}
