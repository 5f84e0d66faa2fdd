//! The section of traces: their number, the number of runs they stand for, and for each its weight, its number of
//! functions, and the functions' hashes in order of first execution.

use crate::cursor::{ByteOrder, Cursor};
use reorder_base::error::{Error, Result};

/// What the section holds.
#[derive(Default)]
pub(super) struct StoredTraces<'data> {
    /// Those that are complete, and the beginning of one that is cut.
    pub(super) traces: Vec<StoredTrace<'data>>,
    /// How many runs were merged.
    pub(super) stream_size: u64,
    /// Why there are not more.
    pub(super) damage: Option<Error>,
}

/// One of them.
pub(super) struct StoredTrace<'data> {
    pub(super) weight: u64,
    pub(super) functions: &'data [[u8; 8]],
}

impl StoredTrace<'_> {
    pub(super) fn len(&self) -> usize {
        self.functions.len()
    }

    pub(super) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.functions.iter().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// Position of the traces' offset in the header.
const TRACES_FIELD: u64 = 56;

/// Everything that is complete at `offset` of the file.
pub(super) fn read(bytes: &[u8], offset: u64) -> StoredTraces<'_> {
    let mut stored = StoredTraces::default();
    let part = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
    let Some(part) = part else {
        let message = format!("the traces lie at {offset:#x}, outside of the file: it was cut");
        stored.damage = Some(Error::malformed(TRACES_FIELD, message).with_hint(MERGE_AGAIN));
        return stored;
    };
    let mut cursor = Cursor::part(part, ByteOrder::Little, offset);
    match (cursor.u64(), cursor.u64()) {
        (Ok(count), Ok(stream_size)) => {
            stored.stream_size = stream_size;
            read_traces(&mut cursor, count, &mut stored);
        }
        (Err(error), _) | (_, Err(error)) => stored.damage = Some(error.with_hint(MERGE_AGAIN)),
    }
    stored
}

const MERGE_AGAIN: &str = "merge the raw profiles again, or copy the file again";

fn read_traces<'data>(cursor: &mut Cursor<'data>, count: u64, stored: &mut StoredTraces<'data>) {
    for index in 0..count {
        let at = cursor.offset();
        if let Err(error) = read_trace(cursor, &mut stored.traces) {
            let message = format!(
                "{count} traces are announced, trace {} is damaged ({error}); what stands before is kept",
                index + 1
            );
            stored.damage = Some(Error::malformed(at, message).with_hint(MERGE_AGAIN));
            return;
        }
    }
}

fn read_trace<'data>(cursor: &mut Cursor<'data>, traces: &mut Vec<StoredTrace<'data>>) -> Result<()> {
    let weight = cursor.u64()?;
    let count = cursor.u64()?;
    let rest = cursor.rest();
    match cursor.take_array(count, 8) {
        Ok(functions) => traces.push(StoredTrace { weight, functions: functions.as_chunks().0 }),
        Err(error) => {
            // A cut trace keeps its beginning. A count that no file of this kind has says that the number is wrong,
            // and then what follows need not be functions.
            let functions = rest.as_chunks().0;
            if count < IMPLAUSIBLE_COUNT && !functions.is_empty() {
                traces.push(StoredTrace { weight, functions });
            }
            return Err(error);
        }
    }
    Ok(())
}

/// More functions than any program has.
const IMPLAUSIBLE_COUNT: u64 = 1 << 32;
