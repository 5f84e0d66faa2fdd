//! Coverage files of the sanitizers (`PROGRAM.PID.sancov`): addresses of code that ran, sorted, thus without order.
//!
//! ```text
//! u64 0xC0BFFFFFFFFFFF64 (or 32), then u64 (or u32) offsets in the image
//! ```

use super::counts::Counts;
use crate::cursor::{ByteOrder, Cursor};
use crate::{Input, Location, Note, Reading};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;

const MAGIC_WITHOUT_WIDTH: u64 = 0xC0BF_FFFF_FFFF_FF00;
const MAGIC_SIZE: usize = 8;

/// The bytes of an address, and in which order.
fn width(bytes: &[u8]) -> Option<(usize, ByteOrder)> {
    let first = bytes.first_chunk()?;
    let of = |magic: u64| match magic ^ MAGIC_WITHOUT_WIDTH {
        0x64 => Some(8),
        0x32 => Some(4),
        _ => None,
    };
    let little = of(u64::from_le_bytes(*first)).map(|width| (width, ByteOrder::Little));
    little.or_else(|| of(u64::from_be_bytes(*first)).map(|width| (width, ByteOrder::Big)))
}

pub(super) fn accepts(bytes: &[u8]) -> bool {
    width(bytes).is_some()
}

fn how_to_order() -> Hint {
    let built = "build with -fsanitize-coverage=func,trace-pc-guard and let __sanitizer_cov_trace_pc_guard print its \
                 return address once for each guard";
    Hint::Record { what: "an order without a special build", otherwise: Some(built) }
}

/// One trace of addresses that ran.
///
/// # Errors
/// Not a single address.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let (width, order) = width(input.bytes).ok_or_else(|| Error::malformed(0, "no coverage file"))?;
    let mut cursor = Cursor::new(input.bytes, order);
    cursor.skip(MAGIC_SIZE as u64)?;
    let mut counts = Counts::default();
    while cursor.remaining() >= width {
        let address = if width == 8 { cursor.u64()? } else { u64::from(cursor.u32()?) };
        counts.add(Location::Inside(Address(address)), 1);
    }
    if counts.is_empty() {
        return Err(Error::malformed(MAGIC_SIZE as u64, "a coverage file without an address")
            .with_hint(how_to_order()));
    }
    let mut notes = vec![
        Note::new("a coverage file says which code ran, but not in which order").with_hint(how_to_order()),
    ];
    if !cursor.is_at_end() {
        notes.push(Note::at(
            cursor.offset(),
            format!("{} bytes at the end are not a whole address", cursor.remaining()),
        ));
    }
    Ok(Reading { traces: vec![counts.into_trace()], notes })
}

#[cfg(test)]
mod tests {
    use super::super::damage::survives;

    #[test]
    fn damage_is_told_or_survived() {
        survives(
            "sanitizer coverage",
            b"\x64\xff\xff\xff\xff\xff\xbf\xc0\x10\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0",
        );
    }

    #[test]
    fn both_widths_are_read() {
        assert!(super::accepts(b"\x32\xff\xff\xff\xff\xff\xbf\xc0"));
        assert!(super::accepts(b"\xc0\xbf\xff\xff\xff\xff\xff\x64"));
        assert!(!super::accepts(b"\x33\xff\xff\xff\xff\xff\xbf\xc0"));
    }
}
