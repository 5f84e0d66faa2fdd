//! `.gnu_debugdata`: an embedded image with further symbols; their values and the entry point are updated in place.
//! Source: the GDB manual, "MiniDebugInfo".

use gimli::{LittleEndian, Reader};

use super::patch::Patch;
use super::pieces::Pieces;
use super::sections::{DebugSection, Slice, cannot_update};
use reorder_base::error::Result;

/// Positions in the file header: the entry point, where section headers are, how many.
const ENTRY: usize = 24;
const TABLE: usize = 40;
const COUNT: usize = 60;
/// Bytes of a section header and of a symbol.
const HEADER: usize = 64;
const SYMBOL: usize = 24;

/// New values of the entry point and of the symbols that moved.
///
/// # Errors
/// Bytes that are not an ELF image, or tables outside of it; R10 for several tables of symbols, which may share their bytes.
pub fn move_mini(section: &DebugSection<'_>, pieces: &Pieces) -> Result<Vec<Patch>> {
    let image = Slice::new(&section.bytes, LittleEndian);
    let broken = |error| section.damaged(0, format!("the symbols inside: {error}"));
    // Debuggers take a different entry point as a sign that the program was loaded elsewhere.
    let entry = entry(image).map_err(broken)?;
    let mut patches = vec![Patch { at: ENTRY, width: 8, value: pieces.start(entry) }];
    match tables(image).map_err(broken)?.as_slice() {
        [] => {}
        [table] => move_symbols(image, *table, pieces, &mut patches).map_err(broken)?,
        _ => return Err(cannot_update(".gnu_debugdata has more than one table of symbols").into()),
    }
    Ok(patches)
}

fn entry(mut image: Slice<'_>) -> gimli::Result<u64> {
    image.skip(ENTRY)?;
    image.read_u64()
}

/// The tables of symbols.
fn tables(image: Slice<'_>) -> gimli::Result<Vec<Slice<'_>>> {
    let mut header = image;
    header.skip(TABLE)?;
    let start = header.read_u64()? as usize;
    header.skip(COUNT - TABLE - 8)?;
    let mut headers = image;
    let mut tables = Vec::new();
    for index in 0..header.read_u16()? {
        if index == 0 {
            headers.skip(start)?;
        }
        let mut section = headers.split(HEADER)?;
        section.skip(4)?;
        let kind = section.read_u32()?;
        section.skip(16)?;
        let (start, size) = (section.read_u64()? as usize, section.read_u64()? as usize);
        if kind == object::elf::SHT_SYMTAB.0 {
            let mut table = image;
            table.skip(start)?;
            tables.push(table.split(size)?);
        }
    }
    Ok(tables)
}

fn move_symbols(
    image: Slice<'_>,
    mut symbols: Slice<'_>,
    pieces: &Pieces,
    patches: &mut Vec<Patch>,
) -> gimli::Result<()> {
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
    Ok(())
}

const STT_SECTION: u8 = 3;
const STT_TLS: u8 = 6;
