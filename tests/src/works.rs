//! Generic work for installed programs: files of many kinds.
//!
//! In: an installed program and a folder of files. Out: an [`Examination`]. Each file is given to the program as its
//! argument, as its standard input, and as the first of two names, of which the second is that of a file to write; every
//! time in an empty folder of the same path. Of works that the original treats alike, as programs do whose input is of
//! another kind, only the first is compared. What the original prints, how it ends and which files it leaves must all be the
//! same once its functions are permuted. Only what the original does every time is asked of the result, and only what the
//! result does again is held against it.
//!
//! Programs act on what they are given, so the caller runs this where nothing can be harmed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};
use std::{fmt, io};

use md5::{Digest, Md5};

use crate::distribution::{Examination, Permutation, REPEATS, RUN_LIMIT, Verdict, permute_staged};
use crate::process::{Ending, Outcome, run_on};
use crate::stage::Stage;

/// So many files that are treated alike show that a program makes nothing of files that it gets in this way.
const ENOUGH_ALIKE: usize = 12;
/// So many works that vary by themselves show that all do.
const ENOUGH_VARYING: usize = 3;
/// Works that do not end before a program is taken for a server or for one that waits for input.
const MAX_WITHOUT_END: usize = 2;
/// Works of one program take no longer than this on the original.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of what a program says that a report shows.
const SHOWN: usize = 160;

/// How a program gets a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Argument,
    Input,
    Conversion,
}

/// One file, given in one way.
#[derive(Clone, Debug)]
struct Work {
    file: PathBuf,
    way: Way,
}

impl fmt::Display for Work {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        match self.way {
            Way::Argument => write!(formatter, "{name}"),
            Way::Input => write!(formatter, "< {name}"),
            Way::Conversion => write!(formatter, "{name} {OUTPUT}"),
        }
    }
}

/// The second name of a conversion.
const OUTPUT: &str = "output";

/// Bytes, by their digest and how they begin.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    length: usize,
    digest: [u8; 16],
    start: String,
}

impl Told {
    fn new(bytes: &[u8]) -> Self {
        let start = &bytes[..bytes.len().min(SHOWN)];
        Self {
            length: bytes.len(),
            digest: Md5::digest(bytes).into(),
            start: String::from_utf8_lossy(start).into_owned(),
        }
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes {:?}", self.length, self.start)
    }
}

/// What came of one work.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    ending: Ending,
    stdout: Told,
    stderr: Told,
    left: BTreeMap<PathBuf, Told>,
    /// All of it without the name of the file.
    kind: Told,
}

impl Answer {
    fn new(name: &str, given: &Told, outcome: &Outcome, left: BTreeMap<PathBuf, Told>) -> Self {
        let mut all = format!("{:?}\n{}\n{}\n", outcome.ending, outcome.stdout_text(), outcome.stderr_text());
        for (path, told) in left.iter().filter(|(_, told)| *told != given) {
            // Writing to a string cannot fail.
            let _ = writeln!(all, "{} {:?}", path.display(), told.digest);
        }
        Self {
            ending: outcome.ending,
            stdout: Told::new(&outcome.stdout),
            stderr: Told::new(&outcome.stderr),
            left,
            kind: Told::new(all.replace(name, "").as_bytes()),
        }
    }
}

/// Permutes one program with `seed` and compares what it makes of all `files`.
///
/// # Errors
/// The scratch directory cannot be used.
pub fn examine(program: &Path, permutation: Permutation, files: &Path) -> io::Result<Examination> {
    let scratch = tempfile::tempdir()?;
    let stage = Stage::new(scratch.path(), program)?;
    let permuted = scratch.path().join("permuted");
    let mut examination = permute_staged(program, &stage, &permuted, permutation)?;
    if examination.verdict != Verdict::Same {
        return Ok(examination);
    }
    let mut files = fs::read_dir(files)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    files.sort_unstable();
    let expected = originals(&stage, &files)?;
    stage.play(&permuted)?;
    let mut differing = Vec::new();
    for (work, before) in &expected {
        if answer(&stage, work)? != *before {
            differing.push((work, before));
        }
    }
    examination.works = expected.len();
    let well = expected.iter().filter(|(_, answer)| answer.ending == Ending::Exited(0));
    examination.answers =
        well.map(|(_, answer)| (&answer.stdout, &answer.left)).collect::<BTreeSet<_>>().len();
    let mut varying = 0;
    for (work, before) in differing {
        match judge(&stage, &permuted, work, before)? {
            Verdict::Same => {}
            Verdict::Varies(what) => {
                examination.verdict = Verdict::Varies(what);
                varying += 1;
                if varying == ENOUGH_VARYING {
                    break;
                }
            }
            verdict => {
                examination.verdict = verdict;
                break;
            }
        }
    }
    Ok(examination)
}

