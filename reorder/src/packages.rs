//! Warns when a changed file belongs to a Debian package.
//!
//! In: a path before it is written. Out: the package whose list of files names it, if the file exists. The database is read in dpkg's own format:
//! `info/PACKAGE.list`, one path per line, and `diversions`. Sources: dpkg(1), "ENVIRONMENT", `DPKG_ADMINDIR`;
//! dpkg-divert(1).

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use memchr::memmem;

/// Where dpkg keeps its database unless the environment says otherwise.
const DATABASE: &str = "/var/lib/dpkg";
/// Names another place of the database.
const DATABASE_VARIABLE: &str = "DPKG_ADMINDIR";
/// Lists that are longer are not read: those of real packages have some megabytes.
const MAX_LIST_LENGTH: u64 = 64 << 20;
/// More lists than any system has are not read.
const MAX_LISTS: usize = 1 << 17;

/// The warning for a file that belongs to a package and is going to be replaced.
#[must_use]
pub fn warning(output: &Path) -> Option<String> {
    // Most outputs are new files, and reading a thousand lists takes longer than to lay out a small program.
    let path = output.canonicalize().ok()?;
    let database = std::env::var_os(DATABASE_VARIABLE).filter(|path| !path.is_empty());
    let database = database.map_or_else(|| PathBuf::from(DATABASE), PathBuf::from);
    let package = owner(&database, &path)?;
    let quoted = shlex::bytes::try_quote(path.as_os_str().as_bytes()).ok()?;
    Some(format!(
        "{} is a file of the package {package}: `dpkg --verify` and debsums will report that it changed, and the package's \
         next upgrade replaces it; to keep it: dpkg-divert --local --no-rename --add {}",
        path.display(),
        String::from_utf8_lossy(&quoted)
    ))
}

/// The package that `path` belongs to, and is installed under that name.
fn owner(database: &Path, path: &Path) -> Option<String> {
    let names = names(path);
    let mut lists: Vec<OsString> = std::fs::read_dir(database.join("info"))
        .ok()?
        .take(MAX_LISTS)
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| name.as_bytes().ends_with(b".list"))
        .collect();
    // Several lists may name one file, if a package diverts it; the result is always the same one.
    lists.sort_unstable();
    let list = lists.into_iter().find(|list| {
        let contents = contents(&database.join("info").join(list));
        contents.is_some_and(|contents| has_line(&contents, &names))
    })?;
    let name = list.to_string_lossy();
    let package = name.strip_suffix(".list")?.to_owned();
    (!is_diverted(database, &names)).then_some(package)
}

/// The names that lists may have for a file: with or without /usr, because /bin and its like are links into it.
fn names(path: &Path) -> Vec<Vec<u8>> {
    let mut names = vec![path.as_os_str().as_bytes().to_vec()];
    if let Ok(short) = path.strip_prefix("/usr") {
        names.push(Path::new("/").join(short).into_os_string().into_vec());
    }
    names
}

fn has_line(contents: &[u8], names: &[Vec<u8>]) -> bool {
    let is_end = |at: usize| contents.get(at).is_none_or(|byte| *byte == b'\n');
    let is_line = |at: usize, name: &[u8]| (at == 0 || is_end(at - 1)) && is_end(at + name.len());
    names.iter().any(|name| memmem::find_iter(contents, name).any(|at| is_line(at, name)))
}

/// Whether the administrator has already diverted the package's file: lines of the file, its new name and `:`.
fn is_diverted(database: &Path, names: &[Vec<u8>]) -> bool {
    let contents = contents(&database.join("diversions")).unwrap_or_default();
    let lines: Vec<&[u8]> = contents.split(|byte| *byte == b'\n').collect();
    lines.chunks_exact(3).any(|lines| lines[2] == b":" && names.iter().any(|name| name == lines[0]))
}

fn contents(path: &Path) -> Option<Vec<u8>> {
    let mut contents = Vec::new();
    File::open(path).ok()?.take(MAX_LIST_LENGTH).read_to_end(&mut contents).ok()?;
    Some(contents)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    #[test]
    fn files_are_known_by_both_names_unless_they_are_diverted() {
        let database = tempfile::tempdir().unwrap();
        let info = database.path().join("info");
        std::fs::create_dir(&info).unwrap();
        std::fs::write(info.join("libx1:amd64.list"), "/.\n/lib\n/lib/libx.so.1\n").unwrap();
        std::fs::write(info.join("tool.list"), "/.\n/usr/bin/tool\n/usr/bin/tools").unwrap();
        std::fs::write(info.join("tool.md5sums"), "/usr/bin/other\n").unwrap();
        let owner = |path: &str| owner(database.path(), Path::new(path));
        assert_eq!(owner("/usr/lib/libx.so.1").as_deref(), Some("libx1:amd64"));
        assert_eq!(owner("/lib/libx.so.1").as_deref(), Some("libx1:amd64"));
        assert_eq!(owner("/usr/bin/tool").as_deref(), Some("tool"));
        assert_eq!(owner("/usr/bin/tools").as_deref(), Some("tool"));
        assert_eq!(
            (owner("/usr/bin/too"), owner("/usr/bin/other"), owner("/opt/usr/bin/tool")),
            (None, None, None)
        );
        let diversions = "/usr/bin/tool\n/usr/bin/tool.distrib\n:\n/lib/libx.so.1\n/lib/libx.so.0\ndash\n";
        std::fs::write(database.path().join("diversions"), diversions).unwrap();
        assert_eq!(owner("/usr/bin/tool"), None);
        assert_eq!(owner("/usr/lib/libx.so.1").as_deref(), Some("libx1:amd64"));
    }
}
