//! Pairs of instructions that the linker relaxed because the target was near.
//!
//! `ADRP` and `ADD` became `ADR` and `NOP`; `ADRP` and a load became `NOP` and a load of a literal. After a move the target
//! may be too far: then the `NOP` becomes an instruction of the pair again. Source: linker optimization hints, as ld64 and
//! lld apply them.

use std::collections::BTreeSet;

use crate::decode::aarch64::{NOP, Register, uses};

/// How far apart compilers place the two, in instructions.
const MAX_DISTANCE: usize = 3;

/// The `NOP` after the `ADR` of `register` at `index` that can become an `ADD` of the same register: nothing between
/// may use the register, branch, or be branched to.
pub(super) fn nop_after(
    words: &[u32],
    index: usize,
    register: Register,
    is_joined: impl Fn(usize) -> bool,
    taken: &BTreeSet<usize>,
) -> Option<i8> {
    for distance in 1..=MAX_DISTANCE {
        let at = index + distance;
        let word = *words.get(at)?;
        if is_joined(at) || register == Register::NONE {
            return None;
        }
        if word == NOP && !taken.contains(&at) {
            return Some(distance as i8);
        }
        if touches(word, register) || is_branch(word) {
            return None;
        }
    }
    None
}

/// The `NOP` before the load into `register` at `index` that can become the `ADRP` of the same register.
pub(super) fn nop_before(
    words: &[u32],
    index: usize,
    register: Register,
    is_joined: impl Fn(usize) -> bool,
    taken: &BTreeSet<usize>,
) -> Option<i8> {
    for distance in 1..=MAX_DISTANCE.min(index) {
        let at = index - distance;
        if is_joined(at + 1) || register == Register::NONE {
            return None;
        }
        let word = words[at];
        if word == NOP && !taken.contains(&at) {
            return Some(-(distance as i8));
        }
        if touches(word, register) || is_branch(word) {
            return None;
        }
    }
    None
}

fn touches(word: u32, register: Register) -> bool {
    let used = uses(word);
    (used.reads | used.writes | used.may_write) >> register.0 & 1 == 1
}

/// Branches, exceptions and system instructions.
fn is_branch(word: u32) -> bool {
    matches!(word >> 25 & 0xf, 0b1010 | 0b1011) && word != NOP
}
