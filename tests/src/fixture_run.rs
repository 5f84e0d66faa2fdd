//! Checks one variant of a fixture against everything that relocation promises.
//!
//! In: a [`Variant`]. Out: `Ok`, or the first failed check as text. The image is built and run; then, for
//! three random permutations and one real order (the reverse of the link order), relocated and run again. Besides:
//! the stripped image behaves the same, and so do copies of all functions, or of those that stay, and of a random half of
//! the basic blocks. For one toolchain of each build, the laws are checked: the link order gives the input back byte by
//! byte, restoring undoes a permutation, and the number of threads does not matter.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};
use tempfile::TempDir;

use crate::fixture::{Blocks, CURED_BY_COPIES, Expectation, Stripped, Variant};
use crate::inspection::Inspection;
use crate::process::{self, Ending, Outcome};
use crate::workspace::{self, reorder};

/// Fixtures end within milliseconds; a longer run hangs.
const RUN_LIMIT: Duration = Duration::from_secs(60);
/// Compilers share the system with other tests.
const BUILD_LIMIT: Duration = Duration::from_secs(300);
/// Followed by the seed.
const RANDOM: [&str; 3] = ["--strategy", "random", "--seed"];

/// Builds `variant` in a scratch directory and checks it.
///
/// # Errors
/// What failed, with the command line and its output.
pub fn check(variant: &Variant) -> Result<(), String> {
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let directory = Scratch::new(scratch.path(), variant)?;
    let build =
        directory.resolve(&variant.build, &directory.old).replace("{ballast}", ballast(variant.is_cross())?);
    process::shell(&build, BUILD_LIMIT)?;
    for line in &variant.prepare {
        process::shell(&directory.resolve(line, &directory.old), BUILD_LIMIT)?;
    }
    let before = directory.run_all(&directory.old)?;
    directory.check_original(&before)?;
    match &variant.expectation {
        Expectation::Refused(code) => {
            directory.check_failure(&directory.old, &format!("({code})"))?;
            // What is too little known to be moved can still have copies.
            if CURED_BY_COPIES.contains(&code.as_str()) && !directory.check_copies(&before, "--clone")? {
                return Err(format!("{code} should be cured by --clone"));
            }
        }
        Expectation::Failed(text) => directory.check_failure(&directory.old, text)?,
        Expectation::Untouched => directory.check_untouched()?,
        Expectation::Moved => {
            directory.check_inspection()?;
            directory.check_permutations(&before)?;
            if variant.with_laws {
                directory.check_laws()?;
            }
            directory.check_copies(&before, "--clone=all")?;
            if !variant.pinned.is_empty() {
                directory.check_copies(&before, "--clone")?;
            }
        }
    }
    if !matches!(variant.expectation, Expectation::Failed(_)) {
        directory.check_blocks(&before)?;
    }
    directory.check_stripped(&before)
}

/// The object file of unused functions, compiled once for each processor.
fn ballast(is_cross: bool) -> Result<&'static str, String> {
    static OBJECTS: [OnceLock<Result<(TempDir, String), String>>; 2] = [OnceLock::new(), OnceLock::new()];
    let (object, compiler) =
        if is_cross { (&OBJECTS[1], "aarch64-linux-gnu-gcc") } else { (&OBJECTS[0], "gcc") };
    let object = object.get_or_init(|| {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let object = directory.path().join("ballast.o").to_string_lossy().into_owned();
        let source = workspace::root().join("tests/fixtures/ballast.c");
        process::shell(
            &format!("{compiler} -O2 -fPIC -c '{}' -o '{object}'", source.display()),
            BUILD_LIMIT,
        )?;
        Ok((directory, object))
    });
    object.as_ref().map(|(_, object)| object.as_str()).map_err(Clone::clone)
}

/// Where the original and the relocated image of one variant lie: under the same name in two directories, so that
/// a program that prints its own name prints the same.
struct Scratch<'variant> {
    variant: &'variant Variant,
    directory: PathBuf,
    old: PathBuf,
    new: PathBuf,
}

impl<'variant> Scratch<'variant> {
    fn new(directory: &Path, variant: &'variant Variant) -> Result<Self, String> {
        let place = |name: &str| -> Result<PathBuf, String> {
            let folder = directory.join(name);
            fs::create_dir(&folder).map_err(|error| error.to_string())?;
            Ok(folder.join("image"))
        };
        Ok(Self { variant, directory: directory.to_path_buf(), old: place("old")?, new: place("new")? })
    }

