//! Addresses of code to which AArch64 code adds an unknown value.
//!
//! ```text
//! adrp x23, page; add x23, x23, #low     ; a complete address, kept through loops and calls
//! ldr x2, [x24, x2, lsl #3]              ; whatever this is
//! add x2, x2, x23                        ; it is a distance from that address
//! ```
//!
//! Complete addresses are followed through the blocks between jumps; where paths meet, only values that all of them bring
//! count. Code that is entered by other ways than its own branches gives no evidence.

use super::effects::effects;
use super::form::{Form, NOP, form, is_add, page_offset, register};
use crate::bytes::u32_at;

/// What is known of registers.
type Held = [Option<Known>; 32];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    address: u64,
    /// Not only that of its page.
    is_complete: bool,
}

/// Registers that a call does not keep.
const LOST_BY_CALL: u32 = 0x4007_ffff;
/// Rounds over one function: a loop needs one more than it is nested deep.
const MAX_ROUNDS: usize = 16;

/// The addresses accepted by `is_code` to which `code`, which stands at `start`, adds a register, or from which it subtracts
/// one; ascending, each once.
pub(crate) fn summed_addresses(code: &[u8], start: u64, is_code: impl Fn(u64) -> bool) -> Vec<u64> {
    let words: Vec<u32> = code.chunks_exact(4).map(|word| u32_at(word, 0).unwrap_or(0)).collect();
    let forms_code = || super::addresses(code, start).into_iter().any(&is_code);
    if !words.iter().any(|&word| is_sum(word))
        || words.iter().any(|&word| jumps_anywhere(word))
        || !forms_code()
    {
        return Vec::new();
    }
    let pieces = pieces(&words, start);
    let mut states: Vec<Option<Held>> = vec![None; pieces.len()];
    states[0] = Some([None; 32]);
    let mut found = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let mut is_changed = false;
        found.clear();
        for piece in 0..pieces.len() {
            let Some(mut held) = states[piece] else { continue };
            let end = pieces.get(piece + 1).copied().unwrap_or(words.len());
            for (index, &word) in words.iter().enumerate().take(end).skip(pieces[piece]) {
                let place = start.wrapping_add(index as u64 * 4);
                found.extend(summed(word, &held).filter(|address| is_code(*address)));
                step(word, place, &mut held);
            }
            let last = words[end - 1];
            let target =
                index_of(&words, start, end - 1).and_then(|target| pieces.binary_search(&target).ok());
            let next = (!effects(last).ends && piece + 1 < pieces.len()).then_some(piece + 1);
            for successor in target.into_iter().chain(next) {
                is_changed |= meet(&mut states[successor], &held);
            }
        }
        if !is_changed {
            // A block that no branch reaches may be a landing pad, whose registers are unknown.
            let unreached = (0..pieces.len()).filter(|&piece| states[piece].is_none());
            let is_filler = |word: &u32| *word == NOP || effects(*word).ends;
            let mut unreached = unreached.map(|piece| {
                let end = pieces.get(piece + 1).copied().unwrap_or(words.len());
                &words[pieces[piece]..end]
            });
            if unreached.any(|words| !words.iter().all(is_filler)) {
                return Vec::new();
            }
            found.sort_unstable();
            found.dedup();
            return found;
        }
    }
    Vec::new()
}

/// Where blocks begin: at targets of branches and after branches. The first is 0.
fn pieces(words: &[u32], start: u64) -> Vec<usize> {
    let mut begins = vec![0];
    for (index, &word) in words.iter().enumerate() {
        begins.extend(index_of(words, start, index));
        let kind = form(word);
        if kind.is_jump() && kind != Form::Call || effects(word).ends {
            begins.push(index + 1);
        }
    }
    begins.retain(|&begin| begin < words.len());
    begins.sort_unstable();
    begins.dedup();
    begins
}

/// The word that the branch at `index` leads to.
fn index_of(words: &[u32], start: u64, index: usize) -> Option<usize> {
    let kind = form(words[index]);
    if !kind.is_jump() || kind == Form::Call {
        return None;
    }
    let distance = kind.target(words[index], start.wrapping_add(index as u64 * 4)).wrapping_sub(start);
    (distance / 4 < words.len() as u64).then_some((distance / 4) as usize)
}

fn meet(known: &mut Option<Held>, brought: &Held) -> bool {
    let Some(known) = known else {
        *known = Some(*brought);
        return true;
    };
    let before = *known;
    for (known, brought) in known.iter_mut().zip(brought) {
        *known = known.filter(|known| Some(*known) == *brought);
    }
    before != *known
}

