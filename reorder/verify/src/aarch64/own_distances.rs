//! Tables whose words AArch64 code adds to an address in data, whatever it does with the sums.
//!
//! ```text
//! ldr x1, .Lpool                    ; or ADRP and ADD, MOVZ and MOVK, a slot of the GOT
//! ldrsw x0, [x1, w0, sxtw #2]
//! add x0, x1, x0                    ; stored, returned or passed on: what calls it is elsewhere
//! ```
//!
//! Values are followed through the instructions in address order, without control flow: a register may seem to hold what
//! another path left there. So a table that is found only says which numbers to check; where they lead decides.

use super::dispatch::{ComputedSum, Named};
use super::effects::effects;
use super::form::{Form, form, is_add, page_offset, register};
use crate::bytes::u32_at;

/// Registers that a call does not keep.
const LOST_BY_CALL: u32 = 0x4007_ffff;

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Address(Named),
    /// An address plus an unknown number of words.
    Element(Named),
    /// A word of a table.
    Word {
        table: Named,
        width: u8,
    },
}

/// The sums of an address and a word of a table that `code`, which stands at `start`, computes; sorted, each once. Loads of
/// constants among the code are resolved by `constant`.
pub(crate) fn own_distances(
    code: &[u8],
    start: u64,
    constant: impl Fn(u64) -> Option<u64>,
) -> Vec<ComputedSum> {
    let words = || code.chunks_exact(4).map(|word| u32_at(word, 0).unwrap_or(0));
    let mut found = Vec::new();
    if !words().any(is_sum) || !words().any(|word| loaded_width(word).is_some()) {
        return found;
    }
    let mut held: [Option<Held>; 32] = [None; 32];
    for (index, word) in words().enumerate() {
        found.extend(sum(word, &held));
        let value = value_of(word, start.wrapping_add(index as u64 * 4), &held, &constant);
        let effects = effects(word);
        let lost = effects.writes | if effects.is_call { LOST_BY_CALL } else { 0 };
        for (number, held) in held.iter_mut().enumerate() {
            *held = held.filter(|_| lost >> number & 1 == 0);
        }
        if value.is_some() {
            held[register(word, 0)] = value;
        }
        held[31] = None;
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// `ADD` of two 64-bit registers, shifted or extended.
fn is_sum(word: u32) -> bool {
    word & 0xff00_0000 == 0x8b00_0000
}

/// The address and the table, if `word` adds a word of a table to an address.
fn sum(word: u32, held: &[Option<Held>; 32]) -> Option<ComputedSum> {
    let (left, right) = (held[register(word, 5)]?, held[register(word, 16)]?);
    match (left, right) {
        (Held::Address(anchor), Held::Word { table, width })
        | (Held::Word { table, width }, Held::Address(anchor))
            if is_sum(word) =>
        {
            Some(ComputedSum { anchor, table, width })
        }
        _ => None,
    }
}

/// The width of what `word` loads into all 64 bits of a register: `LDR` of eight bytes and `LDRSW`, at a register plus a
/// plain offset, another register, or an offset that is added before or after.
fn loaded_width(word: u32) -> Option<u8> {
    let forms: [(u32, u32, u8); 4] = [
        (0xffc0_0000, 0xf940_0000, 8),
        (0xffc0_0000, 0xb980_0000, 4),
        (0xffe0_0000, 0xf840_0000, 8),
        (0xffe0_0000, 0xb880_0000, 4),
    ];
    let indexed: [(u32, u32, u8); 2] = [(0xffe0_0c00, 0xf860_0800, 8), (0xffe0_0c00, 0xb8a0_0800, 4)];
    forms.iter().chain(&indexed).find(|(mask, bits, _)| word & mask == *bits).map(|&(_, _, width)| width)
}

/// What `word` leaves in its first register.
fn value_of(
    word: u32,
    place: u64,
    held: &[Option<Held>; 32],
    constant: impl Fn(u64) -> Option<u64>,
) -> Option<Held> {
    let here = |address| Some(Held::Address(Named::Here(address)));
    let base = held[register(word, 5)];
    match form(word) {
        kind @ (Form::Adr | Form::Adrp) => return here(kind.target(word, place)),
        // LDR of eight bytes into a general register.
        Form::Literal if word >> 24 == 0x58 => return here(constant(Form::Literal.target(word, place))?),
        _ => {}
    }
    if is_add(word) {
        let low = page_offset(word)?;
        return match base? {
            Held::Address(Named::Here(address)) => here(address.wrapping_add(low)),
            _ => None,
        };
    }
    // MOVZ and MOVK of 64 bits.
    let part = u64::from(word >> 5 & 0xffff) << ((word >> 21 & 3) * 16);
    match word >> 23 {
        0b1_1010_0101 => return here(part),
        0b1_1110_0101 => {
            let Some(Held::Address(Named::Here(known))) = held[register(word, 0)] else { return None };
            return here(known & !(0xffff << ((word >> 21 & 3) * 16)) | part);
        }
        _ => {}
    }
    // MOV, which is ORR with the zero register.
    if word & 0xffe0_ffe0 == 0xaa00_03e0 {
        return held[register(word, 16)];
    }
    if let Some(width) = loaded_width(word) {
        return match base? {
            // A load of eight bytes at a constant offset is taken for a slot that holds an address: a word of a table would look
            // the same, but tables that are read in this way have words of four bytes.
            Held::Address(Named::Here(page)) if width == 8 && word & 0xffc0_0000 == 0xf940_0000 => {
                let slot = page.wrapping_add(page_offset(word)?);
                Some(Held::Address(constant(slot).map_or(Named::Through(slot), Named::Here)))
            }
            Held::Address(table) | Held::Element(table) => Some(Held::Word { table, width }),
            Held::Word { .. } => None,
        };
    }
    if is_sum(word) {
        return match (base, held[register(word, 16)]) {
            (Some(Held::Address(table)), None) | (None, Some(Held::Address(table))) => {
                Some(Held::Element(table))
            }
            _ => None,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(words: &[u32]) -> Vec<ComputedSum> {
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        own_distances(&code, 0x5000, |place| (place == 0x5010).then_some(0x9040))
    }

    fn table(width: u8) -> ComputedSum {
        ComputedSum { anchor: Named::Here(0x9040), table: Named::Here(0x9040), width }
    }

    #[test]
    fn the_address_may_be_a_constant_among_the_code() {
        // ldr x1, .+16; ldrsw x0, [x1, w0, sxtw #2]; add x0, x1, x0; ret
        assert_eq!(found(&[0x5800_0081, 0xb8a0_d820, 0x8b00_0020, 0xd65f_03c0]), [table(4)]);
        // adrp x1, .; ldr x1, [x1, #16]; ldrsw x0, [x1, w0, sxtw #2]; add x0, x1, x0
        assert_eq!(found(&[0x9000_0001, 0xf940_0821, 0xb8a0_d820, 0x8b00_0020]), [table(4)]);
        // Any other constant is not known.
        assert_eq!(found(&[0x5800_00a1, 0xb8a0_d820, 0x8b00_0020, 0xd65f_03c0]), []);
    }

    #[test]
    fn an_element_is_loaded_from_its_own_address() {
        // movz x1, #0x9040; add x2, x1, x0, lsl #3; ldr x2, [x2, #8]; mov x3, x1; add x0, x2, x3
        let words = [0xd292_0801, 0x8b00_0c22, 0xf940_0442, 0xaa01_03e3, 0x8b03_0040];
        assert_eq!(found(&words), [table(8)]);
        // A call loses x1.
        let lost = [0xd292_0801, 0x9400_0000, 0xb8a0_d820, 0x8b00_0020];
        assert_eq!(found(&lost), []);
    }

    #[test]
    fn what_is_only_read_is_no_sum() {
        // adrp x1, .; ldrsw x0, [x1, w0, sxtw #2]; add x0, x0, x2; ret
        assert_eq!(found(&[0x9000_0001, 0xb8a0_d820, 0x8b02_0000, 0xd65f_03c0]), []);
    }
}
