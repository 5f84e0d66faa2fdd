//! The places that a record claims: each copy apart from the others in the section of copies, each original apart from the
//! others in one function.

use super::record::{Copied, Listed};
use crate::elf::view::{ElfView, SectionView};
use crate::moves::{AddressMoves, Move};
use crate::report::{Check, Difference};

/// Checks the places of `copies`; gives them in the order of the copies.
///
/// # Errors
/// The first copy that breaks a rule.
pub(super) fn check_places(
    old: &ElfView<'_>,
    section: &SectionView<'_>,
    (listed, copies): (Listed, &[Copied]),
    functions: &AddressMoves,
) -> Result<Vec<Copied>, Difference> {
    let (wrong_home, expected) = match listed {
        Listed::Functions => ("not a whole function", "a copy of a function, apart from the others"),
        Listed::Fragments => ("not a part of one function", "a copy of a fragment, apart from the others"),
    };
    let wrong = |copied: &Copied, what: &str| {
        let name = format!("the copy of {} at {}", copied.original, copied.copy);
        Difference::new(Check::Copies, None, name, expected, what)
    };
    let mut by_copy = copies.to_vec();
    by_copy.sort_unstable_by_key(|copied| copied.copy);
    for copied in &by_copy {
        let end = copied.original_end();
        let is_home = |range: &Move| match listed {
            Listed::Functions => (range.old_start, range.old_end()) == (copied.original, end),
            Listed::Fragments => copied.size > 0 && end <= range.old_end(),
        };
        let is_sound = functions.containing(copied.original).is_some_and(is_home);
        if !is_sound || old.code_at(copied.original.0, end.0).is_none() {
            return Err(wrong(copied, wrong_home));
        }
        if copied.copy_size == 0 || !section.holds(copied.copy.0, copied.copy_end().0) {
            return Err(wrong(copied, "outside of the section of copies"));
        }
    }
    if let Some(pair) = by_copy.windows(2).find(|pair| pair[0].copy_end() > pair[1].copy) {
        return Err(wrong(&pair[1], "it shares bytes with another"));
    }
    let mut by_original = copies.to_vec();
    by_original.sort_unstable();
    if let Some(pair) = by_original.windows(2).find(|pair| pair[0].original_end() > pair[1].original) {
        return Err(wrong(&pair[1], "a second copy"));
    }
    Ok(by_copy)
}
