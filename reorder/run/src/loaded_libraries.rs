//! The libraries that a program loads at startup.
//!
//! The system's loader knows search paths, caches and the processor's variants of libraries, so it is asked: the program's
//! own interpreter lists them. Interpreters that are not the system's are not run. The program itself is not run: glibc's
//! loader executes code of auditing libraries that a program names while it lists, so those programs are refused before.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use object::elf::{DT_AUDIT, DT_DEPAUDIT, PT_DYNAMIC, PT_INTERP};

use reorder_base::error::{Error, Result};
use reorder_image::elf::dynamic::dynamic_entries;
use reorder_image::elf::file::ElfFile;

/// A library that a program requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedLibrary {
    /// The name that it is looked up by, or a path.
    pub name: String,
    /// Where the loader found it.
    pub path: PathBuf,
}

/// The search path that the loader tries first.
pub const SEARCH_PATH: &str = "LD_LIBRARY_PATH";

/// Directories and beginnings of names of the loaders that are run.
const LOADERS: [&str; 6] = [
    "/lib64/ld-linux",
    "/lib/ld-linux",
    "/lib/ld-musl-",
    "/usr/lib64/ld-linux",
    "/usr/lib/ld-linux",
    "/lib/x86_64-linux-gnu/ld-",
];

/// The libraries that the program at `path`, of which these are the bytes, loads at startup, as [`loaded_libraries`] finds them.
///
/// # Errors
/// As there; a file that is no ELF image.
pub fn libraries_of_program(path: &Path, bytes: &[u8]) -> Result<Vec<LoadedLibrary>> {
    let libraries = ElfFile::parse(bytes).and_then(|file| loaded_libraries(path, &file));
    libraries.map_err(|error| error.in_file(path))
}

/// The libraries that the program at `path`, which is `file`, loads at startup, in the loader's order, without the loader
/// itself. Empty for programs without interpreter.
///
/// # Errors
/// An interpreter that is not the system's or not there, or that does not find a library; programs with auditing libraries.
pub fn loaded_libraries(path: &Path, file: &ElfFile<'_>) -> Result<Vec<LoadedLibrary>> {
    loaded_libraries_from(path, file, None)
}

/// The same with `search_path` in the place of the environment's `LD_LIBRARY_PATH`.
///
/// # Errors
/// As there.
pub fn loaded_libraries_from(
    path: &Path,
    file: &ElfFile<'_>,
    search_path: Option<&OsStr>,
) -> Result<Vec<LoadedLibrary>> {
    let Some(interpreter) = interpreter(file) else { return Ok(Vec::new()) };
    if !LOADERS.iter().any(|loader| interpreter.starts_with(loader)) || interpreter.contains("..") {
        return Err(Error::usage(format!(
            "the program's interpreter {interpreter} is not the system's loader"
        ))
        .in_file(path)
        .with_hint("name the libraries one by one instead"));
    }
    refuse_auditing(file).map_err(|error| error.in_file(path))?;
    let path = std::path::absolute(path).map_err(|error| Error::io(path, error))?;
    let mut command = Command::new(&interpreter);
    // With these the loader also binds symbols, which executes resolvers of indirect functions.
    command.env_remove("LD_WARN").env_remove("LD_VERBOSE").arg("--list").arg(&path);
    if let Some(search_path) = search_path {
        command.env(SEARCH_PATH, search_path);
    }
    let output = command.output().map_err(|error| {
        Error::usage(format!("the program's interpreter {interpreter} cannot be run: {error}"))
            .in_file(&path)
            .with_hint(
                "install the system's libraries for programs of this kind, or name the libraries one by one",
            )
    })?;
    const HINT: &str = "set LD_LIBRARY_PATH as for a run of the program";
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(Error::usage(format!("the loader cannot list the libraries: {}", reason.trim()))
            .in_file(&path)
            .with_hint(HINT));
    }
    let listing = String::from_utf8_lossy(&output.stdout);
    if let Some(missing) = listing.lines().find(|line| line.contains("=> not found")) {
        return Err(Error::usage(format!("the loader does not find {}", missing.trim()))
            .in_file(&path)
            .with_hint(HINT));
    }
    let loader = Path::new(&interpreter);
    let libraries = listing.lines().filter_map(parse_line).filter(|library| !is_same(&library.path, loader));
    Ok(libraries.map(|library| LoadedLibrary { path: without_detours(library.path), ..library }).collect())
}

