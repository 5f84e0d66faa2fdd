//! Randomly permutes installed programs that others built, and compares what they print.
//!
//! In: the path of an installed program. Out: a [`Verdict`]. The program is copied to a scratch directory, asked for
//! `--version`, `--help` and `-h`, replaced at the same path by a copy whose movable functions are all permuted, and
//! asked again: same path, same environment, same working directory, so every difference counts. A program that
//! already differs between two runs of the original is not compared by its text but by how it ends. With [`Libraries`]
//! the permuted program is asked a third time, while the C and C++ libraries below it are permuted, too.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use object::LittleEndian;
use object::elf::{ET_DYN, FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{self, Ending, Outcome};
use crate::stage::Stage;
use crate::workspace;

/// The three questions that nearly every program answers without doing any work.
pub const QUESTIONS: [&str; 3] = ["--version", "--help", "-h"];
/// Servers and interactive programs ignore the questions and are stopped.
pub(crate) const RUN_LIMIT: Duration = Duration::from_secs(4);
const APPLY_LIMIT: Duration = Duration::from_secs(600);
/// How often an original is asked again before the permutation is blamed for a difference.
pub(crate) const REPEATS: usize = 8;

/// The libraries that nearly every program uses.
const LIBRARIES: [&str; 4] = ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"];
/// Where Debian keeps them.
const LIBRARY_FOLDER: &str = "/usr/lib/x86_64-linux-gnu";

/// Never run, under any option, with the reason.
const SKIPPED: [(&str, &[&str]); 4] = [
    (
        "stops or restarts the machine",
        &[
            "init",
            "telinit",
            "halt",
            "poweroff",
            "reboot",
            "shutdown",
            "runlevel",
            "ctrlaltdel",
            "kexec",
            "rtcwake",
            "killall5",
            "fstab-decode",
            "switch_root",
            "pivot_root",
        ],
    ),
    (
        "changes disks or file systems",
        &[
            "mkswap",
            "swapon",
            "swapoff",
            "wipefs",
            "blkdiscard",
            "dd",
            "hdparm",
            "sfdisk",
            "losetup",
            "mount",
            "umount",
            "fstrim",
            "addpart",
            "delpart",
            "resizepart",
            "partx",
            "badblocks",
            "debugfs",
        ],
    ),
    (
        "changes the system's state",
        &[
            "ldconfig",
            "modprobe",
            "insmod",
            "rmmod",
            "depmod",
            "kmod",
            "hwclock",
            "sulogin",
            "agetty",
            "getty",
            "login",
            "su",
            "newgrp",
            "sg",
            "unix_chkpwd",
            "pam_timestamp_check",
        ],
    ),
    (
        "speaks to the terminal or to other users",
        &["wall", "write", "mesg", "setterm", "script", "reset", "tset"],
    ),
];
const SKIPPED_PREFIXES: [(&str, &str); 3] = [
    ("mkfs", "changes disks or file systems"),
    ("mke2fs", "changes disks or file systems"),
    ("fsck", "changes disks or file systems"),
];
/// Helpers of the service manager act even without arguments.
const SKIPPED_DIRECTORIES: [(&str, &str); 1] = [("/usr/lib/systemd", "changes the system's state")];

/// The outcome for one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All answers are the same.
    Same,
    /// The original's answers vary between runs; the permuted program ended the same way.
    Varies(String),
    /// `reorder` refused the image with this code.
    Refused(String),
    /// The permuted program differs: the question and both answers.
    Different(String),
    /// `reorder` itself failed.
    Failed(String),
}

/// One program's result.
#[derive(Clone, Debug)]
pub struct Examination {
    /// The installed program.
    pub program: PathBuf,
    /// The outcome.
    pub verdict: Verdict,
    /// Functions in the image.
    pub functions: u64,
    /// Functions that may move.
    pub movable: u64,
    /// Functions that have another address afterwards, or a copy.
    pub moved: u64,
    /// What it was asked to do.
    pub works: usize,
    /// Different things that came of it where the original ended well.
    pub answers: usize,
}

