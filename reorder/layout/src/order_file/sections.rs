//! A layout of functions as an order of input sections, which are what linkers for ELF can move.
//!
//! In: functions, their layout and the map of the link that made the image. Out: the sections that hold the chosen
//! functions, each once, where its first function is in the layout.

use crate::Layout;
use reorder_base::address::Address;
use reorder_image::functions::FunctionTable;
use reorder_trace::link_map::{LinkMap, SectionIndex};

/// Input sections of the chosen part of `layout`, each once, in its order. Functions that lie in none are left out, and so
/// is what the linker made itself.
#[must_use]
pub fn ordered_sections(
    functions: &FunctionTable<'_>,
    layout: &Layout,
    map: &LinkMap<'_>,
) -> Vec<SectionIndex> {
    let places = Places::of(map);
    let mut is_taken = vec![false; map.sections.len()];
    let chosen = layout.order.iter().take(layout.chosen);
    chosen
        .filter_map(|&function| places.at(functions.get(function).start))
        .filter(|section| !std::mem::replace(&mut is_taken[section.0 as usize], true))
        .collect()
}

/// How many functions of the table start in each section of the map, by section.
#[must_use]
pub fn crowds(functions: &FunctionTable<'_>, map: &LinkMap<'_>) -> Vec<u32> {
    let places = Places::of(map);
    let mut counts = vec![0; map.sections.len()];
    for (_, function) in functions.iter() {
        if let Some(section) = places.at(function.start) {
            counts[section.0 as usize] += 1;
        }
    }
    counts
}

/// The sections of a map by address.
pub(super) struct Places<'map> {
    map: &'map LinkMap<'map>,
    by_address: Vec<SectionIndex>,
}

impl<'map> Places<'map> {
    pub(super) fn of(map: &'map LinkMap<'_>) -> Self {
        let count = u32::try_from(map.sections.len()).unwrap_or(u32::MAX);
        let is_linked = |index: &SectionIndex| map.get(*index).object != b"<internal>";
        let mut by_address: Vec<_> = (0..count).map(SectionIndex).filter(is_linked).collect();
        by_address.sort_by_key(|&index| (map.get(index).address, index));
        Self { map, by_address }
    }

    /// The section that holds `address`.
    pub(super) fn at(&self, address: Address) -> Option<SectionIndex> {
        let after = self.by_address.partition_point(|&index| self.map.get(index).address <= address);
        // Templates of thread-local storage take no addresses and may overlap what follows them.
        (after.saturating_sub(8)..after)
            .rev()
            .map(|place| self.by_address[place])
            .find(|&index| self.map.get(index).end() > address)
    }
}
