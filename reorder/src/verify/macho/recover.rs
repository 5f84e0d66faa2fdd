//! Where the atoms of `__text` went, from the two images alone.
//!
//! What has a fixed place in both images names pairs: symbols at the same index, pointers in the same slot, exports of the
//! same name, entries of `__eh_frame` and exception tables. Every pair of atoms names more, by the distances at the same
//! instructions. What is left are functions that nothing refers to: they are found by their contents, at their old place
//! first. Nothing of this is trusted: the checks decide whether the map holds.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use super::super::bytes::{displacement_at, u32_at};
use super::super::recover::AddressMoves;
use super::arm64::{Form, NOP, form, is_add, page_offset, register};
use super::atoms::{atom_starts, moves_from};
use super::exports::ExportWalk;
use super::fixups::for_each_slot;
use super::frames::frame_entries;
use super::tables::{entry_point, initialisers, symbols};
use super::unwind::UnwindTable;
use super::view::{MachView, Processor};
use super::x86_64;
use crate::error::{Error, Result};

/// Pairs the atoms of `old` with their places in `new`.
///
/// # Errors
/// Tables that cannot be read, and atoms that do not fit their places.
pub(super) fn recover(old: &MachView<'_>, new: &MachView<'_>) -> Result<AddressMoves> {
    let starts = atom_starts(old)?;
    let places = vec![None; starts.len()];
    let mut pairs = Pairs { old, new, starts, places, open: Vec::new() };
    pairs.learn_from_tables()?;
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
}

impl Pairs<'_, '_> {
    fn text(&self) -> Range<u64> {
        self.old.text().range()
    }

    fn end_of(&self, atom: usize) -> u64 {
        self.starts.get(atom + 1).copied().unwrap_or(self.text().end)
    }

    /// The byte at `address` is now at `found`. The first that says so is believed.
    fn learn(&mut self, address: u64, found: u64) {
        let text = self.text();
        if !text.contains(&address) {
            return;
        }
        let after = self.starts.partition_point(|&start| start <= address);
        let Some(atom) = after.checked_sub(1) else { return };
        let place = found.wrapping_sub(address - self.starts[atom]);
        if self.places[atom].is_none() && text.contains(&place) {
            self.places[atom] = Some(place);
            self.open.push(atom as u32);
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

    /// Follows the distances in all pairs of atoms, and in the other sections of code, to a fixpoint.
    fn learn_from_code(&mut self) {
        let (old, new) = (self.old, self.new);
        for (before, after) in old.sections.iter().zip(&new.sections) {
            let is_fixed = before.is_code() && before.header != old.text().header;
            if is_fixed && before.bytes.len() == after.bytes.len() {
                self.compare((before.address, before.bytes), (after.address, after.bytes));
            }
        }
        while let Some(atom) = self.open.pop() {
            let atom = atom as usize;
            let Some(place) = self.places[atom] else { continue };
            let size = (self.end_of(atom) - self.starts[atom]) as usize;
            // The last atom's padding may be cut.
            fn bytes<'a>(image: &MachView<'a>, start: u64, size: usize) -> &'a [u8] {
                let text = image.text();
                let rest = text.bytes.get((start - text.address) as usize..).unwrap_or_default();
                &rest[..size.min(rest.len())]
            }
            let (before, after) = (bytes(old, self.starts[atom], size), bytes(new, place, size));
            self.compare((self.starts[atom], before), (place, after));
        }
    }

    fn compare(&mut self, old: (u64, &[u8]), new: (u64, &[u8])) {
        match self.old.processor {
            Processor::X86_64 => {
                let mut found = Vec::new();
                let text = self.text();
                x86_64::for_each_target(self.old, old, new, |before, after| {
                    if text.contains(&before) {
                        found.push((before, after));
                    }
                });
                for (before, after) in found {
                    self.learn(before, after);
                }
            }
            Processor::Arm64 => self.compare_words(old, new),
        }
    }

