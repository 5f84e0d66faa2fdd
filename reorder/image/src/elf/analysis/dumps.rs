//! Programs that load memory dumps of themselves.
//!
//! Such a dump is a file of its own that a program wrote once and reads at every startup, and it holds addresses of functions
//! as distances from a place in the image. The dump knows its program by a fingerprint that the build put into both, which
//! moving does not change: the moved program accepts the dump and calls what is no longer there.
//!
//! The dump need not be on this system, so what counts is that the program can load one. It is known by names that such a
//! program cannot do without and that no other has all of; they survive stripping.

use memchr::memmem;

use crate::elf::file::ElfFile;
use crate::elf::section::Section;
use reorder_base::address::Address;
use reorder_base::hint::Hint;
use reorder_base::refusal::{Refusal, RefusalCode};

/// A program that loads dumps.
struct Dumper {
    name: &'static str,
    dump: &'static str,
    /// Strings of its data, each between bytes of zero. Here they stand without, or this program would be one of them.
    marks: [&'static str; 2],
}

const DUMPERS: [Dumper; 1] = [Dumper {
    name: "Emacs",
    dump: "emacs.pdmp",
    // Functions of its Lisp that only the portable dumper has, which is in Emacs since 27.
    marks: ["dump-emacs-portable", "pdumper-stats"],
}];

/// Refuses (R17) programs of which a dump may hold addresses.
///
/// # Errors
/// The refusal.
pub(super) fn check_dumps(file: &ElfFile<'_>) -> Result<(), Refusal> {
    for Dumper { name, dump, marks } in &DUMPERS {
        let [Some(address), Some(_)] = marks.map(|mark| find_string(file, mark)) else { continue };
        return Err(Refusal::new(
            RefusalCode::MemoryDump,
            format!("this is {name}, whose memory dump ({dump}) holds addresses of its functions"),
            Hint::OrderBeforeDump,
        )
        .at(address));
    }
    Ok(())
}

/// Where the data has this string, as C stores it.
pub(super) fn find_string(file: &ElfFile<'_>, string: &str) -> Option<Address> {
    let holds_data =
        |section: &&Section<'_>| section.is_loaded() && !section.is_executable() && section.has_bytes();
    file.sections.iter().filter(holds_data).find_map(|section| {
        let bytes = file.section_bytes(section);
        let ends_there = |position: usize| bytes.get(position).is_none_or(|byte| *byte == 0);
        let is_whole = |position: &usize| {
            position.checked_sub(1).is_none_or(ends_there) && ends_there(position + string.len())
        };
        let position = memmem::find_iter(bytes, string).find(is_whole)?;
        Some(section.address.plus(position as u64))
    })
}
