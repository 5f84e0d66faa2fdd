//! Where the atoms of `__text` went, from the two images alone.
//!
//! What has a fixed place in both images names pairs: symbols at the same index, pointers in the same slot, exports of the
//! same name, entries of `__eh_frame` and exception tables. Every pair of atoms names more, by the distances at the same
//! instructions. What is left are functions that nothing refers to: they are found by their contents, at their old place
//! first. Nothing of this is trusted: the checks decide whether the map holds.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::bytes::displacement_at;
use super::super::recover::AddressMoves;
use super::atoms::{atom_starts, moves_from};
use super::exports::ExportWalk;
use super::fixups::for_each_slot;
use super::frames::frame_entries;
use super::recover_code::{Code, fingerprint, for_each_pair};
use super::tables::{entry_point, initialisers, symbols};
use super::unwind::UnwindTable;
use super::view::MachView;
use crate::error::{Error, Result};

/// Pairs the atoms of `old` with their places in `new`.
///
/// # Errors
/// Tables that cannot be read, and atoms that do not fit their places.
pub(super) fn recover(old: &MachView<'_>, new: &MachView<'_>) -> Result<AddressMoves> {
    let starts = atom_starts(old)?;
    let places = vec![None; starts.len()];
    let mut pairs = Pairs { old, new, starts, places, open: Vec::new(), free: BTreeSet::new() };
    pairs.learn_from_tables()?;
    pairs.learn_from_fixed_code();
    pairs.learn_from_code();
    pairs.learn_from_contents()?;
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

struct Pairs<'a, 'data> {
    old: &'a MachView<'data>,
    new: &'a MachView<'data>,
    starts: Vec<u64>,
    /// Of the atom at the same position.
    places: Vec<Option<u64>>,
    /// Atoms whose code has not been looked at.
    open: Vec<u32>,
    /// Places of the new image that belong to no atom yet, once contents are compared.
    free: BTreeSet<u64>,
}

impl Pairs<'_, '_> {
    fn text(&self) -> Range<u64> {
        self.old.text().range()
    }

    fn end_of(&self, atom: usize) -> u64 {
        self.starts.get(atom + 1).copied().unwrap_or(self.text().end)
    }

    /// The last atom that starts at `address` or in front of it.
    fn atom_at(&self, address: u64) -> Option<usize> {
        self.starts.partition_point(|&start| start <= address).checked_sub(1)
    }

    /// The byte at `address` is now at `found`. The first that says so is believed.
    fn learn(&mut self, address: u64, found: u64) {
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
    fn learn_from_code(&mut self) {
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
        }
    }

    /// The code of an atom and what stands at `place` of the new image, of the same length.
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

    /// Whether nothing that is known speaks against `place` for an atom.
    fn is_consistent(&self, atom: usize, place: u64) -> bool {
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

    /// Pairs what is left by contents: at the old place, or else in the order of addresses.
    fn learn_from_contents(&mut self) -> Result<()> {
        let mut missing: Vec<usize> =
            (0..self.starts.len()).filter(|&atom| self.places[atom].is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        // Large functions are told apart more easily, and tell the small ones apart that refer to them.
        missing.sort_by_key(|&atom| Reverse(self.end_of(atom) - self.starts[atom]));
        let new_starts = atom_starts(self.new)?;
        let taken: BTreeSet<u64> = self.places.iter().flatten().copied().collect();
        let text = self.text();
        let mut candidates: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (index, &start) in new_starts.iter().enumerate() {
            if !taken.contains(&start) {
                let end = new_starts.get(index + 1).copied().unwrap_or(text.end);
                candidates.entry(fingerprint(self.new, start, end)).or_default().push(start);
                self.free.insert(start);
            }
        }
        let prints: Vec<u64> =
            missing.iter().map(|&atom| fingerprint(self.old, self.starts[atom], self.end_of(atom))).collect();
        for must_stay in [true, false] {
            for (&atom, print) in missing.iter().zip(&prints) {
                let (start, mut tries) = (self.starts[atom], MOST_TRIES);
                let fits = |place: &u64| {
                    let is_free = self.free.contains(place) && (*place == start || !must_stay);
                    if !is_free || tries == 0 {
                        return false;
                    }
                    tries -= 1;
                    self.is_consistent(atom, *place)
                };
                let places = candidates.get(print).map_or(&[][..], Vec::as_slice);
                if let Some(place) = places.iter().copied().find(fits).filter(|_| self.places[atom].is_none())
                {
                    self.learn(start, place);
                    self.learn_from_code();
                }
            }
        }
        Ok(())
    }
}

/// Places that are compared for one function: many small functions are the same but for what they call.
const MOST_TRIES: usize = 64;
