//! Fields of load commands.

use reorder_base::error::{Error, Result};

/// Writes four bytes at the offset `at`.
pub(super) fn write_word(output: &mut [u8], at: usize, value: usize) -> Result<()> {
    let value =
        u32::try_from(value).map_err(|_| Error::malformed(at as u64, "the image is larger than 4 GiB"))?;
    write(output, at, &value.to_le_bytes())
}

/// Writes eight bytes at the offset `at`.
pub(super) fn write_long(output: &mut [u8], at: usize, value: u64) -> Result<()> {
    write(output, at, &value.to_le_bytes())
}

fn write(output: &mut [u8], at: usize, bytes: &[u8]) -> Result<()> {
    match at.checked_add(bytes.len()).and_then(|end| output.get_mut(at..end)) {
        Some(field) => {
            field.copy_from_slice(bytes);
            Ok(())
        }
        None => Err(Error::malformed(at as u64, "a load command lies outside of the image")),
    }
}
