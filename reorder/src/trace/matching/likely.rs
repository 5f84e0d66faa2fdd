//! What a function that is not found may be called now.
//!
//! Guesses for people, never used for layouts. Only functions that no event found come into question: a function
//! that is known under its name has not been renamed.

use super::index::NameIndex;
use super::spelling::readable;
use crate::image::functions::FunctionTable;

/// Comparing takes the product of the lengths.
const LONGEST_COMPARED: usize = 256;

/// Names of functions that nothing was found for.
pub(in crate::trace) struct LikelyNames {
    /// Readable form and symbol.
    candidates: Vec<(String, String)>,
}

/// Below this similarity (Jaro and Winkler, 1 for equal) a guess confuses more than it helps.
const LEAST_SIMILARITY: f64 = 0.87;

impl LikelyNames {
    /// `is_found` by function.
    pub(in crate::trace) fn new(
        functions: &FunctionTable<'_>,
        names: &NameIndex<'_>,
        is_found: &[bool],
    ) -> Self {
        let candidates = names
            .names()
            .iter()
            .filter(|(_, function)| function.0 < functions.len() as u32)
            .filter(|(_, function)| is_found.get(function.0 as usize) == Some(&false))
            .map(|(name, _)| (readable(name), String::from_utf8_lossy(name).into_owned()));
        Self { candidates: candidates.collect() }
    }

    /// The symbol most like `name`, if any is much like it; of equally good ones the first by address.
    pub(in crate::trace) fn of(&self, name: &str) -> Option<String> {
        let wanted = readable(name.as_bytes());
        let identifier = identifier_of(&wanted);
        let mut best: Option<(f64, &String)> = None;
        for (readable, symbol) in &self.candidates {
            // The same identifier elsewhere, or with other parameters, is the usual change.
            let is_namesake = identifier_of(readable) == identifier;
            if readable.len() > LONGEST_COMPARED || wanted.len() > LONGEST_COMPARED {
                continue;
            }
            // Lengths that differ much cannot reach the bar; comparing is the expensive part.
            let lengths = (wanted.len().min(readable.len()), wanted.len().max(readable.len()));
            if !is_namesake && lengths.0 * 2 < lengths.1 {
                continue;
            }
            let similarity = strsim::jaro_winkler(&wanted, readable) + if is_namesake { 0.5 } else { 0.0 };
            if similarity >= LEAST_SIMILARITY && best.is_none_or(|(other, _)| similarity > other) {
                best = Some((similarity, symbol));
            }
        }
        best.map(|(_, symbol)| symbol.clone())
    }
}

/// `run` of `app::Engine::run(int)`.
fn identifier_of(readable: &str) -> &str {
    let path = readable.split('(').next().unwrap_or(readable);
    path.rsplit("::").next().unwrap_or(path)
}
