//! Checks the debug information of copies: at each copied instruction it says what it says at the original.
//!
//! ```text
//! sections ─> what they held is their beginning
//! points: copied instructions ─┬─> entries that cover them, from the outermost to the innermost ─┐
//!                              └─> rows of line programs ────────────────────────────────────────┴─> the same on both sides
//! ```
//!
//! Nothing of how the units were made is known here: both sides are looked up by address, and compared.

mod entries;
mod points;
mod rows;
mod tables;

use std::collections::BTreeSet;

use super::view::{DebugView, Slice};
use crate::elf::view::ElfView;
use crate::report::{Check, Difference, Findings};
use reorder_base::error::Result;

pub(crate) use points::Point;
use points::{Points, Saying};

/// Sections that units for copies are added to.
const GROWING: [&str; 8] = [
    ".debug_abbrev",
    ".debug_aranges",
    ".debug_info",
    ".debug_line",
    ".debug_loc",
    ".debug_loclists",
    ".debug_ranges",
    ".debug_rnglists",
];

/// Indexes of units, which may be emptied.
const INDEXES: [&str; 2] = [".debug_names", ".gdb_index"];

/// What a reader of the debug information of one side finds.
type Read<T> = std::result::Result<T, String>;

/// Checks what `new` says of the copied instructions `points`, in the order of their copies.
///
/// # Errors
/// Sections that cannot be unpacked.
pub(crate) fn check_copies(
    (old, new): (&ElfView<'_>, &ElfView<'_>),
    points: Vec<Point>,
    findings: &mut Findings,
) -> Result<()> {
    let (before, after) = (DebugView::read(old)?, DebugView::read(new)?);
    let mut differs = |place: &str, found: &str| {
        let expected = "what the old image says of the originals";
        findings.differs(Difference::new(Check::DebugInformation, None, place, expected, found));
    };
    let mut has_grown = false;
    let names: BTreeSet<&String> = before.names().chain(after.names()).collect();
    for name in names {
        let (old, new) = (before.bytes(name), after.bytes(name));
        let may_grow = GROWING.contains(&name.as_str());
        let is_sound = old == new
            || may_grow && new.starts_with(old)
            || INDEXES.contains(&name.as_str()) && new.is_empty();
        has_grown |= old != new;
        if !is_sound {
            return {
                differs(name, "other contents");
                Ok(())
            };
        }
    }
    if !has_grown {
        return Ok(());
    }
    match compare((&before, &after), points) {
        Ok(count) => findings.checked(Check::DebugInformation, "copied instructions", count),
        Err((place, found)) => differs(&place, &found),
    }
    Ok(())
}

/// The place and what is wrong there.
type Wrong = (String, String);

fn compare(
    (before, after): (&DebugView<'_>, &DebugView<'_>),
    points: Vec<Point>,
) -> std::result::Result<usize, Wrong> {
    let broken = |side: &'static str| move |error: String| (side.to_owned(), error);
    let (old, new) = (before.dwarf(), after.dwarf());
    let start = before.bytes(".debug_info").len();
    let existing = units(&old).map_err(|error| broken("the units")(error.to_string()))?;
    let all = units(&new).map_err(|error| broken("the added units")(error.to_string()))?;
    let first = all.partition_point(|unit| unit.header.offset().0 < start);
    let added = &all[first..];
    for unit in added {
        entries::check_shape(&new, unit).map_err(broken("the added units"))?;
    }
    tables::check_aranges(&new, added, (before, after)).map_err(broken(".debug_aranges"))?;
    let points = Points::of(points);
    let (originals, copies) = (points.originals(), points.copies());
    let bytes: usize = before.iter().chain(after.iter()).map(<[u8]>::len).sum();
    let mut saying = Saying::for_points(points.len(), bytes);
    let compared = |of_old: Vec<u32>, of_new: Vec<u32>, what: &str| {
        let of_old = points.in_order(of_old);
        let other = of_old.iter().zip(&of_new).position(|(old, new)| old != new);
        other.map_or(Ok(()), |at| Err((format!("the copy at {}", points.by_copy(at)), format!("other {what}"))))
    };
    let of_old = entries::say(&old, (&existing, 0), &originals, &mut saying).map_err(broken("the units"))?;
    let of_new = entries::say(&new, (&all, first), &copies, &mut saying).map_err(broken("the added units"))?;
    compared(of_old, of_new, "entries")?;
    let of_old = rows::say(&old, &existing, &originals, &mut saying).map_err(broken("the line programs"))?;
    let of_new = rows::say(&new, added, &copies, &mut saying).map_err(broken("the added line programs"))?;
    compared(of_old, of_new, "rows of lines")?;
    match saying.is_exhausted() {
        true => Err(("the units".to_owned(), "the same code over and over, too often to judge".to_owned())),
        false => Ok(points.len()),
    }
}

/// All units, in the order of the section.
fn units<'data>(dwarf: &gimli::Dwarf<Slice<'data>>) -> gimli::Result<Vec<gimli::Unit<Slice<'data>>>> {
    let mut units = Vec::new();
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        units.push(dwarf.unit(header)?);
    }
    Ok(units)
}
