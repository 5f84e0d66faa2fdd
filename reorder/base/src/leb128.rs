//! Numbers of variable length as DWARF, Mach-O and profiles store them.
//!
//! Source: DWARF 5, section 7.6.

/// Why bytes do not begin with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leb128Error {
    /// The bytes end before the number does.
    Truncated,
    /// The number has more than 64 bits.
    TooLarge,
}

/// The unsigned number at the beginning of `bytes`, and how many bytes it takes.
///
/// # Errors
/// Bytes that end too early, or a number of more than 64 bits. Padding with empty groups is legal.
pub fn read_unsigned(bytes: &[u8]) -> Result<(u64, usize), Leb128Error> {
    let (mut value, mut shift) = (0u64, 0u32);
    for (position, byte) in bytes.iter().enumerate() {
        let bits = u64::from(byte & 0x7f);
        match bits.checked_shl(shift).filter(|placed| placed >> shift == bits) {
            Some(placed) => value |= placed,
            None if bits == 0 => {}
            None => return Err(Leb128Error::TooLarge),
        }
        if byte & 0x80 == 0 {
            return Ok((value, position + 1));
        }
        shift = shift.saturating_add(7);
    }
    Err(Leb128Error::Truncated)
}

/// The signed number at the beginning of `bytes`, and how many bytes it takes.
///
/// # Errors
/// Bytes that end too early, or a number that needs more than ten of them.
pub fn read_signed(bytes: &[u8]) -> Result<(i64, usize), Leb128Error> {
    let mut value = 0i64;
    for (position, byte) in bytes.iter().enumerate() {
        // The tenth byte has room for the sign alone.
        if position > 9 || position == 9 && !matches!(byte, 0x00 | 0x7f) {
            return Err(Leb128Error::TooLarge);
        }
        let shift = 7 * position as u32;
        value |= i64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let unused = 57u32.saturating_sub(shift);
            return Ok((value << unused >> unused, position + 1));
        }
    }
    Err(Leb128Error::Truncated)
}

/// Appends an unsigned number in its shortest form.
pub fn write_unsigned(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a signed number in its shortest form.
pub fn write_signed(bytes: &mut Vec<u8>, mut value: i64) {
    while !(-0x40..0x40).contains(&value) {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8 & 0x7f);
}

/// How many bytes [`write_unsigned`] appends.
#[must_use]
pub fn unsigned_size(value: u64) -> usize {
    (64 - (value | 1).leading_zeros()).div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_numbers_end_at_64_bits() {
        let longest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(read_unsigned(&longest), Ok((u64::MAX, 10)));
        let too_large = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(read_unsigned(&too_large), Err(Leb128Error::TooLarge));
        let padded = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00];
        assert_eq!(read_unsigned(&padded), Ok((0, 11)));
        let far = [0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
        assert_eq!(read_unsigned(&far), Err(Leb128Error::TooLarge));
        assert_eq!(read_unsigned(&[0x80]), Err(Leb128Error::Truncated));
        assert_eq!(read_unsigned(&[]), Err(Leb128Error::Truncated));
    }

    #[test]
    fn signed_numbers_have_the_sign_of_their_last_bit() {
        assert_eq!(read_signed(&[0x3f]), Ok((63, 1)));
        assert_eq!(read_signed(&[0x40]), Ok((-64, 1)));
        assert_eq!(read_signed(&[0xc0, 0x00]), Ok((64, 2)));
        assert_eq!(read_signed(&[0x80]), Err(Leb128Error::Truncated));
        assert_eq!(read_signed(&[0xff; 20]), Err(Leb128Error::TooLarge));
    }

    #[test]
    fn numbers_survive_a_round_trip() {
        for value in (0..64).flat_map(|shift| [1 << shift, u64::MAX >> shift, 0x1234_5678_9abc_def0 >> shift])
        {
            let mut bytes = Vec::new();
            write_unsigned(&mut bytes, value);
            assert_eq!(bytes.len(), unsigned_size(value));
            assert_eq!(read_unsigned(&bytes), Ok((value, bytes.len())));
            for signed in [value as i64, !value as i64] {
                let mut bytes = Vec::new();
                write_signed(&mut bytes, signed);
                assert_eq!(read_signed(&bytes), Ok((signed, bytes.len())));
            }
        }
    }
}
