//! The lists of all units → sections, and the values of references to them.

use std::collections::BTreeMap;

use super::lists::{Key, UnitLists};
use super::patch::{close_unit, open_unit, push_offset};
use super::units::UnitUpdate;

/// A section of lists and where each unit's lists are in it.
#[derive(Debug, Default)]
pub(crate) struct ListSection {
    /// The section.
    pub bytes: Vec<u8>,
    /// By number of the unit: where its lists start.
    starts: BTreeMap<usize, usize>,
    /// By number of the unit: what indexes are relative to.
    bases: BTreeMap<usize, usize>,
}

impl ListSection {
    /// What indexes of the unit are relative to.
    pub(crate) fn base(&self, unit: usize) -> Option<usize> {
        self.bases.get(&unit).copied()
    }

    /// Where a list of the unit is, and where its views are.
    pub(crate) fn position(&self, unit: usize, lists: &UnitLists, key: Key) -> Option<(usize, usize)> {
        let start = self.starts.get(&unit)?;
        let (list, views) = lists.position(key)?;
        Some((start + list, start + views))
    }
}

/// Which lists of a unit, and its base of indexes.
type Selected = fn(&UnitUpdate) -> (&UnitLists, Option<usize>);

/// Up to DWARF 4, lists follow each other.
pub(crate) fn old_lists(units: &[UnitUpdate], select: Selected) -> ListSection {
    let mut section = ListSection::default();
    for (number, unit) in units.iter().enumerate().filter(|(_, unit)| unit.encoding.version <= 4) {
        section.starts.insert(number, section.bytes.len());
        section.bytes.extend_from_slice(&select(unit).0.bytes);
    }
    section
}

/// From DWARF 5 on, they follow a header and a table that indexes refer to, which units may share.
/// `None` when two units disagree about a list that they share.
pub(crate) fn new_lists(units: &[UnitUpdate], select: Selected) -> Option<ListSection> {
    let mut section = ListSection::default();
    let mut groups: BTreeMap<(Option<usize>, usize), Vec<usize>> = BTreeMap::new();
    for (number, unit) in units.iter().enumerate().filter(|(_, unit)| unit.encoding.version >= 5) {
        let (lists, base) = select(unit);
        if !lists.lists.is_empty() || base.is_some() {
            // Units without indexes have a table each, in their own order.
            groups.entry((base, if base.is_some() { 0 } else { number })).or_default().push(number);
        }
    }
    let mut ordered: Vec<Vec<usize>> = groups.into_values().collect();
    ordered.sort_unstable();
    for members in ordered {
        push_group(&mut section, units, select, &members)?;
    }
    Some(section)
}

fn push_group(
    section: &mut ListSection,
    units: &[UnitUpdate],
    select: Selected,
    members: &[usize],
) -> Option<()> {
    let format = units.get(*members.first()?)?.encoding.format;
    let bytes = &mut section.bytes;
    let length_at = open_unit(bytes, format);
    // Version, size of addresses, size of segments.
    bytes.extend_from_slice(&[5, 0, 8, 0]);
    let mut table: BTreeMap<usize, usize> = BTreeMap::new();
    let mut position = 0;
    for &member in members {
        let (lists, _) = select(&units[member]);
        for (key, at, _) in &lists.lists {
            if let Key::Index(index) = key
                && let Some(other) = table.insert(*index, position + at)
                && other != position + at
            {
                return None;
            }
        }
        position += lists.bytes.len();
    }
    let count = table.keys().next_back().map_or(0, |last| last + 1);
    bytes.extend_from_slice(&u32::try_from(count).ok()?.to_le_bytes());
    let base = bytes.len();
    let table_size = count.checked_mul(usize::from(format.word_size()))?;
    // An index that no entry names leads to an empty list after all others.
    for index in 0..count {
        let within = table.get(&index).copied().unwrap_or(position);
        push_offset(bytes, format, table_size + within);
    }
    for &member in members {
        let (lists, _) = select(&units[member]);
        section.starts.insert(member, bytes.len());
        section.bases.insert(member, base);
        bytes.extend_from_slice(&lists.bytes);
    }
    bytes.push(0);
    close_unit(bytes, format, length_at);
    Some(())
}
