//! An estimate of compressed size.

use std::collections::HashMap;

use crate::ids::FunctionId;
use crate::problem::LayoutProblem;

/// How many hashes of `functions`, placed one after the other, a compressor has not seen in the `window` bytes before.
/// Each stands for bytes that it has to write out.
pub(super) fn novelty(problem: &LayoutProblem, functions: &[FunctionId], window: u64) -> u64 {
    let Some(fingerprints) = problem.fingerprints() else { return 0 };
    let mut last_seen: HashMap<u32, u64> = HashMap::new();
    let mut position = 0u64;
    let mut novel = 0;
    for &function in functions {
        let end = position.saturating_add(problem.size(function));
        for &hash in fingerprints.row(function.index()) {
            let is_in_reach =
                last_seen.insert(hash, end).is_some_and(|seen| seen.saturating_add(window) >= position);
            novel += u64::from(!is_in_reach);
        }
        position = end;
    }
    novel
}
