//! Whether code means the same after its move, by a decoder alone: the same instructions in the same places, except
//! for the addresses in them.

use iced_x86::{Decoder, DecoderOptions};
use reorder_base::address::Address;
use reorder_relocate::address_map::AddressMap;

/// The processor whose instructions are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Processor {
    X86,
    AArch64,
}

/// Compares all moved ranges; the functions give the bytes of the old and of the new image at an address.
pub(super) fn assert_moved_alike<'data>(
    processor: Processor,
    map: &AddressMap,
    old: impl Fn(Address, u64) -> Option<&'data [u8]>,
    new: impl Fn(Address, u64) -> Option<&'data [u8]>,
) {
    for range in map.moves() {
        let before = old(range.old, range.size).expect("moved code is in the file");
        let after = new(Address(range.new.0), range.size).expect("moved code is in the file");
        assert_same_instructions(processor, before, after, range.old);
    }
}

/// Compares one moved range, which began at `address`.
fn assert_same_instructions(processor: Processor, old: &[u8], new: &[u8], address: Address) {
    assert_eq!(old.len(), new.len());
    let different = match processor {
        Processor::X86 => first_different(old, new),
        Processor::AArch64 => first_different_word(old, new),
    };
    if let Some(place) = different {
        let line = place..(place + 16).min(old.len());
        panic!("{}: {:02x?} became {:02x?}", address.plus(place as u64), &old[line.clone()], &new[line]);
    }
}

/// Where the two cease to be the same instructions, of the same lengths. Bytes that are not instructions, such as tables,
/// are skipped: where they end is not known.
fn first_different(old: &[u8], new: &[u8]) -> Option<usize> {
    let [mut old, mut new] = [old, new].map(|code| Decoder::with_ip(64, code, 0, DecoderOptions::NONE));
    while old.can_decode() {
        let place = old.position();
        let [before, after] = [old.decode(), new.decode()];
        if before.is_invalid() {
            return None;
        }
        if before.code() != after.code() || before.len() != after.len() {
            return Some(place);
        }
    }
    None
}

/// Bits of an instruction that hold an address or a part of one, by the class of the instruction: mask and value of the
/// class, bits of the address. "Arm Architecture Reference Manual for A-profile", C4.1.
const ADDRESS_FIELDS: [(u32, u32, u32); 9] = [
    (0x7c00_0000, 0x1400_0000, 0x03ff_ffff), // B, BL
    (0xff00_0000, 0x5400_0000, 0x00ff_ffe0), // B.cond, BC.cond but for its bit 4
    (0x7e00_0000, 0x3400_0000, 0x00ff_ffe0), // CBZ, CBNZ
    (0x7e00_0000, 0x3600_0000, 0x0007_ffe0), // TBZ, TBNZ
    (0x1f00_0000, 0x1000_0000, 0x60ff_ffe0), // ADR, ADRP
    (0x3b00_0000, 0x1800_0000, 0x00ff_ffe0), // LDR of a literal
    (0x7f80_0000, 0x1100_0000, 0x003f_fc00), // ADD of an immediate
    (0x3b00_0000, 0x3900_0000, 0x003f_fc00), // LDR and STR with an unsigned offset
    (0x1f80_0000, 0x1280_0000, 0x001f_ffe0), // MOVN, MOVZ, MOVK
];

fn first_different_word(old: &[u8], new: &[u8]) -> Option<usize> {
    let words = |code: &[u8]| -> Vec<u32> {
        code.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    };
    let same = |old: u32, new: u32| {
        let field = ADDRESS_FIELDS.iter().find(|(mask, value, _)| old & mask == *value);
        old & !field.map_or(0, |field| field.2) == new & !field.map_or(0, |field| field.2)
    };
    let different = words(old).into_iter().zip(words(new)).position(|(old, new)| !same(old, new));
    different.map(|index| 4 * index)
}
