//! Section headers of an image with copies, and their tables, all appended to the old file.

use std::collections::BTreeMap;

use super::placed::Copies;
use crate::debug::sections::Edits;
use reorder_base::address::NewAddress;
use reorder_base::hint::Hint;
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::analysis::obligations::COPIES;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::kept_relocations::is_table;
use reorder_image::elf::section::Section;
use reorder_image::functions::FunctionTable;

/// Bytes of a section header.
pub(super) const HEADER: usize = 64;
/// Bytes of a symbol.
const SYMBOL: usize = 24;
/// Positions in the file header: where section headers are, how many, and which holds their names.
const TABLE_FIELD: usize = 40;
const COUNT_FIELD: usize = 60;
const NAMES_FIELD: usize = 62;

/// Name of the section that lists the copies and what the file held before.
pub(super) const RECORD: &str = ".reorder.clones";
/// Name of the section with the exception tables of copies.
pub(super) const EXCEPTIONS: &str = ".gcc_except_table.reorder";
/// Suffix of the copies' names.
pub(crate) const SUFFIX: &str = ".reorder";

/// Where the contents of a section are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    /// Position in the file.
    pub offset: u64,
    /// Its address.
    pub address: NewAddress,
    /// Bytes.
    pub size: u64,
}

/// Relocations that the linker kept (`--emit-relocs`) describe the code before it led to copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeptRelocations {
    /// An image that has some is refused.
    #[default]
    Refuse,
    /// They are left out: their section headers become empty ones, so that others keep their numbers.
    LeaveOut,
}

/// The sections of `file` with relocations that the linker kept, in either form.
pub(super) fn kept_relocations<'file, 'data>(
    file: &'file ElfFile<'data>,
) -> impl Iterator<Item = &'file Section<'data>> {
    file.sections.iter().filter(|section| is_table(section) && !section.is_loaded() && section.size > 0)
}

/// The section headers, to which two sections will be added.
pub(super) struct Sections<'run> {
    file: &'run ElfFile<'run>,
    headers: Vec<u8>,
    names: &'run Section<'run>,
    /// New contents of string tables.
    strings: BTreeMap<usize, Vec<u8>>,
}

impl<'run> Sections<'run> {
    /// Takes the headers of `file`.
    ///
    /// # Errors
    /// Refuses (R13) more sections than the file header can count.
    pub(super) fn new(file: &'run ElfFile<'run>) -> Result<Self, Refusal> {
        let first = file.sections.first().map_or(0, |section| section.header_offset.0 as usize);
        let headers = file.bytes.get(first..first + file.sections.len() * HEADER);
        let index = u16::from_le_bytes([file.bytes[NAMES_FIELD], file.bytes[NAMES_FIELD + 1]]);
        let names = file.sections.get(usize::from(index)).filter(|_| file.sections.len() + 3 < 0xff00);
        let (Some(headers), Some(names)) = (headers, names) else {
            let what = "the image has more sections than its header counts, or none with their names";
            let otherwise = Some("relink with fewer sections");
            return Err(Refusal::new(RefusalCode::Copies, what, Hint::LeaveOutCopies { otherwise }));
        };
        let mut headers = headers.to_vec();
        // None are left unless they are to be left out.
        for section in kept_relocations(file) {
            let start = section.index.0 as usize * HEADER;
            headers[start..start + HEADER].fill(0);
        }
        Ok(Self { file, headers, names, strings: BTreeMap::new() })
    }

    /// The number that the section of copies will have.
    pub(super) fn index_of_copies(&self) -> u16 {
        self.file.sections.len() as u16
    }

    /// Adds a string to the table of section `index`; gives its position.
    fn string(&mut self, index: usize, text: &[u8]) -> u32 {
        let file = self.file;
        let table = self.strings.entry(index).or_insert_with(|| {
            file.sections.get(index).map_or_else(Vec::new, |section| file.section_bytes(section).to_vec())
        });
        let position = table.len() as u32;
        table.extend_from_slice(text);
        table.push(0);
        position
    }

    fn put(&mut self, index: usize, field: usize, value: u64) {
        self.headers[index * HEADER + field..][..8].copy_from_slice(&value.to_le_bytes());
    }

    fn put_contents(&mut self, index: usize, offset: u64, size: u64) {
        self.put(index, 24, offset);
        self.put(index, 32, size);
    }

    /// Updates the place of a loaded section of this name.
    pub(super) fn relocate(&mut self, name: &[u8], placed: Placed) {
        let Some(section) = self.file.section(name) else { return };
        let index = section.index.0 as usize;
        self.put(index, 16, placed.address.0);
        self.put_contents(index, placed.offset, placed.size);
    }

