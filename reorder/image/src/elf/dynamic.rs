//! `.dynamic`: the tags that hold code addresses or forbid moving.
//! Source: System V ABI, "Dynamic Section".

use object::LittleEndian;
use object::elf::Dyn64;
use object::pod;

use crate::elf::file::ElfFile;
use reorder_base::address::FileOffset;
use reorder_base::error::{Error, Result};

/// One entry: tag, value, and where the value lies in the file.
#[derive(Clone, Copy, Debug)]
pub struct DynamicEntry {
    /// `d_tag`.
    pub tag: i64,
    /// `d_un`.
    pub value: u64,
    /// Position of `d_un`.
    pub value_field: FileOffset,
}

/// Entries up to the terminator; none for images without a dynamic segment.
///
/// # Errors
/// A dynamic segment that is not a whole number of entries.
pub fn dynamic_entries(file: &ElfFile<'_>) -> Result<Vec<DynamicEntry>> {
    let Some(segment) = file.segments.iter().find(|segment| segment.kind == object::elf::PT_DYNAMIC.0) else {
        return Ok(Vec::new());
    };
    let start = segment.offset.0 as usize;
    let bytes = &file.bytes[start..start + segment.file_size as usize];
    let count = bytes.len() / size_of::<Dyn64<LittleEndian>>();
    let (entries, _) = pod::slice_from_bytes::<Dyn64<LittleEndian>>(bytes, count)
        .map_err(|()| Error::malformed(segment.offset.0, "a broken dynamic segment"))?;
    Ok(entries
        .iter()
        .enumerate()
        .map(|(index, entry)| DynamicEntry {
            tag: entry.d_tag.get(LittleEndian).0,
            value: entry.d_val.get(LittleEndian),
            value_field: segment.offset.plus((index * size_of::<Dyn64<LittleEndian>>() + 8) as u64),
        })
        .take_while(|entry| entry.tag != 0)
        .collect())
}
