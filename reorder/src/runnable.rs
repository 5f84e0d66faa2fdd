//! Programs that can only be run elsewhere, told before anything is started.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::error::{Error, Result};
use crate::image::macho::is_macho;

/// Refuses a Mach-O file as a program to run: this is Linux. `next` makes of the file's name, in the words of a shell, what
/// to type once its starts were recorded where it runs.
///
/// # Errors
/// Mach-O files; what cannot be read is left to whoever starts it.
pub(crate) fn check(program: &Path, next: impl FnOnce(&str) -> String) -> Result<()> {
    /// As much as [`is_macho`] looks at.
    const HEAD_BYTES: u64 = 8;
    let mut head = Vec::new();
    let read = File::open(program).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    if read.is_err() || !is_macho(&head) {
        return Ok(());
    }
    let name = program.to_string_lossy();
    let next = next(&shlex::try_quote(&name).unwrap_or_else(|_| name.as_ref().into()));
    Err(Error::usage("this is a Mach-O program, which this system cannot run")
        .in_file(program)
        .with_hint(format!("record its starts where it runs (GUIDE.md, Ship an app), then: {next}")))
}

/// What moves the functions of a program that cannot be run here.
pub(crate) fn apply_command(program: &str) -> String {
    format!("reorder apply {program} -t TRACES -o FILE")
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
            let checked = check(&program, apply_command);
            assert_eq!(checked.is_err(), is_refused, "{head:?}");
            if let Err(error) = checked {
                let hint = error.hint.unwrap();
                assert!(
                    hint.ends_with(&format!("reorder apply '{}' -t TRACES -o FILE", program.display())),
                    "{hint}"
                );
            }
        }
        assert!(check(&directory.path().join("missing"), apply_command).is_ok());
    }
}
