//! Data that is added to a finished program, such as an archive that extracts itself: some tools append it to the file, where the
//! program finds it from the end, and others put it into a section. The segment of copies would be in the way.

use super::sections::HEADER;
use crate::debug::rebuild::tail_start;
use reorder_base::hint::Hint;
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::file::ElfFile;

/// Where `bun build --compile` puts an application; in Bun itself it is empty.
const APPLICATION: &[u8] = b".bun";

/// Whether an application is yet to be added to this image. Bun would enlarge the last writable segment for it, over the copies.
/// Source: seen with Bun 1.4.5.
pub(super) fn awaits_application(file: &ElfFile<'_>) -> bool {
    let section = file.section(APPLICATION);
    section.is_some_and(|section| file.section_bytes(section).iter().all(|byte| *byte == 0))
}

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
