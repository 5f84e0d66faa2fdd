//! Compares two DWARF expressions: the same operations, with addresses that follow the map.

use gimli::Operation;
use reorder_base::address::Address;

use super::scene::Scene;
use super::side::Side;
use super::view::Slice;

/// Whether the operations are the same and addresses follow the map.
pub(super) fn same_expression(
    pair: Scene<'_>,
    old: (&Side<'_, '_>, Slice<'_>),
    new: (&Side<'_, '_>, Slice<'_>),
) -> gimli::Result<bool> {
    let mut waiting = vec![(old.1, new.1)];
    while let Some((mut before, mut after)) = waiting.pop() {
        if before.len() != after.len() {
            return Ok(false);
        }
        while !before.is_empty() {
            let first = Operation::parse(&mut before, old.0.unit.encoding())?;
            let second = Operation::parse(&mut after, new.0.unit.encoding())?;
            let is_same = match (first, second) {
                (Operation::Address { address }, Operation::Address { address: found }) => {
                    pair.mapped(Address(address)).0 == found
                }
                (Operation::AddressIndex { index }, Operation::AddressIndex { index: other }) => {
                    index == other && pair.mapped(Address(old.0.address(index)?)).0 == new.0.address(index)?
                }
                (Operation::ConstantIndex { index }, Operation::ConstantIndex { index: other }) => {
                    index == other && old.0.address(index)? == new.0.address(index)?
                }
                (Operation::EntryValue { expression }, Operation::EntryValue { expression: other }) => {
                    waiting.push((expression, other));
                    true
                }
                (first, second) => first == second,
            };
            if !is_same || before.len() != after.len() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
