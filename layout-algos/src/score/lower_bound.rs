//! Lower bounds for any layout of whole functions.

use super::{FaultModel, Span};

/// Bytes inside at least one of `spans`.
#[must_use]
pub fn touched_bytes(spans: &[Span]) -> u64 {
    let mut spans = spans.to_vec();
    spans.sort_unstable();
    let mut covered_until = 0;
    let mut bytes = 0;
    for span in spans {
        bytes += span.end.saturating_sub(span.start.max(covered_until));
        covered_until = covered_until.max(span.end);
    }
    bytes
}

/// Fewest faults of a run that touches these bytes: each fault loads at most the model's bytes per fault. Holds
/// for each run alone; several runs with one layout may all have to stay above it.
#[must_use]
pub fn lower_bound(touched_bytes: u64, model: FaultModel) -> u64 {
    touched_bytes.div_ceil(model.bytes_per_fault().max(1))
}
