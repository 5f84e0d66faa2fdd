//! Constraints that the jump tables of one atom put on other atoms.

use super::Builder;
use super::tables::Dispatch;
use crate::decode::aarch64::WORD;
use crate::decoded_atom::TableWord;
use crate::pins::PinReason;
use reorder_base::address::Address;

impl Builder<'_, '_> {
    pub(super) fn add_dispatch(&mut self, dispatch: Dispatch) {
        if self.context.text.contains(&dispatch.table) && !self.atom.contains(&dispatch.table) {
            // Whatever its entries are relative to, the distance must not change.
            self.result.ties.push(dispatch.table);
        }
        let targets = dispatch.targets(self.context, &self.atom);
        if targets.is_empty() && !dispatch.is_bounded() {
            self.keep_targets(dispatch);
            return self.pin(PinReason::UnresolvedJump, dispatch.table);
        }
        let leaving = self.leaving_entries(dispatch, targets.len());
        if !leaving.is_empty() {
            self.result.possible_targets.extend(leaving);
            self.pin(PinReason::UnresolvedJump, dispatch.table);
        }
        if self.atom.contains(&dispatch.base) {
            return;
        }
        let is_of_table = dispatch.base == dispatch.table && dispatch.size == 4 && dispatch.shift == 0;
        if self.context.text.contains(&dispatch.base) && is_of_table {
            return;
        }
        if !is_of_table {
            self.keep_targets(dispatch);
            return self.pin(PinReason::UnresolvedJump, dispatch.table);
        }
        let base = dispatch.table;
        let words = targets.into_iter().map(|(place, target)| TableWord { place, target, base });
        self.result.table_words.extend(words);
    }

    /// Where a table leads out of the function. If a comparison bounds the entries, all of them count. Otherwise those after
    /// the first `inside` ones count, as far as they are known: of a table between functions, all words up to the next
    /// table, the next reached instruction or the atom's end are entries; a table in data may be followed by other data, so
    /// only words that lead exactly to functions count.
    fn leaving_entries(&self, dispatch: Dispatch, inside: usize) -> Vec<Address> {
        let (text, table) = (&self.context.text, dispatch.table);
        let is_leaving = |target: &Address| {
            text.contains(target) && !self.atom.contains(target) && target.0.is_multiple_of(WORD)
        };
        if dispatch.is_bounded() {
            return dispatch.entries(self.context).map(|(_, target)| target).filter(is_leaving).collect();
        }
        let entries = dispatch.entries(self.context).skip(inside);
        if !text.contains(&table) {
            let is_start = |target: &Address| self.context.is_start_elsewhere(*target, &self.atom);
            let targets = entries.map(|(_, target)| target);
            let known = targets
                .take_while(|target| dispatch.size == 4 && (is_start(target) || self.atom.contains(target)));
            return known.filter(is_start).collect();
        }
        let next = self.context.starts.partition_point(|start| *start <= table);
        let end = self.context.starts.get(next).copied().unwrap_or(text.end);
        let others =
            self.facts.dispatches.iter().map(|(_, other)| other.table).filter(|other| *other > table);
        let end = others.fold(end, Address::min);
        let is_reached = |place: Address| {
            let index = place.distance_from(self.atom.start) / WORD;
            self.facts.is_reached.get(index as usize).is_some_and(|is_reached| *is_reached)
        };
        let is_entry = |(place, _): &(Address, Address)| *place < end && !is_reached(*place);
        entries.take_while(is_entry).map(|(_, target)| target).filter(is_leaving).collect()
    }

    /// Pins the functions that the entries of a table that is not understood may lead to.
    pub(super) fn keep_targets(&mut self, dispatch: Dispatch) {
        let (text, atom) = (&self.context.text, &self.atom);
        let targets = dispatch.entries(self.context).map(|(_, target)| target);
        let others = targets.filter(|target| text.contains(target) && !atom.contains(target));
        self.result.possible_targets.extend(others);
    }
}
