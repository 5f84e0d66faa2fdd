//! Recovers where the atoms of `__text` went, from the two images alone.
//!
//! Tables with a fixed order in both images give the first pairs: symbols at the same index, pointers in the same slot,
//! exports of the same name, entries of `__eh_frame`, exception tables, distances in data. Each pair of atoms gives more:
//! the targets of the same instructions, and the atom that control runs into. Functions that nothing refers to are left:
//! [`super::recover_equals`]. The map is not trusted: the checks decide whether it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::bytes::displacement_at;
use super::atoms::{atom_starts, moves_from, runs_on};
use super::exports::ExportWalk;
use super::fixups::for_each_slot;
use super::frames::frame_entries;
use super::recover_code::{Code, for_each_pair};
use super::recover_equals::learn_from_equals;
use super::rest;
use super::tables::{entry_point, initialisers, symbols};
use super::unwind::UnwindTable;
use super::view::MachView;
use crate::moves::AddressMoves;
use reorder_base::error::{Error, Result};

/// Pairs the atoms of `old` with their places in `new`.
///
/// # Errors
/// Tables that cannot be read, and atoms that do not fit their places.
pub(super) fn recover(old: &MachView<'_>, new: &MachView<'_>) -> Result<AddressMoves> {
    let mut pairs = Pairs::new(old, new)?;
    pairs.learn_from_tables()?;
    pairs.learn_from_fixed_code();
    pairs.learn_from_code();
    pairs.learn_from_relative_words()?;
    pairs.learn_from_code();
    learn_from_equals(&mut pairs)?;
    let lost = pairs.places.iter().filter(|place| place.is_none()).count();
    let first_lost = pairs.places.iter().position(|place| place.is_none());
    match first_lost {
        Some(first) => Err(Error::verification(format!(
            "{lost} functions have no counterpart, the first is that at {:#x}",
            pairs.starts[first]
        ))),
        None => moves_from(old, &pairs.starts, &pairs.places.into_iter().flatten().collect::<Vec<u64>>()),
    }
}

/// Reads all tables of an image that [`recover`] needs.
///
/// # Errors
/// Tables that cannot be read.
pub(super) fn check_tables(image: &MachView<'_>) -> Result<()> {
    let mut pairs = Pairs::new(image, image)?;
    pairs.learn_from_tables()
}

/// The map under construction.
pub(super) struct Pairs<'a, 'data> {
    pub(super) old: &'a MachView<'data>,
    pub(super) new: &'a MachView<'data>,
    /// The first addresses of all atoms of the old image, ascending.
    pub(super) starts: Vec<u64>,
    /// Of the atom at the same position.
    pub(super) places: Vec<Option<u64>>,
    /// Atoms whose code has not been looked at.
    open: Vec<u32>,
    /// Places of the new image that belong to no atom yet, once contents are compared.
    pub(super) free: BTreeSet<u64>,
}

impl<'a, 'data> Pairs<'a, 'data> {
    /// The atoms, none of which has a place yet.
    fn new(old: &'a MachView<'data>, new: &'a MachView<'data>) -> Result<Self> {
        let starts = atom_starts(old)?;
        let places = vec![None; starts.len()];
        Ok(Self { old, new, starts, places, open: Vec::new(), free: BTreeSet::new() })
    }

    fn text(&self) -> Range<u64> {
        self.old.text().range()
    }

    /// One past the last address of an atom.
    pub(super) fn end_of(&self, atom: usize) -> u64 {
        self.starts.get(atom + 1).copied().unwrap_or(self.text().end)
    }

    /// The last atom that starts at or before `address`.
    fn atom_at(&self, address: u64) -> Option<usize> {
        self.starts.partition_point(|&start| start <= address).checked_sub(1)
    }

    /// The atoms that have no place.
    pub(super) fn missing(&self) -> impl Iterator<Item = usize> {
        (0..self.starts.len()).filter(|&atom| self.places[atom].is_none())
    }

    /// Where the byte at `address` is, if its atom has a place.
    pub(super) fn counterpart(&self, address: u64) -> Option<u64> {
        let atom = self.atom_at(address)?;
        self.places[atom].map(|place| place.wrapping_add(address - self.starts[atom]))
    }

