//! Data that was appended to a finished program, such as an archive that extracts itself, which finds it from the end of its own
//! file. The segment of copies would come after it.

use super::sections::HEADER;
use crate::debug::rebuild::tail_start;
use reorder_base::hint::Hint;
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::file::ElfFile;

/// Refuses (R13) a file that ends with data of which its headers say nothing. Zeros are padding.
pub(super) fn check(file: &ElfFile<'_>) -> Result<(), Refusal> {
    let stored = file.sections.iter().filter(|section| section.has_bytes());
    let contents = stored.map(|section| section.offset.0.saturating_add(section.size));
    let headers = file.sections.iter().map(|section| section.header_offset.0.saturating_add(HEADER as u64));
    let end = contents.chain(headers).chain([tail_start(file)]).max().unwrap_or(0);
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
