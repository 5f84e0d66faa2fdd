//! Lists of Objective-C methods as distances (`__TEXT,__objc_methlist`).
//!
//! A list is a head of two words, flags with the size of an entry and the number of entries, and for each method three
//! words: the distances to its selector, its type and its code. Lists begin where data points to; the bytes between them
//! are padding. The whole section must be explained that way, since an overlooked list would keep old distances.
//! Source: Apple's objc4, `method_list_t`.

use super::file::MachOFile;
use super::reference::{DataForm, DataReference};
use crate::reader::Reader;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::refusal::{Refusal, RefusalCode};

/// Distances, in entries of twelve bytes.
const RELATIVE_ENTRIES: u32 = 0x8000_000c;
const ENTRY_SIZE: usize = 12;
const CODE_FIELD: u64 = 8;

/// The fields with the distance to a method's code, by place. `rebases` are all of the image, by place.
///
/// # Errors
/// Refuses (M12) lists of another form and sections with bytes outside of all lists.
pub fn implementations(file: &MachOFile<'_>, rebases: &[DataReference]) -> Result<Vec<DataReference>> {
    let Some(section) = file.section(b"__TEXT", b"__objc_methlist") else { return Ok(Vec::new()) };
    let mut starts: Vec<Address> = rebases.iter().map(|slot| slot.target).collect();
    starts.retain(|target| section.range().contains(target));
    starts.sort_unstable();
    starts.dedup();
    let bytes = file.section_bytes(section);
    let mut reader = Reader::new(bytes, section.offset as u64, "list of Objective-C methods");
    let mut references = Vec::new();
    for start in starts {
        let offset = start.distance_from(section.address) as usize;
        if offset < reader.position() {
            return Err(unknown("a list of methods inside another one").at(start).into());
        }
        check_padding(section.address, &reader, offset)?;
        reader.seek(offset)?;
        let (flags, count) = (reader.word()?, reader.word()? as usize);
        if flags != RELATIVE_ENTRIES {
            return Err(unknown(format!("a list of methods with the flags {flags:#x}")).at(start).into());
        }
        let entries = reader.take(count.saturating_mul(ENTRY_SIZE))?;
        for (index, entry) in entries.chunks_exact(ENTRY_SIZE).enumerate() {
            let place = start.plus((8 + index * ENTRY_SIZE) as u64 + CODE_FIELD);
            let distance = i32::from_le_bytes([entry[8], entry[9], entry[10], entry[11]]);
            // Methods of protocols have no code.
            if distance != 0 {
                let target = place.plus(i64::from(distance) as u64);
                references.push(DataReference { place, target, form: DataForm::Relative32 });
            }
        }
    }
    check_padding(section.address, &reader, bytes.len())?;
    Ok(references)
}

/// Refuses anything but padding from the reader's position to `end`.
fn check_padding(section: Address, reader: &Reader<'_>, end: usize) -> std::result::Result<(), Refusal> {
    let between = &reader.rest()[..end - reader.position()];
    match between.len() < 8 && between.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => {
            Err(unknown("lists of methods that nothing points to").at(section.plus(reader.position() as u64)))
        }
    }
}

fn unknown(what: impl Into<String>) -> Refusal {
    Refusal::new(
        RefusalCode::MachOMethodLists,
        format!("the image has {}", what.into()),
        "link it with ld or lld for macOS 11 or later, or with -no_objc_relative_method_lists",
    )
}