    /// Replaces the placeholders of `line`; `image` is the image to run.
    fn resolve(&self, line: &str, image: &Path) -> String {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        line.replace("{source}", &text(&self.variant.source))
            .replace("{fixture}", &text(&self.variant.fixture))
            .replace("{directory}", &text(&self.directory))
            .replace("{output}", &text(&self.old))
            .replace("{old}", &text(&self.old))
            .replace("{new}", &text(&self.new))
            .replace("{image}", &text(image))
    }

    /// The emulator for `line`, if any; commands without the image run natively.
    fn emulator(&self, line: &str) -> &'static str {
        match self.variant.is_cross() && line.contains("{image}") {
            true => "qemu-aarch64-static -L /usr/aarch64-linux-gnu ",
            false => "",
        }
    }

    fn run_all(&self, image: &Path) -> Result<Vec<Outcome>, String> {
        self.variant
            .runs
            .iter()
            .map(|line| {
                let line = format!("{}{}", self.emulator(line), self.resolve(line, image));
                process::run(Command::new("bash").args(["-c", &format!("exec {line}")]), RUN_LIMIT)
                    .map_err(|error| format!("{line}: {error}"))
            })
            .collect()
    }

    /// The original must behave as the fixture states, or the comparison would prove nothing.
    fn check_original(&self, outcomes: &[Outcome]) -> Result<(), String> {
        for outcome in outcomes {
            if outcome.ending != Ending::Exited(self.variant.exit) {
                return Err(format!("the original should exit with {}: {outcome}", self.variant.exit));
            }
        }
        let printed: String = outcomes.iter().map(Outcome::stdout_text).collect();
        match &self.variant.stdout {
            Some(expected) if *expected != printed => {
                Err(format!("the original should print\n{expected}but printed\n{printed}"))
            }
            _ => Ok(()),
        }
    }

    fn apply(&self, input: &Path, output: &Path, arguments: &[&str]) -> Result<Outcome, String> {
        let _ = fs::remove_file(output);
        let mut command = reorder();
        command.arg("apply").arg(input).args(arguments).args(&self.variant.apply).arg("-o").arg(output);
        process::run(&mut command, RUN_LIMIT).map_err(|error| error.to_string())
    }

    /// Updating debug information changes its size, and then no map leads back.
    fn updates_debug(&self) -> bool {
        self.variant.apply.iter().any(|argument| argument == "update")
    }

    /// Runs `apply`, which must succeed and keep the size.
    fn relocate(&self, input: &Path, output: &Path, arguments: &[&str]) -> Result<(), String> {
        let outcome = self.apply(input, output, arguments)?;
        if !outcome.success() {
            return Err(format!("apply {arguments:?}: {outcome}"));
        }
        if !self.updates_debug() && read(input)?.len() != read(output)?.len() {
            return Err(format!("apply {arguments:?} changed the size"));
        }
        Ok(())
    }

    /// `apply` must fail with a message that contains `text`, and write no file.
    fn check_failure(&self, image: &Path, text: &str) -> Result<(), String> {
        let outcome = self.apply(image, &self.new, &[&RANDOM[..], &["1"]].concat())?;
        if outcome.ending != Ending::Exited(2) || !outcome.stderr_text().contains(text) {
            return Err(format!("should fail with `{text}`: {outcome}"));
        }
        if self.new.exists() {
            return Err("a failure left an output".to_owned());
        }
        Ok(())
    }

    fn check_untouched(&self) -> Result<(), String> {
        self.relocate(&self.old, &self.new, &[&RANDOM[..], &["1"]].concat())?;
        same_bytes(&self.old, &self.new, "an image without functions")
    }

    /// The functions that are reported as pinned must be those that the fixture expects.
    fn check_inspection(&self) -> Result<(), String> {
        if self.variant.pinned.is_empty() && self.variant.movable.is_empty() {
            return Ok(());
        }
        let inspection = Inspection::of(&self.old)?;
        let symbols = symbols(&self.old)?;
        for expected in &self.variant.pinned {
            match inspection.reason(&expected.name) {
                Some(reason) if reason.contains(&expected.because) => {}
                other => {
                    return Err(format!(
                        "{} should be pinned because of `{}`, but: {other:?}",
                        expected.name, expected.because
                    ));
                }
            }
        }
        for name in &self.variant.movable {
            if !symbols.contains_key(name) {
                return Err(format!("there is no function {name}"));
            }
            if let Some(reason) = inspection.reason(name) {
                return Err(format!("{name} should be movable, but: {reason}"));
            }
        }
        Ok(())
    }

    /// Three random permutations and the reverse of the link order.
    fn check_permutations(&self, before: &[Outcome]) -> Result<(), String> {
        let file = self.directory.join("reversed.order");
        let order = file.to_string_lossy();
        let old_symbols = symbols(&self.old)?;
        let mut names: Vec<(&u64, &String)> =
            old_symbols.iter().map(|(name, address)| (address, name)).collect();
        names.sort();
        let reversed: Vec<&str> = names.iter().rev().map(|(_, name)| name.as_str()).collect();
        fs::write(&file, reversed.join("\n")).map_err(|error| error.to_string())?;
        let mut requests: Vec<Vec<&str>> = ["1", "2", "3"].map(|seed| [&RANDOM[..], &[seed]].concat()).into();
        // A recipe may strip its image; then there are no names to order by.
        if !reversed.is_empty() {
            requests.push(vec!["--order", &order]);
        }
        for arguments in requests {
            self.relocate(&self.old, &self.new, &arguments)?;
            let what = format!("{arguments:?}");
            if arguments.starts_with(&RANDOM) && read(&self.old)? == read(&self.new)? {
                return Err(format!("{what} moved nothing"));
            }
            self.check_symbols(&old_symbols).map_err(|message| format!("{what}: {message}"))?;
            self.compare(before, &self.new, &what)?;
            for line in &self.variant.checks {
                process::shell(&self.resolve(line, &self.new), BUILD_LIMIT)
                    .map_err(|message| format!("after {what}: {message}"))?;
            }
        }
        Ok(())
    }

    /// Copies behave like the originals; false where no segment can be added, or unwind entries cannot be.
    fn check_copies(&self, before: &[Outcome], which: &str) -> Result<bool, String> {
        if !self.variant.with_copies {
            return Ok(true);
        }
        let arguments = [&RANDOM[..], &["5", which]].concat();
        let outcome = self.apply(&self.old, &self.new, &arguments)?;
        if !outcome.success() {
            let text = outcome.stderr_text();
            return match ["(R8)", "(R13)"].iter().any(|code| text.contains(code)) {
                true => Ok(false),
                false => Err(format!("apply {arguments:?}: {outcome}")),
            };
        }
        self.compare(before, &self.new, &format!("{arguments:?}"))?;
        Ok(true)
    }

    // case: copies of random basic blocks behave like the original
    /// A random half of all basic blocks, copied in random order, behaves like the original, or the fixture names the reason
    /// why nothing can be copied.
    fn check_blocks(&self, before: &[Outcome]) -> Result<(), String> {
        if !self.variant.with_copies {
            return Ok(());
        }
        let seed = seed(&self.variant.name).to_string();
        let arguments = [&["--layout", "blocks"], &RANDOM[..], &[&seed]].concat();
        let outcome = self.apply(&self.old, &self.new, &arguments)?;
        match &self.variant.blocks {
            Blocks::Same if outcome.success() => self.compare(before, &self.new, &format!("{arguments:?}")),
            Blocks::Refused(code)
                if outcome.ending == Ending::Exited(2)
                    && outcome.stderr_text().contains(&format!("refused ({code})")) =>
            {
                Ok(())
            }
            expected => Err(format!("apply {arguments:?} should end with {expected:?}: {outcome}")),
        }
    }

    /// By the symbols of the output: pinned functions stay, glued ones keep their distance.
    fn check_symbols(&self, old: &BTreeMap<String, u64>) -> Result<(), String> {
        let new = symbols(&self.new)?;
        let moved_by = |name: &String| {
            let missing = || format!("no function {name}");
            let (old, new) = (old.get(name).ok_or_else(missing)?, new.get(name).ok_or_else(missing)?);
            Ok::<u64, String>(new.wrapping_sub(*old))
        };
        for pinned in &self.variant.pinned {
            if moved_by(&pinned.name)? != 0 {
                return Err(format!("{} moved although it is pinned", pinned.name));
            }
        }
        for group in &self.variant.glued {
            let distances: Vec<u64> = group.iter().map(moved_by).collect::<Result<_, String>>()?;
            if distances.windows(2).any(|pair| pair[0] != pair[1]) {
                return Err(format!("{group:?} should move as one"));
            }
        }
        Ok(())
    }

    fn compare(&self, before: &[Outcome], image: &Path, what: &str) -> Result<(), String> {
        let after = self.run_all(image)?;
        match before.iter().zip(&after).find(|(before, after)| before != after) {
            Some((before, after)) => Err(format!("after {what}:\nbefore: {before}after: {after}")),
            None => Ok(()),
        }
    }

    // case: the same bytes on any number of threads
    // case: the way back
    // case: the image's own order gives the image
    /// The algebraic laws of relocation as an operation on files.
    fn check_laws(&self) -> Result<(), String> {
        let path = |name: &str| self.directory.join(name);
        let (identity, one, many, back) = (path("identity"), path("one"), path("many"), path("back"));
        let map = path("seven.map");
        let map = map.to_string_lossy();
        self.relocate(&self.old, &identity, &["--strategy", "link"])?;
        // Dropping debug information changes bytes on purpose; the laws hold for the rest.
        if self.variant.apply.is_empty() {
            same_bytes(&self.old, &identity, "the order of the image itself")?;
        }
        let seven = [&RANDOM[..], &["7"]].concat();
        self.relocate(&identity, &one, &[&seven[..], &["--threads", "1", "--map", &map]].concat())?;
        self.relocate(&identity, &many, &[&seven[..], &["--threads", "16"]].concat())?;
        same_bytes(&one, &many, "1 and 16 threads")?;
        if self.updates_debug() {
            return Ok(());
        }
        self.relocate(&one, &back, &["--order", &map])?;
        same_bytes(&identity, &back, "restoring a permutation")
    }

    fn check_stripped(&self, before: &[Outcome]) -> Result<(), String> {
        let folder = self.directory.join("stripped");
        fs::create_dir(&folder).map_err(|error| error.to_string())?;
        let stripped = folder.join("image");
        let strip = || {
            let prefix = if self.variant.is_cross() { "aarch64-linux-gnu-" } else { "" };
            let line = format!("{prefix}strip '{}' -o '{}'", self.old.display(), stripped.display());
            process::shell(&line, BUILD_LIMIT)
        };
        match &self.variant.stripped {
            Stripped::Skip => Ok(()),
            _ if self.variant.expectation == Expectation::Untouched => Ok(()),
            Stripped::Refused(code) => {
                strip()?;
                self.check_failure(&stripped, &format!("({code})"))
            }
            // Stripping removes the debug information that caused the refusal.
            Stripped::Same => {
                strip()?;
                self.relocate(&stripped, &self.new, &[&RANDOM[..], &["4"]].concat())?;
                self.compare(before, &self.new, "stripping and seed 4")
            }
        }
    }
}

