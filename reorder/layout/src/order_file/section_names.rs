//! The input sections in which a function may be, by its names, for linkers that know sections and no symbols.
//!
//! Compilers name the section of a function after it (`-ffunction-sections`): `.text.NAME`, and by how often they believe it
//! runs `.text.hot.NAME`, `.text.unlikely.NAME`, `.text.startup.NAME`, `.text.exit.NAME`. The part that runs rarely,
//! `NAME.cold`, is in `.text.unlikely.NAME` by gcc, which is therefore not looked for when `NAME` has such a part; clang has
//! it in `.text.split.NAME` or in a section named after the part.

use std::collections::BTreeSet;

use super::lld::Summary;
use super::symbol_names::{UsableNames, usable};
use crate::Layout;
use reorder_image::functions::{FunctionIndex, FunctionTable};

/// For each chosen function the sections in which it may be, those of earlier functions left out.
pub(super) fn of_chosen(functions: &FunctionTable<'_>, layout: &Layout) -> (Vec<Vec<Vec<u8>>>, Summary) {
    let names = UsableNames::of(functions);
    let chosen = &layout.order[..layout.chosen.min(layout.order.len())];
    let mut summary = Summary { functions: functions.len(), chosen: chosen.len(), ..Summary::default() };
    let mut seen = BTreeSet::new();
    let mut groups = Vec::new();
    for &function in chosen {
        match names.best(functions, function) {
            None => summary.unnamed += 1,
            Some((_, is_unique)) => {
                summary.named += 1;
                summary.ambiguous += usize::from(!is_unique);
            }
        }
        let candidates = candidates(functions, function, &names);
        let group: Vec<Vec<u8>> = candidates.into_iter().filter(|name| seen.insert(name.clone())).collect();
        if !group.is_empty() {
            groups.push(group);
        }
    }
    (groups, summary)
}

fn candidates(
    functions: &FunctionTable<'_>,
    function: FunctionIndex,
    names: &UsableNames<'_>,
) -> Vec<Vec<u8>> {
    let mut sections = Vec::new();
    for name in usable(functions, function).take(ALIASES) {
        match name.strip_suffix(b".cold") {
            Some(whole) => {
                for prefix in [b".text.unlikely.".as_slice(), b".text.split."] {
                    sections.push([prefix, whole].concat());
                }
                sections.push([b".text.unlikely.", name].concat());
            }
            None => {
                let has_cold_part = names.has(&[name, b".cold"].concat());
                for prefix in PREFIXES {
                    if !(has_cold_part && prefix == b".text.unlikely.") {
                        sections.push([prefix, name].concat());
                    }
                }
            }
        }
    }
    sections
}

const PREFIXES: [&[u8]; 5] =
    [b".text.", b".text.hot.", b".text.unlikely.", b".text.startup.", b".text.exit."];

/// Names of one address that are tried: constructors have two or three.
const ALIASES: usize = 8;
