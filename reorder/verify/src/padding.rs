//! Padding, which linkers and assemblers put between functions: no-operations, traps and zeros.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

use super::aarch64::NOP;
use super::bytes::u32_at;
use super::processor::Processor;

/// `INT3` of x86-64.
pub(crate) const TRAP: u8 = 0xcc;

/// `NOP` of x86-64 without prefixes.
const ONE_BYTE_NOP: u8 = 0x90;

/// Bytes of an AArch64 instruction, to which linkers pad with zeros.
const WORD: u64 = 4;

/// The number of bytes of padding at the start of `bytes`, which stand at `address`: no-operations, traps and zeros.
/// Control must not arrive there.
pub(crate) fn padding_length(processor: Processor, bytes: &[u8], address: u64) -> usize {
    match processor {
        Processor::Aarch64 => length_of_words(bytes, address),
        Processor::X86_64 => length_of_instructions(bytes, address),
    }
}

/// If `bytes`, which stand at `address`, begin with a jump over padding: the lengths in bytes of the jump and the padding.
/// GNU as writes such a jump on x86-64 where executing the no-operations would take longer.
pub(crate) fn jumped_over(processor: Processor, bytes: &[u8], address: u64) -> Option<(u64, u64)> {
    let (jump, distance): (usize, usize) = match (processor, bytes) {
        (Processor::X86_64, [0xeb, distance @ 0..0x80, ..]) => (2, usize::from(*distance)),
        (Processor::X86_64, [0xe9, ..]) => (5, u32_at(bytes, 1)? as usize),
        _ => return None,
    };
    let padding = bytes.get(jump..jump.checked_add(distance)?)?;
    let is_padding = padding_length(processor, padding, address.wrapping_add(jump as u64)) == distance;
    (is_padding && distance > 0).then_some((jump as u64, distance as u64))
}

/// As [`padding_length`] for AArch64; zeros may also precede the first aligned word and follow the last.
fn length_of_words(bytes: &[u8], address: u64) -> usize {
    let zeros = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    let mut length = bytes.len().min((address.wrapping_neg() % WORD) as usize);
    if !zeros(&bytes[..length]) {
        return 0;
    }
    loop {
        match filler_length(Processor::Aarch64, &bytes[length..]) {
            0 => break,
            filler => length += filler,
        }
    }
    let rest = &bytes[length..];
    if (rest.len() as u64) < WORD && zeros(rest) { bytes.len() } else { length }
}

/// As [`padding_length`] for x86-64. Zeros count if more padding, the end, or an aligned address follows: otherwise they may
/// belong to the code after them.
fn length_of_instructions(bytes: &[u8], address: u64) -> usize {
    let mut length = 0;
    let mut position = 0;
    while position < bytes.len() {
        let rest = &bytes[position..];
        position += rest.iter().position(|&byte| byte != 0).unwrap_or(rest.len());
        if position == bytes.len() || address.wrapping_add(position as u64).is_multiple_of(WORD) {
            length = position;
        }
        let filler = filler_length(Processor::X86_64, &bytes[position..]);
        if filler == 0 {
            break;
        }
        position += filler;
        length = position;
    }
    length
}

/// The length of the first instruction of `bytes` if it is a no-operation or a trap, else 0.
fn filler_length(processor: Processor, bytes: &[u8]) -> usize {
    match processor {
        Processor::Aarch64 => match u32_at(bytes, 0) {
            Some(word) if word == NOP || is_break(word) || is_undefined(word) => 4,
            _ => 0,
        },
        // The most frequent padding; decided without the decoder.
        Processor::X86_64 if matches!(bytes.first(), Some(&(TRAP | ONE_BYTE_NOP))) => 1,
        Processor::X86_64 => {
            let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
            if is_padding(&instruction) { instruction.len() } else { 0 }
        }
    }
}

