//! Functions that run before `main`, as distances from the headers.
//!
//! Source: `mach-o/loader.h`, `S_INIT_FUNC_OFFSETS`.

use super::file::MachOFile;
use super::reference::{DataForm, DataReference};
use super::section::kind::INITIALIZER_OFFSETS;
use crate::reader::Reader;
use reorder_base::error::Result;

/// One reference for each, in the order in which they run.
///
/// # Errors
/// Sections that are not a whole number of offsets.
pub fn initializer_offsets(file: &MachOFile<'_>) -> Result<Vec<DataReference>> {
    let mut references = Vec::new();
    for section in file.sections.iter().filter(|section| section.kind() == INITIALIZER_OFFSETS) {
        let bytes = file.section_bytes(section);
        let mut reader = Reader::new(bytes, section.offset as u64, "table of initializers");
        while !reader.rest().is_empty() {
            let place = section.address.plus(reader.position() as u64);
            let target = file.address_of(reader.word()?.into());
            references.push(DataReference { place, target, form: DataForm::ImageOffset });
        }
    }
    Ok(references)
}
