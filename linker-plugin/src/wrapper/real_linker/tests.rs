//! Linkers are found under every name, never ourselves; families of those that are installed are recognised.

use std::fs;
use std::os::unix::ffi::OsStringExt;

use tempfile::TempDir;

use super::*;
use crate::wrapper::talk::hint_of;

/// The linker of a call, and what it is.
fn find(wanted: Option<&OsStr>, called: &OsStr, environment: &Environment) -> Result<RealLinker> {
    RealLinker::of(locate(wanted, called, environment)?, environment, None)
}

/// A folder with made linkers, and this program in `own/reorder-ld`.
struct Case {
    folder: TempDir,
    environment: Environment,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own_executable = folder.path().join("own/reorder-ld");
        let environment = Environment { variables: Default::default(), own_executable };
        let case = Self { folder, environment };
        case.program("own/reorder-ld", "own");
        case
    }

    /// A script that says `version`.
    fn program(&self, path: &str, version: &str) -> PathBuf {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Another test's fork may hold the script open for writing for a moment; a copy is never open.
        let draft = path.with_extension("draft");
        fs::write(&draft, format!("#!/bin/sh\necho '{version}'\n")).unwrap();
        let status = Command::new("/usr/bin/install").args(["-m", "755"]).arg(&draft).arg(&path).status();
        assert!(status.unwrap().success());
        path
    }

    fn set(&mut self, name: &str, folders: &[&str]) {
        let folders = folders.iter().map(|folder| self.folder.path().join(folder));
        self.environment.variables.insert(name.into(), std::env::join_paths(folders).unwrap());
    }

    fn link_to_own(&self, path: &str) -> PathBuf {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&self.environment.own_executable, &path).unwrap();
        path
    }

    fn found(&self, wanted: Option<&str>, called: &str) -> Result<RealLinker> {
        find(wanted.map(OsStr::new), OsStr::new(called), &self.environment)
    }

    /// The version that the found linker says, which tells the scripts apart.
    fn version(&self, wanted: Option<&str>, called: &str) -> String {
        self.found(wanted, called).map_or_else(|error| error.to_string(), |linker| linker.version)
    }
}

const LLD: &str = "LLD 1 (compatible with GNU linkers)";

#[test]
fn the_folders_of_the_compiler_go_before_the_path() {
    let mut case = Case::new();
    case.program("compiler/ld.lld", "LLD compiler (compatible with GNU linkers)");
    case.program("path/ld.lld", LLD);
    case.program("beside/ld.lld", "LLD beside (compatible with GNU linkers)");
    case.set("PATH", &["path"]);
    assert_eq!(case.version(None, "/x/ld.lld"), LLD);
    case.set("COMPILER_PATH", &["nowhere", "compiler"]);
    assert_eq!(case.version(None, "ld.lld"), "LLD compiler (compatible with GNU linkers)");
    case.set(environment::LINKER_PATH, &["beside"]);
    assert_eq!(case.version(None, "ld.lld"), "LLD beside (compatible with GNU linkers)");
}

#[test]
fn wishes_go_before_names() {
    let mut case = Case::new();
    let mold = case.program("path/mold", "mold 9 (compatible with GNU ld)");
    case.program("path/ld.lld", LLD);
    case.set("PATH", &["path"]);
    assert_eq!(case.found(Some("mold"), "ld.lld").unwrap().family, Family::Mold);
    assert_eq!(case.found(Some("ld.mold"), "ld.lld").unwrap().family, Family::Mold);
    assert_eq!(case.found(Some("lld"), "ld").unwrap().family, Family::Lld);
    assert_eq!(case.found(mold.to_str(), "ld").unwrap().family, Family::Mold);
}

#[test]
fn never_ourselves() {
    let mut case = Case::new();
    case.link_to_own("links/ld.lld");
    let hard = case.folder.path().join("links/ld.gold");
    fs::hard_link(&case.environment.own_executable, &hard).unwrap();
    case.program("path/ld.lld", LLD);
    case.program("path/ld.gold", "GNU gold (x) 1");
    case.set("PATH", &["links", "path"]);
    assert_eq!(case.version(None, "ld.lld"), LLD);
    assert_eq!(case.version(None, "ld.gold"), "GNU gold (x) 1");
    let error = case.found(hard.to_str(), "ld").unwrap_err();
    assert!(error.to_string().contains("this program itself"), "{error}");
    // Not found, the message says why not.
    case.link_to_own("links/x-linux-ld");
    let error = case.found(None, "x-linux-ld").unwrap_err();
    assert!(error.to_string().contains("except this program itself"), "{error}");
}

#[test]
fn a_circle_of_wrappers_ends() {
    let mut case = Case::new();
    case.program("path/ld", "GNU ld 1");
    case.set("PATH", &["path"]);
    let mut levels = 0;
    while let Ok(linker) = case.found(None, "ld") {
        assert_eq!(linker.family, Family::Bfd);
        case.environment.variables = case.environment.for_child().unwrap();
        levels += 1;
        assert!(levels < 100);
    }
    assert_eq!(levels, 8);
    let error = case.found(None, "ld").unwrap_err();
    assert!(error.to_string().contains("lead back to"), "{error}");
    assert!(hint_of(&error).unwrap().contains("--reorder-linker="));
}

