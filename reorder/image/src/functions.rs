//! Which byte ranges of the text are functions.
//!
//! Takes the parsed image; gives [`FunctionTable`]: the union of unwind entries and sized function symbols in
//! executable sections. Ranges with the same bounds are one function with several names; ranges that overlap
//! otherwise stay separate entries here and are glued into one unit by the analysis.

use rayon::prelude::*;

use crate::elf::eh_frame::{FrameEntry, frame_entries};
use crate::elf::file::ElfFile;
use crate::elf::symbol::{Symbol, SymbolTable};
use reorder_base::address::Address;
use reorder_base::error::Result;

/// Position in a [`FunctionTable`], hence in address order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionIndex(pub u32);

/// One function's range and where the knowledge comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// First byte.
    pub start: Address,
    /// One past the last byte.
    pub end: Address,
    /// An unwind entry has exactly this range.
    pub has_unwind_entry: bool,
    /// A sized function symbol has exactly this range.
    pub has_symbol: bool,
}

impl Function {
    /// Size in bytes; never zero.
    pub fn size(&self) -> u64 {
        self.end.distance_from(self.start)
    }
}

/// All functions, sorted by start, then end.
#[derive(Clone, Debug)]
pub struct FunctionTable<'data> {
    functions: Vec<Function>,
    names: Vec<(Address, &'data [u8])>,
    /// The unwind entries the table was built from, in section order.
    pub frame_entries: Vec<FrameEntry>,
    /// `.symtab`.
    pub symbols: SymbolTable<'data>,
    /// `.dynsym`.
    pub dynamic_symbols: SymbolTable<'data>,
}

impl<'data> FunctionTable<'data> {
    /// Collects the functions of all executable sections.
    ///
    /// # Errors
    /// Malformed unwind entries or symbol tables.
    pub fn collect(file: &ElfFile<'data>) -> Result<Self> {
        let frame_entries = frame_entries(file)?;
        let symbols = SymbolTable::parse(file, object::elf::SHT_SYMTAB.0)?;
        let dynamic_symbols = SymbolTable::parse(file, object::elf::SHT_DYNSYM.0)?;
        let code: Vec<(Address, Address)> = code_ranges(file);
        let inside = |start: Address, end: Address| {
            let after = code.partition_point(|range| range.0 <= start);
            after > 0 && start >= code[after - 1].0 && end <= code[after - 1].1
        };
        let mut functions = Vec::with_capacity(frame_entries.len());
        for entry in &frame_entries {
            if entry.size > 0 && inside(entry.start, entry.end()) {
                functions.push(Function {
                    start: entry.start,
                    end: entry.end(),
                    has_unwind_entry: true,
                    has_symbol: false,
                });
            }
        }
        let mut names = Vec::new();
        for symbol in symbols.iter().chain(dynamic_symbols.iter()) {
            if !is_defined_function(&symbol) {
                continue;
            }
            let Some(end) = symbol.value.0.checked_add(symbol.size).map(Address) else { continue };
            if symbol.size > 0 && inside(symbol.value, end) {
                functions.push(Function {
                    start: symbol.value,
                    end,
                    has_unwind_entry: false,
                    has_symbol: true,
                });
            }
            if !symbol.name.is_empty() && inside(symbol.value, symbol.value.plus(1)) {
                names.push((symbol.value, symbol.name));
            }
        }
        functions.par_sort_by_key(|function| (function.start, function.end));
        functions.dedup_by(|later, kept| {
            let same = later.start == kept.start && later.end == kept.end;
            if same {
                kept.has_unwind_entry |= later.has_unwind_entry;
                kept.has_symbol |= later.has_symbol;
            }
            same
        });
        functions.shrink_to_fit();
        names.par_sort_unstable();
        names.dedup();
        Ok(Self { functions, names, frame_entries, symbols, dynamic_symbols })
    }

    /// Functions that something else than an ELF image tells: start, size and name of each. Those of no size are only
    /// names; empty names are none.
    pub fn from_named_ranges(ranges: impl IntoIterator<Item = (Address, u64, &'data [u8])>) -> Self {
        let mut functions = Vec::new();
        let mut names = Vec::new();
        for (start, size, name) in ranges {
            if let Some(end) = start.0.checked_add(size).filter(|_| size > 0).map(Address) {
                functions.push(Function { start, end, has_unwind_entry: false, has_symbol: true });
            }
            if !name.is_empty() {
                names.push((start, name));
            }
        }
        functions.par_sort_by_key(|function| (function.start, function.end));
        functions.dedup();
        names.par_sort_unstable();
        names.dedup();
        let (symbols, dynamic_symbols) = (SymbolTable::empty(), SymbolTable::empty());
        Self { functions, names, frame_entries: Vec::new(), symbols, dynamic_symbols }
    }

    /// Number of functions.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether the image has no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// All functions in address order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (FunctionIndex, &Function)> {
        self.functions.iter().enumerate().map(|(index, function)| (FunctionIndex(index as u32), function))
    }

    /// The function with this index.
    pub fn get(&self, index: FunctionIndex) -> &Function {
        &self.functions[index.0 as usize]
    }

    /// The function after this one in address order.
    pub fn after(&self, index: FunctionIndex) -> Option<&Function> {
        self.functions.get(index.0 as usize + 1)
    }

    /// The last function, in address order, that starts at or before `address` and contains it.
    pub fn containing(&self, address: Address) -> Option<FunctionIndex> {
        let after = self.functions.partition_point(|function| function.start <= address);
        // Overlaps are rare and short: look back a bounded distance for one that still covers the address.
        (after.saturating_sub(8)..after)
            .rev()
            .find(|&index| self.functions[index].end > address)
            .map(|index| FunctionIndex(index as u32))
    }

    /// The first function that starts exactly at `address`.
    pub fn starting_at(&self, address: Address) -> Option<FunctionIndex> {
        let index = self.functions.partition_point(|function| function.start < address);
        (self.functions.get(index)?.start == address).then_some(FunctionIndex(index as u32))
    }

    /// All names of code at exactly `address`, sorted.
    pub fn names_at(&self, address: Address) -> impl Iterator<Item = &'data [u8]> + '_ {
        let first = self.names.partition_point(|(start, _)| *start < address);
        self.names[first..].iter().take_while(move |(start, _)| *start == address).map(|(_, name)| *name)
    }

    /// All (address, name) pairs of function symbols, sorted.
    pub fn names(&self) -> &[(Address, &'data [u8])] {
        &self.names
    }

    /// A function's first name, or its address for stripped functions.
    pub fn display_name(&self, index: FunctionIndex) -> String {
        let start = self.get(index).start;
        self.names_at(start)
            .next()
            .map_or_else(|| format!("function@{start}"), |name| String::from_utf8_lossy(name).into_owned())
    }
}

fn is_defined_function(symbol: &Symbol<'_>) -> bool {
    symbol.is_function() && symbol.defining_section().is_some()
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
