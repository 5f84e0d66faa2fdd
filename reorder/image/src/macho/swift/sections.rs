//! The sections that list records.

use super::walk::{Record, Walk};
use super::{names, pattern};
use crate::macho::file::MachOFile;
use crate::macho::section::Section;
use reorder_base::address::Address;

/// Bytes of the record of a function that other processes may call, and the offset of the function in it.
const ACCESSIBLE_SIZE: u64 = 20;
const ACCESSIBLE_FUNCTION: u64 = 12;

/// Whether Swift's compiler wrote any part of the image.
pub(super) fn has_swift(file: &MachOFile<'_>) -> bool {
    file.sections.iter().any(|section| section.name.starts_with(b"__swift"))
}

/// Enters all records that sections list.
pub(super) fn enter(walk: &mut Walk<'_, '_>) {
    let file = walk.file;
    for section in file.sections.iter().filter(|section| section.has_bytes()) {
        // `None` means that the section is damaged: the records listed before the damage are kept.
        let _ = enter_section(walk, section);
    }
}

fn enter_section(walk: &mut Walk<'_, '_>, section: &Section<'_>) -> Option<()> {
    let mut places = entries(section, 4);
    match section.name {
        // In lists of protocols the second bit marks unused entries; types have their form in both bits.
        b"__swift5_protos" | b"__swift5_types" | b"__swift5_types2" => {
            places.try_for_each(|place| walk.enter_indirect(Record::Context, place, 3))
        }
        b"__swift5_proto" => places.try_for_each(|place| walk.enter_direct(Record::Conformance, place)),
        b"__swift_as_entry" | b"__swift_as_ret" | b"__swift_as_cont" => {
            places.try_for_each(|place| walk.plain_function(place))
        }
        b"__swift5_entry" => walk.plain_function(section.address),
        b"__swift5_typeref" => names::read_all(walk, section.address, section.end()),
        b"__swift5_fieldmd" | b"__swift5_assocty" | b"__swift5_capture" | b"__swift5_builtin"
        | b"__swift5_mpenum" => {
            let file = walk.file;
            let names = file.sections.iter().find(|section| section.name == b"__swift5_typeref")?.range();
            names::enter_all(walk, section.address, section.end(), &names)
        }
        b"__swift5_acfuncs" => entries(section, ACCESSIBLE_SIZE)
            .try_for_each(|place| walk.implementation(place.plus(ACCESSIBLE_FUNCTION))),
        b"__swift5_replace" => pattern::enter_replacements(walk, section.address),
        _ => Some(()),
    }
}

/// The places of the entries of `size` bytes that lie completely in `section`.
fn entries(section: &Section<'_>, size: u64) -> impl Iterator<Item = Address> + use<> {
    let (start, count) = (section.address, section.size / size);
    (0..count).map(move |index| start.plus(index * size))
}
