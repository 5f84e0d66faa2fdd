//! Names of all functions as two texts, one line per function.

use rayon::prelude::*;

pub(super) use crate::names::printable;
use crate::names::shown;
use reorder_image::functions::{FunctionIndex, FunctionTable};

/// Additional names that are kept for one function.
const MAX_NAMES: usize = 8;

/// Names by function.
pub(super) struct Names {
    /// Demangled, one per line; an empty line where a function has no name.
    pub(super) readable: String,
    /// The symbols, separated by tabs; an empty line where the demangled name is the only symbol.
    pub(super) raw: String,
}

pub(super) fn names(functions: &FunctionTable<'_>) -> Names {
    let lines: Vec<(String, String)> = (0..functions.len() as u32)
        .into_par_iter()
        .with_min_len(256)
        .map(|index| lines(functions, FunctionIndex(index)))
        .collect();
    let mut names = Names { readable: String::new(), raw: String::new() };
    for (readable, raw) in lines {
        names.readable.push_str(&readable);
        names.readable.push('\n');
        names.raw.push_str(&raw);
        names.raw.push('\n');
    }
    names
}

fn lines(functions: &FunctionTable<'_>, index: FunctionIndex) -> (String, String) {
    let mut raw = functions.names_at(functions.get(index).start).take(MAX_NAMES);
    let Some(first) = raw.next() else { return (String::new(), String::new()) };
    let shown = shown(first);
    let others: Vec<String> = raw.map(|name| printable(&String::from_utf8_lossy(name))).collect();
    let first = printable(&String::from_utf8_lossy(first));
    let raw = match others.is_empty() && first == shown {
        true => String::new(),
        false => [vec![first], others].concat().join("\t"),
    };
    (shown, raw)
}

/// A function's name for people; empty when it has none.
pub(super) fn name_of(functions: &FunctionTable<'_>, index: FunctionIndex) -> String {
    functions.names_at(functions.get(index).start).next().map_or_else(|| functions.display_name(index), shown)
}
