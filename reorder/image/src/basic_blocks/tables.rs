//! Where a jump table would lead, if one is there.
//!
//! No proof: a word that is taken for an entry by mistake gives a block that begins at some instruction of the function,
//! which does no harm.

use std::ops::Range;

use super::LoadedBytes;
use reorder_base::address::Address;

/// What may be a jump table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    /// Four-byte distances from this address.
    Distances(Address),
    /// Eight-byte addresses from this address on.
    Addresses(Address),
}

/// The instructions of the function at `range` that `table` leads to, as offsets. It ends before the first entry that
/// leads to no code or into the middle of an instruction, and when no entries are left of the `budget`, which bounds the
/// work for hostile files.
pub(super) fn targets(
    loaded: &LoadedBytes,
    file: &[u8],
    range: &Range<Address>,
    table: Table,
    budget: &mut usize,
    is_instruction: impl Fn(&u32) -> bool,
) -> Vec<u32> {
    let mut found = Vec::new();
    for index in 0.. {
        let Some(left) = budget.checked_sub(1) else { break };
        *budget = left;
        let Some(target) = entry(loaded, file, table, index) else { break };
        if range.contains(&target) {
            let offset = target.distance_from(range.start) as u32;
            if !is_instruction(&offset) {
                break;
            }
            found.push(offset);
        } else if !loaded.is_code(target) {
            break;
        }
    }
    found
}

fn entry(loaded: &LoadedBytes, file: &[u8], table: Table, index: u64) -> Option<Address> {
    match table {
        Table::Distances(base) => {
            let word = loaded.at(file, base.plus(index * 4), 4)?.try_into().ok()?;
            Some(base.plus(i64::from(i32::from_le_bytes(word)) as u64))
        }
        Table::Addresses(base) => {
            let word = loaded.at(file, base.plus(index * 8), 8)?.try_into().ok()?;
            Some(Address(u64::from_le_bytes(word)))
        }
    }
}
