//! Where an output with copies can be made wrong: its record, sections, instructions and unwind entries.

use std::ops::Range;

use iced_x86::{Code, ConstantOffsets, Decoder, DecoderOptions, Instruction};
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection};

/// The copy of a fragment, as the record tells.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    /// First address of the original.
    pub original: u64,
    /// First address of the copy.
    pub address: u64,
    /// Bytes in the file.
    pub bytes: Range<usize>,
}

/// A section with contents.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Its name.
    pub name: String,
    /// Where it is in memory.
    pub address: u64,
    /// Its bytes in the file.
    pub bytes: Range<usize>,
}

/// An instruction of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    /// Its first byte in the file.
    pub at: usize,
    /// Decoded at its address.
    pub instruction: Instruction,
    /// Where its numbers are.
    pub offsets: ConstantOffsets,
}

impl Site {
    /// Whether it is a direct branch of one condition or its opposite.
    pub(super) fn is_conditional(&self) -> bool {
        self.instruction.is_jcc_short_or_near()
    }

    /// Whether it is a direct jump, conditional or not.
    pub(super) fn is_jump(&self) -> bool {
        self.is_conditional()
            || matches!(self.instruction.code(), Code::Jmp_rel8_64 | Code::Jmp_rel32_64)
            || self.instruction.is_jcx_short()
            || self.instruction.is_loop()
            || self.instruction.is_loopcc()
    }
}

/// Sections with contents in the file.
///
/// # Errors
/// When `bytes` is not an ELF image of 64 bits.
pub(super) fn parts(bytes: &[u8]) -> object::Result<Vec<Part>> {
    let file = ElfFile64::<LittleEndian>::parse(bytes)?;
    let part = |section: object::read::elf::ElfSection64<'_, '_, LittleEndian>| {
        let (start, size) = section.file_range()?;
        let name = section.name().unwrap_or_default().to_owned();
        Some(Part { name, address: section.address(), bytes: start as usize..(start + size) as usize })
    };
    Ok(file.sections().filter_map(part).collect())
}

/// What a record of copies lists.
pub(super) struct Listed {
    /// Copies of fragments.
    pub copies: Vec<Copy>,
    /// Where copies of jump tables are in the file, ascending.
    pub jump_tables: Vec<Range<usize>>,
    /// Runs of bytes that differ from the original.
    pub runs: Vec<Range<usize>>,
}

/// The contents of the record at `record`, of copies in the section `home`.
pub(super) fn read_record(bytes: &[u8], record: &Part, home: &Part) -> Option<Listed> {
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let mut at = record.bytes.start + 16;
    let mut take = || {
        let value = number(at);
        at += 8;
        value
    };
    let mut copies = Vec::new();
    for _ in 0..take()? {
        let (original, address, _, size) = (take()?, take()?, take()?, take()?);
        let start = home.bytes.start + usize::try_from(address.checked_sub(home.address)?).ok()?;
        copies.push(Copy { original, address, bytes: start..start + usize::try_from(size).ok()? });
    }
    let mut jump_tables = Vec::new();
    for _ in 0..take()? {
        let (_, address, entry, count) = (take()?, take()?, take()?, take()?);
        let start = home.bytes.start + usize::try_from(address.checked_sub(home.address)?).ok()?;
        jump_tables.push(start..start + usize::try_from(entry * count).ok()?);
    }
    jump_tables.sort_unstable_by_key(|table| table.start);
    let count = take()?;
    let mut runs = Vec::new();
    for _ in 0..count {
        let (start, size) = (number(at)? as usize, number(at + 8)? as usize);
        runs.push(start..start + size);
        at += 16 + size;
    }
    Some(Listed { copies, jump_tables, runs })
}

/// The instructions of a copy.
pub(super) fn instructions(bytes: &[u8], copy: &Copy) -> Vec<Site> {
    let code = bytes.get(copy.bytes.clone()).unwrap_or_default();
    let mut decoder = Decoder::with_ip(64, code, copy.address, DecoderOptions::NONE);
    let mut sites = Vec::new();
    while decoder.can_decode() {
        let at = copy.bytes.start + decoder.position();
        let instruction = decoder.decode();
        let offsets = decoder.get_constant_offsets(&instruction);
        sites.push(Site { at, instruction, offsets });
    }
    sites
}

/// Starts of the entries of a table `.eh_frame`, without common entries.
pub(super) fn unwind_entries(bytes: &[u8], table: &Part) -> Vec<Range<usize>> {
    let mut at = table.bytes.start;
    let mut entries = Vec::new();
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    while let (Some(length @ 1..0xffff_fff0), Some(parent)) = (word(at), word(at + 4)) {
        let end = at + 4 + length as usize;
        if end > table.bytes.end {
            break;
        }
        if parent != 0 {
            entries.push(at..end);
        }
        at = end;
    }
    entries
}