    fn compare_words(&mut self, old: (u64, &[u8]), new: (u64, &[u8])) {
        let count = old.1.len().min(new.1.len()) / 4;
        let before = |index: usize| u32_at(old.1, index * 4).unwrap_or(0);
        let after = |index: usize| u32_at(new.1, index * 4).unwrap_or(0);
        for index in 0..count {
            let kind = form(before(index));
            if kind == Form::Plain {
                continue;
            }
            let distance = index as u64 * 4;
            let target = kind.target(before(index), old.0.wrapping_add(distance));
            match (kind, form(after(index))) {
                (Form::Adrp, Form::Adrp) => {
                    // The next use of the page is near.
                    let destination = register(before(index), 0);
                    let page = kind.target(after(index), new.0.wrapping_add(distance));
                    let next = (index + 1..count.min(index + 9))
                        .find(|&next| is_add(before(next)) && register(before(next), 5) == destination);
                    if let Some(next) = next {
                        let low = |word| page_offset(word).unwrap_or(0);
                        self.learn(
                            target.wrapping_add(low(before(next))),
                            page.wrapping_add(low(after(next))),
                        );
                    }
                }
                (Form::Adr, Form::Adrp) => {
                    let destination = register(before(index), 0);
                    let page = Form::Adrp.target(after(index), new.0.wrapping_add(distance));
                    let next = (index + 1..count.min(index + 9)).find(|&next| {
                        before(next) == NOP && is_add(after(next)) && register(after(next), 5) == destination
                    });
                    if let Some(next) = next {
                        self.learn(target, page.wrapping_add(page_offset(after(next)).unwrap_or(0)));
                    }
                }
                (before, after_form) if before == after_form => {
                    self.learn(target, kind.target(after(index), new.0.wrapping_add(distance)));
                }
                _ => {}
            }
        }
    }

    /// Pairs what is left by contents: at the old place, or else in the order of addresses.
    fn learn_from_contents(&mut self) -> Result<()> {
        let missing: Vec<usize> =
            (0..self.starts.len()).filter(|&atom| self.places[atom].is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let new_starts = atom_starts(self.new)?;
        let taken: std::collections::BTreeSet<u64> = self.places.iter().flatten().copied().collect();
        let text = self.text();
        let mut candidates: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut free: std::collections::BTreeSet<u64> = std::collections::BTreeSet::new();
        for (index, &start) in new_starts.iter().enumerate().rev() {
            if !taken.contains(&start) {
                let end = new_starts.get(index + 1).copied().unwrap_or(text.end);
                candidates.entry(fingerprint(self.new, start, end)).or_default().push(start);
                free.insert(start);
            }
        }
        let print =
            |pairs: &Self, atom: usize| fingerprint(pairs.old, pairs.starts[atom], pairs.end_of(atom));
        for &atom in &missing {
            let start = self.starts[atom];
            let is_there = candidates.get(&print(self, atom)).is_some_and(|places| places.contains(&start));
            if is_there && free.remove(&start) {
                self.places[atom] = Some(start);
                self.open.push(atom as u32);
            }
        }
        self.learn_from_code();
        for &atom in &missing {
            if self.places[atom].is_some() {
                continue;
            }
            let Some(places) = candidates.get_mut(&print(self, atom)) else { continue };
            while let Some(place) = places.pop() {
                if free.remove(&place) {
                    self.learn(self.starts[atom], place);
                    break;
                }
            }
            self.learn_from_code();
        }
        Ok(())
    }
}

/// A number that does not depend on where the code between `start` and `end` lies, or on where its targets in `__text` do.
fn fingerprint(image: &MachView<'_>, start: u64, end: u64) -> u64 {
    let text = image.text();
    let range = (start - text.address) as usize..(end - text.address) as usize;
    let code = text.bytes.get(range).unwrap_or_default();
    if image.processor == Processor::X86_64 {
        return x86_64::fingerprint(image, code, start, &text.range());
    }
    let mut hasher = DefaultHasher::new();
    let is_padding = |index: usize| matches!(u32_at(code, index * 4), Some(0 | NOP));
    let body = (0..code.len() / 4).rev().find(|&index| !is_padding(index)).map_or(0, |last| last + 1);
    for index in 0..body {
        let word = u32_at(code, index * 4).unwrap_or(0);
        let kind = form(word);
        let target = kind.target(word, start.wrapping_add(index as u64 * 4));
        let is_half = word == NOP
            || page_offset(word).is_some()
            || matches!(kind, Form::Adr | Form::Adrp | Form::Literal);
        match kind {
            // Halves of addresses may be written in two ways.
            _ if is_half => 0u32.hash(&mut hasher),
            Form::Plain => word.hash(&mut hasher),
            _ if text.range().contains(&target) => (word & !kind.field()).hash(&mut hasher),
            _ => target.hash(&mut hasher),
        }
    }
    hasher.finish()
}