    /// Notes that the byte at `address` is now at `found`. The first such statement about an atom wins.
    pub(super) fn learn(&mut self, address: u64, found: u64) {
        let text = self.text();
        if !text.contains(&address) {
            return;
        }
        let Some(atom) = self.atom_at(address) else { return };
        let place = found.wrapping_sub(address - self.starts[atom]);
        if self.places[atom].is_none() && text.contains(&place) {
            self.places[atom] = Some(place);
            self.open.push(atom as u32);
            self.free.remove(&place);
        }
    }

    fn learn_from_tables(&mut self) -> Result<()> {
        let (old, new) = (self.old, self.new);
        let number = old.text_number();
        for (before, after) in symbols(old).zip(symbols(new)) {
            if before.is_in(number) && before.name == after.name {
                self.learn(before.value, after.value);
            }
        }
        if let (Some((_, before)), Some((_, after))) = (entry_point(old), entry_point(new)) {
            self.learn(before, after);
        }
        for ((_, before), (_, after)) in initialisers(old).into_iter().zip(initialisers(new)) {
            self.learn(before, after);
        }
        let mut slots = Vec::new();
        let text = self.text();
        for_each_slot(old, |slot| {
            if text.contains(&slot.target) {
                slots.push((slot.offset, slot.target));
            }
        })?;
        slots.sort_unstable();
        let mut found = Vec::new();
        for_each_slot(new, |slot| {
            if let Ok(index) = slots.binary_search_by_key(&slot.offset, |slot| slot.0) {
                found.push((slots[index].1, slot.target));
            }
        })?;
        for (before, after) in found {
            self.learn(before, after);
        }
        self.learn_from_exports()?;
        for (before, after) in frame_entries(old)?.iter().zip(frame_entries(new)?) {
            if before.position == after.position {
                self.learn(before.start, after.start);
            }
        }
        self.learn_from_unwind_rows()?;
        self.learn_from_methods();
        Ok(())
    }

    fn learn_from_exports(&mut self) -> Result<()> {
        let (mut before, mut after) = (ExportWalk::new(self.old), ExportWalk::new(self.new));
        while let (Some((name, old)), Some((new_name, new))) = (before.next()?, after.next()?) {
            if name != new_name {
                break;
            }
            for (&old, &new) in old.addresses.iter().zip(&new.addresses) {
                self.learn(old, new);
            }
        }
        Ok(())
    }

    /// Rows that name something which no other row names.
    fn learn_from_unwind_rows(&mut self) -> Result<()> {
        let processor = self.old.processor;
        let keys = |table: UnwindTable| {
            let mut keys: BTreeMap<(u64, u32), Option<u64>> = BTreeMap::new();
            for row in table.rows {
                let frame = row.frame_entry(processor).unwrap_or(0);
                if row.exceptions != 0 || frame != 0 {
                    let is_first = !keys.contains_key(&(row.exceptions, frame));
                    keys.insert((row.exceptions, frame), is_first.then_some(row.start));
                }
            }
            keys
        };
        let (before, after) = (keys(UnwindTable::read(self.old)?), keys(UnwindTable::read(self.new)?));
        for (key, start) in before {
            if let (Some(start), Some(Some(found))) = (start, after.get(&key)) {
                self.learn(start, *found);
            }
        }
        Ok(())
    }

    /// Words in data that are distances to the starts of functions in both images.
    fn learn_from_relative_words(&mut self) -> Result<()> {
        let mut slots = Vec::new();
        for_each_slot(self.old, |slot| slots.push(slot.offset as u32))?;
        slots.sort_unstable();
        let new_starts = atom_starts(self.new)?;
        let mut found = Vec::new();
        rest::for_each_relative_word(self.old, &slots, |place, offset, target| {
            let after = displacement_at(self.new.bytes, offset).map(|distance| place.wrapping_add(distance));
            if let (Ok(_), Some(after)) = (self.starts.binary_search(&target), after)
                && new_starts.binary_search(&after).is_ok()
            {
                found.push((target, after));
            }
        });
        for (before, after) in found {
            self.learn(before, after);
        }
        Ok(())
    }

