//! Mach-O images for arm64 and x86-64, as far as an order file needs them.
//!
//! In: the bytes of a program or library, universal or not. Out: [`MachOImage`], its functions with all names under which
//! traces may know them, the symbols as the linker spells them, and its UUID. Nothing here is meant for rewriting: only
//! the tables that are needed are read.
//!
//! A function reaches from its symbol to the next one, to the next of `LC_FUNCTION_STARTS`, or to the end of its section.
//! Symbols inside of functions that `LC_FUNCTION_STARTS` lists are names without a size.

pub mod analysis;
pub mod checks;
pub mod data_in_code;
pub mod eh_frame;
pub mod entry;
pub mod export_trie;
pub mod file;
pub mod fixups;
pub mod function_starts;
pub mod init_offsets;
pub mod landing_pads;
#[cfg(any(test, feature = "test-support"))]
pub mod linked;
pub mod load_command;
pub mod method_lists;
pub mod reference;
pub mod section;
pub mod signature;
mod slices;
pub mod swift;
pub mod symbol_table;
mod symbols;
#[cfg(test)]
mod tests;
pub mod universal;
pub mod unwind_info;

use std::borrow::Cow;
use std::ops::Range;

use object::LittleEndian;
use object::macho::{MH_OBJECT, MachHeader64, SymtabCommand};
use object::read::macho::{MachHeader as _, Section as _, Segment as _};

use crate::functions::FunctionTable;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};

pub use slices::is_macho;
use symbols::{DebugEntry, Symbols};

/// The name that linkers have for the processor of the one image in `bytes`.
///
/// # Errors
/// Files that are no Mach-O, have several images, or none for a known processor.
pub fn architecture(bytes: &[u8]) -> Result<&'static str> {
    Ok(slices::choose(bytes, None)?.0)
}

/// What order files need of an image.
pub struct MachOImage<'data> {
    /// Of a universal file the bytes of this image.
    pub bytes: &'data [u8],
    /// As linkers name it: `arm64`, `arm64e`, `x86_64`.
    pub architecture: &'static str,
    /// Tells builds apart.
    pub uuid: Option<[u8; 16]>,
    /// First address and the one behind the last, of each section of instructions, sorted.
    pub code: Vec<(Address, Address)>,
    ranges: Vec<(Address, u64, &'data [u8])>,
    /// Names that no symbol has, with the address each stands for.
    aliases: Vec<(Address, Vec<u8>)>,
    symbols: Vec<CodeSymbol<'data>>,
}

impl<'data> MachOImage<'data> {
    /// Reads the image for `architecture`, or the only one.
    ///
    /// # Errors
    /// Files that are no Mach-O, object files, files without an image that fits, damaged headers and tables.
    pub fn parse(bytes: &'data [u8], architecture: Option<&str>) -> Result<Self> {
        let (architecture, image) = slices::choose(bytes, architecture)?;
        // An image without bytes may lie anywhere in memory.
        let start = if image.is_empty() { 0 } else { image.as_ptr() as usize - bytes.as_ptr() as usize };
        let tables = Tables::read(image).map_err(|error| {
            Error::malformed(start as u64, format!("the image for {architecture}: {error}"))
        })?;
        if tables.is_object_file {
            return Err(Error::usage("this is an object file")
                .with_hint("link it first, then give the program or library"));
        }
        let Tables { uuid, code, starts, symbols, .. } = tables;
        let ranges = ranges(&code, &starts, &symbols.code);
        let aliases = aliases(&symbols);
        let object_of = |address: Address| {
            let first = symbols.debug_map.partition_point(|entry| entry.address < address);
            symbols.debug_map.get(first).filter(|entry| entry.address == address).map(|entry| entry.object)
        };
        let symbols = symbols
            .code
            .iter()
            .map(|&(address, name)| CodeSymbol { address, name: name.into(), object: object_of(address) })
            .collect();
        Ok(Self { bytes: image, architecture, uuid, code, ranges, aliases, symbols })
    }

