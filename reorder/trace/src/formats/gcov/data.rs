//! `.gcda`: counters of one object file.
//!
//! Records of tag, length and payload up to a tag of zero. A function's counters follow its own record, one record for
//! each kind. A negative length is the number of counters that are zero and not stored.

use super::header::{Header, Version};
use crate::cursor::Cursor;
use reorder_base::error::{Error, Result};

const FUNCTION: u32 = 0x0100_0000;
const OBJECT_SUMMARY: u32 = 0xa100_0000;
const ARCS: u32 = 0x01a1_0000;
/// When the function ran first, among all functions of the process.
const TIME_PROFILER: u32 = 0x01af_0000;

/// The file without its header.
#[derive(Default)]
pub(super) struct Data {
    /// How many runs, or processes, were added up.
    pub(super) runs: u32,
    /// In file order.
    pub(super) functions: Vec<Function>,
    /// Why there are not more.
    pub(super) damage: Option<Error>,
}

/// One function.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Function {
    /// GCC's profile id.
    pub(super) id: u32,
    /// Of its control flow: distinguishes versions of the source.
    pub(super) checksum: u32,
    /// Position in the order of first executions, from 1; 0 never. `None` where it was not recorded.
    pub(super) rank: Option<u64>,
    /// How often its most frequent arc was taken.
    pub(super) greatest: u64,
}

/// Everything that is complete.
pub(super) fn read(header: Header, cursor: &mut Cursor<'_>) -> Data {
    let mut data = Data::default();
    if let Err(error) = read_records(header.version, cursor, &mut data) {
        let message = format!("{}; {} functions stand before", error.message, data.functions.len());
        data.damage = Some(Error::malformed(error.offset.unwrap_or_default(), message));
    }
    data
}

fn read_records(version: Version, cursor: &mut Cursor<'_>, data: &mut Data) -> Result<()> {
    // A file that was cut between two records looks whole but for the zero.
    loop {
        let tag = cursor.u32()?;
        if tag == 0 {
            return Ok(());
        }
        // Negative: a number of zero bytes or words that are not stored.
        let length = cursor.u32()?.cast_signed();
        let mut payload = payload(version, cursor, length.max(0).cast_unsigned())?;
        match tag {
            FUNCTION if length > 0 => {
                let id = payload.u32()?;
                let _lines = payload.u32()?;
                data.functions.push(Function { id, checksum: payload.u32()?, ..Function::default() });
            }
            OBJECT_SUMMARY => {
                // Before GCC 9 a checksum and the number of counters came first.
                payload.skip(if version.major < 9 { 8 } else { 0 })?;
                data.runs = payload.u32()?;
            }
            ARCS | TIME_PROFILER => {
                if let Some(function) = data.functions.last_mut() {
                    count(function, tag, length, &mut payload)?;
                }
            }
            _ => {}
        }
    }
}

fn payload<'data>(version: Version, cursor: &mut Cursor<'data>, length: u32) -> Result<Cursor<'data>> {
    let unit = if version.counts_bytes() { 1 } else { 4 };
    let base = cursor.offset();
    let bytes = cursor.take_array(length.into(), unit)?;
    Ok(Cursor::part(bytes, cursor.order(), base))
}

fn count(function: &mut Function, tag: u32, length: i32, payload: &mut Cursor<'_>) -> Result<()> {
    if tag == TIME_PROFILER {
        function.rank = Some(if length > 0 { counter(payload)? } else { 0 });
        return Ok(());
    }
    while !payload.is_at_end() {
        function.greatest = function.greatest.max(counter(payload)?);
    }
    Ok(())
}

/// Two words, the low one first for either byte order.
fn counter(payload: &mut Cursor<'_>) -> Result<u64> {
    let (low, high) = (payload.u32()?, payload.u32()?);
    Ok(u64::from(high) << 32 | u64::from(low))
}
