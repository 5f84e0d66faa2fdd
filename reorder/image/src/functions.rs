//! Which byte ranges of an image are functions, and their names.
//!
//! [`FunctionTable`] is the same for every kind of image: [`crate::elf::functions`] and [`crate::macho::CodeNames`] make it
//! from what their format tells. Ranges with the same bounds are one function with several names; ranges that overlap
//! otherwise stay separate entries here and are glued into one unit by the analysis.

use std::fmt;
use std::ops::Range;

use rayon::prelude::*;

use crate::basic_blocks::{LoadedBytes, Outline, outline};
use reorder_base::address::Address;

/// Position in a [`FunctionTable`], hence in address order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionIndex(pub u32);

/// One function's range and whether unwinding knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// First byte.
    pub start: Address,
    /// One past the last byte.
    pub end: Address,
    /// An unwind entry has exactly this range.
    pub has_unwind_entry: bool,
}

impl Function {
    /// Size in bytes; never zero.
    pub fn size(&self) -> u64 {
        self.end.distance_from(self.start)
    }
}

/// Less code than this in no function comes from the C runtime alone.
pub const MIN_UNKNOWN_BYTES: u64 = 64 << 10;

/// The same addresses, ascending, with ranges that overlap joined.
pub(crate) fn joined(mut ranges: Vec<Range<Address>>) -> Vec<Range<Address>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    ranges.dedup_by(|next, last| {
        let overlaps = next.start < last.end;
        if overlaps {
            last.end = last.end.max(next.end);
        }
        overlaps
    });
    ranges
}

/// Bytes of `ranges`, which are disjoint.
pub(crate) fn bytes_of(ranges: &[Range<Address>]) -> u64 {
    ranges.iter().map(|range| range.end.distance_from(range.start)).sum()
}

/// A name that only one source file knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalName<'data> {
    /// First byte of what it names.
    pub start: Address,
    /// The name.
    pub name: &'data [u8],
    /// The source file, as the compiler was given it; empty when unknown.
    pub file: &'data [u8],
}

/// All functions, sorted by start, then end; none is empty, and no two have the same bounds.
#[derive(Clone, Debug)]
pub struct FunctionTable<'data> {
    functions: Vec<Function>,
    names: Vec<(Address, &'data [u8])>,
    locals: Vec<LocalName<'data>>,
    code: Option<Code<'data>>,
}

/// The image that holds the functions.
#[derive(Clone)]
struct Code<'data> {
    loaded: LoadedBytes,
    file: &'data [u8],
}

impl fmt::Debug for Code<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Code({} bytes)", self.file.len())
    }
}

impl<'data> FunctionTable<'data> {
    /// The table of `functions`, `names` of code and names of one source file, all in any order. What has no byte is no
    /// function, ranges that are given several times are one, and empty names are none.
    pub fn new(
        mut functions: Vec<Function>,
        mut names: Vec<(Address, &'data [u8])>,
        locals: Vec<LocalName<'data>>,
    ) -> Self {
        functions.retain(|function| function.start < function.end);
        functions.par_sort_by_key(|function| (function.start, function.end));
        functions.dedup_by(|later, kept| {
            let same = later.start == kept.start && later.end == kept.end;
            if same {
                kept.has_unwind_entry |= later.has_unwind_entry;
            }
            same
        });
        functions.shrink_to_fit();
        names.retain(|(_, name)| !name.is_empty());
        names.par_sort_unstable();
        names.dedup();
        Self { functions, names, locals, code: None }
    }

    /// The same table with the code of its functions: `file` is the image that `loaded` describes.
    #[must_use]
    pub(crate) fn with_code(self, loaded: LoadedBytes, file: &'data [u8]) -> Self {
        Self { code: Some(Code { loaded, file }), ..self }
    }

    /// The instructions of a function, if the table has its code and that is certain.
    pub fn outline(&self, index: FunctionIndex) -> Option<Outline> {
        let Code { loaded, file } = self.code.as_ref()?;
        let function = self.get(index);
        outline(loaded, file, function.start..function.end).ok()
    }

    /// The table of functions with symbols: start, size in bytes and name of each. Those of no size are only names.
    pub fn from_named_ranges(ranges: impl IntoIterator<Item = (Address, u64, &'data [u8])>) -> Self {
        let (mut functions, mut names) = (Vec::new(), Vec::new());
        for (start, size, name) in ranges {
            let end = start.0.checked_add(size).map(Address);
            functions.extend(end.map(|end| Function { start, end, has_unwind_entry: false }));
            names.push((start, name));
        }
        Self::new(functions, names, Vec::new())
    }

    /// Bytes that are in some function.
    pub fn covered_bytes(&self) -> u64 {
        bytes_of(&joined(self.functions.iter().map(|function| function.start..function.end).collect()))
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

    /// Names of functions that only one source file knows, in the order given.
    pub fn locals(&self) -> impl Iterator<Item = (FunctionIndex, &LocalName<'data>)> {
        self.locals.iter().filter_map(|local| Some((self.starting_at(local.start)?, local)))
    }

    /// A function's first name, or its address for stripped functions.
    pub fn display_name(&self, index: FunctionIndex) -> String {
        let start = self.get(index).start;
        self.names_at(start)
            .next()
            .map_or_else(|| format!("function@{start}"), |name| String::from_utf8_lossy(name).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_range_is_one_function_and_no_bytes_are_none() {
        let function = |start, end, has_unwind_entry| Function {
            start: Address(start),
            end: Address(end),
            has_unwind_entry,
        };
        let functions =
            [(32, 48, false), (16, 32, true), (16, 32, false), (16, 24, true), (8, 8, true), (9, 8, true)];
        let names: [(Address, &[u8]); 4] =
            [(Address(16), b"b"), (Address(16), b"a"), (Address(16), b"a"), (Address(32), b"")];
        let local = |start| LocalName { start: Address(start), name: b"b", file: b"b.c" };
        let table = FunctionTable::new(
            functions.map(|(start, end, has_unwind_entry)| function(start, end, has_unwind_entry)).to_vec(),
            names.to_vec(),
            vec![local(32), local(20), local(16)],
        );
        let found: Vec<Function> = table.iter().map(|(_, function)| *function).collect();
        assert_eq!(found, [function(16, 24, true), function(16, 32, true), function(32, 48, false)]);
        assert_eq!(table.names(), &names[..2].iter().rev().copied().collect::<Vec<_>>());
        let locals: Vec<u32> = table.locals().map(|(function, _)| function.0).collect();
        assert_eq!(locals, [2, 0], "what starts no function is none");
    }
}
