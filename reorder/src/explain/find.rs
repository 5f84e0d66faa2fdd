//! Finds the functions that a word of the command line names.

use super::bare::bare;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_report::visible::visible_start;
use reorder_trace::readable_name;

/// Functions explained for one word; more matches are an error.
const MAX_MATCHES: usize = 16;
/// Similar names offered if there is no match.
const MAX_OFFERED: usize = 8;
/// Characters of each: names may have many thousands, and each is compared with the word.
const MAX_OFFERED_LENGTH: usize = 160;

/// The functions that `word` names: an address inside one (`0x…`), a symbol, a demangled name, or a part of one.
///
/// # Errors
/// No match, with the most similar names, or too many.
pub fn find(word: &str, functions: &FunctionTable<'_>) -> Result<Vec<FunctionIndex>> {
    if word.trim().is_empty() {
        return Err(Error::usage("an empty word names no function")
            .with_hint("give a symbol, a part of a demangled name, or an address, 0x…"));
    }
    if let Some(digits) = word.strip_prefix("0x").or(word.strip_prefix("function@0x")) {
        // A leading `+` is accepted, unlike in `reorder_base::numbers`.
        let address = u64::from_str_radix(digits, 16).map_err(|_| {
            Error::usage(format!("{word} is not an address")).with_hint("write 0x and hexadecimal digits")
        })?;
        let found = functions.containing(Address(address));
        return found.map(|index| vec![index]).ok_or_else(|| {
            Error::usage(format!("there is no function at {word}"))
                .with_hint("give an address of the image's own code, as `reorder inspect` and `nm` print it")
        });
    }
    let names: Vec<(FunctionIndex, &[u8], String)> = functions
        .names()
        .iter()
        .filter_map(|&(address, name)| Some((functions.starting_at(address)?, name, readable_name(name))))
        .collect();
    let meanings = [Meaning::Symbol, Meaning::Readable, Meaning::Bare, Meaning::Part];
    let called = |meaning: Meaning| -> Vec<FunctionIndex> {
        let named = names.iter().filter(|(_, name, readable)| meaning.is_met(word, name, readable));
        let mut found: Vec<FunctionIndex> = named.map(|(index, ..)| *index).collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    let found = meanings.into_iter().map(called).find(|found| !found.is_empty()).unwrap_or_default();
    match found.len() {
        0 => Err(nothing(word, &names)),
        1..=MAX_MATCHES => Ok(found),
        count => Err(Error::usage(format!("{count} functions have {word} in their name"))
            .with_hint("give more of the name, or an address")),
    }
}

/// How a word may mean a function, the narrowest first.
#[derive(Clone, Copy)]
enum Meaning {
    Symbol,
    Readable,
    Bare,
    Part,
}

impl Meaning {
    fn is_met(self, word: &str, symbol: &[u8], readable: &str) -> bool {
        match self {
            Self::Symbol => symbol == word.as_bytes(),
            Self::Readable => readable == word,
            Self::Bare => bare(readable) == word,
            Self::Part => readable.contains(word),
        }
    }
}

fn nothing(word: &str, names: &[(FunctionIndex, &[u8], String)]) -> Error {
    let error = Error::usage(format!("no function is called {word}"));
    if names.is_empty() {
        return error.with_hint("the image has no symbols: give an address, 0x…");
    }
    let word = visible_start(word, MAX_OFFERED_LENGTH);
    let alikeness = |(.., readable): &(FunctionIndex, &[u8], String)| {
        let shown = visible_start(readable, MAX_OFFERED_LENGTH).into_owned();
        (strsim::jaro_winkler(&word, &shown), shown)
    };
    let mut alike: Vec<(f64, String)> = names.iter().map(alikeness).collect();
    alike.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    alike.dedup_by(|one, other| one.1 == other.1);
    let offered: Vec<&str> = alike.iter().take(MAX_OFFERED).map(|(_, name)| name.as_str()).collect();
    error.with_hint(format!("similar names: {}", offered.join(", ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    #[test]
    fn the_narrowest_meaning_wins() {
        let names: [(u64, &[u8]); 5] = [
            (0x1000, b"parse"),
            (0x1100, b"_ZN2ns5parseEi"),
            (0x1200, b"parse_all"),
            (0x1300, b"_ZN2ns4walkEv"),
            (0x1400, b"unrelated"),
        ];
        let functions =
            FunctionTable::from_named_ranges(names.map(|(address, name)| (Address(address), 0x100, name)));
        let found = |word: &str| {
            find(word, &functions).map(|found| found.iter().map(|index| index.0).collect::<Vec<_>>())
        };
        assert_eq!(found("parse").unwrap(), [0]);
        assert_eq!(found("ns::parse(int)").unwrap(), [1]);
        assert_eq!(found("walk").unwrap(), [3]);
        assert_eq!(found("ns::").unwrap(), [1, 3]);
        assert_eq!(found("0x12ff").unwrap(), [2]);
        let error = found("pasre").unwrap_err();
        assert!(error.hint.unwrap().advice().unwrap().contains("parse"));
        let hint = odd_hint();
        assert!(!hint.chars().any(char::is_control) && hint.len() < 2000, "{hint}");
        assert!(found("0x9999").is_err() && found("0xzz").is_err());
        assert!(found("").is_err() && found(" ").is_err(), "an empty word is a part of every name");
    }

    fn odd_hint() -> String {
        let long = [b"x\x1b[31m".as_slice(), &[b'y'; 65_000]].concat();
        let functions = FunctionTable::from_named_ranges([(Address(0x1000), 16, long.as_slice())]);
        find("absent", &functions).unwrap_err().hint.unwrap().advice().unwrap().to_owned()
    }
}