/// Whether `word` jumps to the address in a register and is not a return.
fn jumps_anywhere(word: u32) -> bool {
    word & 0xfee0_0000 == 0xd600_0000
}

/// `ADD` or `SUB` of two 64-bit registers, shifted or extended, whose result is kept.
fn is_sum(word: u32) -> bool {
    word & 0x9f00_0000 == 0x8b00_0000 && register(word, 0) != 31
}

/// The addresses that one register may hold, if `word` adds another register that holds none.
fn summed(word: u32, held: &Held) -> impl Iterator<Item = u64> {
    let (left, right) = (held[register(word, 5)], held[register(word, 16)]);
    let is_one = is_sum(word) && left.is_some() != right.is_some();
    let one = left.or(right).filter(|known| is_one && known.is_complete);
    one.map(|known| known.address).into_iter()
}

/// What registers hold after `word`.
fn step(word: u32, place: u64, held: &mut Held) {
    let kind = form(word);
    let value = match kind {
        Form::Adr | Form::Adrp => {
            Some(Known { address: kind.target(word, place), is_complete: kind == Form::Adr })
        }
        _ if is_add(word) => held[register(word, 5)]
            .zip(page_offset(word))
            .map(|(base, low)| Known { address: base.address.wrapping_add(low), is_complete: true }),
        _ if word & 0xffe0_ffe0 == 0xaa00_03e0 => held[register(word, 16)],
        _ => None,
    };
    let effects = effects(word);
    let lost = effects.writes | if effects.is_call { LOST_BY_CALL } else { 0 };
    // Registers that may be written are lost, too; `effects` names only those that certainly are.
    let lost = lost | 1 << register(word, 0) | write_back(word);
    for (number, held) in held.iter_mut().enumerate() {
        if lost >> number & 1 != 0 && !(is_store(word) && number == register(word, 0)) {
            *held = None;
        }
    }
    if let Some(value) = value {
        held[register(word, 0)] = Some(value);
    }
    held[31] = None;
}

/// The base of loads and stores that may change it, and further registers that such words name.
fn write_back(word: u32) -> u32 {
    let is_memory = word >> 25 & 0b0101 == 0b0100;
    let is_plain = word & 0x3b00_0000 == 0x3900_0000 || word & 0x3b00_0000 == 0x1800_0000;
    // With a register as index; pairs with a plain offset name two destinations.
    let is_indexed = word & 0x3b20_0c00 == 0x3820_0800;
    let is_pair = word & 0x3b80_0000 == 0x2900_0000;
    match is_memory && !is_plain && !is_indexed {
        true if is_pair => 1 << register(word, 10),
        true => 1 << register(word, 5) | 1 << register(word, 10) | 1 << register(word, 16),
        false => 0,
    }
}

/// A store of one register at a plain offset, which keeps what it stores.
fn is_store(word: u32) -> bool {
    word & 0x3f00_0000 == 0x3900_0000 && word & 3 << 22 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(words: &[u32]) -> Vec<u64> {
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        summed_addresses(&code, 0x5000, |address| address == 0x5040)
    }

    #[test]
    fn an_address_is_followed_to_the_sum() {
        // adrp x23, .; add x23, x23, #0x40; 1: bl .; ldr x2, [x24, x2, lsl #3]; add x2, x2, x23; blr x2; cbnz x0, 1b; ret
        let words = [
            0x9000_0017,
            0x9101_02f7,
            0x9400_0000,
            0xf862_7b02,
            0x8b17_0042,
            0xd63f_0040,
            0xb5ff_ff80,
            0xd65f_03c0,
        ];
        assert_eq!(found(&words), [0x5040]);
        // The call loses x2; a jump anywhere may come from elsewhere.
        let lost = [0x9000_0002, 0x9101_0042, 0x9400_0000, 0x8b17_0042, 0xd65f_03c0];
        assert!(found(&lost).is_empty());
        let mut elsewhere = words;
        elsewhere[7] = 0xd61f_0040;
        assert!(found(&elsewhere).is_empty());
    }

    #[test]
    fn what_only_one_path_brings_does_not_count() {
        // cbz x0, 1f; adrp x1, .; add x1, x1, #0x40; 1: add x2, x1, x3; ret
        assert!(found(&[0xb400_0060, 0x9000_0001, 0x9101_0021, 0x8b03_0022, 0xd65f_03c0]).is_empty());
    }
}
