//! Data at the end of the old file that no header describes: a program finds it from the end of its file, so it must be there
//! in the new file, too.

use crate::elf::view::{ElfView, SECTION_HEADER_SIZE};
use crate::report::{Check, Difference, Findings};

/// If no header describes the last byte that is not zero, the new file must be as long as the old one.
pub(super) fn check_appended(old: &ElfView<'_>, new: &ElfView<'_>, findings: &mut Findings) {
    let Some(last) = old.bytes.iter().rposition(|byte| *byte != 0) else { return };
    let holds = |start: u64, size: u64| start <= last as u64 && last as u64 - start < size;
    let headers = (old.sections.len() as u64).saturating_mul(SECTION_HEADER_SIZE);
    let is_described = holds(old.header.e_shoff, headers)
        || old.segments.iter().any(|segment| holds(segment.p_offset, segment.p_filesz))
        || old.sections.iter().any(|section| holds(section.offset, section.bytes.len() as u64));
    if !is_described && old.bytes.len() != new.bytes.len() {
        let name = "the data at the end of the file, which its headers do not describe";
        let found = new.bytes.len().saturating_sub(last).to_string();
        let expected = format!("{} bytes from the end of the file", old.bytes.len() - last);
        findings.differs(Difference::new(Check::Copies, Some(last as u64), name, expected, found));
    }
}
