//! Writes an order file for lld's `--symbol-ordering-file`.
//!
//! In: the functions and their order. Out: bytes, and an account of functions that symbols cannot express. lld
//! ignores lines that start with `#` and places only sections whose symbols are listed, so only the chosen part of
//! a layout is written. The order takes effect for programs compiled with `-ffunction-sections`.

use serde::Serialize;

use super::origin::Origin;
use super::symbol_names::UsableNames;
use crate::Layout;
use reorder_image::functions::FunctionTable;

/// The beginning of the comment with the number of lines after it.
pub(super) const LINES: &str = " lines";

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
    /// Functions that are listed by a name.
    pub named: usize,
    /// Functions whose names other functions share: a linker moves all of them, and a list with addresses does not use
    /// these names.
    pub ambiguous: usize,
    /// Functions without a usable name.
    pub unnamed: usize,
    /// Input sections that are listed, where a link map tells which there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sections: Option<usize>,
    /// Listed functions that share their section with others and cannot be moved alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<usize>,
    /// Data objects that are listed, where they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_objects: Option<usize>,
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
            // With an address, the reader need not guess which of several functions a name means.
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
    let mut bytes = origin.hashed(&["Order file for lld: --symbol-ordering-file"], &summary);
    // lld accepts a truncated file; our own reader detects it.
    let count = lines.iter().filter(|&&byte| byte == b'\n').count();
    bytes.extend_from_slice(format!("#{LINES} {count}\n").as_bytes());
    bytes.extend_from_slice(&lines);
    OrderFile { bytes, summary }
}
