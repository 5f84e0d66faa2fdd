//! Checks updated debug information: it says the same of every function as before.
//!
//! ```text
//! layout ──> the rest of the file as it was
//! units  ──> entries side by side ──> addresses, expressions, lists
//!        └─> pairs of line programs ──> rows by function
//! tables ──> address ranges, frames, indexes
//! ```
//!
//! Nothing is shared with the code that writes debug information: another library unpacks sections, addresses are resolved
//! and compared as sets, and `gimli` executes line programs.

pub(super) mod copies;
mod coverage;
mod expressions;
pub(super) mod layout;
mod lines;
mod lists;
mod scene;
mod side;
mod tables;
mod units;
mod view;

use std::collections::BTreeSet;

use rayon::prelude::*;

use self::scene::{Budget, Paddings, Scene};
use self::side::Source;
use self::tables::{Judgement, Named};
use self::units::{Outcome, compare_units};
use self::view::{DebugView, Slice};
use super::report::{Check, Difference, Findings};
use crate::elf::pair::ImagePair;
use crate::elf::view::ElfView;
use reorder_base::error::Result;

/// Sections that are compared by meaning; all others are compared byte by byte.
const JUDGED: [&str; 14] = [
    ".debug_abbrev",
    ".debug_addr",
    ".debug_aranges",
    ".debug_frame",
    ".debug_info",
    ".debug_line",
    ".debug_loc",
    ".debug_loclists",
    ".debug_macro",
    ".debug_ranges",
    ".debug_rnglists",
    ".debug_types",
    ".gdb_index",
    ".gnu_debugdata",
];

/// Compares what the debug information of `pair.old` and of `new`, the image as it is in the file, say.
///
/// # Errors
/// Sections that cannot be unpacked.
pub(super) fn check_debug(pair: ImagePair<'_>, new: &ElfView<'_>, findings: &mut Findings) -> Result<()> {
    let (before, after) = (DebugView::read(pair.old)?, DebugView::read(new)?);
    let bytes: usize = before.iter().chain(after.iter()).map(<[u8]>::len).sum();
    let paddings = Paddings::of(pair.old, pair.moves);
    let budget = Budget::for_bytes(bytes as u64);
    let pair = Scene { pair, paddings: &paddings, budget: &budget };
    let mut differs = |place: &str, found: String| {
        findings.differs(Difference::new(
            Check::DebugInformation,
            None,
            place,
            "what the old image says, by the address map",
            found,
        ));
    };
    let names: BTreeSet<&String> = before.names().chain(after.names()).collect();
    for name in names {
        if !JUDGED.contains(&name.as_str()) && before.bytes(name) != after.bytes(name) {
            differs(name, "other contents".to_owned());
        }
    }
    let dwarf = (before.dwarf(), after.dwarf());
    let outcomes = match compare_all(pair, (&dwarf.0, &before), (&dwarf.1, &after)) {
        Ok(outcomes) => outcomes,
        Err(error) => {
            differs("the units", error.to_string());
            return Ok(());
        }
    };
    let (mut entries, mut lists) = (0, 0);
    let mut programs = BTreeSet::new();
    let mut named = Named::default();
    let units = outcomes.len();
    for outcome in outcomes {
        entries += outcome.entries;
        lists += outcome.lists;
        programs.extend(outcome.lines);
        named.places.extend(outcome.named);
        named.is_split |= outcome.is_split;
        if let Some(difference) = outcome.difference {
            differs("debug information", difference);
        }
    }
    let ordered: Vec<(usize, usize)> = programs.iter().copied().collect();
    let judged: Vec<_> = ordered
        .par_iter()
        .map(|&(old, new)| lines::compare_programs(pair, (&dwarf.0, old), (&dwarf.1, new)))
        .collect();
    let mut rows = 0;
    for ((old, _), judgement) in ordered.iter().zip(judged) {
        let place = format!("the line program at {old:#x}");
        match judgement {
            Ok(Ok(count)) => rows += count,
            Ok(Err(difference)) => differs(&place, difference.to_owned()),
            Err(error) => differs(&place, error.to_string()),
        }
    }
    let bytes = |name: &str| (before.bytes(name), after.bytes(name));
    let by_bytes = |name: &'static str, judge: fn(Scene<'_>, &[u8], &[u8]) -> Judgement| {
        let (old, new) = bytes(name);
        (name, if old.is_empty() && new.is_empty() { Ok(0) } else { judge(pair, old, new) })
    };
    let (old_macros, new_macros) = bytes(".debug_macro");
    let addresses = bytes(".debug_addr");
    let judgements = [
        (".debug_aranges", tables::compare_aranges(pair, &before, &after)),
        by_bytes(".gdb_index", tables::compare_gdb_index),
        by_bytes(".debug_frame", tables::compare_frames),
        (".debug_addr", tables::compare_addresses(pair, addresses.0, addresses.1, &named)),
        by_bytes(".gnu_debugdata", tables::compare_mini),
        (".debug_macro", tables::compare_macros(old_macros, new_macros, &programs)),
    ];
    for (name, judgement) in judgements {
        if let Err(difference) = judgement {
            differs(name, difference);
        }
    }
    if budget.is_exhausted() {
        differs("the lists", "the same entries over and over, too many to judge".to_owned());
    }
    findings.checked(Check::DebugInformation, "units", units);
    findings.checked(Check::DebugInformation, "entries", entries);
    findings.checked(Check::DebugInformation, "lists", lists);
    findings.checked(Check::DebugInformation, "line rows", rows);
    Ok(())
}

/// All units of both images, pairwise.
fn compare_all<'data>(
    pair: Scene<'_>,
    old: Source<'_, 'data>,
    new: Source<'_, 'data>,
) -> gimli::Result<Vec<Outcome>> {
    let headers = |dwarf: &gimli::Dwarf<Slice<'data>>| {
        let mut headers = Vec::new();
        let (mut units, mut types) = (dwarf.units(), dwarf.type_units());
        while let Some(header) = units.next()? {
            headers.push(header);
        }
        while let Some(header) = types.next()? {
            headers.push(header);
        }
        Ok::<_, gimli::Error>(headers)
    };
    let (before, after) = (headers(old.0)?, headers(new.0)?);
    if before.len() != after.len() {
        return Err(gimli::Error::MissingUnitDie);
    }
    Ok(before
        .par_iter()
        .zip(&after)
        .map(|(before, after)| compare_units(pair, (old, *before), (new, *after)))
        .collect())
}
