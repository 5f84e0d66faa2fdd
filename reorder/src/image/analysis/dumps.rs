//! Programs that load memory dumps of themselves.
//!
//! Such a dump is a file of its own that a program wrote once and reads at every startup, and it holds addresses of functions
//! as distances from a place in the image. The dump knows its program by a fingerprint that the build put into both, which
//! moving does not change: the moved program accepts the dump and calls what is no longer there.
//!
//! The dump need not be on this machine, so what counts is that the program can load one. It is known by names that such a
//! program cannot do without and that no other has all of; they survive stripping.

use memchr::memmem;

use crate::address::Address;
use crate::image::elf::file::ElfFile;
use crate::image::elf::section::Section;
use crate::image::refusal::{Refusal, RefusalCode};

/// A program that loads dumps.
struct Dumper {
    name: &'static str,
    dump: &'static str,
    /// Bytes of its data.
    marks: [&'static [u8]; 2],
}

const DUMPERS: [Dumper; 1] = [Dumper {
    name: "Emacs",
    dump: "emacs.pdmp",
    // Functions of its Lisp that only the portable dumper has, which is in Emacs since 27.
    marks: [b"dump-emacs-portable\0", b"pdumper-stats\0"],
}];

/// Refuses (R17) programs of which a dump may hold addresses.
///
/// # Errors
/// The refusal.
pub(super) fn check_dumps(file: &ElfFile<'_>) -> Result<(), Refusal> {
    for Dumper { name, dump, marks } in &DUMPERS {
        let [Some(address), Some(_)] = marks.map(|mark| find_in_data(file, mark)) else { continue };
        return Err(Refusal::new(
            RefusalCode::R17,
            format!("this is {name}, which takes a memory dump ({dump}) with addresses of its functions for one of the result"),
            "build it with the order given to the linker (`reorder order`), so that the dump is made by what was linked",
        )
        .at(address));
    }
    Ok(())
}

fn find_in_data(file: &ElfFile<'_>, mark: &[u8]) -> Option<Address> {
    let holds_data =
        |section: &&Section<'_>| section.is_loaded() && !section.is_executable() && section.has_bytes();
    file.sections.iter().filter(holds_data).find_map(|section| {
        let position = memmem::find(file.section_bytes(section), mark)?;
        Some(section.address.plus(position as u64))
    })
}
