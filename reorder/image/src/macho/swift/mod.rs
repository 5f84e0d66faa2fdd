//! Distances to functions in the metadata that Swift's compiler writes.
//!
//! Takes an image, the slots that the loader rebases and the function starts; gives [`SwiftReferences`]. Swift records
//! refer to functions and to each other by distances from the field itself, which the loader does not list; so the records
//! are found through the sections that list them, through each other and through symbols, and read by their kind. A field
//! counts if its record says that it leads to a function and if it leads exactly to the start of one. All other words that
//! would lead to a start are reported as unknown and never changed.
//!
//! Source: Swift's `docs/ABI/TypeMetadata.rst` and `docs/ABI/Mangling.rst`, `include/swift/ABI/Metadata.h`,
//! `MetadataValues.h` and `GenericContext.h`.

mod conformance;
mod context;
mod generic;
mod key_path;
mod names;
mod pattern;
mod sections;
mod symbols;
#[cfg(test)]
mod tests;
mod unknown;
mod walk;

use super::file::MachOFile;
use super::reference::DataReference;
use reorder_base::address::Address;
use reorder_base::error::Result;

/// References to functions in Swift's metadata.
#[derive(Clone, Debug, Default)]
pub struct SwiftReferences {
    /// Fields of known records, by place.
    pub references: Vec<DataReference>,
    /// Other words that would lead to the start of a function, and fields of known records that lead into one: the word and
    /// the function, by word.
    pub unknown: Vec<(Address, Address)>,
}

/// Reads all Swift metadata; empty for images without any.
///
/// `rebases` are all slots of the image and `text_starts` the starts of the functions in `__text`, both sorted.
///
/// # Errors
/// Malformed symbol tables. Damaged records are left out; their words count as unknown.
pub fn references(
    file: &MachOFile<'_>,
    rebases: &[DataReference],
    text_starts: &[Address],
) -> Result<SwiftReferences> {
    if !sections::has_swift(file) {
        return Ok(SwiftReferences::default());
    }
    let mut walk = walk::Walk::new(file, text_starts);
    sections::enter(&mut walk);
    symbols::enter(&mut walk)?;
    names::enter_witnesses(&mut walk, rebases);
    walk.run();
    key_path::find(&mut walk);
    let (references, mut unknown) = walk.finish();
    unknown::scan(file, text_starts, &references, &mut unknown);
    Ok(SwiftReferences { references, unknown })
}