    /// Words of relative method lists.
    fn learn_from_methods(&mut self) {
        for (before, after) in self.old.sections.iter().zip(&self.new.sections) {
            if before.name != super::view::padded(b"__objc_methlist") {
                continue;
            }
            for at in (0..before.bytes.len()).step_by(4) {
                let target = |bytes: &[u8]| {
                    Some(before.address.wrapping_add(at as u64).wrapping_add(displacement_at(bytes, at)?))
                };
                if let (Some(old), Some(new)) = (target(before.bytes), target(after.bytes)) {
                    self.learn(old, new);
                }
            }
        }
    }

    /// Follows the distances in sections of code that stay.
    fn learn_from_fixed_code(&mut self) {
        let (old, new) = (self.old, self.new);
        for (before, after) in old.sections.iter().zip(&new.sections) {
            let is_fixed = before.is_code() && before.header != old.text().header;
            if is_fixed && before.bytes.len() == after.bytes.len() {
                let codes = ((before.address, before.bytes), (after.address, after.bytes));
                for_each_pair(old, codes.0, codes.1, |before, after| self.learn(before, after));
            }
        }
    }

    /// Follows the distances in all pairs of atoms to a fixpoint.
    pub(super) fn learn_from_code(&mut self) {
        let mut found = Vec::new();
        while let Some(atom) = self.open.pop() {
            let Some(place) = self.places[atom as usize] else { continue };
            let (old, new) = self.codes(atom as usize, place);
            let text = self.text();
            for_each_pair(self.old, old, new, |before, after| {
                if text.contains(&before) {
                    found.push((before, after));
                }
            });
            for (before, after) in found.drain(..) {
                self.learn(before, after);
            }
            self.learn_from_neighbours(atom as usize, place);
        }
    }

    /// An atom that control runs into without a jump follows its predecessor in the new image, too.
    fn learn_from_neighbours(&mut self, atom: usize, place: u64) {
        let is_missing = |atom: usize| self.places.get(atom).is_some_and(Option::is_none);
        let (start, end) = (self.starts[atom], self.end_of(atom));
        let previous = atom.checked_sub(1).filter(|&previous| is_missing(previous) && self.runs_on(previous));
        if is_missing(atom + 1) && self.runs_on(atom) {
            self.learn(end, place.wrapping_add(end - start));
        }
        if let Some(previous) = previous {
            self.learn(self.starts[previous], place.wrapping_sub(start - self.starts[previous]));
        }
    }

    /// Whether control may leave an atom at its end.
    fn runs_on(&self, atom: usize) -> bool {
        let (start, text) = (self.starts[atom], self.old.text());
        let range = (start - text.address) as usize..(self.end_of(atom) - text.address) as usize;
        text.bytes.get(range).is_some_and(|code| runs_on(self.old, code, start))
    }

    /// The code of an atom, and the bytes of the same length at `place` of the new image.
    fn codes(&self, atom: usize, place: u64) -> (Code<'_>, Code<'_>) {
        /// The last atom's padding may be cut.
        fn bytes<'a>(image: &MachView<'a>, start: u64, size: usize) -> &'a [u8] {
            let text = image.text();
            let rest = text.bytes.get((start - text.address) as usize..).unwrap_or_default();
            &rest[..size.min(rest.len())]
        }
        let (start, size) = (self.starts[atom], (self.end_of(atom) - self.starts[atom]) as usize);
        ((start, bytes(self.old, start, size)), (place, bytes(self.new, place, size)))
    }

    /// Whether no known fact contradicts `place` for an atom.
    pub(super) fn is_consistent(&self, atom: usize, place: u64) -> bool {
        let (old, new) = self.codes(atom, place);
        let (text, own) = (self.text(), self.starts[atom]..self.end_of(atom));
        let mut is_consistent = true;
        for_each_pair(self.old, old, new, |target, found| {
            let known = match self.atom_at(target).filter(|_| text.contains(&target)) {
                _ if own.contains(&target) => Some(place.wrapping_add(target - own.start)),
                Some(atom) => self.places[atom].map(|place| place.wrapping_add(target - self.starts[atom])),
                None if text.contains(&target) => None,
                None => Some(target),
            };
            is_consistent &= known.is_none_or(|known| known == found);
        });
        is_consistent
    }
}
