//! The entries of a copied table: each leads where the original's entry leads, or to the copy of that instruction.

use crate::bytes::{displacement_at, u64_at};
use crate::elf::clones::copies::Copies;
use crate::elf::clones::record::CopiedTable;
use crate::report::{Check, Difference};
use reorder_base::address::{Address, NewAddress};

/// Checks all entries of `table`, which lies inside of data and whose copy lies inside the section of copies.
///
/// # Errors
/// The first entry that leads elsewhere.
pub(super) fn check_contents(copies: &Copies<'_>, table: &CopiedTable) -> Result<(), Difference> {
    let originals = copies.originals(table.original).unwrap_or_default();
    let copied = copies.copied(table.copy).unwrap_or_default();
    for number in 0..table.count {
        let word = |bytes, start: u64| {
            let position = usize::try_from(number * table.entry).ok()?;
            match table.entry {
                CopiedTable::ADDRESS => u64_at(bytes, position),
                _ => displacement_at(bytes, position).map(|distance| start.wrapping_add(distance)),
            }
        };
        let before = word(originals, table.original.0).map(Address);
        let after = word(copied, table.copy.0).map(NewAddress);
        // An entry that is never read may lead to where the code ends.
        let is_code = |place: u64| {
            copies.old.code_at(place, place).is_some()
                || place.checked_sub(1).is_some_and(|last| copies.old.code_at(last, place).is_some())
        };
        let is_same =
            |before: Address, after: NewAddress| is_code(before.0) && copies.is_same_code(before, after);
        if !before.zip(after).is_some_and(|(before, after)| is_same(before, after)) {
            let name = format!("entry {number} of the copied table at {}", table.copy);
            let expected = before.map_or("an entry".to_owned(), |before| format!("{before} or its copy"));
            let found = after.map_or("none".to_owned(), |after| after.to_string());
            let place = copies.offset(table.copy.plus(number * table.entry));
            return Err(Difference::new(Check::Copies, place, name, expected, found));
        }
    }
    Ok(())
}
