//! The output's record of its copies, in a section of its own that is not loaded: for symbolizers, and for restoring the
//! file without copies.
//!
//! ```text
//! "REORDCL1"            eight bytes
//! old length            bytes of the file without copies
//! count                 then for each copy: original address, address of the copy, bytes of the original
//! count                 then for each run of bytes that differ before the old length: file offset, bytes, the old bytes
//! ```
//!
//! Numbers have eight bytes, least significant first.

use std::ops::Range;

use super::copies::Copies;

/// First bytes of the section.
const MAGIC: &[u8; 8] = b"REORDCL1";

/// The section's contents, given the file before and after.
pub(super) fn write(old: &[u8], new: &[u8], copies: &Copies<'_>) -> Vec<u8> {
    let mut record = MAGIC.to_vec();
    let number = |record: &mut Vec<u8>, value: u64| record.extend_from_slice(&value.to_le_bytes());
    number(&mut record, old.len() as u64);
    number(&mut record, copies.bodies.len() as u64);
    for (body, start) in copies.bodies.iter().zip(&copies.starts) {
        for value in [body.range.start.0, start.0, body.range.end.distance_from(body.range.start)] {
            number(&mut record, value);
        }
    }
    let runs = differing_runs(old, new);
    number(&mut record, runs.len() as u64);
    for run in runs {
        number(&mut record, run.start as u64);
        number(&mut record, run.len() as u64);
        record.extend_from_slice(&old[run]);
    }
    record
}

/// Runs of bytes that differ; runs with few equal bytes between them are joined.
fn differing_runs(old: &[u8], new: &[u8]) -> Vec<Range<usize>> {
    /// What a separate run costs.
    const JOINED: usize = 16;
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (position, _) in old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new) {
        match runs.last_mut() {
            Some(last) if position - last.end < JOINED => last.end = position + 1,
            _ => runs.push(position..position + 1),
        }
    }
    runs
}
