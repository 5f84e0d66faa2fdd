//! The trie of exported symbols, of `LC_DYLD_INFO` or `LC_DYLD_EXPORTS_TRIE`.
//!
//! Source: `mach-o/loader.h`, `EXPORT_SYMBOL_FLAGS_*`, and how dyld walks the trie.

mod encode;
#[cfg(test)]
mod tests;

pub use encode::encode;

use crate::reader::Reader;
use reorder_base::error::Result;
use reorder_base::refusal::{Refusal, RefusalCode};

const KIND: u64 = 3;
const ABSOLUTE: u64 = 2;
const REEXPORT: u64 = 8;
const STUB_AND_RESOLVER: u64 = 0x10;
const KNOWN: u64 = 0x1f;

/// An exported symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// As the linker spells it.
    pub name: Vec<u8>,
    /// Kind in the two lowest bits; 4 weak, 8 from another library, 16 with a resolver.
    pub flags: u64,
    /// What the name refers to.
    pub value: ExportValue,
}

/// What an exported name refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportValue {
    /// A place in the image: its distance from the headers.
    Offset(u64),
    /// A number that is not an address.
    Absolute(u64),
    /// A symbol of another library: its number and its name with the zero at the end, as they are in the trie.
    Reexport(Vec<u8>),
    /// A stub, and the function that finds the target of the stub: their distances from the headers.
    StubAndResolver {
        /// The stub.
        stub: u64,
        /// The function that runs at load time.
        resolver: u64,
    },
}

/// All exports in the order of a walk that visits a symbol before those whose names it begins.
///
/// # Errors
/// Refuses (M3) undefined flags; reports tries with cycles, truncated nodes or malformed names. Offsets in errors are
/// relative to the trie's start.
pub fn parse(bytes: &[u8]) -> Result<Vec<Export>> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let mut walk = Walk { bytes, visited: vec![false; bytes.len()], name_bytes: 0, exports: Vec::new() };
    // Nodes to visit, with the length of the prefix kept from the previous name and the label that is added to it.
    let mut pending: Vec<(usize, usize, &[u8])> = vec![(0, 0, &[])];
    let mut name = Vec::new();
    while let Some((node, kept, edge)) = pending.pop() {
        name.truncate(kept);
        name.extend_from_slice(edge);
        let first = pending.len();
        walk.node(node, &name, &mut pending)?;
        // The first child is visited first.
        pending[first..].reverse();
    }
    Ok(walk.exports)
}

struct Walk<'data> {
    bytes: &'data [u8],
    visited: Vec<bool>,
    name_bytes: usize,
    exports: Vec<Export>,
}

impl<'data> Walk<'data> {
    fn node(&mut self, at: usize, name: &[u8], pending: &mut Vec<(usize, usize, &'data [u8])>) -> Result<()> {
        let mut reader = Reader::new(self.bytes, 0, "trie of exports");
        reader.seek(at)?;
        match self.visited.get_mut(at) {
            Some(visited) if !*visited => *visited = true,
            // Besides cycles this refuses shared nodes, with which a few bytes would encode any number of names.
            _ => return Err(reader.error("visits a node twice or leaves the table")),
        }
        let size = reader.uleb()?;
        if size > 0 {
            let start = reader.position();
            let terminal = reader.take(size.try_into().unwrap_or(usize::MAX))?;
            // Deep tries encode long names in few bytes; real ones are far below this bound.
            self.name_bytes += name.len();
            if self.name_bytes / 64 > self.bytes.len() {
                return Err(reader.error("has longer names than its size allows"));
            }
            let (flags, value) = value(Reader::new(terminal, start as u64, "trie of exports"))?;
            self.exports.push(Export { name: name.to_vec(), flags, value });
        }
        for _ in 0..reader.byte()? {
            let edge = reader.string()?;
            let child = reader.uleb()?.try_into().unwrap_or(usize::MAX);
            pending.push((child, name.len(), edge));
        }
        Ok(())
    }
}

/// Flags and value of a node with an export.
fn value(mut reader: Reader<'_>) -> Result<(u64, ExportValue)> {
    let flags = reader.uleb()?;
    if flags & !KNOWN != 0 || flags & KIND == KIND {
        return Err(Refusal::new(
            RefusalCode::MachOLoadCommand,
            format!("an exported symbol has the unknown flags {flags:#x}"),
            "link it without function variants and static resolvers",
        )
        .into());
    }
    let value = if flags & REEXPORT != 0 {
        let rest = reader.rest();
        reader.uleb()?;
        reader.string()?;
        ExportValue::Reexport(rest[..rest.len() - reader.rest().len()].to_vec())
    } else if flags & STUB_AND_RESOLVER != 0 {
        ExportValue::StubAndResolver { stub: reader.uleb()?, resolver: reader.uleb()? }
    } else if flags & KIND == ABSOLUTE {
        ExportValue::Absolute(reader.uleb()?)
    } else {
        ExportValue::Offset(reader.uleb()?)
    };
    match reader.rest() {
        [] => Ok((flags, value)),
        _ => Err(reader.error("has a node with more data than its flags announce")),
    }
}
