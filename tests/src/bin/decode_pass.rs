//! One linear decode of all executable sections of an image: the least that any rewriter of code must do.
//!
//! Argument: the image. Prints the number of instructions. `scripts/bench/apply` compares `apply` with it.

#![allow(clippy::print_stdout, reason = "the figure is the output")]

use std::error::Error;
use std::{env, fs};

use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::LittleEndian;
use object::elf::{FileHeader64, SHF_EXECINSTR, SHT_PROGBITS};
use object::read::elf::{FileHeader, SectionHeader};

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args_os().nth(1).ok_or("usage: decode_pass IMAGE")?;
    let bytes = fs::read(path)?;
    let header = FileHeader64::<LittleEndian>::parse(&*bytes)?;
    let endian = header.endian()?;
    let mut count = 0_u64;
    for section in header.sections(endian, &*bytes)?.iter() {
        let is_code =
            section.sh_type(endian) == SHT_PROGBITS && section.sh_flags(endian).0 & SHF_EXECINSTR.0 != 0;
        if !is_code {
            continue;
        }
        let code = section.data(endian, &*bytes)?;
        let mut decoder = Decoder::with_ip(64, code, section.sh_addr(endian), DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            count += 1;
        }
    }
    println!("{count}");
    Ok(())
}
