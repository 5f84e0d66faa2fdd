//! Recognising the filler that assemblers and linkers put between functions.

use iced_x86::{Code, Decoder, DecoderOptions, Mnemonic};

/// Length of the filler at the start of `bytes`: `int3`, zero bytes and no-operations of any length.
///
/// Zero bytes count because linkers fill with them; as instructions they would be unreachable additions to memory.
pub fn filler_length(bytes: &[u8]) -> usize {
    walk_filler(bytes).1
}

/// Like [`filler_length`], but zero bytes right before other content are not counted: they may be part of it.
pub fn padding_length(bytes: &[u8]) -> usize {
    let (certain, length) = walk_filler(bytes);
    if length == bytes.len() { length } else { certain }
}

/// Position after the last filler that is not a zero byte, and after all filler.
fn walk_filler(bytes: &[u8]) -> (usize, usize) {
    let (mut certain, mut position) = (0, 0);
    while position < bytes.len() {
        match bytes[position] {
            0x00 => {
                position += 1;
                continue;
            }
            0xcc | 0x90 => position += 1,
            _ => {
                let mut decoder = Decoder::new(64, &bytes[position..], DecoderOptions::NONE);
                let instruction = decoder.decode();
                if !is_no_operation(&instruction) {
                    break;
                }
                position += instruction.len();
            }
        }
        certain = position;
    }
    (certain, position)
}

/// An instruction that does nothing and that only padding uses: `nop` in all its forms, `xchg ax,ax`.
pub(crate) fn is_no_operation(instruction: &iced_x86::Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Nop => true,
        Mnemonic::Xchg => {
            matches!(instruction.code(), Code::Xchg_r16_AX | Code::Xchg_r64_RAX)
                && instruction.op0_register() == instruction.op1_register()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{filler_length, padding_length};

    #[test]
    fn assembler_and_linker_fillers_are_padding_to_the_last_byte() {
        for filler in [
            &[0xcc; 5][..],
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0x40, 0x00],
            &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
            &[0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
            &[0; 9],
        ] {
            assert_eq!(padding_length(filler), filler.len(), "{filler:x?}");
        }
    }

    #[test]
    fn code_ends_the_padding() {
        assert_eq!(padding_length(&[0x90, 0xc3, 0x90]), 1);
        assert_eq!(padding_length(&[0xb8, 1, 2, 3, 4]), 0);
        assert_eq!((padding_length(&[0xcc, 0, 0xc3]), filler_length(&[0xcc, 0, 0xc3])), (1, 2));
    }
}