/// The same file by a path without `..`: programs that look for libraries beside themselves have `/usr/bin/../lib`.
fn without_detours(path: PathBuf) -> PathBuf {
    if !path.components().any(|component| component == Component::ParentDir) {
        return path;
    }
    let directory = path.parent().and_then(|directory| directory.canonicalize().ok());
    match (directory, path.file_name()) {
        (Some(directory), Some(name)) => directory.join(name),
        _ => path,
    }
}

/// Whether two paths lead to one file.
#[must_use]
pub fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the loader and for what is asked for by a path. What the kernel maps
/// has neither.
fn parse_line(line: &str) -> Option<LoadedLibrary> {
    let (found, _) = line.trim().rsplit_once(" (0x")?;
    let (name, path) = found.split_once(" => ").unwrap_or((found, found));
    path.contains('/').then(|| LoadedLibrary { name: name.to_owned(), path: PathBuf::from(path) })
}

/// The loader must read the entries that we look at: it takes the last of several tables, and goes by the address.
fn refuse_auditing(file: &ElfFile<'_>) -> Result<()> {
    let mut tables = file.segments.iter().filter(|segment| segment.kind == PT_DYNAMIC.0);
    let is_clear = match (tables.next(), tables.next()) {
        (None, _) => true,
        (Some(table), None) => file.offset_of(table.address, table.file_size) == Some(table.offset),
        (Some(_), Some(_)) => false,
    };
    let has_audit =
        dynamic_entries(file)?.iter().any(|entry| [DT_AUDIT.0, DT_DEPAUDIT.0].contains(&entry.tag));
    let cause = match (is_clear, has_audit) {
        (false, _) => "it is unclear which dynamic segment the loader reads",
        (true, true) => {
            "the program names auditing libraries (DT_AUDIT), whose code the loader runs when it lists libraries"
        }
        (true, false) => return Ok(()),
    };
    Err(Error::usage(cause).with_hint("name the libraries one by one instead"))
}

/// The program interpreter that the image asks for.
fn interpreter(file: &ElfFile<'_>) -> Option<String> {
    let segment = file.segments.iter().find(|segment| segment.kind == PT_INTERP.0)?;
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
        assert_eq!(found("\t./own.so (0x00007ffd8a5f6000)"), library("./own.so", "./own.so"));
        assert_eq!(
            found("\tlibc.musl-x86_64.so.1 => /lib/ld-musl-x86_64.so.1 (0x7f2f0b6d6000)"),
            library("libc.musl-x86_64.so.1", "/lib/ld-musl-x86_64.so.1")
        );
    }

    #[test]
    #[allow(clippy::unwrap_used)] // a failed unwrap is a failed test
    fn paths_lead_straight_to_libraries() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for folder in ["bin", "lib"] {
            std::fs::create_dir(root.join(folder)).unwrap();
        }
        assert_eq!(without_detours(root.join("bin/../lib/one.so")), root.join("lib/one.so"));
        for kept in ["bin/../none/one.so", "lib/one.so"] {
            assert_eq!(without_detours(root.join(kept)), root.join(kept));
        }
    }

    #[test]
    #[allow(clippy::unwrap_used)] // a failed unwrap is a failed test
    fn the_tests_own_program_loads_the_c_library() {
        let path = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let libraries = loaded_libraries(&path, &ElfFile::parse(&bytes).unwrap()).unwrap();
        let names: Vec<&str> = libraries.iter().map(|library| library.name.as_str()).collect();
        assert!(names.contains(&"libc.so.6"), "{names:?}");
        assert!(!names.iter().any(|name| name.contains("ld-linux")), "{names:?}");
    }
}
