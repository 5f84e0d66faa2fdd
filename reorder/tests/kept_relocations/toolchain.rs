//! Builds programs with the installed compilers and linkers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reorder_base::tool_versions::llvm_directory;
use tempfile::TempDir;

/// Linkers that keep relocations.
pub(crate) const LINKERS: [&str; 4] = ["bfd", "gold", "lld", "mold"];

/// A directory that is removed with the test.
pub(crate) struct Scratch(TempDir);

/// A linked image.
pub(crate) struct Built {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    /// Compiles and links `program`, keeping relocations.
    pub(crate) fn build(&self, compiler: &str, linker: &str, program: &str, options: &[&str]) -> Built {
        let source = self.0.path().join("program.c");
        fs::write(&source, program).unwrap();
        let path = self.0.path().join("program");
        let mut command = Command::new(compiler);
        // gcc looks for `ld.lld`, which is installed only next to its compiler.
        if linker == "lld" {
            command.arg(format!("-B{}", llvm_directory()));
        }
        command.args(options).args([&format!("-fuse-ld={linker}"), "-Wl,--emit-relocs"]);
        let output = command.arg(&source).arg("-o").arg(&path).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler} {linker} {options:?}: {errors}");
        Built { bytes: fs::read(&path).unwrap(), path }
    }

    /// Writes a program that can be executed.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

/// What a program for AArch64 prints under QEMU; panics when it fails.
#[allow(dead_code)] // one of the two test programs has none
pub(crate) fn emulate(path: &Path) -> String {
    let mut command = Command::new("qemu-aarch64-static");
    let output = command.args(["-L", "/usr/aarch64-linux-gnu"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}: {:?}", path.display(), output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// What the program prints; panics when it fails. Another test that forks may keep it busy for a moment.
pub(crate) fn run(path: &Path) -> String {
    let (child, _) = reorder_system::child::spawn(Command::new(path).stdout(Stdio::piped())).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}: {:?}", path.display(), output.status);
    String::from_utf8(output.stdout).unwrap()
}
