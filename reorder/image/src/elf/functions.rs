//! Which byte ranges of an ELF image are functions.
//!
//! Takes the parsed image; gives [`ElfFunctions`]: the union of unwind entries and sized function symbols in executable
//! sections, and beside it the tables that they come from.

use std::ops::Range;

use crate::basic_blocks::LoadedBytes;
use crate::elf::eh_frame::{FrameEntry, frame_entries};
use crate::elf::file::ElfFile;
use crate::elf::found_functions;
use crate::elf::symbol::SymbolTable;
use crate::functions::{Function, FunctionTable, LocalName};
use reorder_base::address::Address;
use reorder_base::error::Result;

/// The functions of an ELF image, and what only ELF has.
#[derive(Clone, Debug)]
pub struct ElfFunctions<'data> {
    /// The functions.
    pub table: FunctionTable<'data>,
    /// The unwind entries, in section order.
    pub frame_entries: Vec<FrameEntry>,
    /// `.symtab`.
    pub symbols: SymbolTable<'data>,
    /// `.dynsym`.
    pub dynamic_symbols: SymbolTable<'data>,
    /// Functions that no table describes, found by following control; ascending and disjoint.
    pub found: Vec<Range<Address>>,
    /// Where functions were looked for: places in code that known code reads or writes, ascending.
    pub read: Vec<Address>,
}

impl<'data> ElfFunctions<'data> {
    /// Collects the functions of all executable sections.
    ///
    /// # Errors
    /// Malformed unwind entries or symbol tables.
    pub fn collect(file: &ElfFile<'data>) -> Result<Self> {
        Self::collect_with(file, &[])
    }

    /// Adds those of the `learned` functions, which a recorded run was seen to enter, that fit; changes nothing where most of the
    /// code of `file` is described.
    ///
    /// # Errors
    /// Malformed unwind entries or symbol tables.
    pub fn with_learned(
        self,
        file: &ElfFile<'data>,
        learned: impl IntoIterator<Item = Range<Address>>,
    ) -> Result<Self> {
        let is_unknown = |range: &Range<Address>| self.table.starting_at(range.start).is_none();
        let unknown: Vec<_> = learned.into_iter().filter(is_unknown).collect();
        match self.found.is_empty() || unknown.is_empty() {
            true => Ok(self),
            false => Self::collect_with(file, &unknown),
        }
    }

    /// As [`Self::collect`], with those of the `learned` functions that fit.
    ///
    /// # Errors
    /// Malformed unwind entries or symbol tables.
    pub fn collect_with(file: &ElfFile<'data>, learned: &[Range<Address>]) -> Result<Self> {
        let frame_entries = frame_entries(file)?;
        let symbols = SymbolTable::parse(file, object::elf::SHT_SYMTAB.0)?;
        let dynamic_symbols = SymbolTable::parse(file, object::elf::SHT_DYNSYM.0)?;
        let code: Vec<(Address, Address)> = code_ranges(file);
        let inside = |start: Address, end: Address| {
            let after = code.partition_point(|range| range.0 <= start);
            after > 0 && start >= code[after - 1].0 && end <= code[after - 1].1
        };
        let mut functions = Vec::with_capacity(frame_entries.len());
        for entry in frame_entries.iter().filter(|entry| inside(entry.start, entry.end())) {
            let (start, end) = (entry.start, entry.end());
            functions.push(Function { start, end, has_unwind_entry: true });
        }
        let mut names = Vec::new();
        let defined = symbols.iter().chain(dynamic_symbols.iter());
        for symbol in defined.filter(|symbol| symbol.is_function() && symbol.defining_section().is_some()) {
            let start = symbol.value;
            let Some(end) = start.0.checked_add(symbol.size).map(Address) else { continue };
            if inside(start, end) {
                functions.push(Function { start, end, has_unwind_entry: false });
            }
            if inside(start, start.plus(1)) {
                names.push((start, symbol.name));
            }
        }
        let found = found_functions::find(file, &functions, &dynamic_symbols, learned)?;
        functions.extend(found.functions.iter().map(|range| Function {
            start: range.start,
            end: range.end,
            has_unwind_entry: false,
        }));
        let table = FunctionTable::new(functions, names, local_names(&symbols));
        let table = table.with_code(LoadedBytes::new(file), file.bytes);
        let found_functions::Found { functions: found, read } = found;
        Ok(Self { table, frame_entries, symbols, dynamic_symbols, found, read })
    }
}

/// Local functions, which follow the symbol of their source file.
fn local_names<'data>(symbols: &SymbolTable<'data>) -> Vec<LocalName<'data>> {
    let mut file: &[u8] = b"";
    let mut locals = Vec::new();
    for symbol in symbols.iter() {
        if symbol.kind == object::elf::STT_FILE.0 {
            file = symbol.name;
        } else if symbol.binding == object::elf::STB_LOCAL.0 && symbol.is_function() {
            locals.push(LocalName { start: symbol.value, name: symbol.name, file });
        }
    }
    locals
}

/// Executable, loaded sections with contents that hold ordinary functions, sorted: not the linker's stubs.
fn code_ranges(file: &ElfFile<'_>) -> Vec<(Address, Address)> {
    let mut ranges: Vec<_> = file
        .sections
        .iter()
        .filter(|section| section.is_loaded() && section.is_executable() && section.has_bytes())
        .filter(|section| !is_linker_stub_section(section.name))
        .map(|section| (section.address, section.end()))
        .collect();
    ranges.sort_unstable();
    ranges
}

/// Sections that linkers or the C runtime fill with code of their own: they never move.
pub fn is_linker_stub_section(name: &[u8]) -> bool {
    matches!(name, b".plt" | b".plt.got" | b".plt.sec" | b".plt.bnd" | b".iplt" | b".init" | b".fini")
}
