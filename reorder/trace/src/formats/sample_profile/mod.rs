//! Sample profiles of LLVM (AutoFDO, CSSPGO) in all their forms, and of GCC (AutoFDO).
//!
//! They hold how often code was sampled but not when, so the result is one trace of counts: how often a function
//! was entered (head samples) where that is known, else how many samples fell into it. Functions that were inlined
//! count by their samples. [`text`], [`binary`] and [`gcc`] turn a file into records.

mod binary;
pub(super) mod gcc;
mod text;

use super::counts::{Counts, no_order};
use crate::{Input, Location, NameHash, Note, Reading};
use reorder_base::error::{Error, Result};
use reorder_base::numbers::decimal;

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
/// Damage before the first function.
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
    /// Records of functions without a name.
    nameless: u64,
}

impl Profile {
    /// Adds one record: a function, or what was inlined of it somewhere.
    fn add(&mut self, function: Location, total: u64, head: u64) {
        if matches!(&function, Location::Name(name) if name.is_empty()) {
            self.nameless += 1;
            return;
        }
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
        if self.nameless > 0 {
            notes.push(Note::new(format!("{} records have no name and were left out", self.nameless)));
        }
        let trace = self.totals.with(self.heads).into_trace();
        Ok(Reading { traces: vec![trace], notes })
    }
}

/// A function as profiles spell it: a name, or the decimal number that stands for its hash.
fn function(name: &[u8]) -> Location {
    match decimal(name) {
        Some(hash) => Location::NameHash(NameHash::Md5(hash)),
        None => Location::Name(name.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::damage::survives;
    use super::*;

    #[test]
    fn damage_is_told_or_survived() {
        let text = include_bytes!("../../../../../tests/profiles/sampling/afdo-text.prof");
        survives("LLVM sample profile, text", text);
        let seeds: [&[u8]; 5] = [
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

    /// An extensible profile of `copies` sections that are the same bytes: `records` of a function called `name`, each
    /// with a sample.
    fn overlapping(copies: u64, records: usize, name: &[u8]) -> Vec<u8> {
        let uleb128 = |mut number: u64| {
            let mut bytes = Vec::new();
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
            bytes
        };
        let mut bytes = [uleb128(0x5350_524f_4634_3204), uleb128(103)].concat();
        bytes.extend((copies + 1).to_le_bytes());
        let names = [&[1], name, &[0]].concat();
        // Head samples, name, samples, lines, inlined functions.
        let function = [1, 0, 1, 0, 0].repeat(records);
        let start = bytes.len() as u64 + 32 * (copies + 1);
        let after = start + names.len() as u64;
        let mut entry = |words: [u64; 4]| words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        entry([2, 0, start, names.len() as u64]);
        (0..copies).for_each(|_| entry([32, 0, after, function.len() as u64]));
        bytes.extend(names);
        bytes.extend(function);
        bytes
    }

    fn read_binary(bytes: &[u8]) -> reorder_base::error::Result<Reading> {
        let companions = crate::Companions::default();
        read(&Input { bytes, path: "x.prof".as_ref(), companions: &companions })
    }

    #[test]
    fn overlapping_sections_show_no_byte_twice() {
        let bytes = overlapping(1000, 100, b"f");
        let reading = read_binary(&bytes).unwrap();
        let count = reading.traces[0].events[0].count.unwrap();
        assert!(count <= bytes.len() as u64 / 5, "{count} records in {} bytes", bytes.len());
        let whole = read_binary(&overlapping(1, 1, b"f")).unwrap();
        assert_eq!((whole.traces[0].events[0].count, whole.notes.len()), (Some(1), 1));
    }

    #[test]
    fn functions_without_a_name_are_told() {
        let error = read_binary(&overlapping(1, 1, b"")).unwrap_err();
        assert!(error.to_string().contains("without functions"), "{error}");
        let mut profile = Profile::default();
        profile.add(super::function(b""), 1, 1);
        profile.add(super::function(b"f"), 1, 1);
        let reading = profile.into_reading(None).unwrap();
        assert_eq!(reading.traces[0].events.len(), 1);
        assert!(reading.notes.iter().any(|note| note.message.contains("1 records have no name")));
    }
}
