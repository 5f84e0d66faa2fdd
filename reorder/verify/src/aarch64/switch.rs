//! The places that a computed jump can reach: the entries of its table, if the code bounds the index.
//!
//! ```text
//! cmp index, #last        ; nothing but the branch leads past it
//! b.hi elsewhere
//! adrp/add table          ; in any order, also with other instructions
//! ldr{s}{b,h,} word, [table, index]
//! adr anchor
//! add sum, anchor, word
//! br sum
//! ```
//!
//! All of this lies in the two blocks before the jump, which control enters only at their beginnings, so the registers are
//! known and the comparison bounds the index. Other jumps are left to [`super::flow`], which assumes that they may reach
//! every block that no branch leads to. Compilers clear the upper half of an index before they compare the lower one.

use std::ops::Range;

use super::code_pair::CodePair;
use super::dispatch::is_jump;
use super::effects::effects;
use super::flow::beginnings;
use super::form::{Form, is_add, page_offset, register};

/// What a register holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Held {
    #[default]
    Unknown,
    Address(u64),
    Entry(Entry),
    Sum {
        anchor: u64,
        entry: Entry,
        scale: Scale,
    },
}

/// A word of the table at the index that was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    table: u64,
    /// Bytes, as a power of two; at most two.
    size: u32,
    /// To how many bits its sign is extended; none keep it.
    signed_to: Option<u32>,
}

/// How the word is widened and shifted before it is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scale {
    /// Bits that count, and whether their highest is a sign.
    bits: u32,
    is_signed: bool,
    shift: u32,
}

/// Maximum number of table words that are read, per word of code: some tables have many entries for one place.
const MAX_WORDS: u64 = 64;

/// A computed jump with known targets.
struct Switch {
    /// First word of the piece of code that compares, of the one that jumps, and the jump.
    before: usize,
    block: usize,
    jump: usize,
    /// Ascending.
    targets: Vec<usize>,
}

/// The computed jumps of `code` whose tables are bounded: the first word of the block that each jump ends, and its target
/// words, which become `starts` of blocks.
///
/// `is_entered` marks the words that control may reach from elsewhere than the word before.
pub(super) fn switches(
    code: &CodePair<'_>,
    starts: &mut [bool],
    is_entered: &[bool],
) -> Vec<(usize, Vec<usize>)> {
    let mut found: Vec<Switch> = Vec::new();
    let mut words_left = (code.len() as u64).saturating_mul(MAX_WORDS);
    // Different jumps have different targets; otherwise a hostile image could make this too expensive.
    let mut places_left = code.len();
    let (mut before, mut block) = (0, 0);
    for index in 0..code.len() {
        if is_jump(code.words(index).0)
            && !is_entered[block]
            && let Some(targets) = targets(code, before..block, block..index, &mut words_left)
            && let Some(left) = places_left.checked_sub(targets.len())
        {
            places_left = left;
            found.push(Switch { before, block, jump: index, targets });
        }
        if starts[index + 1] {
            (before, block) = (block, index + 1);
        }
    }
    let mut targets: Vec<usize> = found.iter().flat_map(|switch| switch.targets.iter().copied()).collect();
    targets.sort_unstable();
    // A way into the code between comparison and jump bypasses the comparison.
    found.retain(|switch| {
        let next = targets.partition_point(|&target| target <= switch.before);
        targets.get(next).is_none_or(|&target| target > switch.jump)
    });
    for &target in found.iter().flat_map(|switch| &switch.targets) {
        starts[target] = true;
    }
    found.into_iter().map(|switch| (switch.block, switch.targets)).collect()
}

/// The places in other pieces of code that computed jumps of `code` lead to, as far as a comparison bounds their tables.
pub(crate) fn leaving_targets(code: &CodePair<'_>) -> Vec<u64> {
    let mut found = Vec::new();
    if !(0..code.len()).any(|index| is_jump(code.words(index).0)) {
        return found;
    }
    let (starts, is_entered) = beginnings(code);
    let mut words_left = (code.len() as u64).saturating_mul(MAX_WORDS);
    let (mut before, mut block) = (0, 0);
    for index in 0..code.len() {
        if is_jump(code.words(index).0) && !is_entered[block] {
            let targets = target_addresses(code, before..block, block..index, &mut words_left);
            let leaves = |target: &u64| target.wrapping_sub(code.range.old_start.0) >= code.range.size;
            found.extend(targets.unwrap_or_default().into_iter().filter(leaves));
        }
        if starts[index + 1] {
            (before, block) = (block, index + 1);
        }
    }
    found
}

/// The words of `code` to which the jump after `block` leads, ascending; `None` when that is not certain.
fn targets(
    code: &CodePair<'_>,
    before: Range<usize>,
    block: Range<usize>,
    words_left: &mut u64,
) -> Option<Vec<usize>> {
    let mut targets = Vec::new();
    for target in target_addresses(code, before, block, words_left)? {
        let distance = target.checked_sub(code.range.old_start.0)?;
        if distance % 4 != 0 || distance / 4 >= code.len() as u64 {
            return None;
        }
        targets.push((distance / 4) as usize);
    }
    targets.sort_unstable();
    targets.dedup();
    Some(targets)
}

