//! What entries cover: bounds in place, and ranges for a unit whose code went apart. Source: DWARF 5, section 2.17.

use gimli::{DwTag, constants};

use super::super::abbreviations::Reshape;
use super::super::lists::Key;
use super::super::sections::cannot_update;
use super::{Bound, Bounds, Target, Walk};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};

impl Walk<'_, '_> {
    /// Code that an entry describes, if it is in the image.
    pub(super) fn live(&self, bounds: &Bounds) -> Option<(Bound, Bound, u64)> {
        let (low, high) = (bounds.low?, bounds.high?);
        let end = if high.is_address { high.value } else { low.value.wrapping_add(high.value) };
        (self.pieces.is_code(low.value) && low.value < end).then_some((low, high, end))
    }

    pub(super) fn bounds(&mut self, place: usize, tag: DwTag, bounds: &Bounds) -> Result<()> {
        match (self.live(bounds), bounds.low) {
            (Some((low, high, end)), _) => {
                let parts = self.pieces.split(low.value, end);
                match parts.as_slice() {
                    [(start, end)] => self.store_bounds(place, low, high, start.0, end.0),
                    _ => {
                        let reason = format!(
                            "the {tag} at {place:#x} of {} describes code that went apart",
                            self.section.name
                        );
                        Err(cannot_update(reason).at(Address(low.value)).into())
                    }
                }
            }
            (None, Some(low)) => {
                let start = self.pieces.start(low.value);
                if low.index.is_none() {
                    self.store(low.at, low.width, start);
                }
                // Empty code whose end is stated as an address.
                if let Some(high) = bounds.high.filter(|high| high.is_address && high.value == low.value)
                    && high.index.is_none()
                {
                    self.store(high.at, high.width, start);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn store_bounds(&mut self, place: usize, low: Bound, high: Bound, start: u64, end: u64) -> Result<()> {
        if low.index.is_none() {
            self.store(low.at, low.width, start);
        } else if self.pieces.start(low.value) != start {
            return Err(self.section.damaged(place, "the code begins in padding"));
        }
        if high.is_address && high.index.is_none() {
            self.store(high.at, high.width, end);
        } else if !high.is_address && end - start != high.value {
            if matches!(high.form, constants::DW_FORM_udata | constants::DW_FORM_implicit_const) {
                let reason = format!("the entry at {place:#x} of {} reaches into padding", self.section.name);
                return Err(cannot_update(reason).at(Address(low.value)).into());
            }
            self.store(high.at, high.width, end - start);
        }
        Ok(())
    }

    /// The unit itself: where its code went apart it gets ranges instead of bounds.
    pub(super) fn root_bounds(&mut self, place: usize, code: u64, bounds: &Bounds) -> Result<()> {
        self.base = bounds.low.map(|low| self.pieces.start(low.value));
        if self.base.is_none() && self.update.encoding.version <= 4 {
            self.base = Some(0);
        }
        self.update.is_split |= bounds.is_split;
        let is_split = self.update.is_split;
        if let (true, Some(key)) = (is_split, bounds.ranges) {
            self.split_ranges(key, bounds.low)?;
        }
        let Some((low, high, end)) = self.live(bounds) else {
            return self.bounds(place, constants::DW_TAG_compile_unit, bounds);
        };
        let parts = self.pieces.split(low.value, end);
        if let [(start, end)] = parts.as_slice() {
            self.base = Some(start.0);
            return self.store_bounds(place, low, high, start.0, end.0);
        }
        if is_split {
            return Err(self.counted_elsewhere(low.value));
        }
        let word = usize::from(self.update.encoding.format.word_size());
        let (slot, reshape) =
            Reshape::choose(code, self.update.encoding, (low.form, low.width), (high.form, high.width))
                .ok_or_else(|| {
                    cannot_update(format!(
                        "the unit at {place:#x} of {} has no room for a list of ranges",
                        self.section.name
                    ))
                    .at(Address(low.value))
                })?;
        let at = if slot.is_high { high.at } else { low.at };
        self.refer(at, word, Target::Ranges(Key::Own));
        if slot.width > word {
            self.store(at + word, slot.width - word, 0);
        }
        if slot.is_high && low.index.is_none() {
            // What is relative to the unit's base address is then relative to zero.
            self.store(low.at, low.width, 0);
            self.base = Some(0);
        } else if !slot.is_high {
            self.base = None;
        }
        self.update.reshape = Some(reshape);
        self.own_ranges = Some((low.value, end));
        Ok(())
    }

    /// The ranges of a unit whose entries are in another file. That file uses addresses relative to the start of each range
    /// or of the unit: compilers take differences of labels in the same section.
    fn split_ranges(&mut self, key: Key, low: Option<Bound>) -> Result<()> {
        let section = self.section;
        let offset = self.bases.unit.header.offset().0;
        let broken = |error: gimli::Error| section.damaged(offset, error);
        let Some(position) = self.range_position(key).map_err(broken)? else { return Ok(()) };
        let low = low.map(|low| low.value).filter(|&low| self.pieces.is_code(low));
        let base = low.and_then(|low| self.pieces.at(low)).map(|piece| piece.delta);
        for entry in self.bases.ranges(position).map_err(broken)? {
            let Some((begin, end)) = entry.code(self.pieces) else { continue };
            match self.pieces.distance(begin, end) {
                Some(distance) if base.is_none_or(|base| base == distance) => {}
                _ => return Err(self.counted_elsewhere(begin)),
            }
        }
        Ok(())
    }

    fn counted_elsewhere(&self, address: u64) -> Error {
        let reason = format!(
            "the unit at {:#x} of {} has its entries in a file of its own, which counts from an address that is no \
             longer its own",
            self.bases.unit.header.offset().0,
            self.section.name
        );
        cannot_update(reason).at(Address(address)).into()
    }
}
