//! Records that are in no list and that only code refers to, found by the suffix of their mangled names.

use super::walk::{Record, Walk};
use crate::macho::symbol_table;
use reorder_base::error::Result;

/// Suffixes of names in Swift's mangling.
const SUFFIXES: &[(&[u8], Record)] = &[
    (b"Tu", Record::FramedFunction),
    (b"Twc", Record::FramedFunction),
    (b"Mc", Record::Conformance),
    (b"Mn", Record::Context),
    (b"Mp", Record::Context),
    (b"MV", Record::Property),
];

/// Enters the records that have symbols.
///
/// # Errors
/// A malformed symbol table.
pub(super) fn enter(walk: &mut Walk<'_, '_>) -> Result<()> {
    for symbol in symbol_table::symbols(walk.file)? {
        let Some(address) = symbol.address().filter(|_| is_swift(symbol.name)) else { continue };
        let suffix = SUFFIXES.iter().find(|(suffix, _)| symbol.name.ends_with(suffix));
        let section = walk.file.section_at(address);
        if let (Some((_, record)), Some(false)) = (suffix, section.map(|section| section.is_code())) {
            walk.enter(*record, address);
        }
    }
    Ok(())
}

/// Whether `name` has one of the prefixes of Swift's mangling since its ABI is stable.
fn is_swift(name: &[u8]) -> bool {
    [&b"_$s"[..], b"_$S", b"$s", b"$S"].iter().any(|prefix| name.starts_with(prefix))
}
