//! Sums that AArch64 code calls, where no register shows what was added.
//!
//! ```text
//! ldr x2, [sp, #104]                ; the address of a function, kept on the stack
//! ldr x1, [x19], #8                 ; a distance; x19 was on the stack, too
//! add x1, x2, x1
//! blr x1
//! ```
//!
//! Any address of a function that the code forms may be the one, and any data that it names the table. Where the words of such a
//! pair lead decides.

use super::dispatch::{ComputedSum, Named, addresses};
use super::effects::effects;
use super::form::register;
use crate::bytes::u32_at;

/// Pairs of a function and a table that are tried for one function. Code with more of them pins what it calls.
const MAX_PAIRS: usize = 1 << 16;

/// All sums that `code`, which stands at `start`, may call if it calls one at all: of an address that `is_function` accepts and a
/// word at one that `is_data` accepts.
pub(crate) fn called_sums(
    code: &[u8],
    start: u64,
    is_function: impl Fn(u64) -> bool,
    is_data: impl Fn(u64) -> bool,
) -> Vec<ComputedSum> {
    if !calls_sum(code) {
        return Vec::new();
    }
    let mut named = addresses(code, start);
    named.sort_unstable();
    named.dedup();
    let anchors = named.iter().filter(|address| is_function(**address));
    let tables: Vec<u64> = named.iter().copied().filter(|address| is_data(*address)).collect();
    let pairs = anchors.flat_map(|anchor| tables.iter().map(move |table| (*anchor, *table)));
    let sums = pairs.take(MAX_PAIRS).flat_map(|(anchor, table)| {
        [4, 8].map(|width| ComputedSum { anchor: Named::Here(anchor), table: Named::Here(table), width })
    });
    sums.collect()
}

/// Whether some call goes to the sum of two registers, without a branch between the two instructions.
fn calls_sum(code: &[u8]) -> bool {
    let words: Vec<u32> = code.chunks_exact(4).map(|word| u32_at(word, 0).unwrap_or(0)).collect();
    let calls = (0..words.len()).filter(|&at| is_register_call(words[at]));
    calls.into_iter().any(|at| {
        let number = register(words[at], 5);
        let before =
            words[..at].iter().rev().take_while(|word| !effects(**word).is_call && !effects(**word).ends);
        before.copied().find(|word| effects(*word).writes >> number & 1 != 0).is_some_and(is_sum)
    })
}

/// `BLR`.
fn is_register_call(word: u32) -> bool {
    word & 0xffff_fc1f == 0xd63f_0000
}

/// `ADD` or `SUB` of two 64-bit registers, shifted or extended.
fn is_sum(word: u32) -> bool {
    word & 0xbf00_0000 == 0x8b00_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_of_a_called_sum_may_have_been_on_the_stack() {
        let found = |last: [u32; 2]| {
            // adr x0, .+0x40; adr x1, .+0x7c; stp x0, x1, [sp]; ldp x2, x3, [sp]; ldr x3, [x3], #8
            let words = [0x1000_0200, 0x1000_03e1, 0xa900_07e0, 0xa940_0fe2, 0xf840_8463];
            let words = words.into_iter().chain(last);
            let code: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
            called_sums(&code, 0x5000, |address| address == 0x5040, |address| address == 0x5080)
        };
        let sum = |width| ComputedSum { anchor: Named::Here(0x5040), table: Named::Here(0x5080), width };
        // add x1, x2, x3; blr x1
        assert_eq!(found([0x8b03_0041, 0xd63f_0020]), [sum(4), sum(8)]);
        // mov x1, x3; blr x1
        assert_eq!(found([0xaa03_03e1, 0xd63f_0020]), []);
    }
}