#[test]
fn the_newest_version_stands_in_for_a_missing_name() {
    let mut case = Case::new();
    case.program("path/ld64.lld-9", "LLD 9");
    case.program("path/ld64.lld-22", "LLD 22");
    case.program("path/ld64.lld-x", "LLD x");
    case.set("PATH", &["path"]);
    let linker = case.found(None, "ld64.lld").unwrap();
    assert_eq!((linker.version.as_str(), linker.family), ("LLD 22", Family::LldMachO));
    case.program("path/ld64.lld", "LLD plain");
    assert_eq!(case.version(None, "ld64.lld"), "LLD plain");
    assert_eq!(case.version(None, "ld64.lld-9"), "LLD 9");
}

#[test]
fn the_linker_of_rustc_lies_beside_its_generic_one() {
    let mut case = Case::new();
    case.program("bin/rust-lld", "lld is a generic driver.");
    case.program("bin/gcc-ld/ld.lld", "LLD of rustc (compatible with GNU linkers)");
    case.set("PATH", &["bin"]);
    assert_eq!(case.version(None, "rust-lld"), "LLD of rustc (compatible with GNU linkers)");
    case.program("path/ld.lld", LLD);
    case.set("PATH", &["path", "bin"]);
    assert_eq!(case.version(None, "rust-lld"), "LLD of rustc (compatible with GNU linkers)");
    assert_eq!(case.version(None, "ld.lld"), LLD);
    let generic = case.folder.path().join("bin/rust-lld");
    let error = case.found(generic.to_str(), "ld").unwrap_err();
    assert!(error.to_string().contains("not a linker"), "{error}");
}

#[test]
fn what_is_missing_is_named_with_the_places() {
    let mut case = Case::new();
    case.set("PATH", &["path"]);
    let error = case.found(None, "alpha-linux-gnu-ld.gold").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("alpha-linux-gnu-ld.gold"), "{text}");
    assert!(text.contains("/path:/usr/bin"), "{text}");
    assert!(hint_of(&error).unwrap().contains("REORDER_LINKER=PATH"));
    let error = case.found(Some("/nonexistent/ld"), "ld").unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/ld: "), "{error}");
    let folder = case.folder.path().join("own");
    let error = case.found(folder.to_str(), "ld").unwrap_err();
    assert!(error.to_string().contains("is not a program"), "{error}");
}

#[test]
fn paths_may_be_any_bytes() {
    let mut case = Case::new();
    let odd = case.folder.path().join(OsString::from_vec(b"odd \xff folder".to_vec()));
    fs::create_dir(&odd).unwrap();
    let linker = case.program("path/ld.lld", LLD);
    fs::copy(linker, odd.join("ld.lld")).unwrap();
    case.environment.variables.insert("PATH".into(), odd.clone().into());
    assert_eq!(case.found(None, "ld.lld").unwrap().program, odd.join("ld.lld"));
}

#[test]
fn installed_linkers_are_recognised() {
    let environment = Environment {
        variables: [("PATH".into(), "/usr/bin:/bin".into())].into(),
        own_executable: "/nonexistent/reorder-ld".into(),
    };
    let cases = [
        ("ld", Family::Bfd),
        ("ld.bfd", Family::Bfd),
        ("ld.gold", Family::Gold),
        ("ld.mold", Family::Mold),
        ("mold", Family::Mold),
        ("ld.lld-22", Family::Lld),
        ("ld.lld", Family::Lld),
        ("ld64.lld-22", Family::LldMachO),
        ("x86_64-linux-gnu-ld", Family::Bfd),
        ("reorder-ld", Family::Bfd),
    ];
    for (called, family) in cases {
        let linker = find(None, OsStr::new(called), &environment).unwrap();
        assert_eq!(linker.family, family, "{called}: {linker:?}");
        assert!(linker.version.contains('.'), "{called}: {linker:?}");
    }
    let error = find(Some(OsStr::new("gcc")), OsStr::new("ld"), &environment).unwrap_err();
    assert!(hint_of(&error).unwrap().contains("--reorder-driver"));
}

#[test]
fn flavors_and_formats_say_what_is_meant() {
    let name = |called: &str, words: &[&str]| {
        let mut arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
        let name = stand_in_name(OsStr::new(called), &mut arguments);
        (name.into_string().unwrap(), arguments.len())
    };
    assert_eq!(name("rust-lld", &["-flavor", "gnu", "-o", "x"]), ("rust-lld".to_owned(), 2));
    assert_eq!(name("reorder-ld", &["-flavor", "darwin", "x"]), ("ld64.lld".to_owned(), 1));
    assert_eq!(name("reorder-ld", &["-flavor", "wasm", "x"]), ("reorder-ld".to_owned(), 3));
    assert_eq!(name("ld.gold", &["-o", "-flavor"]), ("ld.gold".to_owned(), 2));
    if !cfg!(target_os = "macos") {
        assert_eq!(name("reorder-ld", &["-arch", "arm64", "-platform_version", "macos"]).0, "ld64.lld");
        assert_eq!(name("ld", &["-arch", "arm64", "-platform_version", "macos"]).0, "ld");
    }
}