/// The length of the filler at the start of `bytes` that may replace other bytes in the new image, else 0: only the exact
/// forms that assemblers and linkers write. Any other no-operation is an unexplained change.
pub(crate) fn new_filler_length(processor: Processor, bytes: &[u8]) -> usize {
    /// Sources: Intel SDM, volume 2, `NOP`; the tables of GNU as and LLVM, which put prefixes before the longest form.
    const FORMS: [&[u8]; 7] = [
        &[ONE_BYTE_NOP],
        &[0x0f, 0x1f, 0x00],
        &[0x0f, 0x1f, 0x40, 0],
        &[0x0f, 0x1f, 0x44, 0, 0],
        &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
        &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        &[0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
    ];
    /// No instruction is longer.
    const MAX_LENGTH: usize = 15;
    match processor {
        Processor::Aarch64 => filler_length(processor, bytes),
        Processor::X86_64 if bytes.first() == Some(&TRAP) => 1,
        Processor::X86_64 => {
            let prefixes = bytes.iter().take(MAX_LENGTH).take_while(|&&byte| byte == 0x66).count();
            let form = FORMS.into_iter().find(|form| bytes[prefixes..].starts_with(form));
            form.map(|form| prefixes + form.len()).filter(|&length| length <= MAX_LENGTH).unwrap_or(0)
        }
    }
}

/// Whether control that arrives at `bytes` is stopped at once.
pub(crate) fn starts_with_trap(processor: Processor, bytes: &[u8]) -> bool {
    match processor {
        Processor::Aarch64 => u32_at(bytes, 0).is_some_and(|word| is_break(word) || is_undefined(word)),
        Processor::X86_64 => bytes.first() == Some(&TRAP),
    }
}

/// Whether an x86-64 instruction is a no-operation or `INT3`.
pub(crate) fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

/// Whether `word` is `BRK`.
fn is_break(word: u32) -> bool {
    word & 0xffe0_001f == 0xd420_0000
}

/// Whether `word` is `UDF #0`.
fn is_undefined(word: u32) -> bool {
    word == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    // case: padding that changed into another instruction that does nothing
    #[test]
    fn new_filler_has_the_forms_of_assemblers() {
        let length = |bytes: &[u8]| new_filler_length(Processor::X86_64, bytes);
        assert_eq!(length(&[0xcc, 0xcc]), 1);
        assert_eq!(length(&[0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xc3]), 11);
        // A prefix that turns what follows into one instruction that does nothing.
        assert_eq!(length(&[0x4c, 0x90]), 0);
        assert_eq!(length(&[0x0f, 0x1f, 0x41, 0]), 0);
    }

    #[test]
    fn a_jump_may_lead_over_padding() {
        let jump = |bytes: &[u8]| jumped_over(Processor::X86_64, bytes, 0x1000);
        assert_eq!(jump(&[0xeb, 3, 0x66, 0x90, 0xcc, 0xc3]), Some((2, 3)));
        assert_eq!(jump(&[0xe9, 1, 0, 0, 0, 0x90]), Some((5, 1)));
        assert_eq!((jump(&[0xeb, 2, 0x90, 0xc3]), jump(&[0xeb, 3, 0x90, 0x90])), (None, None));
        assert_eq!((jump(&[0xeb, 0xfe, 0x90]), jump(&[0xe9, 1]), jump(&[0xeb, 0])), (None, None, None));
    }

    #[test]
    fn words_that_do_nothing_or_trap_are_padding() {
        let code = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let (trap, load) = (0xd420_0020, 0xf940_0109);
        let cases: [(Vec<u8>, u64, usize); 7] = [
            (code(&[NOP, 0, trap, load]), 0x10, 12),
            (code(&[load, NOP]), 0x10, 0),
            // Zeros of a word that is an instruction.
            (code(&[0, 0xd65f_0000]), 0x10, 4),
            ([&[0, 0][..], &code(&[NOP, load])].concat(), 0x12, 6),
            ([&[1, 0][..], &code(&[NOP])].concat(), 0x12, 0),
            ([&code(&[NOP])[..], &[0, 0]].concat(), 0x10, 6),
            (vec![], 0x10, 0),
        ];
        for (bytes, address, expected) in cases {
            assert_eq!(padding_length(Processor::Aarch64, &bytes, address), expected, "{bytes:02x?}");
        }
    }
}
