//! Data that was appended to a finished program, which finds it from the end of its own file: applications that `bun build` makes,
//! self-extractors, archives. The segment of copies would come after it.

use reorder_base::hint::Hint;
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::file::ElfFile;

/// Bytes of a section header.
const SECTION_HEADER: u64 = 64;

/// Refuses (R13) a file that ends with data of which its headers say nothing. Zeros are padding.
pub(super) fn check(file: &ElfFile<'_>) -> Result<(), Refusal> {
    let segments = file.segments.iter().map(|segment| segment.offset.0.saturating_add(segment.file_size));
    let stored = file.sections.iter().filter(|section| section.has_bytes());
    let contents = stored.map(|section| section.offset.0.saturating_add(section.size));
    let headers = file.sections.iter().map(|section| section.header_offset.0.saturating_add(SECTION_HEADER));
    let end = segments.chain(contents).chain(headers).max().unwrap_or(0).max(file.header_bytes);
    let rest = usize::try_from(end).ok().and_then(|end| file.bytes.get(end..)).unwrap_or_default();
    if rest.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    let what = format!(
        "the file has {} bytes of appended data, from offset {end:#x} on: the program may look for them from the end of its file, \
         where the copies would be",
        rest.len()
    );
    let otherwise = Some("apply before the data is appended");
    Err(Refusal::new(RefusalCode::Copies, what, Hint::LeaveOutCopies { otherwise }))
}