/// Each variant has other blocks copied, the same in each run.
fn seed(name: &str) -> u32 {
    name.bytes().fold(0, |seed: u32, byte| seed.wrapping_mul(31).wrapping_add(u32::from(byte)))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Addresses of what stands in code, by name; names that occur twice are left out.
fn symbols(image: &Path) -> Result<BTreeMap<String, u64>, String> {
    let bytes = read(image)?;
    let file = object::File::parse(&*bytes).map_err(|error| format!("{}: {error}", image.display()))?;
    let is_code =
        |index| file.section_by_index(index).is_ok_and(|section| section.kind() == SectionKind::Text);
    let mut symbols = BTreeMap::new();
    let mut repeated = Vec::new();
    for symbol in file.symbols() {
        let is_named = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown | SymbolKind::Label);
        let Some(name) = symbol.name().ok().filter(|name| is_named && !name.is_empty()) else { continue };
        // `$x` and `$d` tell code from data.
        if name.starts_with('$') || !symbol.section_index().is_some_and(is_code) {
            continue;
        }
        if symbols.insert(name.to_owned(), symbol.address()).is_some() {
            repeated.push(name);
        }
    }
    for name in repeated {
        symbols.remove(name);
    }
    Ok(symbols)
}

fn same_bytes(left: &Path, right: &Path, what: &str) -> Result<(), String> {
    let (old, new) = (read(left)?, read(right)?);
    if old == new {
        return Ok(());
    }
    let first = old.iter().zip(&new).position(|(old, new)| old != new).unwrap_or(old.len().min(new.len()));
    let count = old.iter().zip(&new).filter(|(old, new)| old != new).count();
    Err(format!("{what}: {count} bytes differ, the first at offset {first:#x}"))
}
