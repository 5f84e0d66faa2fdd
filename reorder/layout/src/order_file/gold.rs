//! Writes section ordering files for gold: names of input sections, one a line.
//!
//! In: sections of a link map in the wanted order. Out: the text for `--section-ordering-file`. gold takes a name for all
//! sections that have it, in any file, in the order of the link; it puts what is listed at the end of the output
//! section. Characters that gold would take for patterns are written as `?`, which matches each of them. Lines that start
//! with `#` name no section.

use std::collections::{BTreeMap, BTreeSet};

use super::file_pattern::escaped;
use reorder_trace::link_map::{LinkMap, SectionIndex};

/// The names of `sections`, in this order, each once.
#[must_use]
pub fn gold_sections(map: &LinkMap<'_>, sections: &[SectionIndex]) -> Vec<u8> {
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for &section in sections {
        let name = escaped(map.get(section).name);
        if seen.insert(name.clone()) {
            out.extend_from_slice(name.as_bytes());
            out.push(b'\n');
        }
    }
    out
}

/// Those of `sections` whose name other sections of the map share: gold moves them all. Sorted.
#[must_use]
pub fn ambiguous(map: &LinkMap<'_>, sections: &[SectionIndex]) -> Vec<SectionIndex> {
    let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
    for section in &map.sections {
        *counts.entry(section.name).or_default() += 1;
    }
    let mut shared: Vec<_> = sections
        .iter()
        .copied()
        .filter(|&section| counts.get(map.get(section).name).is_some_and(|&count| count > 1))
        .collect();
    shared.sort_unstable();
    shared
}

/// The possible names of sections, one a line.
pub(super) fn names(groups: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let lines = groups.iter().flatten().map(|name| format!("{}\n", escaped(name)));
    lines.flat_map(String::into_bytes).collect()
}
