//! Refuses programs that can only be run elsewhere, before any is started.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use reorder_base::error::{Error, Result};
use reorder_base::hint::{Hint, RecordedUse};
use reorder_image::elf::file::{ElfFile, Linkage};
use reorder_image::macho::is_macho;

/// Refuses a Mach-O file as a program to run: this is Linux. `then` is what its traces are for, once they were recorded
/// where it runs.
///
/// # Errors
/// Mach-O files; the caller reports unreadable files when it runs the program.
pub fn check(program: &Path, then: RecordedUse) -> Result<()> {
    /// As much as [`is_macho`] looks at.
    const HEAD_BYTES: u64 = 8;
    let mut head = Vec::new();
    let read = File::open(program).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    if read.is_err() || !is_macho(&head) {
        return Ok(());
    }
    let name = program.to_string_lossy();
    let program_name = shlex::try_quote(&name).unwrap_or_else(|_| name.as_ref().into()).into_owned();
    Err(Error::usage("this is a Mach-O program, which this system cannot run")
        .in_file(program)
        .with_hint(Hint::RecordElsewhere { program: program_name, then }))
}

/// Whether an image is only ever loaded by others: position-independent, not marked as a program, and without an
/// interpreter.
pub fn is_library(file: &ElfFile<'_>) -> bool {
    /// `DT_FLAGS_1` and its bit for position-independent programs.
    const DYNAMIC_FLAGS_1: u64 = 0x6fff_fffb;
    const FLAG_PROGRAM: u64 = 0x0800_0000;
    if file.linkage != Linkage::PositionIndependent || file.section(b".interp").is_some() {
        return false;
    }
    let Some(section) = file.section(b".dynamic") else { return false };
    let (words, _) = file.section_bytes(section).as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    !pairs.iter().any(|&[tag, value]| {
        u64::from_le_bytes(tag) == DYNAMIC_FLAGS_1 && u64::from_le_bytes(value) & FLAG_PROGRAM != 0
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    #[test]
    fn only_programs_of_apples_systems_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("my app");
        for (head, is_refused) in
            [(&b"\xcf\xfa\xed\xfe\x0c\0\0\x01"[..], true), (b"\x7fELF", false), (b"", false)]
        {
            std::fs::write(&program, head).unwrap();
            let checked = check(&program, RecordedUse::Apply);
            assert_eq!(checked.is_err(), is_refused, "{head:?}");
            if let Err(error) = checked {
                let quoted = format!("'{}'", program.display());
                let wanted = Hint::RecordElsewhere { program: quoted, then: RecordedUse::Apply };
                assert_eq!(error.hint, Some(wanted));
            }
        }
        assert!(check(&directory.path().join("missing"), RecordedUse::Apply).is_ok());
    }
}
