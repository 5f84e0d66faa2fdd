//! What happens to debug information, whose addresses a move makes wrong.

use crate::image::elf::file::ElfFile;
use crate::image::elf::section::Section;
use crate::image::refusal::{Refusal, RefusalCode};
use crate::relocate::ledger::Ledger;

/// The user's choice for an image with debug information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugPolicy {
    /// Empty the debug sections; headers, order and file size stay, and `strip` can shrink the file.
    Drop,
    /// Leave them as they are: debuggers will show wrong lines and variables.
    KeepStale,
}

/// Refuses (R10) an image with debug information unless a policy was chosen.
///
/// # Errors
/// The refusal.
pub fn check_policy(file: &ElfFile<'_>, policy: Option<DebugPolicy>) -> Result<(), Refusal> {
    match file.sections.iter().find(|section| is_debug(section)) {
        Some(section) if policy.is_none() => Err(Refusal::new(
            RefusalCode::R10,
            format!(
                "the image has debug information ({}), whose addresses would become wrong",
                section.display_name()
            ),
            "choose: --debug drop empties it, --debug keep-stale leaves it wrong; \
             or split it off first: objcopy --only-keep-debug IN IN.debug; strip -g IN",
        )),
        _ => Ok(()),
    }
}

/// Applies the policy.
pub fn apply_policy(file: &ElfFile<'_>, policy: Option<DebugPolicy>, output: &mut [u8], ledger: &mut Ledger) {
    /// Position of `sh_size` in a section header.
    const SIZE_FIELD: usize = 32;
    if policy != Some(DebugPolicy::Drop) {
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
    !section.is_loaded()
        && section.has_bytes()
        && section.size > 0
        && (section.name.starts_with(b".debug_")
            || section.name.starts_with(b".zdebug_")
            || matches!(section.name, b".gdb_index" | b".gnu_debugdata" | b".stab" | b".stabstr"))
}

/// Static relocations of a debug section.
fn relocates_debug(file: &ElfFile<'_>, section: &Section<'_>) -> bool {
    let target = file.sections.get(section.info as usize);
    section.kind == object::elf::SHT_RELA.0 && !section.is_loaded() && target.is_some_and(is_debug)
}
