//! The tools that make, run and compare Mach-O images on Linux: clang and ld64.lld, and the Python tools in `tests/macho`.

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::process::{self, Outcome, shell};
use crate::workspace;

/// Far more than any program of the tests needs in the emulator.
const LIMIT: Duration = Duration::from_secs(300);

/// The Python that has the packages; everything else is installed next to it.
///
/// # Panics
/// When the tools cannot be installed; the text names what is missing.
fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let script = workspace::root().join("scripts/install-macho-tools");
        let path =
            shell(&script.display().to_string(), Duration::from_secs(1200)).expect("the tools install");
        PathBuf::from(path.trim())
    })
}

/// The folder that holds everything that was installed.
fn tools() -> &'static Path {
    python().ancestors().nth(3).expect("the Python lies in python/bin of the tools")
}

/// Libraries that emulated programs load: a folder for each architecture.
pub fn runtime() -> PathBuf {
    tools().join("runtime")
}

/// The compiler of Zig, for arm64, as the beginning of a shell command.
pub fn zig_compiler() -> String {
    let (python, cache) = (python().display(), tools().join("zig"));
    let cache = cache.display();
    format!(
        "ZIG_GLOBAL_CACHE_DIR='{cache}' ZIG_LOCAL_CACHE_DIR='{cache}' '{python}' -m ziglang cc -target aarch64-macos"
    )
}

/// Number of random orders that are tested for each image: `REORDER_MACHO_SEEDS`, or a few.
///
/// # Panics
/// When the variable holds no number.
pub fn seeds() -> Range<u64> {
    const FEW: u64 = 5;
    let number = |text: OsString| text.to_str().and_then(|text| text.parse().ok());
    let asked = std::env::var_os("REORDER_MACHO_SEEDS").map(|text| number(text).expect("a number of seeds"));
    0..asked.unwrap_or(FEW)
}

/// One program of `tests/macho`, without arguments.
pub fn script(path: &str) -> Command {
    let mut command = Command::new(python());
    command.arg(workspace::root().join("tests/macho").join(path));
    command
}

/// A published image by its name in `tests/macho/images.tsv`, fetched if it is missing.
///
/// # Panics
/// When it cannot be fetched, or its digest is not the listed one.
pub fn published(name: &str) -> PathBuf {
    let folder = tools().join("images");
    let list = workspace::root().join("tests/macho/images.tsv");
    let outcome = run(script("corpus/image.py").arg(list).arg(&folder).arg(name));
    assert!(outcome.success(), "{name}: {outcome}");
    folder.join(name)
}

/// The flags with which clang compiles C++ for the emulator's libc++.
pub fn cxx_flags() -> String {
    let zig = tools().join("python/lib");
    let settings = workspace::root().join("tests/macho/runtime/cxx_settings.h");
    format!(
        "-std=c++20 -nostdinc++ -include '{}' -isystem \"$(echo '{zig}'/python3*/site-packages/ziglang/lib/libcxx/include)\" \
         -nostdlibinc -idirafter \"$(echo '{zig}'/python3*/site-packages/ziglang/lib/libc/include/any-darwin-any)\"",
        settings.display(),
        zig = zig.display(),
    )
}

/// One run in the emulator.
#[derive(Debug)]
pub struct Run {
    /// What the program printed and how it ended.
    pub outcome: Outcome,
    /// Pages of 16 KiB of `__text` that hold an executed instruction.
    pub text_pages: u64,
}

/// How an image is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Emulated<'a> {
    /// The architecture to run: `arm64` when empty.
    pub architecture: &'a str,
    /// Arguments of the program.
    pub arguments: &'a [&'a str],
    /// Another image that is loaded first.
    pub library: Option<&'a Path>,
    /// Calls functions of a library instead of running a program.
    pub scenario: Option<&'a str>,
    /// File for the functions that ran, in the order of first execution.
    pub trace: Option<&'a Path>,
}

impl Emulated<'_> {
    /// Runs `image`.
    ///
    /// # Panics
    /// When the emulator cannot be started or does not report on the run.
    pub fn run(&self, image: &Path) -> Run {
        let summary = tempfile::NamedTempFile::new().expect("a file for the summary");
        let mut command = script("emulator/run.py");
        command.arg("--runtime").arg(runtime()).arg("--summary").arg(summary.path());
        if !self.architecture.is_empty() {
            command.args(["--arch", self.architecture]);
        }
        for (flag, path) in [("--library", self.library), ("--trace", self.trace)] {
            if let Some(path) = path {
                command.arg(flag).arg(path);
            }
        }
        if let Some(scenario) = self.scenario {
            command.args(["--call", scenario]);
        }
        let outcome = run(command.arg(image).args(self.arguments));
        let text = std::fs::read_to_string(summary.path()).expect("the summary is text");
        let numbers: serde_json::Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {outcome}"));
        assert!(numbers["fault"].is_null(), "{}: {outcome}", image.display());
        Run { outcome, text_pages: numbers["text_pages"].as_u64().expect("a number of pages") }
    }
}

/// Runs a command that must start.
///
/// # Panics
/// When it does not start.
pub fn run(command: &mut Command) -> Outcome {
    process::run(command, LIMIT).unwrap_or_else(|error| panic!("{command:?}: {error}"))
}
