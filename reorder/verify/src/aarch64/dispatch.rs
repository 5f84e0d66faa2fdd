//! Computed jumps of AArch64 code: the addresses that their tables of distances count from.
//!
//! Compilers count from an address in the function (`ADR` to itself), which moves with it. Hand-written assembly also counts
//! from the table, in data: those words must follow the function. One pass over the words in order finds addresses in
//! registers, loads from them and sums. It ignores control flow; that can only make it find less.

use super::effects::effects;
use super::form::{Form, form, is_add, page_offset, register};
use crate::bytes::u32_at;

/// What the computed jumps of a piece of code use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dispatches {
    /// The code jumps to a sum.
    pub(crate) is_computed: bool,
    /// Tables of four-byte distances from their own start.
    pub(crate) tables: Vec<u64>,
    /// Other addresses that distances are added to.
    pub(crate) anchors: Vec<u64>,
    /// Sums that the code calls or jumps to.
    pub(crate) sums: Vec<ComputedSum>,
}

/// An address plus a word of a table of distances from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ComputedSum {
    pub(crate) anchor: Named,
    pub(crate) table: Named,
    /// Bytes of a word: 4 or 8.
    pub(crate) width: u8,
}

/// How code names an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Named {
    /// It computes the address.
    Here(u64),
    /// It loads the address from this slot, which the loader fills.
    Through(u64),
}

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Unknown,
    Address(u64),
    /// Read from a slot of the GOT.
    Slot(u64),
    /// Read from a table with this many bytes per word.
    Word {
        table: Named,
        size: u8,
    },
    Sum {
        base: Option<Named>,
        word: Option<(Named, u8)>,
    },
}

impl Held {
    fn named(self) -> Option<Named> {
        match self {
            Self::Address(address) => Some(Named::Here(address)),
            Self::Slot(slot) => Some(Named::Through(slot)),
            _ => None,
        }
    }
}

/// Whether `word` is `BR`.
pub(super) fn is_jump(word: u32) -> bool {
    word & 0xffff_fc1f == 0xd61f_0000
}

/// Whether `word` is `BLR`.
fn is_call(word: u32) -> bool {
    word & 0xffff_fc1f == 0xd63f_0000
}

/// Finds the computed jumps of `code`, which stands at `address`.
pub(crate) fn dispatches(code: &[u8], address: u64) -> Dispatches {
    let mut found = Dispatches::default();
    let words = || code.chunks_exact(4).map(|word| u32_at(word, 0).unwrap_or(0));
    if !words().any(|word| is_jump(word) || is_call(word)) {
        return found;
    }
    let mut held = [Held::Unknown; 32];
    for (index, word) in words().enumerate() {
        if (is_jump(word) || is_call(word))
            && let Held::Sum { base: Some(base), word: Some((table, size @ (4 | 8))) } =
                held[register(word, 5)]
            && base != table
        {
            found.sums.push(ComputedSum { anchor: base, table, width: size });
        }
        if is_jump(word) {
            if let Held::Sum { base, word } = held[register(word, 5)] {
                found.is_computed = true;
                match (base, word) {
                    (Some(Named::Here(base)), Some((Named::Here(table), 4))) if base == table => {
                        found.tables.push(base);
                    }
                    (Some(Named::Here(base)), _) => found.anchors.push(base),
                    _ => {}
                }
            }
            continue;
        }
        let value = value_of(word, address.wrapping_add(index as u64 * 4), &held);
        let effects = effects(word);
        for (number, held) in held.iter_mut().enumerate().take(31) {
            let is_lost = effects.is_call && (number <= 18 || number == 30);
            if is_lost || effects.writes >> number & 1 != 0 {
                *held = Held::Unknown;
            }
        }
        if let Some(value) = value {
            held[register(word, 0)] = value;
        }
        held[31] = Held::Unknown;
    }
    found.tables.sort_unstable();
    found.tables.dedup();
    found.anchors.sort_unstable();
    found.anchors.dedup();
    found.sums.sort_unstable();
    found.sums.dedup();
    found
}

