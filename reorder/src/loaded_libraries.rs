//! Which libraries a program loads when it starts.
//!
//! The system's loader knows search paths, caches and the processor's variants of libraries, so it is asked: the program's own
//! interpreter lists them without running the program. Interpreters that are not the system's are not run.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::image::elf::file::ElfFile;

/// A library as the program asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedLibrary {
    /// The name that it is looked up by.
    pub name: String,
    /// Where the loader found it.
    pub path: PathBuf,
}

/// Directories and beginnings of names of the loaders that are run.
const LOADERS: [&str; 6] = [
    "/lib64/ld-linux",
    "/lib/ld-linux",
    "/lib/ld-musl-",
    "/usr/lib64/ld-linux",
    "/usr/lib/ld-linux",
    "/lib/x86_64-linux-gnu/ld-",
];

/// The libraries that the program at `path`, which is `file`, loads at its start; in the loader's order, without the loader
/// itself. Nothing for programs without interpreter.
///
/// # Errors
/// An interpreter that is not the system's, or that does not find a library.
pub fn loaded_libraries(path: &Path, file: &ElfFile<'_>) -> Result<Vec<LoadedLibrary>> {
    let Some(interpreter) = interpreter(file) else { return Ok(Vec::new()) };
    if !LOADERS.iter().any(|loader| interpreter.starts_with(loader)) || interpreter.contains("..") {
        return Err(Error::usage(format!(
            "the program's interpreter {interpreter} is not the system's loader"
        ))
        .in_file(path)
        .with_hint("name the libraries one by one instead"));
    }
    let path = std::path::absolute(path).map_err(|error| Error::io(path, error))?;
    let output = Command::new(&interpreter).arg("--list").arg(&path).output();
    let output = output.map_err(|error| Error::io(Path::new(&interpreter), error))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(Error::usage(format!("the loader cannot list the libraries: {}", reason.trim()))
            .in_file(&path)
            .with_hint("set LD_LIBRARY_PATH as for a start of the program"));
    }
    let listing = String::from_utf8_lossy(&output.stdout);
    if let Some(missing) = listing.lines().find(|line| line.contains("=> not found")) {
        return Err(Error::usage(format!("the loader does not find {}", missing.trim()))
            .in_file(&path)
            .with_hint("set LD_LIBRARY_PATH as for a start of the program"));
    }
    Ok(listing.lines().filter_map(parse_line).collect())
}

/// `NAME => PATH (ADDRESS)`; the loader and what the kernel maps have no arrow.
fn parse_line(line: &str) -> Option<LoadedLibrary> {
    let (name, rest) = line.trim().split_once(" => ")?;
    let (path, _) = rest.rsplit_once(" (0x")?;
    let is_loader = Path::new(path).file_name()?.to_string_lossy().starts_with("ld-");
    (path.starts_with('/') && !is_loader)
        .then(|| LoadedLibrary { name: name.to_owned(), path: PathBuf::from(path) })
}

/// The program interpreter that the image asks for.
fn interpreter(file: &ElfFile<'_>) -> Option<String> {
    let segment = file.segments.iter().find(|segment| segment.kind == object::elf::PT_INTERP.0)?;
    let start = usize::try_from(segment.offset.0).ok()?;
    let bytes = file.bytes.get(start..start.checked_add(usize::try_from(segment.file_size).ok()?)?)?;
    let text = bytes.split(|byte| *byte == 0).next()?;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_loaders_are_read() {
        let found = |line| parse_line(line).map(|library| (library.name, library.path));
        let library = |name: &str, path: &str| Some((name.to_owned(), PathBuf::from(path)));
        assert_eq!(
            found("\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f0c6d2c3000)"),
            library("libz.so.1", "/lib/x86_64-linux-gnu/libz.so.1")
        );
        assert_eq!(found("\tlinux-vdso.so.1 (0x00007ffd8a5f6000)"), None);
        assert_eq!(found("\t/lib64/ld-linux-x86-64.so.2 (0x00007f0c6d4f1000)"), None);
        assert_eq!(found("\tlibc.musl-x86_64.so.1 => /lib/ld-musl-x86_64.so.1 (0x7f2f0b6d6000)"), None);
    }

    #[test]
    #[allow(clippy::unwrap_used)] // a failed unwrap is a failed test
    fn the_tests_own_program_loads_the_c_library() {
        let path = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let libraries = loaded_libraries(&path, &ElfFile::parse(&bytes).unwrap()).unwrap();
        let names: Vec<&str> = libraries.iter().map(|library| library.name.as_str()).collect();
        assert!(names.contains(&"libc.so.6"), "{names:?}");
    }
}
