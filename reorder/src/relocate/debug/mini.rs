//! `.gnu_debugdata`: an image of its own that holds further symbols; their values and the entry point follow, in place.
//! Source: the GDB manual, "MiniDebugInfo".

use gimli::{LittleEndian, Reader};

use super::patch::Patch;
use super::pieces::Pieces;
use super::sections::{DebugSection, Slice};
use crate::error::Result;

/// Position of the entry point in the file header.
const ENTRY: usize = 24;
/// Bytes of a section header and of a symbol.
const HEADER: usize = 64;
const SYMBOL: usize = 24;

/// New values of the symbols that moved.
///
/// # Errors
/// What is no ELF image, or has tables outside of it.
pub fn move_mini(section: &DebugSection<'_>, pieces: &Pieces) -> Result<Vec<Patch>> {
    patches(Slice::new(&section.bytes, LittleEndian), pieces)
        .map_err(|error| section.damaged(0, format!("the symbols inside: {error}")))
}

fn patches(image: Slice<'_>, pieces: &Pieces) -> gimli::Result<Vec<Patch>> {
    let mut patches = Vec::new();
    // Debuggers take a different entry for a program that was loaded elsewhere.
    let mut header = image;
    header.skip(ENTRY)?;
    let entry = header.read_u64()?;
    patches.push(Patch { at: ENTRY, width: 8, value: pieces.start(entry) });
    header.skip(8)?;
    let table = header.read_u64()? as usize;
    header.skip(12)?;
    let count = usize::from(header.read_u16()?);
    for index in 0..count {
        let mut section = image;
        section.skip(table)?;
        section.skip(index * HEADER + 4)?;
        let kind = section.read_u32()?;
        section.skip(16)?;
        let (start, size) = (section.read_u64()? as usize, section.read_u64()? as usize);
        if kind != object::elf::SHT_SYMTAB.0 {
            continue;
        }
        let mut symbols = image;
        symbols.skip(start)?;
        let mut symbols = symbols.split(size)?;
        while symbols.len() >= SYMBOL {
            let at = symbols.offset_from(image) + 8;
            let mut symbol = symbols.split(SYMBOL)?;
            symbol.skip(4)?;
            let kind = symbol.read_u8()? & 0xf;
            symbol.skip(1)?;
            let home = symbol.read_u16()?;
            let value = symbol.read_u64()?;
            let is_code = home != object::elf::SHN_UNDEF.0
                && home != object::elf::SHN_ABS.0
                && !matches!(kind, STT_SECTION | STT_TLS)
                && pieces.is_code(value);
            let new = pieces.start(value);
            if is_code && new != value {
                patches.push(Patch { at, width: 8, value: new });
            }
        }
    }
    Ok(patches)
}

const STT_SECTION: u8 = 3;
const STT_TLS: u8 = 6;
