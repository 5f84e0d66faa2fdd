//! Filler and code that no function describes, on AArch64.

use crate::decode::aarch64::{NOP, Operation, WORD, decode};
use reorder_base::address::Address;

/// Length of the filler at the start of `bytes`, which are at `start`: zero bytes, `NOP`, `BRK`.
pub(crate) fn filler_length(bytes: &[u8], start: Address) -> usize {
    walk_filler(bytes, start).1
}

/// Like [`filler_length`], but zeros right before other content are not counted: they may be part of it.
pub(crate) fn padding_length(bytes: &[u8], start: Address) -> usize {
    let (certain, length) = walk_filler(bytes, start);
    if length == bytes.len() { length } else { certain }
}

/// Position after the last filler that is not zero, and after all filler.
fn walk_filler(bytes: &[u8], start: Address) -> (usize, usize) {
    let head = (start.0.wrapping_neg() % WORD) as usize;
    let (before, aligned) = bytes.split_at(head.min(bytes.len()));
    if before.iter().any(|byte| *byte != 0) {
        return (0, 0);
    }
    let (mut certain, mut position) = (0, before.len());
    let (words, rest) = aligned.as_chunks::<4>();
    for word in words {
        match u32::from_le_bytes(*word) {
            0 => position += word.len(),
            word if word == NOP || is_breakpoint(word) => {
                position += word.to_le_bytes().len();
                certain = position;
            }
            _ => return (certain, position),
        }
    }
    let is_zero = rest.iter().all(|byte| *byte == 0);
    (certain, if is_zero { bytes.len() } else { position })
}

fn is_breakpoint(word: u32) -> bool {
    word & 0xffe0_001f == 0xd420_0000
}

/// Length of `bytes`, which are at `start`, up to the filler at their end; `None` when a word is neither filler nor an
/// instruction. Filler that control runs into is code: a `BRK` after a conditional branch stops the program.
pub(crate) fn code_length(bytes: &[u8], start: Address) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<4>();
    if !start.0.is_multiple_of(WORD) || rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    let mut length = 0;
    for (index, word) in words.iter().enumerate() {
        let word = u32::from_le_bytes(*word);
        match decode(word, start.plus(index as u64 * WORD)) {
            Operation::Invalid => return None,
            _ if word == 0 || word == NOP || is_breakpoint(word) => {}
            _ => length = 4 * (index + 1),
        }
    }
    let runs_on = length > 0 && falls_through(&bytes[..length], start);
    Some(if runs_on { bytes.len() } else { length })
}

/// Whether control may run past the end of `bytes`, which are instructions.
pub(crate) fn falls_through(bytes: &[u8], start: Address) -> bool {
    let (words, _) = bytes.as_chunks::<4>();
    let places = (0..).map(|index| start.plus(index * WORD));
    let operations = words.iter().zip(places).map(|(word, place)| decode(u32::from_le_bytes(*word), place));
    let last = operations.filter(|operation| *operation != Operation::Nop).last();
    !matches!(
        last,
        None | Some(
            Operation::Branch(_) | Operation::BranchRegister(_) | Operation::Return | Operation::Trap
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    const RET: u32 = 0xd65f_03c0;

    #[test]
    fn zeros_belong_to_what_follows_unless_nothing_does() {
        let start = Address(0x1000);
        assert_eq!(padding_length(&bytes(&[NOP, 0, 0]), start), 12);
        assert_eq!(padding_length(&bytes(&[NOP, 0, RET]), start), 4);
        assert_eq!(filler_length(&bytes(&[NOP, 0, RET]), start), 8);
        assert_eq!(padding_length(&[0, 0, 0x1f, 0x20, 3, 0xd5], Address(0x1002)), 6);
        assert_eq!(padding_length(&[1, 0, 0x1f, 0x20, 3, 0xd5], Address(0x1002)), 0);
    }

    #[test]
    fn code_ends_before_the_last_filler() {
        let start = Address(0x1000);
        assert_eq!(code_length(&bytes(&[RET, NOP, RET, 0, NOP]), start), Some(12));
        assert_eq!(code_length(&bytes(&[RET, 0x0001_0000]), start), None);
        // cbnz w0, +8; brk #1.
        assert_eq!(code_length(&bytes(&[0x3500_0040, 0xd420_0020]), start), Some(8));
        assert_eq!(code_length(&bytes(&[RET]), Address(0x1002)), None);
        assert!(falls_through(&bytes(&[0x9400_0000, NOP]), start) && !falls_through(&bytes(&[RET]), start));
    }
}
