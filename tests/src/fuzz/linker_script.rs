//! Any bytes as a link map whose sections are written for every linker, the file itself as the default script.

use reorder_layout::order_file::{Anchor, bfd_script, gold_sections, lld_script};
use reorder_trace::link_map::{LinkMap, SectionIndex};

pub(super) fn check(bytes: &[u8]) {
    if let Ok(map) = LinkMap::parse(bytes) {
        let sections: Vec<_> = (0..map.sections.len() as u32).rev().map(SectionIndex).collect();
        if let Some(anchor) = Anchor::of(&map) {
            assert!(lld_script(&map, &sections, anchor).starts_with("SECTIONS"));
        }
        let _ = bfd_script(&map, &sections, &String::from_utf8_lossy(bytes));
        assert!(gold_sections(&map, &sections).len() <= 2 * bytes.len());
    }
}