/// Where the jump after `block` leads, by entry of its table; `None` when that is not certain.
///
/// `before` is the piece of code that runs into the block, which nothing else leads to.
fn target_addresses(
    code: &CodePair<'_>,
    before: Range<usize>,
    block: Range<usize>,
    words_left: &mut u64,
) -> Option<Vec<u64>> {
    let (index, last) = bound(code, before.clone())?;
    let jump = block.end;
    let mut held = [Held::Unknown; 32];
    let mut is_index_kept = false;
    for place in before.start..jump {
        is_index_kept |= place == block.start;
        let word = code.words(place).0;
        let value = value_of(code, place, &held, is_index_kept.then_some(index));
        let effects = effects(word);
        for (number, held) in held.iter_mut().enumerate() {
            if effects.writes >> number & 1 != 0 || effects.is_call {
                *held = Held::Unknown;
            }
        }
        is_index_kept &= effects.writes >> index & 1 == 0 && !effects.is_call;
        held[register(word, 0)] = value.unwrap_or(held[register(word, 0)]);
        held[31] = Held::Unknown;
    }
    let Held::Sum { anchor, entry, scale } = held[register(code.words(jump).0, 5)] else { return None };
    *words_left = words_left.checked_sub(last + 1)?;
    let bytes = code.images.constants(entry.table, (last + 1) << entry.size)?;
    let words = bytes.chunks_exact(1 << entry.size);
    Some(words.map(|word| anchor.wrapping_add(scale.apply(entry.read(word)))).collect())
}

/// The register that the end of `before` compares, and its largest value where control runs on.
fn bound(code: &CodePair<'_>, before: Range<usize>) -> Option<(usize, u64)> {
    let branch = before.end.checked_sub(1).filter(|branch| before.contains(branch))?;
    // B.HI, but not to the next word.
    let word = code.words(branch).0;
    if word & 0xff00_001f != 0x5400_0008 || word & Form::Conditional.field() == 1 << 5 {
        return None;
    }
    let mut written = 0;
    for place in before.rev().skip(1) {
        let word = code.words(place).0;
        // CMP with a constant, of either width.
        if word & 0x7fc0_001f == 0x7100_001f {
            let index = register(word, 5);
            return (index != 31 && written >> index & 1 == 0)
                .then_some((index, u64::from(word >> 10 & 0xfff)));
        }
        // Words between comparison and branch must be known to keep the flags: addresses, loads and stores.
        let is_known =
            matches!(code.form(place), Form::Adr | Form::Adrp) || is_add(word) || is_load_or_store(word);
        if !is_known {
            return None;
        }
        written |= effects(word).writes;
    }
    None
}

/// Whether `word` is one of the ordinary loads and stores, which leave the flags as they are: of one register with an
/// offset of any form, or of two.
fn is_load_or_store(word: u32) -> bool {
    word & 0x3b00_0000 == 0x3900_0000
        || word & 0x3b20_0000 == 0x3800_0000
        || word & 0x3b20_0c00 == 0x3820_0800
        || word & 0x3a00_0000 == 0x2800_0000
}

/// What the word at `place` leaves in its destination.
fn value_of(code: &CodePair<'_>, place: usize, held: &[Held; 32], index: Option<usize>) -> Option<Held> {
    let word = code.words(place).0;
    let (left, right) = (held[register(word, 5)], held[register(word, 16)]);
    let kind = code.form(place);
    if matches!(kind, Form::Adr | Form::Adrp) {
        return Some(Held::Address(kind.target(word, code.addresses(place).0)));
    }
    if is_add(word) {
        let Held::Address(base) = left else { return None };
        return Some(Held::Address(base.wrapping_add(page_offset(word)?)));
    }
    match (left, right) {
        (Held::Address(table), _) if Some(register(word, 16)) == index => load(word, table).map(Held::Entry),
        (Held::Address(anchor), Held::Entry(entry)) => {
            added(word).map(|scale| Held::Sum { anchor, entry, scale })
        }
        _ => None,
    }
}

/// A load of a general register at a table and an index that counts words: the index is not extended by its sign.
fn load(word: u32, table: u64) -> Option<Entry> {
    let (size, operation) = (word >> 30, word >> 22 & 3);
    let is_unsigned = word >> 13 & 3 == 2 || word >> 13 & 3 == 3;
    let is_positive = word >> 15 & 1 == 0;
    let is_scaled = size == 0 || word >> 12 & 1 == 1;
    let is_load =
        word & 0x3f20_0c00 == 0x3820_0800 && operation != 0 && size <= 2 && (size, operation) != (2, 3);
    let signed_to = match operation {
        2 => Some(64),
        3 => Some(32),
        _ => None,
    };
    (is_load && is_unsigned && is_positive && is_scaled).then_some(Entry { table, size, signed_to })
}

/// `ADD` of two 64-bit registers, the second one extended or shifted to the left.
fn added(word: u32) -> Option<Scale> {
    if word & 0xffe0_0000 == 0x8b20_0000 {
        let option = word >> 13 & 7;
        return Some(Scale { bits: 8 << (option & 3), is_signed: option & 4 != 0, shift: word >> 10 & 7 });
    }
    let is_shifted = word & 0xffe0_0000 == 0x8b00_0000;
    is_shifted.then_some(Scale { bits: 64, is_signed: false, shift: word >> 10 & 63 })
}

impl Entry {
    /// What the register holds after the load of `bytes`.
    fn read(self, bytes: &[u8]) -> u64 {
        let raw = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        let bits = 8 << self.size;
        match self.signed_to {
            None => raw,
            Some(64) => sign_extended(raw, bits),
            Some(_) => u64::from(sign_extended(raw, bits) as u32),
        }
    }
}

impl Scale {
    fn apply(self, value: u64) -> u64 {
        let kept = if self.bits == 64 { value } else { value & ((1 << self.bits) - 1) };
        let extended = if self.is_signed { sign_extended(kept, self.bits) } else { kept };
        extended << self.shift
    }
}

/// The lowest `bits` bits of `value`, 1 to 64, with their sign.
fn sign_extended(value: u64, bits: u32) -> u64 {
    ((value << (64 - bits)).cast_signed() >> (64 - bits)).cast_unsigned()
}