/// The addresses that `code`, which stands at `address`, computes relative to its place; unordered, with repetitions. Where a
/// linker's veneer leads is left out: nothing else is done with that address.
pub(crate) fn addresses(code: &[u8], address: u64) -> Vec<u64> {
    let mut found = Vec::new();
    let mut pages: [Option<u64>; 32] = [None; 32];
    let word_at = |index: usize| u32_at(code, index * 4).unwrap_or(0);
    let is_veneer = |index: usize| {
        let (sum, next) = (word_at(index), word_at(index + 1));
        let to = register(sum, 0);
        matches!(to, 16 | 17) && is_add(sum) && is_jump(next) && register(next, 5) == to
    };
    for index in 0..code.len() / 4 {
        let word = word_at(index);
        let kind = form(word);
        if matches!(kind, Form::Adr | Form::Literal) {
            found.push(kind.target(word, address.wrapping_add(index as u64 * 4)));
        }
        if let (Some(low), Some(page)) = (page_offset(word), pages[register(word, 5)])
            && !is_veneer(index)
        {
            found.push(page.wrapping_add(low));
        }
        let written = effects(word).writes;
        if written != 0 {
            for (number, page) in pages.iter_mut().enumerate() {
                *page = page.filter(|_| written >> number & 1 == 0);
            }
        }
        if kind == Form::Adrp && register(word, 0) != 31 {
            pages[register(word, 0)] = Some(kind.target(word, address.wrapping_add(index as u64 * 4)));
        }
    }
    found
}

/// What `word` leaves in its destination.
fn value_of(word: u32, address: u64, held: &[Held; 32]) -> Option<Held> {
    let (left, right) = (held[register(word, 5)], held[register(word, 16)]);
    let kind = form(word);
    if matches!(kind, Form::Adr | Form::Adrp) {
        return Some(Held::Address(kind.target(word, address)));
    }
    if is_add(word)
        && let Held::Address(base) = left
    {
        return Some(Held::Address(base.wrapping_add(page_offset(word)?)));
    }
    // Loads with an index register.
    if word & 0x3f20_0c00 == 0x3820_0800
        && word & 0x00c0_0000 != 0
        && let Some(table) = left.named()
    {
        return Some(Held::Word { table, size: 1 << (word >> 30) });
    }
    // LDR of eight bytes with an unsigned offset.
    if word & 0xffc0_0000 == 0xf940_0000
        && let Held::Address(page) = left
    {
        return Some(Held::Slot(page.wrapping_add(u64::from(word >> 10 & 0xfff) * 8)));
    }
    // ADD and SUB of two registers, shifted or extended.
    if word & 0xbf00_0000 != 0x8b00_0000 {
        return None;
    }
    let word_in = |held: Held| if let Held::Word { table, size } = held { Some((table, size)) } else { None };
    Some(Held::Sum {
        base: left.named().or_else(|| right.named()),
        word: word_in(right).or_else(|| word_in(left)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_table_that_counts_from_itself_is_one() {
        // adrp x8, .; add x8, x8, #0x40; ldrsw x4, [x8, x4, lsl #2]; add x8, x8, x4; br x8
        let words = code(&[0x9000_0008, 0x9101_0108, 0xb8a4_7904, 0x8b04_0108, 0xd61f_0100]);
        let found = dispatches(&words, 0x5000);
        assert_eq!(found, Dispatches { is_computed: true, tables: vec![0x5040], ..Dispatches::default() });
    }

    #[test]
    fn where_a_veneer_leads_is_no_address_that_code_holds() {
        // adrp x16, .; add x16, x16, #0x44; br x16
        let veneer = [0x9000_0010, 0x9101_1210, 0xd61f_0200];
        assert_eq!(addresses(&code(&veneer), 0x5000), Vec::<u64>::new());
        // What the code stores or passes on, it holds.
        let call = [0x9000_0010, 0x9101_1210, 0xd63f_0200];
        assert_eq!(addresses(&code(&call), 0x5000), [0x5044]);
        assert_eq!(addresses(&code(&veneer[..2]), 0x5000), [0x5044]);
    }

    #[test]
    fn distances_from_a_place_in_the_function_are_no_such_table() {
        // adr x9, .; ldrsw x10, [x8, x0, lsl #2]; add x9, x9, x10; br x9
        let words = code(&[0x1000_0009, 0xb8a0_790a, 0x8b0a_0129, 0xd61f_0120]);
        let found = dispatches(&words, 0x5000);
        assert_eq!(
            found,
            Dispatches {
                is_computed: true,
                anchors: vec![0x5000],
                sums: found.sums.clone(),
                ..Dispatches::default()
            }
        );
    }

    #[test]
    fn a_jump_to_a_pointer_is_not_computed() {
        // ldr x8, [x0]; br x8
        let words = code(&[0xf940_0008, 0xd61f_0100]);
        assert_eq!(dispatches(&words, 0x5000), Dispatches::default());
    }
}
