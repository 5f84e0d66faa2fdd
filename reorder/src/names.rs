//! Names of functions as people read them.
//!
//! In: a symbol, as the image has it. Out: text that is demangled and fits on one line.

use reorder_report::visible::visible_start;
use reorder_trace::readable_name;

/// Longer names are cut: a template's name may have thousands of characters.
pub(crate) const MAX_NAME_LENGTH: usize = 400;

/// The symbol, demangled.
pub(crate) fn shown(symbol: &[u8]) -> String {
    // Else `i` would be demangled to `int`, and the text before a semicolon would be taken for a source file.
    match symbol.starts_with(b"_") && !symbol.contains(&b';') {
        true => printable(&readable_name(symbol)),
        false => printable(&String::from_utf8_lossy(symbol)),
    }
}

/// At most [`MAX_NAME_LENGTH`] characters, invisible ones escaped.
pub(crate) fn printable(name: &str) -> String {
    visible_start(name, MAX_NAME_LENGTH).into_owned()
}
