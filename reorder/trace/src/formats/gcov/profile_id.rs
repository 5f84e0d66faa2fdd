//! The number by which GCC's profiles know a function.

/// Polynomial of the CRC-32, most significant bit first.
const POLYNOMIAL: u32 = 0x04C1_1DB7;

/// GCC's profile id of the function called `name` in the assembler's spelling. `local` distinguishes local functions of the
/// same name: its source file as it was given to the compiler, and the base of auxiliary output, which is
/// the source's or the output's name without directory and ending (`-dumpbase`).
///
/// A chain of CRC-32 over each string and the NUL after it, without the sign bit; 0 is not used.
pub fn gcc_profile_id(name: &[u8], local: Option<(&[u8], &[u8])>) -> u32 {
    let id = match local {
        None => crc(name, 0),
        Some((source, auxiliary_base)) => crc(auxiliary_base, crc(name, crc(source, 0))),
    };
    match id & 0x7fff_ffff {
        0 => 1,
        id => id,
    }
}

/// `coverage_checksum_string` without its normalisation of random names.
fn crc(text: &[u8], start: u32) -> u32 {
    text.iter().chain([&0]).fold(start, |value, &byte| {
        let value = value ^ u32::from(byte) << 24;
        (0..8).fold(value, |value, _| {
            let carry = if value & 1 << 31 == 0 { 0 } else { POLYNOMIAL };
            value << 1 ^ carry
        })
    })
}