/// Why `program` must not be run, if there is a reason.
pub fn reason_to_skip(program: &Path) -> Option<&'static str> {
    let name = program.file_name()?.to_str()?;
    let by_name = SKIPPED.iter().find(|(_, names)| names.contains(&name)).map(|(reason, _)| *reason);
    let by_prefix =
        SKIPPED_PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, reason)| *reason);
    let by_directory =
        SKIPPED_DIRECTORIES.iter().find(|(folder, _)| program.starts_with(folder)).map(|(_, reason)| *reason);
    by_name.or(by_prefix).or(by_directory)
}

/// All position-independent programs below `roots`, each file once, sorted by path.
pub fn programs(roots: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut pending: Vec<PathBuf> = roots.to_vec();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if metadata.is_dir() {
                pending.push(path);
            } else if metadata.is_file()
                && metadata.permissions().mode() & 0o111 != 0
                && is_program(&path)
                && seen.insert((metadata.dev(), metadata.ino()))
            {
                found.insert(path);
            }
        }
    }
    found.into_iter().collect()
}

/// Whether the file is a position-independent program with an interpreter.
fn is_program(path: &Path) -> bool {
    /// Linkers put the program headers directly after the header of the file.
    const HEADERS: u64 = 4096;
    let mut bytes = Vec::new();
    if File::open(path).and_then(|file| file.take(HEADERS).read_to_end(&mut bytes)).is_err() {
        return false;
    }
    let Ok(header) = FileHeader64::<LittleEndian>::parse(&*bytes) else { return false };
    let Ok(endian) = header.endian() else { return false };
    let Ok(segments) = header.program_headers(endian, &*bytes) else { return false };
    header.e_type(endian) == ET_DYN && segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP)
}

/// What is given another order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permuted {
    /// All functions that may move.
    #[default]
    Functions,
    /// Copies of a random half of all basic blocks.
    Blocks,
}

impl Permuted {
    /// The value of `--layout`.
    fn layout(self) -> &'static str {
        match self {
            Self::Functions => "functions",
            Self::Blocks => "blocks",
        }
    }
}

/// How programs are permuted.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    /// What is given another order.
    pub what: Permuted,
    /// Chooses the order, and the blocks.
    pub seed: u64,
}

/// Permuted copies of the libraries that nearly every program runs on.
#[derive(Debug)]
pub struct Libraries {
    folder: TempDir,
}

impl Libraries {
    /// Permutes the C and C++ libraries of this system.
    ///
    /// # Errors
    /// One of them is missing, or refused.
    pub fn permuted(permutation: Permutation) -> std::io::Result<Self> {
        let folder = tempfile::tempdir()?;
        for name in LIBRARIES {
            let outcome =
                permute(&Path::new(LIBRARY_FOLDER).join(name), &folder.path().join(name), permutation)?;
            if !outcome.success() {
                return Err(std::io::Error::other(format!("{name}: {outcome}")));
            }
        }
        Ok(Self { folder })
    }
}

/// The command that permutes: what `REORDER` names, so that programs can be run where nothing can be built.
pub fn command_under_test() -> PathBuf {
    std::env::var_os("REORDER").map_or_else(|| workspace::reorder_path().to_path_buf(), PathBuf::from)
}

/// Runs `apply` with a random permutation and waits for its end.
///
/// # Errors
/// The command cannot be started.
pub fn permute(image: &Path, output: &Path, permutation: Permutation) -> std::io::Result<Outcome> {
    let mut command = Command::new(command_under_test());
    command.args(["apply", "--format", "json", "--strategy", "random", "--seed"]);
    command.arg(permutation.seed.to_string());
    // A command of an earlier version, which `REORDER` may name, knows only the default.
    if permutation.what != Permuted::default() {
        command.args(["--layout", permutation.what.layout()]);
    }
    process::run(command.arg(image).arg("-o").arg(output), APPLY_LIMIT)
}