    /// The functions. Their names are those of the symbol table, the same without the underscore in front, and of the
    /// debug map's functions `file.c;name` and `file.c:name`, as profiles have them.
    #[must_use]
    pub fn functions(&self) -> FunctionTable<'_> {
        let aliases = self.aliases.iter().map(|(address, name)| (*address, 0, name.as_slice()));
        FunctionTable::from_named_ranges(self.ranges.iter().copied().chain(aliases))
    }

    /// The functions that start in `range`.
    #[must_use]
    pub fn functions_within(&self, range: Range<Address>) -> FunctionTable<'_> {
        let aliases = self.aliases.iter().map(|(address, name)| (*address, 0, name.as_slice()));
        let all = self.ranges.iter().copied().chain(aliases);
        FunctionTable::from_named_ranges(all.filter(|(start, _, _)| range.contains(start)))
    }

    /// All symbols of code, as the linker spells them.
    #[must_use]
    pub fn symbols(&self) -> &[CodeSymbol<'data>] {
        &self.symbols
    }
}

/// A symbol of code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeSymbol<'data> {
    /// Where it stands.
    pub address: Address,
    /// As the linker spells it, mostly with an underscore in front.
    pub name: Cow<'data, [u8]>,
    /// The path of its object file, where that is known.
    pub object: Option<&'data [u8]>,
}

/// Without the underscore that compilers put in front of every name of C.
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

/// Start, size and name of each function, and of what is only a name.
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
    // Functions of which the symbol was stripped.
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

/// The tables of one image.
struct Tables<'data> {
    is_object_file: bool,
    uuid: Option<[u8; 16]>,
    /// First address and the one behind the last, of each section of code, sorted.
    code: Vec<(Address, Address)>,
    /// Sorted.
    starts: Vec<Address>,
    symbols: Symbols<'data>,
}

impl<'data> Tables<'data> {
    fn read(image: &'data [u8]) -> object::read::Result<Self> {
        let header = MachHeader64::<LittleEndian>::parse(image, 0)?;
        let mut commands = header.load_commands(LittleEndian, image, 0)?;
        let (mut starts, mut text, mut uuid) = (Vec::new(), 0, None);
        // By number, as symbols name them: the range, if it is one of code.
        let mut sections = Vec::new();
        let (mut table, mut function_starts): (Option<&SymtabCommand<LittleEndian>>, _) = (None, None);
        while let Some(command) = commands.next()? {
            if let Some((segment, data)) = command.segment_64()? {
                if segment.name() == b"__TEXT" {
                    text = segment.vmaddr.get(LittleEndian);
                }
                for section in segment.sections(LittleEndian, data)? {
                    sections.push(range_of_code(section));
                }
            } else if let Some(symtab) = command.symtab()? {
                table = Some(symtab);
            } else if let Some(id) = command.uuid()? {
                uuid = Some(id.uuid);
            } else if command.cmd() == object::macho::LC_FUNCTION_STARTS {
                function_starts = Some(command.data::<object::macho::LinkeditDataCommand<LittleEndian>>()?);
            }
        }
        let mut code: Vec<(Address, Address)> = sections.iter().copied().flatten().collect();
        code.sort_unstable();
        let is_code = |address: Address| {
            let after = code.partition_point(|(start, _)| *start <= address);
            after > 0 && address < code[after - 1].1
        };
        // A mark of the end of another section may have the address of a function.
        let is_in_code = |number: u8, address: Address| {
            let section = sections.get(usize::from(number).wrapping_sub(1)).copied().flatten();
            section.is_some_and(|(start, end)| (start..end).contains(&address))
        };
        if let Some(command) = function_starts {
            for start in command.function_starts(LittleEndian, image, text)? {
                starts.push(Address(start?));
            }
        }
        starts.retain(|start| is_code(*start));
        starts.sort_unstable();
        let mut symbols = match table {
            Some(table) => {
                let table = table.symbols::<MachHeader64<LittleEndian>, _>(LittleEndian, image)?;
                Symbols::read(table.symbols(), table.strings(), is_in_code)
            }
            None => Symbols::default(),
        };
        symbols.debug_map.sort_by_key(|entry| entry.address);
        let is_object_file = header.filetype(LittleEndian) == MH_OBJECT;
        Ok(Self { is_object_file, uuid, code, starts, symbols })
    }
}

/// Of a section of instructions that are no stubs of the linker's.
fn range_of_code(section: &object::macho::Section64<LittleEndian>) -> Option<(Address, Address)> {
    const ANY_INSTRUCTIONS: u32 = 0x8000_0400;
    const STUBS: u32 = 8;
    let flags = section.flags(LittleEndian).0;
    let start = section.addr.get(LittleEndian);
    let end = start.checked_add(section.size.get(LittleEndian))?;
    let is_code =
        flags & ANY_INSTRUCTIONS != 0 && flags & 0xff != STUBS && !section.name().ends_with(b"stubs");
    (is_code && start < end).then_some((Address(start), Address(end)))
}
