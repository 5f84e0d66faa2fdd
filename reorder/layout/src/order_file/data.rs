//! An order of data objects with similar contents next to each other, so that the image compresses better.
//!
//! In: an ELF image with symbols. Out: names for a linker that orders by symbols. It takes effect for objects with a section
//! of their own (`-fdata-sections`). Contents are compared by hashes of short runs of bytes; balanced partitioning groups
//! objects with the same hashes: to it a hash is a trace, and the objects with that hash are what the trace runs.
//! Linkers keep the objects of different output sections apart, so each section is ordered separately.

use std::collections::{BTreeMap, BTreeSet};

use layout_algos::ids::FunctionId;
use layout_algos::problem::{LayoutProblem, Trace};
use layout_algos::solve::BalancedPartitioning;

use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::section::SectionIndex;
use reorder_image::elf::symbol::SymbolTable;

/// Length of the runs of bytes that are compared.
const WINDOW: usize = 4;

/// Bytes of an object that are looked at: larger ones compress by themselves.
const MAX_BYTES: usize = 16 << 10;

/// Contents that more objects of a section have, such as zeros, do not show similarity.
const MAX_SHARING: usize = 256;

/// Hashes of all objects of a section together; of more, a share is used that their value chooses.
const MAX_MEMBERSHIPS: usize = 1 << 22;

/// Ordered objects and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataOrder<'data> {
    /// Names of objects that share content with others, in their order.
    pub names: Vec<&'data [u8]>,
    /// Objects with contents and a name that no other has.
    pub objects: usize,
}

/// Partitioning leaves alone what fits into a page; neighbours matter down to some dozens of bytes.
const MAGNIFIED: u64 = 128;

struct Object<'data> {
    name: &'data [u8],
    bytes: &'data [u8],
}

/// Orders the data objects of `file`.
///
/// # Errors
/// A malformed symbol table; more objects or hashes than 32-bit indices can tell apart.
pub fn similar_side_by_side<'data>(file: &ElfFile<'data>, seed: u64) -> Result<DataOrder<'data>> {
    let symbols = SymbolTable::parse(file, object::elf::SHT_SYMTAB.0)?;
    let mut order = DataOrder::default();
    for objects in objects_by_section(file, &symbols).values() {
        order.objects += objects.len();
        order.names.extend(ordered(objects, seed)?);
    }
    Ok(order)
}

/// Of each section with contents that is no code, the objects by rising addresses, each once.
fn objects_by_section<'data>(
    file: &ElfFile<'data>,
    symbols: &SymbolTable<'data>,
) -> BTreeMap<SectionIndex, Vec<Object<'data>>> {
    let mut times: BTreeMap<&[u8], u32> = BTreeMap::new();
    for symbol in symbols.iter().filter(|symbol| symbol.defining_section().is_some()) {
        *times.entry(symbol.name).or_default() += 1;
    }
    let mut by_section: BTreeMap<SectionIndex, BTreeMap<Address, Object<'data>>> = BTreeMap::new();
    for symbol in symbols.iter() {
        let Some(section) = symbol.defining_section().and_then(|index| file.section_at(index)) else {
            continue;
        };
        let holds_data = section.is_loaded()
            && section.has_bytes()
            && !section.is_executable()
            && !section.is_thread_local();
        let is_listed = symbol.kind == object::elf::STT_OBJECT.0
            && symbol.size > 0
            && !symbol.name.is_empty()
            && !symbol.name.starts_with(b"#")
            && !symbol.name.contains(&b'\n')
            && times.get(symbol.name) == Some(&1);
        if !holds_data || !is_listed || !section.contains(symbol.value) {
            continue;
        }
        let start = symbol.value.distance_from(section.address) as usize;
        let bytes = file.section_bytes(section).get(start..).unwrap_or_default();
        let length = usize::try_from(symbol.size).unwrap_or(usize::MAX).min(bytes.len()).min(MAX_BYTES);
        let object = Object { name: symbol.name, bytes: &bytes[..length] };
        by_section.entry(section.index).or_default().entry(symbol.value).or_insert(object);
    }
    by_section.into_iter().map(|(index, objects)| (index, objects.into_values().collect())).collect()
}

fn ordered<'data>(objects: &[Object<'data>], seed: u64) -> Result<Vec<&'data [u8]>> {
    let total: usize = objects.iter().map(|object| object.bytes.len()).sum();
    let share = u32::try_from(total / MAX_MEMBERSHIPS + 1).unwrap_or(u32::MAX);
    let mut holders: BTreeMap<u32, Vec<FunctionId>> = BTreeMap::new();
    for (index, object) in objects.iter().enumerate() {
        let index = u32::try_from(index).map_err(|_| Error::usage("too many data objects to order"))?;
        let hashes: BTreeSet<u32> =
            object.bytes.windows(WINDOW).map(hash).filter(|hash| hash % share == 0).collect();
        for hash in hashes {
            holders.entry(hash).or_default().push(FunctionId(index));
        }
    }
    let traces: Vec<Trace> = holders
        .into_values()
        .filter(|functions| (2..=MAX_SHARING).contains(&functions.len()))
        .map(|functions| Trace { weight: 1, functions })
        .collect();
    let sizes = objects.iter().map(|object| object.bytes.len() as u64 * MAGNIFIED).collect();
    let problem = LayoutProblem::new(sizes, &traces).map_err(|error| Error::usage(error.to_string()))?;
    let order = BalancedPartitioning { seed, prefixes: 1 }.order_traced(&problem);
    Ok(order.into_iter().map(|object| objects[object.index()].name).collect())
}

/// Odd, with bits all over.
const MULTIPLIER: u32 = 0x9e37_79b1;

fn hash(window: &[u8]) -> u32 {
    let word = window.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte));
    let product = word.wrapping_mul(MULTIPLIER);
    product ^ product >> 15
}
