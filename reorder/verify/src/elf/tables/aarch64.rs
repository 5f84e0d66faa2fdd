//! Tables of AArch64 code. Compilers write tables of distances from a place in the function, which never change. Tables of
//! distances from the table itself are written by hand; such a table ends at the next address that an instruction refers to.

use super::TableOutcome;
use super::words::{TableWord, may_be_entered};
use crate::aarch64::{ComputedSum, Named};
use crate::bytes::u64_at;
use crate::elf::functions::{CodeOutcome, TableUse};
use crate::elf::pair::ImagePair;
use crate::elf::pointers::loaded_addresses;
use crate::elf::view::ElfView;
use reorder_base::address::Address;

/// Bytes of a table word.
const WORD: u64 = 4;

/// Checks the tables that functions with a computed jump refer to, and the sums that code calls.
pub(super) fn check(pair: ImagePair<'_>, code: &CodeOutcome) -> TableOutcome {
    let mut references = code.references.clone();
    references.extend(code.tables.iter().map(|table| table.base));
    references.sort_unstable();
    references.dedup();
    let mut outcome = TableOutcome::default();
    for table in &code.tables {
        let after = references.partition_point(|&reference| reference <= table.base);
        let limit = references.get(after).copied().unwrap_or(Address(u64::MAX));
        check_table(pair, table, limit, &mut outcome);
    }
    let has_sums = !code.sums.is_empty() || !code.distances.is_empty();
    let slots = if has_sums { slots_of(pair.old) } else { Vec::new() };
    let resolved = |name: Named| match name {
        Named::Here(address) => Some(Address(address)),
        Named::Through(slot) => {
            let at = slots.binary_search_by_key(&Address(slot), |&(place, _)| place).ok()?;
            Some(slots[at].1)
        }
    };
    for sum in &code.sums {
        if let (Some(anchor), Some(table)) = (resolved(sum.anchor), resolved(sum.table)) {
            check_sum(pair, (anchor, table, sum.width), &mut outcome);
        }
    }
    let resolved = |sum: &ComputedSum| Some((resolved(sum.anchor)?, resolved(sum.table)?, sum.width));
    let mut distances: Vec<(Address, Address, u8)> = code.distances.iter().filter_map(resolved).collect();
    // Other numbers are no addresses.
    distances.retain(|(anchor, _, _)| pair.old.section_at(anchor.0).is_some());
    distances.sort_unstable();
    distances.dedup();
    references.extend(distances.iter().map(|&(_, table, _)| table));
    references.sort_unstable();
    for sum in distances {
        let after = references.partition_point(|&reference| reference <= sum.1);
        let limit = references.get(after).copied().unwrap_or(Address(u64::MAX));
        check_distances(pair, sum, limit, &mut outcome);
    }
    outcome
}

/// Checks a table in data whose distances count from its own start, at most up to `limit`.
fn check_table(pair: ImagePair<'_>, table: &TableUse, limit: Address, outcome: &mut TableOutcome) {
    let Some(owner) = pair.moves.as_slice().get(table.owner as usize) else { return };
    let mut place = table.base;
    while let Some(word) = (place < limit).then(|| TableWord::at(pair, table.base, place, 4)).flatten() {
        let is_own = (owner.old_start..=owner.old_end()).contains(&word.target);
        let followed = word.is_followed(pair);
        // A word that leaves the function may be a split-off part or the end of the table: such a word need not follow, but
        // one that followed its target shows that the table continues.
        let shows_more = followed && word.has_changed;
        if !is_own && !shows_more {
            break;
        }
        if is_own && !followed && !may_be_entered(pair, owner, word.target) {
            break;
        }
        outcome.words += 1;
        if !followed {
            outcome.differences.push(word.stale(pair, table.base));
            // One difference is enough; decoding for every word would make hostile tables expensive.
            break;
        }
        place = place.plus(WORD);
    }
    outcome.followed.push(table.base..place);
}

/// The addresses that the loader stores, by place. In images at a fixed address the slot itself holds the address.
fn slots_of(image: &ElfView<'_>) -> Vec<(Address, Address)> {
    let mut found = loaded_addresses(image);
    for section in image.sections.iter().filter(|section| section.name.starts_with(b".got")) {
        for (number, word) in section.bytes.chunks_exact(8).enumerate() {
            found.extend(
                u64_at(word, 0)
                    .filter(|&value| value != 0)
                    .map(|value| (Address(section.address + number as u64 * 8), Address(value))),
            );
        }
    }
    found.sort_by_key(|&(place, _)| place);
    found.dedup_by_key(|&mut (place, _)| place);
    found
}

/// Checks the words of a sum that code calls, an address of code plus a word of the table: the leading words that lead to
/// starts of functions must follow.
fn check_sum(
    pair: ImagePair<'_>,
    (anchor, table, width): (Address, Address, u8),
    outcome: &mut TableOutcome,
) {
    let mut place = table;
    while let Some(word) = TableWord::at(pair, anchor, place, width) {
        if !is_entry(pair, word.target) {
            break;
        }
        outcome.words += 1;
        if !word.is_followed(pair) {
            outcome.differences.push(word.stale(pair, table));
            break;
        }
        place = place.plus(u64::from(width));
    }
    outcome.followed.push(table..place);
}

/// Whether a function may be entered at `target`: at its start, after no-operations there, or anywhere between two functions,
/// where the entries of patchable functions are.
fn is_entry(pair: ImagePair<'_>, target: Address) -> bool {
    /// `NOP`.
    const NO_OPERATION: [u8; 4] = 0xd503_201f_u32.to_le_bytes();
    /// Bytes of the longest run that counts.
    const MAX_RUN: u64 = 128;
    let is_filler = |start: Address, end: Address| {
        let size = end.distance_from(start);
        let bytes =
            pair.old.code_at(start.0, end.0).filter(|_| size <= MAX_RUN).and_then(|it| it.at(start.0, size));
        bytes.is_some_and(|bytes| bytes.chunks(NO_OPERATION.len()).all(|word| word == NO_OPERATION))
    };
    match pair.moves.containing(target) {
        Some(function) => function.old_start == target || is_filler(function.old_start, target),
        None => pair.old.code_at(target.0, target.0).is_some() && pair.moves.following(target).is_some(),
    }
}

/// Checks the words of `table`, at most up to `limit`, that code adds to `anchor`: one that leads to the start of a function
/// must still do so. Nothing says where such a table ends, so it ends at the first word that leads to no function and is not
/// zero, and what follows the functions here is not thereby explained.
fn check_distances(
    pair: ImagePair<'_>,
    (anchor, table, width): (Address, Address, u8),
    limit: Address,
    outcome: &mut TableOutcome,
) {
    /// Words of a table. Such tables are written by hand, or by compilers for the methods of one class.
    const MAX_WORDS: u64 = 1 << 12;
    for number in 0..MAX_WORDS {
        let place = table.plus(number * u64::from(width));
        let word = (place < limit).then(|| TableWord::at(pair, anchor, place, width)).flatten();
        let Some(word) = word else { return };
        let is_start = is_entry(pair, word.target);
        if !is_start && word.target != anchor {
            return;
        }
        outcome.words += usize::from(is_start);
        if is_start && !word.is_followed(pair) {
            outcome.differences.push(word.stale(pair, table));
            return;
        }
    }
}
