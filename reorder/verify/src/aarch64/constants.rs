//! Constants that AArch64 code builds, 16 bits at a time.

use super::effects::effects;
use super::form::register;
use crate::bytes::u32_at;

/// What `MOVZ`, `MOVN` and `MOVK` leave in registers, in `code` at `address`: (address of the instruction, value).
///
/// The parts of one constant are close together, so control flow between them is ignored.
pub(crate) fn constants(code: &[u8], address: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    let mut held: [Option<u64>; 32] = [None; 32];
    code.chunks_exact(4).enumerate().filter_map(move |(index, word)| {
        let word = u32_at(word, 0)?;
        let destination = register(word, 0);
        let shift = (word >> 21 & 3) * 16;
        let part = u64::from(word >> 5 & 0xffff) << shift;
        let width = if word >> 31 == 1 { u64::MAX } else { u64::from(u32::MAX) };
        let value = match word >> 23 & 0xff {
            0b1010_0101 => Some(part),
            0b0010_0101 => Some(!part & width),
            0b1110_0101 => held[destination].map(|known| known & !(0xffff << shift) | part),
            _ => None,
        };
        let written = effects(word).writes;
        if value.is_none() && written != 0 {
            for (number, held) in held.iter_mut().enumerate() {
                *held = held.filter(|_| written >> number & 1 == 0);
            }
        }
        held[destination] = value.or(held[destination]);
        Some((address.wrapping_add(index as u64 * 4), value?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_put_together_until_something_else_is_written() {
        // movz w9, #0x1234; movk w9, #0x40, lsl #16; movn x8, #0; mov x9, x8; movk x9, #1
        let words: [u32; 5] = [0x5282_4689, 0x72a0_0809, 0x9280_0008, 0xaa08_03e9, 0xf280_0029];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let found: Vec<(u64, u64)> = constants(&code, 0x100).collect();
        assert_eq!(found, [(0x100, 0x1234), (0x104, 0x0040_1234), (0x108, u64::MAX)]);
    }
}
