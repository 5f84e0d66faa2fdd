//! The functions of an image with all names under which traces may know them, and the symbols as the linker spells them.
//!
//! Takes the headers; gives [`CodeNames`]. It reads images of any kind and processor, also those that cannot be relocated:
//! damaged names are left out, unless a whole table cannot be read.
//!
//! A function reaches from its symbol to the next one, to the next of `LC_FUNCTION_STARTS`, or to the end of its section.
//! Symbols inside functions that `LC_FUNCTION_STARTS` lists are names without a size.

use std::borrow::Cow;
use std::ops::Range;

use object::LittleEndian;
use object::macho::MachHeader64;

use super::headers::Tables;
use super::section::{Section, Segment, kind};
use super::symbols::{DebugEntry, Symbols};
use crate::functions::FunctionTable;
use reorder_base::address::Address;

/// The functions of an image and their names.
pub struct CodeNames<'data> {
    /// First address and one past the last, of each section of instructions without the linker's stubs, sorted.
    pub code: Vec<(Address, Address)>,
    /// All symbols of code, as the linker spells them.
    pub symbols: Vec<CodeSymbol<'data>>,
    ranges: Vec<(Address, u64, &'data [u8])>,
    /// Names that no symbol has, with their addresses.
    aliases: Vec<(Address, Vec<u8>)>,
}

impl<'data> CodeNames<'data> {
    /// Reads the tables of the image in `bytes`.
    pub(super) fn read(
        bytes: &'data [u8],
        segments: &[Segment<'data>],
        sections: &[Section<'data>],
        tables: Tables<'data>,
    ) -> object::read::Result<Self> {
        // By number, as symbols name them.
        let sections: Vec<Option<(Address, Address)>> = sections.iter().map(range_of_code).collect();
        let mut code: Vec<(Address, Address)> = sections.iter().copied().flatten().collect();
        code.sort_unstable();
        let is_code = |address: Address| {
            let after = code.partition_point(|(start, _)| *start <= address);
            after > 0 && address < code[after - 1].1
        };
        // A symbol for the end of another section may have the address of a function.
        let is_in_code = |number: u8, address: Address| {
            let section = sections.get(usize::from(number).wrapping_sub(1)).copied().flatten();
            section.is_some_and(|(start, end)| (start..end).contains(&address))
        };
        let mut starts = Vec::new();
        if let Some(command) = tables.function_starts {
            let text = segments.iter().rfind(|segment| segment.name == b"__TEXT");
            let base = text.map_or(0, |segment| segment.address.0);
            for start in command.function_starts(LittleEndian, bytes, base)? {
                starts.push(Address(start?));
            }
        }
        starts.retain(|start| is_code(*start));
        starts.sort_unstable();
        let mut symbols = match tables.symbols {
            Some(table) => {
                let table = table.symbols::<MachHeader64<LittleEndian>, _>(LittleEndian, bytes)?;
                Symbols::read(table.symbols(), table.strings(), is_in_code)
            }
            None => Symbols::default(),
        };
        symbols.debug_map.sort_by_key(|entry| entry.address);
        let object_of = |address: Address| {
            let first = symbols.debug_map.partition_point(|entry| entry.address < address);
            symbols.debug_map.get(first).filter(|entry| entry.address == address).map(|entry| entry.object)
        };
        let named = symbols.code.iter();
        let code_symbols = named.map(|&(address, name)| CodeSymbol {
            address,
            name: name.into(),
            object: object_of(address),
        });
        Ok(Self {
            symbols: code_symbols.collect(),
            ranges: ranges(&code, &starts, &symbols.code),
            aliases: aliases(&symbols),
            code,
        })
    }

    /// The functions. Their names are those of the symbol table, the same without the underscore at the beginning, and of
    /// the debug map's functions `file.c;name` and `file.c:name`, as profiles have them.
    #[must_use]
    pub fn functions(&self) -> FunctionTable<'_> {
        FunctionTable::from_named_ranges(self.named_ranges())
    }

    /// The functions that start in `range`.
    #[must_use]
    pub fn functions_within(&self, range: Range<Address>) -> FunctionTable<'_> {
        FunctionTable::from_named_ranges(self.named_ranges().filter(|(start, _, _)| range.contains(start)))
    }

    fn named_ranges(&self) -> impl Iterator<Item = (Address, u64, &[u8])> {
        let aliases = self.aliases.iter().map(|(address, name)| (*address, 0, name.as_slice()));
        self.ranges.iter().copied().chain(aliases)
    }
}

/// A symbol of code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeSymbol<'data> {
    /// Its address.
    pub address: Address,
    /// As the linker spells it, usually with a leading underscore.
    pub name: Cow<'data, [u8]>,
    /// The path of its object file, where that is known.
    pub object: Option<&'data [u8]>,
}

/// The name without the underscore that compilers put before every C name.
fn bare(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(b"_").filter(|bare| !bare.is_empty())
}

fn aliases(symbols: &Symbols<'_>) -> Vec<(Address, Vec<u8>)> {
    let bares = symbols.code.iter().filter_map(|&(address, name)| Some((address, bare(name)?.to_vec())));
    let in_file = |entry: &DebugEntry<'_>| {
        let name = bare(entry.name).unwrap_or(entry.name);
        let leaf = entry.source.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let mut names = Vec::new();
        for file in [entry.source, leaf] {
            if !file.is_empty() {
                names.push([file, b";", name].concat());
                names.push([file, b":", name].concat());
            }
        }
        let address = entry.address;
        names.into_iter().map(move |name| (address, name)).collect::<Vec<_>>()
    };
    bares.chain(symbols.debug_map.iter().flat_map(in_file)).collect()
}

/// Start, size and name of each function, and of each symbol inside one, with size 0.
fn ranges<'data>(
    code: &[(Address, Address)],
    starts: &[Address],
    symbols: &[(Address, &'data [u8])],
) -> Vec<(Address, u64, &'data [u8])> {
    let mut boundaries: Vec<Address> = starts.to_vec();
    let is_start = |address: &Address| starts.is_empty() || starts.binary_search(address).is_ok();
    boundaries.extend(symbols.iter().map(|(address, _)| *address).filter(is_start));
    boundaries.extend(code.iter().map(|(_, end)| *end));
    boundaries.sort_unstable();
    boundaries.dedup();
    let mut ranges: Vec<_> = symbols
        .iter()
        .map(|&(address, name)| {
            let next = boundaries.partition_point(|boundary| *boundary <= address);
            let end = boundaries.get(next).filter(|_| is_start(&address));
            (address, end.map_or(0, |end| end.distance_from(address)), name)
        })
        .collect();
    // Functions whose symbol was stripped.
    let mut named: Vec<Address> = symbols.iter().map(|(address, _)| *address).collect();
    named.sort_unstable();
    let nameless = starts.iter().filter(|start| named.binary_search(start).is_err());
    ranges.extend(nameless.filter_map(|&start| {
        let end = boundaries.get(boundaries.partition_point(|boundary| *boundary <= start))?;
        Some((start, end.distance_from(start), &b""[..]))
    }));
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

/// The addresses of a section of instructions, unless they are the linker's stubs.
fn range_of_code(section: &Section<'_>) -> Option<(Address, Address)> {
    let end = Address(section.address.0.checked_add(section.size)?);
    let is_code = section.is_code() && section.kind() != kind::STUBS && !section.name.ends_with(b"stubs");
    (is_code && section.address < end).then_some((section.address, end))
}
