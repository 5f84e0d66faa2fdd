//! What a function that is not found may be called now.
//!
//! Guesses for people, never used for layouts. Only functions that no event found come into question: a function
//! that is known under its name has not been renamed.

use super::index::NameIndex;
use super::spelling::readable;
use reorder_image::functions::FunctionTable;

/// Comparing takes the product of the lengths.
const MAX_COMPARED_LENGTH: usize = 256;

/// Names of functions that no event found.
pub(crate) struct LikelyNames {
    /// Readable form and symbol.
    candidates: Vec<(String, String)>,
}

/// Below this similarity (Jaro and Winkler, 1 for equal) a guess confuses more than it helps.
const MIN_SIMILARITY: f64 = 0.87;

impl LikelyNames {
    /// `is_found` by function.
    pub(crate) fn new(functions: &FunctionTable<'_>, names: &NameIndex<'_>, is_found: &[bool]) -> Self {
        let candidates = names
            .names()
            .iter()
            .filter(|(_, function)| function.0 < functions.len() as u32)
            .filter(|(_, function)| is_found.get(function.0 as usize) == Some(&false))
            .map(|(name, _)| (readable(name), String::from_utf8_lossy(name).into_owned()));
        Self { candidates: candidates.collect() }
    }

    /// The symbol most like `name`, if any is much like it; of equally good ones the first by address.
    pub(crate) fn of(&self, name: &str) -> Option<String> {
        let wanted = readable(name.as_bytes());
        let identifier = identifier_of(&wanted);
        let letters = letters_of(&wanted);
        let mut best: Option<(f64, &String)> = None;
        for (readable, symbol) in &self.candidates {
            // The same identifier elsewhere, or with other parameters, is the most common change.
            let is_namesake = identifier_of(readable) == identifier;
            if readable.len() > MAX_COMPARED_LENGTH || wanted.len() > MAX_COMPARED_LENGTH {
                continue;
            }
            // Lengths that differ much cannot reach the bar; comparing is the expensive part.
            let lengths = (wanted.len().min(readable.len()), wanted.len().max(readable.len()));
            if !is_namesake && lengths.0 * 2 < lengths.1 {
                continue;
            }
            let bonus = if is_namesake { 0.5 } else { 0.0 };
            let needed = best.map_or(MIN_SIMILARITY, |(other, _)| other.max(MIN_SIMILARITY));
            if most_similarity(&letters, &wanted, readable) + bonus < needed {
                continue;
            }
            let similarity = strsim::jaro_winkler(&wanted, readable) + bonus;
            if similarity >= MIN_SIMILARITY && best.is_none_or(|(other, _)| similarity > other) {
                best = Some((similarity, symbol));
            }
        }
        best.map(|(_, symbol)| symbol.clone())
    }
}

/// How often each byte occurs.
fn letters_of(text: &str) -> [u32; 256] {
    let mut counts = [0; 256];
    text.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    counts
}

/// No similarity of `wanted`, whose bytes are `letters`, and `other` is above this; it costs their length, not its square.
///
/// Jaro's similarity is the mean of the matching share of each text and of what is not transposed among the matches;
/// letters match at most as often as both have them. Winkler adds a tenth of the rest for each of up to four equal
/// leading letters.
fn most_similarity(letters: &[u32; 256], wanted: &str, other: &str) -> f64 {
    if !wanted.is_ascii() || !other.is_ascii() || wanted.is_empty() || other.is_empty() {
        return 1.0;
    }
    let mut left = *letters;
    let mut matching = 0u32;
    for byte in other.bytes() {
        let count = &mut left[usize::from(byte)];
        matching += u32::from(*count > 0);
        *count = count.saturating_sub(1);
    }
    let share = |length: usize| f64::from(matching) / length as f64;
    let jaro = (share(wanted.len()) + share(other.len()) + 1.0) / 3.0;
    let prefix = wanted.bytes().zip(other.bytes()).take(4).take_while(|(one, two)| one == two).count();
    // A little more than the bound: the last digits of sums differ.
    jaro + 0.1 * prefix as f64 * (1.0 - jaro) + 1e-9
}

/// `run` of `app::Engine::run(int)`.
fn identifier_of(readable: &str) -> &str {
    let path = readable.split('(').next().unwrap_or(readable);
    path.rsplit("::").next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_similarity_is_above_its_bound(wanted in "[a-d:_(]{0,30}", other in "[a-d:_(]{0,30}") {
            let bound = most_similarity(&letters_of(&wanted), &wanted, &other);
            prop_assert!(strsim::jaro_winkler(&wanted, &other) <= bound);
        }
    }
}
