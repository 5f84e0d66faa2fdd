//! Finds `reorder-ld` and `reorder-cc`, and runs whole builds with and without them.
//!
//! A [`Build`] is a folder in which a shell line makes a program. It has a home and a folder of links of its own, and no
//! variable that configures the wrapper is set.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use std::{fs, io};

use reorder_base::tool_versions::variables;
use tempfile::TempDir;

use crate::process::{self, Outcome};
use crate::workspace;

/// Longer than any build of the tests takes on a loaded system.
pub const LIMIT: Duration = Duration::from_secs(300);

/// The folder of `reorder-ld`, `reorder-cc` and `reorder`, built once per test program in its profile.
///
/// # Panics
/// When they do not build: no test is possible without them.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        workspace::reorder_path();
        workspace::build("reorder-linker-plugin", &["--bins"])
    })
}

/// A folder in which a program is built.
pub struct Build {
    scratch: TempDir,
    folder: PathBuf,
    links: PathBuf,
    variables: Vec<(OsString, OsString)>,
}

impl Build {
    /// An empty folder with the name `name`, and the folder of links next to it.
    ///
    /// # Errors
    /// Folders cannot be made, or `reorder-ld --reorder-links` fails.
    pub fn new(name: impl AsRef<Path>) -> io::Result<Self> {
        let scratch = tempfile::tempdir()?;
        let folder = scratch.path().join(name);
        fs::create_dir_all(&folder)?;
        let mut build = Self { scratch, folder, links: PathBuf::new(), variables: Vec::new() };
        let made = build.run("reorder-ld --reorder-links")?;
        if !made.success() {
            return Err(io::Error::other(made.to_string()));
        }
        build.links = PathBuf::from(made.stdout_text().trim_end());
        Ok(build)
    }

    /// Where the build takes place.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of links, `$LINKS` in shell lines.
    pub fn links(&self) -> &Path {
        &self.links
    }

    /// Sets a variable for all later commands.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.unset(name);
        self.variables.push((name.into(), value.into()));
    }

    /// Removes a variable that was set.
    pub fn unset(&mut self, name: &str) {
        self.variables.retain(|(known, _)| known != name);
    }

    /// Writes a file, and the folders above it.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) -> io::Result<()> {
        let path = self.folder.join(path);
        if let Some(above) = path.parent() {
            fs::create_dir_all(above)?;
        }
        fs::write(path, text)
    }

    /// A command that runs `line` in the folder. Our commands are in `PATH`; `$LD` is the path of `reorder-ld`,
    /// `$LINKS` the folder of links, and `clang$LLVM` a tool of LLVM.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&self.folder);
        for (name, _) in std::env::vars_os() {
            if name.as_bytes().starts_with(b"REORDER_") || name.as_bytes().starts_with(b"CARGO") {
                command.env_remove(name);
            }
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(folder().to_path_buf()).chain(std::env::split_paths(&path));
        command
            .env("PATH", std::env::join_paths(folders).unwrap_or(path))
            .env("LD", folder().join("reorder-ld"))
            .env("LINKS", &self.links)
            .env("XDG_CACHE_HOME", self.scratch.path().join("cache"))
            .env("RUST_BACKTRACE", "0")
            .envs(variables())
            .envs(self.variables.iter().cloned());
        command
    }

    /// Runs `line` in the folder.
    ///
    /// # Errors
    /// No shell.
    pub fn run(&self, line: &str) -> io::Result<Outcome> {
        process::run(&mut self.command(line), LIMIT)
    }

    /// Runs `line`, which must succeed.
    ///
    /// # Panics
    /// When it fails, with its output.
    pub fn must(&self, line: &str) -> Outcome {
        let outcome = self.run(line).expect("a shell");
        // Messages about long lines repeat them.
        assert!(outcome.success(), "{line}\n{:.4000}", outcome.to_string());
        outcome
    }

    /// The bytes of a file.
    ///
    /// # Panics
    /// When it does not exist.
    pub fn bytes(&self, path: impl AsRef<Path>) -> Vec<u8> {
        let path = self.folder.join(path);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}
