//! Notes whose program header the segment of copies took: the running program no longer finds them. The writer takes those of a few
//! known owners. Here the program itself is asked, as far as that goes: if it looks for a note, it mostly holds the note's name.

use std::collections::BTreeSet;

use goblin::elf::program_header::PT_NOTE;
use goblin::elf::section_header::SHT_NOTE;
use memchr::memmem;

use crate::bytes::range;
use crate::elf::view::ElfView;
use crate::report::{Check, Difference, Findings};

/// Bytes of the shortest name that is searched for. Shorter ones, such as GNU, occur by chance.
const MIN_NAME: usize = 4;
/// Names start at multiples of this.
const ALIGNMENT: usize = 4;
/// The name of the notes that a crash handler reads from outside: without it, it reports less.
const CRASHPAD: &[u8] = b"Crashpad";
/// Names of one segment. Each costs a pass over the image.
const MAX_NAMES: usize = 64;

/// Checks that the program holds the name of no note that lost its program header.
pub(super) fn check_lost_notes(old: &ElfView<'_>, new: &ElfView<'_>, findings: &mut Findings) {
    let notes = old.segments.iter().filter(|segment| segment.p_type == PT_NOTE);
    for segment in notes.filter(|segment| !new.segments.contains(segment)) {
        let bytes = range(old.bytes, segment.p_offset, segment.p_filesz).unwrap_or_default();
        let names: BTreeSet<&[u8]> = strings(bytes).filter(|name| *name != CRASHPAD).collect();
        let found = match names.iter().take(MAX_NAMES).find(|name| holds_string(old, name)) {
            Some(name) => {
                format!("that of a note with {}, which the program holds", String::from_utf8_lossy(name))
            }
            None if names.len() > MAX_NAMES => "that of more names than can be searched for".to_owned(),
            None => continue,
        };
        let place = "the program header that the segment of copies took";
        let expected = "that of a note for which the program does not look";
        findings.differs(Difference::new(Check::Copies, Some(segment.p_offset), place, expected, found));
    }
}

/// Strings where the name of a note may be, each up to the zero after it.
fn strings(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let starts = (0..bytes.len()).step_by(ALIGNMENT).filter(|start| *start == 0 || bytes[start - 1] == 0);
    let string = |start: usize| {
        let name = bytes[start..].split(|byte| *byte == 0).next()?;
        let is_name = name.len() >= MIN_NAME
            && start + name.len() < bytes.len()
            && name.iter().all(u8::is_ascii_graphic);
        is_name.then_some(name)
    };
    starts.filter_map(string)
}

/// Whether what the loader maps, apart from notes, holds `name` as a whole string.
fn holds_string(image: &ElfView<'_>, name: &[u8]) -> bool {
    let ended = [name, b"\0"].concat();
    let mut mapped = image.sections.iter().filter(|section| section.is_loaded() && section.kind != SHT_NOTE);
    mapped.any(|section| {
        let before = |at: usize| at.checked_sub(1).map_or(0, |before| section.bytes[before]);
        memmem::find_iter(section.bytes, &ended).any(|at| before(at) == 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_notes_begin_at_whole_words_after_a_zero() {
        let notes = b"\x09\0\0\0\x04\0\0\0\x01\0\0\0OWN_DATA\0\0\0\0some\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
        let found: Vec<&[u8]> = strings(notes).collect();
        assert_eq!(found, [b"OWN_DATA"]);
    }
}
