//! Why the system could not execute a program, and what to do about it.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::runnable::is_library;
use reorder_base::error::Error;
use reorder_base::hint::Hint;
use reorder_image::elf::file::ElfFile;
use reorder_system::mapped::map_image;

/// What is reported when executing `program` failed with `error`: the error number alone does not name the cause.
pub fn explain(program: &Path, error: io::Error) -> Error {
    let name = program.to_string_lossy();
    let name = shlex::try_quote(&name).unwrap_or_else(|_| name.as_ref().into());
    let hint = match error.raw_os_error() {
        Some(libc::EACCES) if program.is_dir() => {
            Some("this is a directory; name a program in it".to_owned())
        }
        Some(libc::EACCES) if !is_executable(program) => {
            if is_library_file(program) {
                let library = name.into_owned();
                return Error::io(program, error).with_hint(Hint::ProgramOfLibrary { library });
            }
            Some(format!("it is not marked as a program: chmod +x {name}"))
        }
        Some(libc::EACCES) => Some(
            "this user may not execute it or what it runs, or its file system is mounted with noexec"
                .to_owned(),
        ),
        Some(libc::ENOEXEC) => Some(format!(
            "it is no program of this system; for a script, name what runs it: sh {name}, or begin it with #!/bin/sh"
        )),
        Some(libc::ENOENT) if program.exists() => {
            Some(match interpreter(program).filter(|interpreter| !interpreter.exists()) {
                Some(missing) => format!(
                    "what runs it is missing: install {}, or change the program to another",
                    missing.display()
                ),
                None => "what runs it, or the directory that it is started in, is missing".to_owned(),
            })
        }
        _ => None,
    };
    let failure = Error::io(program, error);
    match hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

fn is_library_file(path: &Path) -> bool {
    map_image(path)
        .is_ok_and(|bytes| ElfFile::parse_any_processor(&bytes).is_ok_and(|file| is_library(&file)))
}

fn is_executable(program: &Path) -> bool {
    fs::metadata(program).is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

/// The interpreter of a script or an ELF program: execve(2), *Interpreter scripts*, and `.interp`.
fn interpreter(program: &Path) -> Option<PathBuf> {
    /// The bytes of the first line that the system reads (`BINPRM_BUF_SIZE`).
    const HEAD_BYTES: u64 = 256;
    let mut head = Vec::new();
    File::open(program).ok()?.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    let path = match head.strip_prefix(b"#!") {
        Some(line) => {
            let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii();
            line.split(|byte| byte.is_ascii_whitespace()).next()?.to_vec()
        }
        None => {
            let bytes = map_image(program).ok()?;
            let file = ElfFile::parse_any_processor(&bytes).ok()?;
            let section = file.section(b".interp")?;
            file.section_bytes(section).split(|&byte| byte == 0).next()?.to_vec()
        }
    };
    (!path.is_empty()).then(|| PathBuf::from(std::ffi::OsString::from_vec(path)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_cause_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("my program");
        for (content, mode, number, expected) in [
            ("x", 0o644, libc::EACCES, "chmod +x '"),
            ("x", 0o755, libc::ENOEXEC, "name what runs it: sh '"),
            ("#! /no/such/shell -x\n", 0o755, libc::ENOENT, "install /no/such/shell,"),
        ] {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let hint = explain(&path, io::Error::from_raw_os_error(number)).hint.unwrap();
            assert!(hint.advice().unwrap().contains(expected), "{hint:?}");
        }
        let hint = explain(directory.path(), io::Error::from_raw_os_error(libc::EACCES)).hint.unwrap();
        assert!(hint.advice().unwrap().contains("a directory"), "{hint:?}");
        let missing = explain(&directory.path().join("none"), io::Error::from_raw_os_error(libc::ENOENT));
        assert_eq!(missing.hint, None);
    }

    proptest! {
        #[test]
        fn any_beginning_is_survived(content in proptest::collection::vec(any::<u8>(), 0..300)) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("program");
            fs::write(&path, [b"#!".as_slice(), &content].concat()).unwrap();
            let _ = explain(&path, io::Error::from_raw_os_error(libc::ENOENT));
        }
    }
}
