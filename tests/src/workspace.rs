//! Builds and finds the commands of this workspace that the tests run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The command under test, built once per test program in the profile of that program.
///
/// Cargo gives the path of a binary only to tests of the package that owns it, hence the nested build.
///
/// # Panics
/// When the command does not build: no test is possible without it.
pub fn reorder_path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build("reorder-functions", &["--bin", "reorder"]).join("reorder"))
}

/// The linker plugin, built in the same way.
///
/// # Panics
/// When it does not build.
pub fn plugin_path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let directory = build("reorder-linker-plugin", &["--lib"]);
        // Only a library that is asked for is put beside the commands.
        let directory = if is_built() { directory.join("deps") } else { directory };
        directory.join("libreorder_plugin.so")
    })
}

/// Builds what `targets` select of `package`, in the profile of this test program, and gives the folder of the results.
///
/// Nothing is built if `REORDER_IS_BUILT` is set: a run over the whole workspace has built all commands before its first test,
/// with the features of test dependencies, and cargo would build all crates again without these.
///
/// # Panics
/// When it does not build.
pub fn build(package: &str, targets: &[&str]) -> PathBuf {
    let profile_directory = profile_directory();
    if is_built() {
        return profile_directory;
    }
    let profile = match profile_directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let target_directory = profile_directory.parent().expect("the profile is a directory of the target");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", package, "--profile", profile])
        .args(targets)
        .arg("--target-dir")
        .arg(target_directory)
        .current_dir(root())
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the command under test does not build");
    profile_directory
}

fn is_built() -> bool {
    std::env::var_os("REORDER_IS_BUILT").is_some()
}

/// A new invocation of the command under test.
pub fn reorder() -> Command {
    Command::new(reorder_path())
}

/// The root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}

/// A new folder beside the build, which is on a disk: a file system in memory has no cold starts, and profiles leave out code
/// from below `/dev`.
///
/// # Panics
/// When it cannot be made.
pub fn directory_on_disk() -> TempDir {
    TempDir::with_prefix_in("scratch", profile_directory()).expect("a folder beside the build")
}

/// `target/debug` or `target/release`: two levels above a test program, one above a binary.
fn profile_directory() -> PathBuf {
    let executable = std::env::current_exe().expect("the path of this program");
    let directory = executable.parent().expect("a program lies in a directory");
    let directory =
        if directory.ends_with("deps") { directory.parent().unwrap_or(directory) } else { directory };
    directory.to_path_buf()
}
