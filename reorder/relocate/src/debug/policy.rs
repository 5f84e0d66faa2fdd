//! The choices for debug information, whose addresses a move makes wrong.

use crate::ledger::Ledger;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::kept_relocations::is_table;
use reorder_image::elf::section::Section;

/// The user's choice for an image with debug information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugPolicy {
    /// Bring it up to date; the part of the file that is not loaded may change its size.
    #[default]
    Update,
    /// Empty the debug sections; headers, order and file size stay, and `strip` can shrink the file.
    Drop,
    /// Leave them as they are: debuggers will show wrong lines and variables.
    KeepStale,
}

/// Whether the image has any.
pub fn has_debug(file: &ElfFile<'_>) -> bool {
    file.sections.iter().any(is_debug)
}

/// Applies the policy.
pub(crate) fn apply_policy(file: &ElfFile<'_>, policy: DebugPolicy, output: &mut [u8], ledger: &mut Ledger) {
    /// Position of `sh_size` in a section header.
    const SIZE_FIELD: usize = 32;
    if policy != DebugPolicy::Drop {
        return;
    }
    for section in file.sections.iter().filter(|section| is_debug(section) || relocates_debug(file, section))
    {
        let start = section.offset.0 as usize;
        let end = start + section.size as usize;
        output[start..end].fill(0);
        ledger.record(start..end);
        ledger.write(output, section.header_offset.0 as usize + SIZE_FIELD, &[0; 8]);
    }
}

/// Holds DWARF, an index of it, or compressed symbols.
pub fn is_debug(section: &Section<'_>) -> bool {
    !section.is_loaded() && section.has_bytes() && section.size > 0 && is_debug_name(section.name)
}

/// Whether sections of this name hold such things.
pub(super) fn is_debug_name(name: &[u8]) -> bool {
    name.starts_with(b".debug_")
        || name.starts_with(b".zdebug_")
        || matches!(name, b".gdb_index" | b".gnu_debugdata" | b".stab" | b".stabstr")
}

/// Static relocations of a debug section.
pub(super) fn relocates_debug(file: &ElfFile<'_>, section: &Section<'_>) -> bool {
    let target = file.sections.get(section.info as usize);
    is_table(section) && !section.is_loaded() && target.is_some_and(is_debug)
}
