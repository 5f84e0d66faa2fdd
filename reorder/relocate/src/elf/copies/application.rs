//! An application that is yet to be added to its run-time.

use reorder_image::elf::file::ElfFile;

/// The section of an application of Bun; in Bun itself it holds eight zero bytes.
const APPLICATION: &[u8] = b".bun";

/// Whether this is Bun without an application. To add one, `bun build --compile` enlarges the last writable segment, over the copies.
/// Source: seen with Bun 1.4.5.
pub(super) fn is_awaited(file: &ElfFile<'_>) -> bool {
    let section = file.section(APPLICATION);
    section.is_some_and(|section| file.section_bytes(section).iter().all(|byte| *byte == 0))
}
