//! Names of linkers: which files could be the one that a name stands for.
//!
//! Takes the name under which this program was called, or one that the user wrote; gives the file names to look for,
//! the most wanted first. Only [`versioned`] looks into folders. rustc keeps its linker in `gcc-ld` next to its generic `rust-lld`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// File names by which linkers are called, without the target before and the version after them.
pub(crate) const LINKERS: [&str; 13] = [
    "ld",
    "ld.lld",
    "ld.gold",
    "ld.bfd",
    "ld.mold",
    "ld.wild",
    "ld64.lld",
    "ld64",
    "ld-classic",
    "gold",
    "mold",
    "wild",
    "rust-lld",
];

/// The linker to stand in for when no name says it: the system's linker, which a compiler would call; only where that is
/// missing another one.
const DEFAULTS: [&str; 6] = ["ld", "ld.lld", "ld.bfd", "ld.gold", "ld.mold", "ld64.lld"];

/// The files that could be meant by `called`, the name of our own command.
pub(crate) fn of_call(called: &OsStr) -> Vec<OsString> {
    expand(called).unwrap_or_else(|| DEFAULTS.map(OsString::from).to_vec())
}

/// The files that could be meant by `wanted`, a name without a slash that a user wrote: `ld.lld`, `lld`, `mymold`.
pub(crate) fn of_wish(wanted: &OsStr) -> Vec<OsString> {
    let short = ["lld", "gold", "bfd", "mold", "wild"];
    if let Some(name) = short.into_iter().find(|name| OsStr::new(name) == wanted) {
        return vec![format!("ld.{name}").into(), wanted.to_owned()];
    }
    expand(wanted).unwrap_or_else(|| vec![wanted.to_owned()])
}

/// Whether `called` is a linker's name, with or without target and version.
pub(crate) fn is_linker(called: &OsStr) -> bool {
    expand(called).is_some()
}

/// The linker that `-flavor FLAVOR` makes of lld. It is rustc that calls linkers so.
pub(crate) fn of_flavor(flavor: &OsStr) -> Option<&'static str> {
    match flavor.as_bytes() {
        b"gnu" | b"ld" | b"ld.lld" => Some("rust-lld"),
        b"darwin" | b"ld64.lld" => Some("ld64.lld"),
        _ => None,
    }
}

/// Whether lld of one version could be meant by `name`: `ld.lld` is often installed as `ld.lld-22` alone.
pub(crate) fn has_versions(name: &OsStr) -> bool {
    matches!(name.as_bytes(), b"ld.lld" | b"ld64.lld")
}

/// The version after `name` in `file`: 22 for `ld.lld` in `ld.lld-22`.
pub(crate) fn version_after(file: &OsStr, name: &OsStr) -> Option<u32> {
    let digits = file.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"-")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Names with a version, such as `ld.lld-22` for `-fuse-ld=lld-22`, under which a linker is in one of these folders or in
/// `/usr/bin`; sorted.
pub(crate) fn versioned(folders: &[PathBuf]) -> Vec<OsString> {
    let folders = folders.iter().map(PathBuf::as_path).chain([Path::new("/usr/bin")]);
    let names =
        folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flat_map(|entries| entries.flatten());
    let is_versioned = |name: &OsString| {
        LINKERS.iter().any(|linker| linker.starts_with("ld") && has_version(name.as_bytes(), linker))
    };
    let mut names: Vec<OsString> = names.map(|entry| entry.file_name()).filter(is_versioned).collect();
    names.sort();
    names.dedup();
    names
}

fn has_version(name: &[u8], linker: &str) -> bool {
    let version = name.strip_prefix(linker.as_bytes()).and_then(|rest| rest.strip_prefix(b"-"));
    version.is_some_and(is_version)
}

/// `None` when the name is no linker's. Ours is not, although it looks like one for a target named `reorder`.
fn expand(name: &OsStr) -> Option<Vec<OsString>> {
    let bytes = name.as_bytes();
    if bytes.starts_with(b"reorder-ld") {
        return None;
    }
    let unversioned = match bytes.iter().rposition(|&byte| byte == b'-') {
        Some(dash) if is_version(&bytes[dash + 1..]) => &bytes[..dash],
        _ => bytes,
    };
    let known = |bytes: &[u8]| LINKERS.iter().any(|linker| linker.as_bytes() == bytes);
    if known(unversioned) {
        return Some(match unversioned {
            b"rust-lld" => vec!["gcc-ld/ld.lld".into(), "ld.lld".into()],
            b"mold" | b"wild" | b"gold" => vec![name.to_owned(), prefixed(b"ld.", unversioned)],
            b"ld.mold" | b"ld.wild" => vec![name.to_owned(), OsString::from_vec(unversioned[3..].to_vec())],
            _ if unversioned == bytes => vec![name.to_owned()],
            _ => vec![name.to_owned(), OsString::from_vec(unversioned.to_vec())],
        });
    }
    // A target prefix: a linker without it would be for this system, so no other name will do.
    let targeted =
        (1..unversioned.len()).any(|end| unversioned[end - 1] == b'-' && known(&unversioned[end..]));
    targeted.then(|| vec![name.to_owned()])
}

fn is_version(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') && text[0] != b'.'
}

fn prefixed(front: &[u8], back: &[u8]) -> OsString {
    OsString::from_vec([front, back].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str) -> Vec<OsString> {
        of_call(OsStr::new(name))
    }

    #[test]
    fn names_say_what_they_stand_for() {
        assert_eq!(call("ld"), ["ld"]);
        assert_eq!(call("ld.lld"), ["ld.lld"]);
        assert_eq!(call("ld.lld-22"), ["ld.lld-22", "ld.lld"]);
        assert_eq!(call("ld64.lld"), ["ld64.lld"]);
        assert_eq!(call("mold"), ["mold", "ld.mold"]);
        assert_eq!(call("ld.mold"), ["ld.mold", "mold"]);
        assert_eq!(call("rust-lld"), ["gcc-ld/ld.lld", "ld.lld"]);
        assert_eq!(call("x86_64-linux-gnu-ld"), ["x86_64-linux-gnu-ld"]);
        assert_eq!(call("aarch64-linux-gnu-ld.bfd"), ["aarch64-linux-gnu-ld.bfd"]);
    }

    #[test]
    fn no_linker_s_name_stands_for_the_system_s_linker() {
        for name in ["reorder-ld", "reorder-ld-1", "", "my-linker", "cc", "build", "world", "ld.", "-ld."] {
            assert_eq!(call(name)[0], "ld", "{name}");
        }
    }

    #[test]
    fn wishes_may_be_short_or_unknown() {
        assert_eq!(of_wish(OsStr::new("lld")), ["ld.lld", "lld"]);
        assert_eq!(of_wish(OsStr::new("bfd")), ["ld.bfd", "bfd"]);
        assert_eq!(of_wish(OsStr::new("ld.gold")), ["ld.gold"]);
        assert_eq!(of_wish(OsStr::new("my-linker")), ["my-linker"]);
    }

    #[test]
    fn versions_are_numbers() {
        let version = |file: &str| version_after(OsStr::new(file), OsStr::new("ld.lld"));
        assert_eq!(version("ld.lld-22"), Some(22));
        assert_eq!(version("ld.lld-"), None);
        assert_eq!(version("ld.lld"), None);
        assert_eq!(version("ld.lld-x"), None);
        assert_eq!(version("ld.lld-99999999999"), None);
    }
}
