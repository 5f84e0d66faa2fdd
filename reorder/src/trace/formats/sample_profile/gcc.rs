//! The AutoFDO profile of GCC (`create_gcov`): recognised, so that it is not taken for a `.gcda` file.
//!
//! It starts like one, with the word `gcda` in little endian, but its version is the number 1 or 2 instead of four
//! letters; the fourth word is the tag of the table of names. It counts samples by line and has no order.

use crate::error::{Error, Result};
use crate::trace::cursor::{ByteOrder, Cursor};
use crate::trace::{Input, Reading};

const MAGIC: &[u8] = b"adcg";
const NAMES: u32 = 0xaa00_0000;

/// Whether it is a container of GCC's AutoFDO.
pub(in crate::trace::formats) fn accepts(bytes: &[u8]) -> bool {
    let version = bytes.strip_prefix(MAGIC).and_then(|rest| rest.first_chunk::<4>());
    matches!(version.map(|version| u32::from_le_bytes(*version)), Some(1 | 2))
}

/// Nothing: what the container is, and what to do instead.
///
/// # Errors
/// Always.
pub(in crate::trace::formats) fn read(input: &Input<'_>) -> Result<Reading> {
    const WHERE_NAMES_START: u64 = 12;
    let message = match count_names(input.bytes) {
        Ok(0) => "an AutoFDO profile of GCC without functions: the converter understood no sample".to_owned(),
        Ok(names) => {
            format!("an AutoFDO profile of GCC with {names} names: sampled counts by line, without order")
        }
        Err(error) => return Err(error.with_hint(HINT)),
    };
    Err(Error::malformed(WHERE_NAMES_START, message).with_hint(HINT))
}

const HINT: &str = "give the perf.data file that the profile was made from, which knows the times of its samples; or \
                    build with gcc -fprofile-generate and give the .gcda files, which know the order";

fn count_names(bytes: &[u8]) -> Result<u32> {
    let mut cursor = Cursor::new(bytes, ByteOrder::Little);
    cursor.skip(MAGIC.len() as u64 + 4 + 4)?;
    if cursor.is_at_end() || cursor.u32()? != NAMES {
        return Ok(0);
    }
    let _length = cursor.u32()?;
    cursor.u32()
}