/// Permutes one program and compares its answers, then once more on permuted `libraries`.
///
/// # Errors
/// The scratch directory cannot be used.
pub fn examine(
    program: &Path,
    permutation: Permutation,
    libraries: Option<&Libraries>,
) -> std::io::Result<Examination> {
    let scratch = tempfile::tempdir()?;
    let stage = Stage::new(scratch.path(), program)?;
    let permuted = scratch.path().join("permuted");
    let mut examination = permute_staged(program, &stage, &permuted, permutation)?;
    if examination.verdict != Verdict::Same {
        return Ok(examination);
    }
    examination.works = QUESTIONS.len();
    let mut originals = Vec::new();
    for question in QUESTIONS {
        originals.push([ask(&stage, question)?, ask(&stage, question)?]);
    }
    for libraries in once_or_twice(libraries) {
        stage.play(&permuted)?;
        stage.play_libraries(libraries.map(|libraries| libraries.folder.path()))?;
        let mut answers = Vec::new();
        for question in QUESTIONS {
            answers.push(ask(&stage, question)?);
        }
        stage.play_original()?;
        stage.play_libraries(None)?;
        for ((question, before), after) in QUESTIONS.iter().zip(&originals).zip(&answers) {
            match compare(&stage, question, before, after)? {
                Verdict::Same => {}
                Verdict::Varies(what) => examination.verdict = Verdict::Varies(what),
                Verdict::Different(what) if libraries.is_some() => {
                    examination.verdict = Verdict::Different(format!("on permuted libraries: {what}"));
                    return Ok(examination);
                }
                verdict => {
                    examination.verdict = verdict;
                    return Ok(examination);
                }
            }
        }
    }
    Ok(examination)
}

/// Permutes the program on `stage`; it has no works yet.
pub(crate) fn permute_staged(
    program: &Path,
    stage: &Stage,
    permuted: &Path,
    permutation: Permutation,
) -> std::io::Result<Examination> {
    let outcome = permute(&stage.image, permuted, permutation)?;
    let verdict = if outcome.success() { Verdict::Same } else { refusal(&outcome) };
    let report: Value = serde_json::from_slice(&outcome.stdout).unwrap_or_default();
    let count = |key: &str| report[key].as_u64().unwrap_or(0);
    Ok(Examination {
        program: program.to_path_buf(),
        verdict,
        functions: count("functions"),
        movable: count("functions_movable"),
        moved: count("functions_moved") + report["clones"]["functions"].as_u64().unwrap_or(0),
        works: 0,
        answers: 0,
    })
}

/// The libraries of the system, then the permuted ones if there are any.
fn once_or_twice(libraries: Option<&Libraries>) -> impl Iterator<Item = Option<&Libraries>> {
    std::iter::once(None).chain(libraries.map(Some))
}

/// The refusal's code, or the whole failure. That the command's own two halves disagree is none of the refusals that are
/// right.
fn refusal(outcome: &Outcome) -> Verdict {
    const UNPROVEN: &str = "R16";
    let text = outcome.stderr_text();
    let code = text.split_once("refused (").and_then(|(_, rest)| rest.split_once(')')).map(|(code, _)| code);
    match code {
        Some(code) if outcome.ending == Ending::Exited(2) && code != UNPROVEN => {
            Verdict::Refused(code.to_owned())
        }
        _ => Verdict::Failed(outcome.to_string()),
    }
}

fn ask(stage: &Stage, question: &str) -> std::io::Result<Outcome> {
    let mut command = Command::new(&stage.image);
    stage.set(&mut command);
    command.env("LD_LIBRARY_PATH", &stage.libraries);
    process::run(command.arg(question), RUN_LIMIT)
}

/// Compares the answers of two runs of the original with that of the permuted program.
fn compare(
    stage: &Stage,
    question: &str,
    before: &[Outcome; 2],
    after: &Outcome,
) -> std::io::Result<Verdict> {
    let [first, second] = before;
    if first == after || second == after {
        return Ok(Verdict::Same);
    }
    let varies = |what: &str| Verdict::Varies(format!("{question}: {what}"));
    if first != second && first.ending == after.ending {
        return Ok(varies("two runs of the original differ"));
    }
    for _ in 0..REPEATS {
        let again = ask(stage, question)?;
        if again == *after {
            return Ok(Verdict::Same);
        }
        if again != *first && again.ending == after.ending {
            return Ok(varies("repeated runs of the original differ"));
        }
    }
    Ok(Verdict::Different(format!("{question}:\nbefore: {first}after: {after}")))
}