    fn add(&mut self, name: &str, flags: u64, alignment: u64, placed: Placed) {
        let names = self.names.index.0 as usize;
        let name = self.string(names, name.as_bytes());
        let index = self.headers.len() / HEADER;
        self.headers.resize(self.headers.len() + HEADER, 0);
        self.put(index, 0, u64::from(object::elf::SHT_PROGBITS.0) << 32 | u64::from(name));
        self.put(index, 8, flags);
        self.put(index, 16, placed.address.0);
        self.put_contents(index, placed.offset, placed.size);
        self.put(index, 48, alignment);
    }

    /// Symbols for the copies, where the image has a table of symbols: each fragment has the name of its function and a
    /// suffix, and from the second with this name on a number, as global symbols must have names of their own. Global they
    /// are since local ones must precede all others; they are hidden.
    fn symbols(&mut self, functions: &FunctionTable<'_>, copies: &Copies<'_>) -> Option<(usize, Vec<u8>)> {
        let file = self.file;
        let section = file.sections.iter().find(|section| section.kind == object::elf::SHT_SYMTAB.0)?;
        let strings = section.link as usize;
        let mut table = file.section_bytes(section).to_vec();
        let copied = self.index_of_copies();
        let mut numbers: BTreeMap<&[u8], u32> = BTreeMap::new();
        for (fragment, placed) in copies.fragments.iter().zip(&copies.placed) {
            let original = fragment.original(copies.bodies).start;
            let starts = &copies.bodies[fragment.body].function_starts;
            let after = starts.partition_point(|start| *start <= original);
            let Some(&start) = starts[..after].last() else { continue };
            let Some(name) = functions.names_at(start).next() else { continue };
            let number = numbers.entry(name).and_modify(|number| *number += 1).or_default();
            let suffix = if *number == 0 { SUFFIX.to_owned() } else { format!("{SUFFIX}.{number}") };
            let name = self.string(strings, &[name, suffix.as_bytes()].concat());
            let mut symbol = [0; SYMBOL];
            symbol[..4].copy_from_slice(&name.to_le_bytes());
            symbol[4] = object::elf::STB_GLOBAL.0 << 4 | object::elf::STT_FUNC.0;
            symbol[5] = object::elf::STV_HIDDEN.0;
            symbol[6..8].copy_from_slice(&copied.to_le_bytes());
            symbol[8..16].copy_from_slice(&placed.start.0.to_le_bytes());
            symbol[16..24].copy_from_slice(&u64::from(placed.arranged.size()).to_le_bytes());
            table.extend_from_slice(&symbol);
        }
        Some((section.index.0 as usize, table))
    }

    /// Adds everything that is not loaded to the end of `output`: tables, the section headers, the record, which is made
    /// from the output so far.
    pub(super) fn finish(
        mut self,
        functions: &FunctionTable<'_>,
        copies: &Copies<'_>,
        (copied, exceptions): (Placed, Option<Placed>),
        debug: Edits,
        record: impl FnOnce(&[u8]) -> Vec<u8>,
        output: &mut Vec<u8>,
    ) {
        let flags = object::elf::SHF_ALLOC.0 | object::elf::SHF_EXECINSTR.0;
        self.add(COPIES, flags, 16, copied);
        if let Some(exceptions) = exceptions {
            self.add(EXCEPTIONS, object::elf::SHF_ALLOC.0, 1, exceptions);
        }
        let added = debug.added.into_iter().map(|(name, bytes)| {
            let index = self.headers.len() / HEADER;
            self.add(name, 0, 1, Placed { offset: 0, address: NewAddress(0), size: 0 });
            (index, bytes)
        });
        let added: Vec<(usize, Vec<u8>)> = added.collect();
        let debug = debug.contents.into_iter().map(|(index, bytes)| (index.0 as usize, bytes)).chain(added);
        // Its place and size are known below; names come first.
        let of_record = self.headers.len() / HEADER;
        self.add(RECORD, 0, 8, Placed { offset: 0, address: NewAddress(0), size: 0 });
        let symbols = self.symbols(functions, copies);
        let strings = std::mem::take(&mut self.strings);
        for (index, bytes) in symbols.into_iter().chain(strings).chain(debug) {
            let offset = align(output, 8);
            self.put_contents(index, offset, bytes.len() as u64);
            output.extend_from_slice(&bytes);
        }
        let table = align(output, 8);
        output[TABLE_FIELD..TABLE_FIELD + 8].copy_from_slice(&table.to_le_bytes());
        let count = (self.headers.len() / HEADER) as u16;
        output[COUNT_FIELD..COUNT_FIELD + 2].copy_from_slice(&count.to_le_bytes());
        let (start, size) = (output.len(), self.headers.len());
        output.resize(start + size, 0);
        let record = record(output);
        let offset = align(output, 8);
        self.put_contents(of_record, offset, record.len() as u64);
        output.extend_from_slice(&record);
        output[start..start + size].copy_from_slice(&self.headers);
    }
}

/// Pads to a multiple of `alignment`; gives the new length.
fn align(output: &mut Vec<u8>, alignment: usize) -> u64 {
    output.resize(output.len().next_multiple_of(alignment), 0);
    output.len() as u64
}
