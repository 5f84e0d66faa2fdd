//! The process's environment: its variables and its own file.
//!
//! Everything that reads the environment takes an [`Environment`], so that tests can make one up. Variables that
//! processes of this program leave to each other are named here.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use reorder_base::error::{Error, Result};

/// How many of our processes are between the first call and this one. A driver and its linker make two.
pub(crate) const DEPTH: &str = "REORDER_DEPTH";
/// Folders, separated by colons, in which linkers are looked for before all others.
pub(crate) const LINKER_PATH: &str = "REORDER_LINKER_PATH";
/// The two programs of this package, and other copies of them, lead to each other as surely as to themselves.
const OWN_NAMES: [&str; 2] = ["reorder-ld", "reorder-cc"];
/// Deeper than this, some script or copy calls us again.
const DEEPEST: u32 = 8;

/// The process's environment, so that tests need not change it.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    /// All environment variables.
    pub(crate) variables: BTreeMap<OsString, OsString>,
    /// The file of this program.
    pub(crate) own_executable: PathBuf,
}

impl Environment {
    /// That of this process.
    ///
    /// clang looks for linkers in its own folder and does not pass that on. So this folder is added to [`LINKER_PATH`] when
    /// clang is what started us.
    ///
    /// # Errors
    /// The system does not tell which file this program is.
    pub(crate) fn of_process() -> Result<Self> {
        let own_executable = std::env::current_exe().map_err(|source| {
            let mut error = Error::io(Path::new("/proc/self/exe"), source);
            error.file = None;
            error.message = "the path of this program cannot be found".to_owned();
            error.with_hint("is /proc mounted?")
        })?;
        let mut environment = Self { variables: std::env::vars_os().collect(), own_executable };
        if let Some(folder) = folder_of_clang_that_started_us() {
            environment.add_linker_folders([folder]);
        }
        Ok(environment)
    }

    /// The value of a variable; none when it is empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// Where programs keep what can be made again: `XDG_CACHE_HOME`, else `.cache` in `HOME`; relative paths would mean
    /// another place in every folder of a build.
    pub(crate) fn cache_directory(&self) -> Option<PathBuf> {
        let directory = |name: &str| self.variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        directory("XDG_CACHE_HOME").or_else(|| directory("HOME").map(|home| home.join(".cache")))
    }

    /// The folders that a variable lists. Empty ones, which mean the current directory, are left out: a linker
    /// must not come from there.
    pub(crate) fn folders(&self, name: &str) -> Vec<PathBuf> {
        let value = self.variable(name).unwrap_or_default();
        std::env::split_paths(value).filter(|folder| !folder.as_os_str().is_empty()).collect()
    }

    /// Adds to the folders of [`LINKER_PATH`], after those that are there. A folder whose name holds a colon cannot
    /// be listed and is left out.
    pub(crate) fn add_linker_folders(&mut self, folders: impl IntoIterator<Item = PathBuf>) {
        let mut all = self.folders(LINKER_PATH);
        for folder in folders {
            if !folder.as_os_str().as_bytes().contains(&b':') && !all.contains(&folder) {
                all.push(folder);
            }
        }
        if let Ok(joined) = std::env::join_paths(&all) {
            self.variables.insert(LINKER_PATH.into(), joined);
        }
    }

    /// Whether `file` is this program, under any name. A file that cannot be inspected is not.
    pub(crate) fn is_own(&self, file: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let is_namesake = || {
            let canonical = std::fs::canonicalize(file).unwrap_or_default();
            OWN_NAMES.iter().any(|name| canonical.file_name() == Some(OsStr::new(name)))
        };
        match (std::fs::metadata(file), std::fs::metadata(&self.own_executable)) {
            (Ok(file), Ok(own)) if (file.dev(), file.ino()) == (own.dev(), own.ino()) => true,
            (Ok(_), _) => is_namesake(),
            (Err(_), _) => false,
        }
    }

    /// The variables for a linker or driver that we start: one level deeper.
    ///
    /// # Errors
    /// There are so many levels above us already that they must be a cycle.
    pub(crate) fn for_child(&self) -> Result<BTreeMap<OsString, OsString>> {
        let depth = self.variable(DEPTH).and_then(OsStr::to_str).and_then(|text| text.parse::<u32>().ok());
        let depth = depth.unwrap_or(0);
        if depth >= DEEPEST {
            return Err(Error::usage(format!("{depth} linkers have called each other: they lead back to {}", self.own_executable.display()))
                .with_hint("name a linker that is no wrapper of this one: --reorder-linker=/usr/bin/ld, or REORDER_LINKER"));
        }
        let mut variables = self.variables.clone();
        variables.insert(DEPTH.into(), depth.saturating_add(1).to_string().into());
        Ok(variables)
    }
}

#[cfg(target_os = "linux")]
fn folder_of_clang_that_started_us() -> Option<PathBuf> {
    let parent = std::fs::read_link(format!("/proc/{}/exe", std::os::unix::process::parent_id())).ok()?;
    let name = parent.file_name()?.as_bytes();
    if !name.starts_with(b"clang") {
        return None;
    }
    parent.parent().map(Path::to_path_buf)
}

#[cfg(not(target_os = "linux"))]
fn folder_of_clang_that_started_us() -> Option<PathBuf> {
    None
}