/// What the original makes of the works, as far as it is asked: the first of each kind of answer.
fn originals(stage: &Stage, files: &[PathBuf]) -> io::Result<Vec<(Work, Answer)>> {
    let start = Instant::now();
    let mut found: Vec<(Work, Answer)> = Vec::new();
    let mut without_end = 0;
    for way in [Way::Argument, Way::Input, Way::Conversion] {
        let mut kinds = BTreeSet::new();
        for (at, file) in files.iter().enumerate() {
            let is_indifferent = at >= ENOUGH_ALIKE && kinds.len() == 1;
            if is_indifferent || without_end == MAX_WITHOUT_END || start.elapsed() > LIMIT {
                break;
            }
            let work = Work { file: file.clone(), way };
            let answer = answer(stage, &work)?;
            without_end += usize::from(answer.ending == Ending::TimedOut);
            if kinds.insert(answer.kind.clone()) {
                found.push((work, answer));
            }
        }
    }
    Ok(found)
}

/// What a difference says: the permuted program is staged, and is again afterwards.
fn judge(stage: &Stage, permuted: &Path, work: &Work, before: &Answer) -> io::Result<Verdict> {
    let after = answer(stage, work)?;
    if after == *before {
        return Ok(Verdict::Varies(format!("{work}: the permuted program did the same the second time")));
    }
    stage.play_original()?;
    let mut repeated = vec![before.clone()];
    for _ in 0..REPEATS {
        repeated.push(answer(stage, work)?);
    }
    stage.play(permuted)?;
    let is_steady = repeated.iter().all(|answer| answer == before);
    let ends_alike = repeated.iter().any(|answer| answer.ending == after.ending);
    Ok(match is_steady {
        _ if repeated.contains(&after) => Verdict::Same,
        false if ends_alike => Verdict::Varies(format!("{work}: repeated runs of the original differ")),
        _ => Verdict::Different(format!("{work}:\nbefore: {before:?}\nafter: {after:?}")),
    })
}

/// Does one work in a new folder.
fn answer(stage: &Stage, work: &Work) -> io::Result<Answer> {
    let mut command = Command::new(&stage.image);
    stage.set(&mut command);
    clear(&stage.home)?;
    let name = work.file.file_name().unwrap_or_default();
    let input = match work.way {
        Way::Input => Stdio::from(File::open(&work.file)?),
        Way::Argument | Way::Conversion => {
            let copy = stage.home.join(name);
            fs::copy(&work.file, &copy)?;
            // Programs write the age of a file into others.
            let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000));
            File::options().append(true).open(&copy)?.set_times(times)?;
            command.arg(name);
            Stdio::null()
        }
    };
    if work.way == Way::Conversion {
        command.arg(OUTPUT);
    }
    let outcome = run_on(&mut command, input, RUN_LIMIT)?;
    let mut left = BTreeMap::new();
    collect(&stage.home, &mut left);
    let given = Told::new(&fs::read(&work.file)?);
    Ok(Answer::new(&name.to_string_lossy(), &given, &outcome, left))
}

/// Makes a folder empty, also of folders that a program left without permissions.
fn clear(folder: &Path) -> io::Result<()> {
    if fs::remove_dir_all(folder).is_err() {
        Command::new("chmod").args(["-R", "u+rwX"]).arg(folder).status()?;
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir(folder)
}

/// Files below a folder; of what is no file, or cannot be read, the name.
fn collect(folder: &Path, left: &mut BTreeMap<PathBuf, Told>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type());
        let is = |what: fn(&fs::FileType) -> bool| kind.as_ref().is_ok_and(what);
        let bytes = if is(fs::FileType::is_file) { fs::read(&path).unwrap_or_default() } else { Vec::new() };
        if is(fs::FileType::is_dir) {
            collect(&path, left);
        }
        left.insert(path, Told::new(&bytes));
    }
}
