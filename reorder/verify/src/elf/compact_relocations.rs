//! Relocations in the compact form (`SHT_CREL`), decoded independently of the reader that relocation uses.
//!
//! A header (count, whether addends are stored, shift of offsets), then differences from the previous entry: an offset whose
//! first byte also says which of symbol, type and addend follow. Numbers are in LEB128. Source: LLVM's description of the
//! format; its section type is provisional.

use crate::bytes::{signed_leb128, unsigned_leb128};

/// `sh_type`, as LLVM 19 to 22 write it.
pub(crate) const SHT_CREL: u32 = 0x4000_0014;

/// One decoded entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CompactEntry {
    /// `r_offset`, a plain number as in the file.
    pub(crate) place: u64,
    /// Position of the symbol.
    pub(crate) symbol: u32,
    /// Type.
    pub(crate) kind: u32,
    /// `r_addend`.
    pub(crate) addend: u64,
}

/// All entries; `None` when the bytes end early or a number is too long.
pub(crate) fn compact_entries(bytes: &[u8]) -> Option<Vec<CompactEntry>> {
    let mut reader = Reader { bytes, position: 0 };
    let header = reader.unsigned()?;
    let (count, has_addends, shift) = (header >> 3, header & 4 != 0, header & 3);
    // Each entry takes at least one byte.
    if count > reader.rest() as u64 {
        return None;
    }
    let flag_bits = if has_addends { 3 } else { 2 };
    let mut entry = CompactEntry::default();
    let mut entries = Vec::with_capacity(usize::try_from(count).ok()?);
    for _ in 0..count {
        let first = reader.byte()?;
        let mut delta = u64::from(first & 0x7f) >> flag_bits;
        if first & 0x80 != 0 {
            let rest = reader.unsigned()?;
            delta |= rest.wrapping_shl(7 - flag_bits);
        }
        entry.place = entry.place.wrapping_add(delta.wrapping_shl(shift as u32));
        if first & 1 != 0 {
            entry.symbol = entry.symbol.wrapping_add(reader.signed()? as u32);
        }
        if first & 2 != 0 {
            entry.kind = entry.kind.wrapping_add(reader.signed()? as u32);
        }
        if has_addends && first & 4 != 0 {
            entry.addend = entry.addend.wrapping_add(reader.signed()? as u64);
        }
        entries.push(entry);
    }
    Some(entries)
}

struct Reader<'data> {
    bytes: &'data [u8],
    position: usize,
}

impl Reader<'_> {
    fn rest(&self) -> usize {
        self.bytes.len() - self.position
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    fn unsigned(&mut self) -> Option<u64> {
        unsigned_leb128(self.bytes, &mut self.position)
    }

    fn signed(&mut self) -> Option<i64> {
        signed_leb128(self.bytes, &mut self.position)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn push_unsigned(mut value: u64, bytes: &mut Vec<u8>) {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    }

    fn push_signed(mut value: i64, bytes: &mut Vec<u8>) {
        while !(-64..64).contains(&value) {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8 & 0x7f);
    }

    /// The format as it is described, with the first byte of an offset built by hand.
    fn encode(entries: &[CompactEntry]) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_unsigned((entries.len() as u64) << 3 | 4, &mut bytes);
        let mut before = CompactEntry::default();
        for entry in entries {
            let delta = u128::from(entry.place.wrapping_sub(before.place));
            let changes =
                [entry.symbol != before.symbol, entry.kind != before.kind, entry.addend != before.addend];
            let flags = changes.iter().rev().fold(0u128, |flags, &change| flags << 1 | u128::from(change));
            let mut number = delta << 3 | flags;
            while number >= 0x80 {
                bytes.push(number as u8 & 0x7f | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
            if changes[0] {
                push_signed(i64::from(entry.symbol.wrapping_sub(before.symbol) as i32), &mut bytes);
            }
            if changes[1] {
                push_signed(i64::from(entry.kind.wrapping_sub(before.kind) as i32), &mut bytes);
            }
            if changes[2] {
                push_signed(entry.addend.wrapping_sub(before.addend) as i64, &mut bytes);
            }
            before = *entry;
        }
        bytes
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(raw in proptest::collection::vec(any::<(u64, u32, u32, u64)>(), 0..20)) {
            let entries: Vec<CompactEntry> = raw
                .into_iter()
                .map(|(place, symbol, kind, addend)| CompactEntry { place, symbol, kind, addend })
                .collect();
            let bytes = encode(&entries);
            prop_assert_eq!(compact_entries(&bytes), Some(entries.clone()));
            let theirs = object::read::elf::CrelIterator::new(&bytes).expect("a header");
            let theirs: Vec<(u64, u32, u32, i64)> = theirs
                .map(|entry| entry.expect("an entry"))
                .map(|entry| (entry.r_offset, entry.r_sym, entry.r_type.0, entry.r_addend))
                .collect();
            let ours: Vec<(u64, u32, u32, i64)> = entries
                .iter()
                .map(|entry| (entry.place, entry.symbol, entry.kind, entry.addend as i64))
                .collect();
            prop_assert_eq!(theirs, ours);
        }

        #[test]
        fn any_bytes_end_in_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(entries) = compact_entries(&bytes) {
                prop_assert!(entries.len() <= bytes.len());
            }
        }
    }
}
