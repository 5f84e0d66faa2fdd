//! The lists that a unit's entries name, read and written with the unit's new base.

use gimli::Reader;

use super::super::lists::{Entry, Key, Writing};
use super::super::sections::{OVER_AND_OVER, Slice, cannot_update};
use super::Walk;
use reorder_base::error::{Error, Result};

impl<'data> Walk<'_, 'data> {
    /// Where a list of ranges is.
    pub(super) fn range_position(&self, key: Key) -> gimli::Result<Option<usize>> {
        Ok(match key {
            Key::At(position) => Some(position),
            Key::Index(index) => {
                let index = gimli::DebugRngListsIndex(index);
                Some(self.bases.dwarf.ranges_offset(self.bases.unit, index)?.0)
            }
            Key::Own => None,
        })
    }

    /// Reads all lists that the entries name and writes them with the unit's new base.
    pub(super) fn lists(&mut self, offset: usize) -> Result<()> {
        let section = self.section;
        let broken = |error: gimli::Error| section.broken(offset, error);
        let writing = Writing { encoding: self.update.encoding, base: self.base, pieces: self.pieces };
        let unit = self.bases.unit;
        let dwarf = self.bases.dwarf;
        // Lists may begin inside of others, so a few bytes can make very many.
        let check = || match self.pieces.is_exhausted() {
            true => Err(Error::from(cannot_update(OVER_AND_OVER))),
            false => Ok(()),
        };
        for key in self.range_keys.keys() {
            let Some(position) = self.range_position(*key).map_err(broken)? else { continue };
            let entries = self.bases.ranges(position).map_err(broken)?;
            let uses = &mut self.update.uses;
            self.update.ranges.push(*key, &entries, None, writing, uses).map_err(broken)?;
            check()?;
        }
        if let Some((start, end)) = self.own_ranges {
            let entries = [Entry::range(start, end)];
            let uses = &mut self.update.uses;
            self.update.ranges.push(Key::Own, &entries, None, writing, uses).map_err(broken)?;
        }
        for (key, views) in &self.location_keys {
            let position = match *key {
                Key::At(position) => position,
                Key::Index(index) => {
                    dwarf.locations_offset(unit, gimli::DebugLocListsIndex(index)).map_err(broken)?.0
                }
                Key::Own => continue,
            };
            let entries = self.bases.locations(position).map_err(broken)?;
            let views = views.map(|position| self.view_bytes(position)).transpose().map_err(broken)?;
            let uses = &mut self.update.uses;
            self.update.locations.push(*key, &entries, views, writing, uses).map_err(broken)?;
            check()?;
        }
        Ok(())
    }

    fn view_bytes(&self, position: usize) -> gimli::Result<Slice<'data>> {
        let name = if self.update.encoding.version <= 4 { ".debug_loc" } else { ".debug_loclists" };
        let mut bytes = Slice::new(self.sections.bytes(name), gimli::LittleEndian);
        bytes.skip(position)?;
        Ok(bytes)
    }
}
