//! A scratch directory where an installed program runs, first unchanged, then as a permuted copy at the same path.
//!
//! Same path, same environment, same working directory: every later difference comes from the copy.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::process::copy_executable;

/// One program's scratch directory, with no other files.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Path of the program while it runs.
    pub image: PathBuf,
    /// Its home and working directory.
    pub home: PathBuf,
    /// Filled by [`Stage::play_libraries`], for `LD_LIBRARY_PATH`; does not exist at first.
    pub libraries: PathBuf,
    original: PathBuf,
}

impl Stage {
    /// Copies `program` into the empty directory `scratch`.
    ///
    /// # Errors
    /// The program or the directory cannot be used.
    pub fn new(scratch: &Path, program: &Path) -> io::Result<Self> {
        let (bin, home) = (scratch.join("bin"), scratch.join("home"));
        fs::create_dir(&bin)?;
        fs::create_dir(&home)?;
        // Programs that look for libraries and data next to themselves find their own.
        for neighbour in ["lib", "share", "libexec", "conf"] {
            if let Some(prefix) = program.parent().and_then(Path::parent) {
                symlink(prefix.join(neighbour), scratch.join(neighbour))?;
            }
        }
        let stage = Self {
            image: bin.join(program.file_name().unwrap_or_default()),
            home,
            original: scratch.join("original"),
            libraries: scratch.join("libraries"),
        };
        copy_executable(program, &stage.original)?;
        // Plain permissions: neither the original nor the permuted copy runs with privileges of its own.
        fs::set_permissions(&stage.original, fs::Permissions::from_mode(0o755))?;
        stage.play_original()?;
        Ok(stage)
    }

    /// Puts the original at the path of execution.
    ///
    /// # Errors
    /// The copy fails.
    pub fn play_original(&self) -> io::Result<()> {
        self.play(&self.original)
    }

    /// Puts a copy of `image` at the path of execution; an earlier one that still runs keeps its own file.
    ///
    /// # Errors
    /// The copy fails.
    pub fn play(&self, image: &Path) -> io::Result<()> {
        let beside = self.image.with_extension("next");
        copy_executable(image, &beside)?;
        fs::rename(&beside, &self.image)
    }

    /// Puts `folder` at [`Stage::libraries`], or removes it.
    ///
    /// # Errors
    /// The link cannot be made.
    pub fn play_libraries(&self, folder: Option<&Path>) -> io::Result<()> {
        match fs::remove_file(&self.libraries) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => folder.map_or(Ok(()), |folder| symlink(folder, &self.libraries)),
        }
    }

    /// Gives `command` the same environment every time.
    pub fn set(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", &self.home)
            .env("TMPDIR", &self.home)
            .env("LC_ALL", "C.UTF-8")
            .env("TERM", "dumb")
            .env("COLUMNS", "80")
            .env("PROGRAM", &self.image)
            .current_dir(&self.home);
    }
}
