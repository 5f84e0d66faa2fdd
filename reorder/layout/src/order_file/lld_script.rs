//! Writes a linker script that makes lld put chosen input sections first in `.text`.
//!
//! In: a link map and its sections in the wanted order. Out: the text for `-T`. The script has only `.text`, which
//! is inserted where it was; lld adds the rest of its input sections after those that are named, and lays every other
//! output section out as it does without a script. Sections of other outputs are left out.

use super::file_pattern::patterns;
use reorder_trace::link_map::{LinkMap, SectionIndex};

/// The output section that code is ordered in.
pub(super) const TEXT: &[u8] = b".text";

/// Where `.text` is: next to an output section that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor<'data> {
    /// Right after this one.
    After(&'data [u8]),
    /// Right before this one.
    Before(&'data [u8]),
}

impl<'data> Anchor<'data> {
    /// Where the map has `.text`, so that it stays there; `None` when it has no other output section or no `.text`.
    #[must_use]
    pub fn of(map: &LinkMap<'data>) -> Option<Self> {
        let first = map.sections.iter().position(|section| section.output == TEXT)?;
        let (before, after) = map.sections.split_at(first);
        // Padding that lld makes itself cannot be named.
        let can_be_named = |output: &&'data [u8]| *output != b".relro_padding" && *output != TEXT;
        let outputs = |section: &reorder_trace::link_map::PlacedSection<'data>| section.output;
        let previous = before.last().map(outputs).filter(can_be_named);
        let next = || after.iter().map(outputs).find(can_be_named);
        previous.map(Self::After).or_else(|| next().map(Self::Before))
    }
}

/// The script that puts `sections` first in `.text`, in this order.
#[must_use]
pub fn lld_script(map: &LinkMap<'_>, sections: &[SectionIndex], anchor: Anchor<'_>) -> String {
    let mut script = String::from("SECTIONS\n{\n  .text :\n  {\n");
    for pattern in patterns(map, &of_text(map, sections)) {
        script.push_str("    ");
        script.push_str(&pattern);
        script.push('\n');
    }
    let (word, output) = match anchor {
        Anchor::After(output) => ("AFTER", output),
        Anchor::Before(output) => ("BEFORE", output),
    };
    script.push_str(&format!("  }}\n}}\nINSERT {word} {};\n", String::from_utf8_lossy(output)));
    script
}

/// Those that lie in `.text`.
pub(super) fn of_text(map: &LinkMap<'_>, sections: &[SectionIndex]) -> Vec<SectionIndex> {
    sections.iter().copied().filter(|&section| map.get(section).output == TEXT).collect()
}
