//! Writes an order file for lld's `--symbol-ordering-file`.
//!
//! In: the functions and their order. Out: bytes, and an account of functions that symbols cannot express. lld
//! ignores lines that start with `#` and places only sections whose symbols are listed, so only the chosen part of
//! a layout is written. The order takes effect for programs compiled with `-ffunction-sections`.

use std::io::Write;

use serde::Serialize;

use crate::image::elf::file::ElfFile;
use crate::image::functions::{FunctionIndex, FunctionTable};
use crate::layout::{Layout, Strategy};
use crate::trace::Coverage;

/// What stands in the comments at the top; nothing of it changes the order.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The image's GNU build-id.
    pub build_id: Option<&'a [u8]>,
    /// How the order was made.
    pub strategy: Strategy,
    /// What decided what the strategy left to chance.
    pub seed: u64,
    /// How much of the traces was found in the image.
    pub coverage: Option<&'a Coverage>,
}

impl<'a> Origin<'a> {
    /// An order of `image`'s functions.
    #[must_use]
    pub fn new(image: &ElfFile<'a>, strategy: Strategy, seed: u64, coverage: Option<&'a Coverage>) -> Self {
        Self { build_id: image.build_id(), strategy, seed, coverage }
    }
}

/// What to do with a function that has no symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unnamed {
    /// Leave it out: no linker could find it.
    Omit,
    /// Write `function@0xADDRESS`, which this program's own reader understands.
    WriteAddress,
}

/// A written order file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderFile {
    /// Its contents.
    pub bytes: Vec<u8>,
    /// What they cover.
    pub summary: Summary,
}

/// An account of the chosen functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Functions of the image.
    pub functions: usize,
    /// Functions that the order chooses a place for.
    pub chosen: usize,
    /// Lines with a symbol.
    pub named: usize,
    /// Functions whose symbols others have as well: a linker takes all of them, and a list with addresses does not name
    /// them.
    pub ambiguous: usize,
    /// Functions without a usable symbol.
    pub unnamed: usize,
}

/// Writes the chosen part of `layout`.
#[must_use]
pub fn write(
    functions: &FunctionTable<'_>,
    layout: &Layout,
    origin: &Origin<'_>,
    unnamed: Unnamed,
) -> OrderFile {
    let names = UsableNames::of(functions);
    let chosen = &layout.order[..layout.chosen.min(layout.order.len())];
    let mut summary = Summary { functions: functions.len(), chosen: chosen.len(), ..Summary::default() };
    let mut lines = Vec::new();
    for &function in chosen {
        let start = functions.get(function).start;
        match names.best(functions, function) {
            // Whoever reads addresses need not guess which of several functions a name means.
            Some((_, false)) if unnamed == Unnamed::WriteAddress => {
                summary.ambiguous += 1;
                lines.extend_from_slice(format!("function@{start}\n").as_bytes());
            }
            Some((name, is_unique)) => {
                summary.named += 1;
                summary.ambiguous += usize::from(!is_unique);
                lines.extend_from_slice(name);
                lines.push(b'\n');
            }
            None => {
                summary.unnamed += 1;
                if unnamed == Unnamed::WriteAddress {
                    lines.extend_from_slice(format!("function@{start}\n").as_bytes());
                }
            }
        }
    }
    let mut bytes = Vec::with_capacity(lines.len() + 512);
    // Writing to a vector cannot fail.
    let _ = write_header(&mut bytes, origin, &summary);
    bytes.extend_from_slice(&lines);
    OrderFile { bytes, summary }
}

fn write_header(out: &mut Vec<u8>, origin: &Origin<'_>, summary: &Summary) -> std::io::Result<()> {
    writeln!(out, "# Order file for lld: --symbol-ordering-file")?;
    writeln!(out, "# written by reorder {}", env!("CARGO_PKG_VERSION"))?;
    match origin.build_id {
        Some(id) => {
            let hexadecimal: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(out, "# build-id {hexadecimal}")?;
        }
        None => writeln!(out, "# build-id none")?,
    }
    writeln!(out, "# strategy {} seed {}", origin.strategy.name(), origin.seed)?;
    if let Some(coverage) = origin.coverage {
        writeln!(out, "# trace events resolved {} of {}", coverage.resolved(), coverage.events)?;
    }
    writeln!(
        out,
        "# functions {} chosen {} named {} ambiguous {} without symbol {}",
        summary.functions, summary.chosen, summary.named, summary.ambiguous, summary.unnamed
    )
}

/// All names of functions with the address each stands for, by name.
struct UsableNames<'data> {
    by_name: Vec<(&'data [u8], crate::address::Address)>,
}

impl<'data> UsableNames<'data> {
    fn of(functions: &FunctionTable<'data>) -> Self {
        let mut by_name: Vec<_> = functions.names().iter().map(|&(address, name)| (name, address)).collect();
        by_name.sort_unstable();
        Self { by_name }
    }

    /// The first name at the function's address that no other address has, else the first one; and whether it
    /// is unique.
    fn best(&self, functions: &FunctionTable<'data>, function: FunctionIndex) -> Option<(&'data [u8], bool)> {
        let mut first = None;
        // A hostile table may give one address a million names; the search for a unique one need not see all.
        let names = functions.names_at(functions.get(function).start).take(64);
        for name in names.filter(|name| is_expressible(name)) {
            if self.is_unique(name) {
                return Some((name, true));
            }
            first.get_or_insert(name);
        }
        first.map(|name| (name, false))
    }

    fn is_unique(&self, name: &[u8]) -> bool {
        let start = self.by_name.partition_point(|(other, _)| *other < name);
        self.by_name.get(start + 1).is_none_or(|(next, _)| *next != name)
    }
}

/// Whether a line can hold the name: the reader trims blanks and takes `#` for a comment.
fn is_expressible(name: &[u8]) -> bool {
    !name.is_empty()
        && !name.starts_with(b"#")
        && !name.contains(&b'\n')
        && name.trim_ascii().len() == name.len()
}
