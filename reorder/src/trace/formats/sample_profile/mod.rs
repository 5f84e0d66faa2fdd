//! Sample profiles of LLVM (AutoFDO, CSSPGO) in all their forms, and of GCC (AutoFDO).
//!
//! They hold how often code was sampled and nothing of when, so the result is one trace of counts: how often a function
//! was entered (head samples) where that is known, else how many samples fell into it. Functions that were inlined
//! count by their samples. [`text`], [`binary`] and [`gcc`] turn a file into records.

mod binary;
pub(super) mod gcc;
mod text;

use super::counts::{Counts, no_order};
use crate::error::{Error, Result};
use crate::trace::{Input, Location, NameHash, Note, Reading};

/// Whether it starts with the magic number of any binary form.
pub(super) fn accepts_binary(bytes: &[u8]) -> bool {
    binary::Form::of(bytes).is_some()
}

/// Whether the first lines are functions with their samples.
pub(super) fn accepts_text(bytes: &[u8]) -> bool {
    text::accepts(bytes)
}

/// One trace of counts.
///
/// # Errors
/// Damage in front of the first function.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let mut profile = Profile::default();
    let damage = match binary::Form::of(input.bytes) {
        Some(form) => binary::read(form, input.bytes, &mut profile).err(),
        None => text::read(input.bytes, &mut profile).err(),
    };
    profile.into_reading(damage)
}

/// What was read so far.
#[derive(Default)]
struct Profile {
    heads: Counts,
    totals: Counts,
}

impl Profile {
    /// Adds one record: a function, or what was inlined of it somewhere.
    fn add(&mut self, function: Location, total: u64, head: u64) {
        if head > 0 {
            self.heads.add(function.clone(), head);
        }
        self.totals.add(function, total);
    }

    fn into_reading(self, damage: Option<Error>) -> Result<Reading> {
        if self.totals.is_empty() {
            return Err(damage.unwrap_or_else(|| {
                Error::malformed(0, "a sample profile without functions")
                    .with_hint("let the program run longer, or sample it more often, and convert again")
            }));
        }
        let mut notes = vec![no_order("a sample profile")];
        if let Some(damage) = damage {
            let functions = self.totals.len();
            let offset = damage.offset.unwrap_or_default();
            notes.push(Note::at(
                offset,
                format!("{}; the {functions} functions before it are kept", damage.message),
            ));
        }
        let trace = self.totals.with(self.heads).into_trace();
        Ok(Reading { traces: vec![trace], notes })
    }
}

/// A function as profiles spell it: a name, or the decimal number that stands for its hash.
fn function(name: &[u8]) -> Location {
    let digits = std::str::from_utf8(name).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match digits.and_then(|text| text.parse().ok()) {
        Some(hash) => Location::NameHash(NameHash::Md5(hash)),
        None => Location::Name(name.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::damage::survives;

    #[test]
    fn damage_is_told_or_survived() {
        let seeds: [&[u8]; 6] = [
            include_bytes!("../../../../../tests/profiles/sampling/afdo-text.prof"),
            include_bytes!("../../../../../tests/profiles/sampling/afdo-binary.prof"),
            include_bytes!("../../../../../tests/profiles/sampling/afdo-ext.prof"),
            include_bytes!("../../../../../tests/profiles/sampling/afdo-ext-md5.prof"),
            include_bytes!("../../../../../tests/profiles/sampling/afdo-ext-compressed.prof"),
            include_bytes!("../../../../../tests/profiles/sampling/afdo-compact-llvm16.prof"),
        ];
        for seed in seeds {
            survives("LLVM sample profile, binary", seed);
        }
    }
}
