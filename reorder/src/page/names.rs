//! Names of all functions as two texts, one line per function.

use rayon::prelude::*;

use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_report::visible::visible_start;
use reorder_trace::readable_name;

/// Longer names are cut: a template's name may have thousands of characters, and a page has many names.
const MAX_NAME_LENGTH: usize = 400;

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

fn shown(name: &[u8]) -> String {
    // Else `i` would be demangled to `int`, and the text before a semicolon would be taken for a source file.
    match name.starts_with(b"_") && !name.contains(&b';') {
        true => printable(&readable_name(name)),
        false => printable(&String::from_utf8_lossy(name)),
    }
}

/// At most [`MAX_NAME_LENGTH`] characters, invisible ones escaped.
pub(super) fn printable(name: &str) -> String {
    visible_start(name, MAX_NAME_LENGTH).into_owned()
}
