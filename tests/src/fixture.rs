//! Reads the directives at the top of a fixture's source.
//!
//! A fixture is a directory with a file `main.*`. The comment lines (`//`) at its top are its recipe and its
//! expectations, one `key: value` each; lines of any other form are prose. A key may be limited to some variants:
//! `pinned[gcc,mold]: …` holds for variants whose name contains `gcc` or `mold`, `pinned[!gcc]: …` for those without.
//!
//! | key | value |
//! |---|---|
//! | `case` | what is tested, as a row of `tests/CASES.md` |
//! | `build`, `build NAME` | shell command that makes `{output}` from `{source}`; `{cc}`, `{cxx}` and `{ld}` come from the toolchain, `{ballast}` is an object of unused functions |
//! | `toolchains` | `COMPILER+LINKER …`: one variant of each build that names a compiler; with `aarch64-` before it, for that processor |
//! | `prepare` | shell command after the build, such as compiling a host program; with `{cc}` as above |
//! | `run` | command line to compare before and after; default `{image}` |
//! | `stdout` | a line the original must print; all such lines together are the whole output |
//! | `exit` | exit status of all runs; default 0 |
//! | `expect` | `moved`, `untouched` (nothing to move: output equals input), `refused R2` (code) or `failed TEXT` (part of the error) |
//! | `apply` | further arguments of `reorder apply` |
//! | `pinned` | `NAME because TEXT`: stays, and the reason contains TEXT |
//! | `movable` | names of functions that must not be pinned |
//! | `glued` | names of functions that move as one |
//! | `check` | shell command over `{old}` and `{new}` that must succeed after each relocation; no reader may end before its pipe is empty, as `grep -q` and `head` do |
//! | `copies` | `native`: copies of functions are tested only in variants for the processor of this system |
//! | `stripped` | what is expected of the stripped image: `same` (default), `skip`, or `refused R5` |
//! | `blocks` | what is expected of copies of random basic blocks: `same`, or `refused R8`; the default is `refused R13` where the build keeps relocations, what `expect` refuses for a reason that copies do not cure, and `same` otherwise |
//!
//! Everywhere `{directory}` is the scratch directory of the variant, `{fixture}` the fixture's own, `{image}` the
//! image that runs. Commands name tools of LLVM without their version: `clang$LLVM`, `llvm-nm$LLVM`; the shell that runs
//! them has the variables of `scripts/tool-versions`.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::early_readers::early_reader;

/// Compilers with this prefix make images for AArch64, which run under QEMU.
const CROSS: &str = "aarch64-";

/// Refusals to move functions that do not hold for copies.
pub const CURED_BY_COPIES: [&str; 2] = ["R5", "R6"];

/// What must happen to the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// Functions move and the program does the same.
    Moved,
    /// There is nothing to move; the output equals the input.
    Untouched,
    /// The image is refused with this code and no output appears.
    Refused(String),
    /// The file is not an image; the error contains this text and no output appears.
    Failed(String),
}

/// What is done with the stripped image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stripped {
    /// It is moved and behaves the same.
    Same,
    /// It makes no sense to strip this image.
    Skip,
    /// Without symbols the image is refused with this code.
    Refused(String),
}

/// What comes of copying a random half of the basic blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// The copies behave the same.
    Same,
    /// Nothing can be copied, for the reason with this code.
    Refused(String),
}

/// One function that must stay, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedPin {
    /// Symbol.
    pub name: String,
    /// Part of the reason.
    pub because: String,
}

/// One way of building and checking a fixture, with all placeholders but those of paths resolved.
#[derive(Clone, Debug)]
pub struct Variant {
    /// `case/build-compiler+linker`.
    pub name: String,
    /// The directory of the fixture.
    pub fixture: PathBuf,
    /// The file with the directives.
    pub source: PathBuf,
    /// Makes the image.
    pub build: String,
    /// Runs after the build.
    pub prepare: Vec<String>,
    /// Command lines to compare.
    pub runs: Vec<String>,
    /// What the original prints in all runs, if the fixture says so.
    pub stdout: Option<String>,
    /// Exit status of all runs.
    pub exit: i32,
    /// What must happen.
    pub expectation: Expectation,
    /// Further arguments of `reorder apply`.
    pub apply: Vec<String>,
    /// Functions that stay.
    pub pinned: Vec<ExpectedPin>,
    /// Functions that must be able to move.
    pub movable: Vec<String>,
    /// Sets of functions that move as one.
    pub glued: Vec<Vec<String>>,
    /// Commands after each relocation.
    pub checks: Vec<String>,
    /// Whether copies of functions are tried.
    pub with_copies: bool,
    /// The stripped image.
    pub stripped: Stripped,
    /// Copies of basic blocks.
    pub blocks: Blocks,
    /// Whether the laws that hold of any layout are checked, too: they do not depend on the toolchain, so for the first one alone.
    pub with_laws: bool,
}

impl Variant {
    /// Whether the image is for AArch64.
    #[must_use]
    pub fn is_cross(&self) -> bool {
        self.name.contains(CROSS)
    }
}

/// All variants of all fixtures below `root`, in order of their names.
///
/// # Errors
/// Unreadable directories, or a directive that is not understood: a misspelt expectation must not pass silently.
pub fn variants(root: &Path) -> io::Result<Vec<Variant>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root)? {
        let directory = entry?.path();
        if directory.is_dir() {
            all.extend(fixture_variants(&directory).map_err(|message| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{}: {message}", directory.display()))
            })?);
        }
    }
    all.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(all)
}

/// A row of the list of cases: what is tried, and by which fixture or variants of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What is tried.
    pub text: String,
    /// `NAME`, or `NAME/PART` for the variants whose names contain PART.
    pub places: Vec<String>,
}

/// The cases that the fixtures below `root` state. Each fixture states at least one, and each part of a variant's name exists.
///
/// # Errors
/// As [`variants`], and fixtures that break these rules.
pub fn cases(root: &Path) -> io::Result<Vec<Case>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root)? {
        let directory = entry?.path();
        if directory.is_dir() {
            all.extend(fixture_cases(&directory).map_err(|message| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{}: {message}", directory.display()))
            })?);
        }
    }
    Ok(all)
}

fn fixture_cases(directory: &Path) -> Result<Vec<Case>, String> {
    let text = fs::read_to_string(main_source(directory)?).map_err(|error| error.to_string())?;
    let fixture = directory.file_name().unwrap_or_default().to_string_lossy();
    let variants = fixture_variants(directory)?;
    let is_variant = |part: &str| {
        variants
            .iter()
            .any(|variant| variant.name.split_once('/').is_some_and(|(_, name)| name.contains(part)))
    };
    let mut cases = Vec::new();
    for directive in directives(&text)?.into_iter().filter(|directive| directive.key == "case") {
        if let Some(part) = directive.filter.iter().find(|part| !is_variant(part)) {
            return Err(format!("case[{part}]: no variant has this in its name"));
        }
        let places = match directive.filter.as_slice() {
            [] => vec![fixture.to_string()],
            parts => parts.iter().map(|part| format!("{fixture}/{part}")).collect(),
        };
        cases.push(Case { text: directive.value, places });
    }
    if cases.is_empty() { Err("no `case` directive".to_owned()) } else { Ok(cases) }
}

/// One `key[filter]: value` line.
struct Directive {
    key: String,
    filter: Vec<String>,
    value: String,
}

fn fixture_variants(directory: &Path) -> Result<Vec<Variant>, String> {
    let source = main_source(directory)?;
    let text = fs::read_to_string(&source).map_err(|error| error.to_string())?;
    let directives = directives(&text)?;
    let case = directory.file_name().unwrap_or_default().to_string_lossy();
    let toolchains: Vec<&str> = directives
        .iter()
        .filter(|directive| directive.key == "toolchains")
        .flat_map(|directive| directive.value.split_whitespace())
        .collect();
    let mut variants = Vec::new();
    for build in directives.iter().filter(|directive| directive.key.split(' ').next() == Some("build")) {
        let flavour = build.key.strip_prefix("build").unwrap_or_default().trim();
        let generic = ["{cc}", "{cxx}", "{ld}"].iter().any(|name| build.value.contains(name));
        let names: Vec<(String, String, Option<&str>)> = if generic {
            toolchains
                .iter()
                .map(|toolchain| {
                    let command = with_toolchain(&build.value, toolchain)?;
                    Ok((join(flavour, toolchain), command, Some(*toolchain)))
                })
                .collect::<Result<_, String>>()?
        } else {
            vec![(join(flavour, ""), build.value.clone(), None)]
        };
        let mut with_laws = true;
        for (name, command, toolchain) in names {
            if !applies(&build.filter, &name) {
                continue;
            }
            let full_name = format!("{case}/{name}");
            let mut variant = variant(full_name, &name, directory, &source, command, &directives)?;
            variant.with_laws = std::mem::take(&mut with_laws);
            if let Some(toolchain) = toolchain {
                let prepare = variant.prepare.iter().map(|line| with_toolchain(line, toolchain));
                variant.prepare = prepare.collect::<Result<_, String>>()?;
            }
            variants.push(variant);
        }
    }
    if variants.is_empty() { Err("no `build` directive".to_owned()) } else { Ok(variants) }
}

fn variant(
    full_name: String,
    name: &str,
    directory: &Path,
    source: &Path,
    build: String,
    directives: &[Directive],
) -> Result<Variant, String> {
    let mut variant = Variant {
        name: full_name,
        fixture: directory.to_path_buf(),
        source: source.to_path_buf(),
        build,
        prepare: Vec::new(),
        runs: Vec::new(),
        stdout: None,
        exit: 0,
        expectation: Expectation::Moved,
        apply: Vec::new(),
        pinned: Vec::new(),
        movable: Vec::new(),
        glued: Vec::new(),
        checks: Vec::new(),
        with_copies: true,
        stripped: Stripped::Same,
        blocks: Blocks::Same,
        with_laws: true,
    };
    for directive in directives.iter().filter(|directive| applies(&directive.filter, name)) {
        let value = directive.value.clone();
        let words = || value.split_whitespace().map(str::to_owned);
        match directive.key.as_str() {
            "prepare" => variant.prepare.push(value),
            "run" => variant.runs.push(value),
            "stdout" => {
                let text = variant.stdout.get_or_insert_default();
                text.push_str(&value);
                text.push('\n');
            }
            "exit" => variant.exit = value.parse().map_err(|_| format!("exit: {value}"))?,
            "expect" => variant.expectation = expectation(&value)?,
            "apply" => variant.apply.extend(words()),
            "pinned" => {
                let (name, because) = value
                    .split_once(" because ")
                    .ok_or_else(|| format!("pinned without because: {value}"))?;
                variant.pinned.push(ExpectedPin { name: name.to_owned(), because: because.to_owned() });
            }
            "movable" => variant.movable.extend(words()),
            "glued" => variant.glued.push(words().collect()),
            "check" => variant.checks.push(value),
            "copies" if value == "native" => variant.with_copies = !variant.is_cross(),
            "stripped" => variant.stripped = stripped(&value)?,
            "blocks" => variant.blocks = blocks(&value)?,
            "case" | "toolchains" => {}
            key if key.split(' ').next() == Some("build") => {}
            key => return Err(format!("unknown directive `{key}`")),
        }
    }
    if variant.runs.is_empty() {
        variant.runs.push("{image}".to_owned());
    }
    if !directives.iter().any(|directive| directive.key == "blocks" && applies(&directive.filter, name)) {
        variant.blocks = default_blocks(&variant);
    }
    Ok(variant)
}

/// The directives of the comment block at the top of `text`.
fn directives(text: &str) -> Result<Vec<Directive>, String> {
    const KEYS: [&str; 16] = [
        "case",
        "build",
        "toolchains",
        "prepare",
        "run",
        "stdout",
        "exit",
        "expect",
        "apply",
        "pinned",
        "movable",
        "glued",
        "check",
        "copies",
        "stripped",
        "blocks",
    ];
    let mut found = Vec::new();
    for line in text.lines().map_while(|line| line.strip_prefix("//")) {
        let Some((head, value)) = line.trim_start().split_once(':') else { continue };
        let (key, filter) = match head.split_once('[') {
            Some((key, rest)) => {
                (key, rest.strip_suffix(']').ok_or_else(|| format!("unclosed [ in `{head}`"))?)
            }
            None => (head, ""),
        };
        let word = key.split(' ').next().unwrap_or_default();
        let words = key.split(' ').count();
        if KEYS.contains(&word) && words <= if word == "build" { 2 } else { 1 } {
            if let Some(reader) = early_reader(value) {
                return Err(format!(
                    "{head}: `{reader}` ends before its pipe is empty; use `grep … > /dev/null`"
                ));
            }
            found.push(Directive {
                key: key.to_owned(),
                filter: filter.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
                value: value.strip_prefix(' ').unwrap_or(value).to_owned(),
            });
        } else if words == 1 && word.starts_with(|letter: char| letter.is_ascii_lowercase()) {
            return Err(format!("unknown directive `{head}`"));
        }
    }
    Ok(found)
}

fn applies(filter: &[String], name: &str) -> bool {
    let selects = |part: &String| match part.strip_prefix('!') {
        Some(part) => !name.contains(part),
        None => name.contains(part.as_str()),
    };
    filter.is_empty() || filter.iter().any(selects)
}

fn join(flavour: &str, toolchain: &str) -> String {
    match (flavour, toolchain) {
        ("", "") => "plain".to_owned(),
        ("", name) | (name, "") => name.to_owned(),
        (flavour, toolchain) => format!("{flavour}-{toolchain}"),
    }
}

/// Replaces the compiler and linker placeholders; `-B` lets gcc find the one lld that is installed.
fn with_toolchain(command: &str, toolchain: &str) -> Result<String, String> {
    let (compiler, linker) = toolchain.split_once('+').ok_or_else(|| format!("toolchain `{toolchain}`"))?;
    let (cc, cxx) = match compiler {
        "gcc" => ("gcc", "g++"),
        "clang" => ("clang$LLVM", "clang++$LLVM"),
        "aarch64-gcc" => ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++"),
        "aarch64-clang" => {
            ("clang$LLVM --target=aarch64-linux-gnu", "clang++$LLVM --target=aarch64-linux-gnu")
        }
        _ => return Err(format!("unknown compiler `{compiler}`")),
    };
    let ld = match linker {
        "lld" => "-B/usr/lib/llvm$LLVM/bin -fuse-ld=lld".to_owned(),
        // A compiler for another processor looks for linkers with that processor's name.
        "mold" if compiler.starts_with(CROSS) => "-B/usr/libexec/mold".to_owned(),
        "bfd" | "gold" | "mold" => format!("-fuse-ld={linker}"),
        _ => return Err(format!("unknown linker `{linker}`")),
    };
    Ok(command.replace("{cc}", cc).replace("{cxx}", cxx).replace("{ld}", &ld))
}

fn expectation(value: &str) -> Result<Expectation, String> {
    match value.split_once(' ') {
        None if value == "moved" => Ok(Expectation::Moved),
        None if value == "untouched" => Ok(Expectation::Untouched),
        Some(("refused", code)) => Ok(Expectation::Refused(code.to_owned())),
        Some(("failed", text)) => Ok(Expectation::Failed(text.to_owned())),
        _ => Err(format!("expect: {value}")),
    }
}

fn stripped(value: &str) -> Result<Stripped, String> {
    match value.split_once(' ') {
        None if value == "same" => Ok(Stripped::Same),
        None if value == "skip" => Ok(Stripped::Skip),
        Some(("refused", code)) => Ok(Stripped::Refused(code.to_owned())),
        _ => Err(format!("stripped: {value}")),
    }
}

/// What must come of copies of blocks where the fixture says nothing.
fn default_blocks(variant: &Variant) -> Blocks {
    let keeps_relocations =
        |command: &String| command.contains("--emit-relocs") || command.contains("-Wl,-q");
    match &variant.expectation {
        // What is too little known to be moved can have copies.
        Expectation::Refused(code) if !CURED_BY_COPIES.contains(&code.as_str()) => {
            Blocks::Refused(code.clone())
        }
        _ if std::iter::once(&variant.build).chain(&variant.prepare).any(keeps_relocations) => {
            Blocks::Refused("R13".to_owned())
        }
        _ => Blocks::Same,
    }
}

fn blocks(value: &str) -> Result<Blocks, String> {
    match value.split_once(' ') {
        None if value == "same" => Ok(Blocks::Same),
        Some(("refused", code)) => Ok(Blocks::Refused(code.to_owned())),
        _ => Err(format!("blocks: {value}")),
    }
}

fn main_source(directory: &Path) -> Result<PathBuf, String> {
    fs::read_dir(directory)
        .map_err(|error| error.to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.file_stem().is_some_and(|stem| stem == "main"))
        .ok_or_else(|| "no file main.*".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_fails_on_some_runs_is_an_error() {
        assert!(directives("// check: readelf -SW {new} | grep -q debug\n").is_err());
        assert!(directives("// check: readelf -SW {new} | grep debug > /dev/null\n").is_ok());
    }

    #[test]
    fn a_misspelt_key_is_an_error() {
        assert!(directives("// expct: moved\n").is_err());
    }

    #[test]
    fn prose_with_a_colon_is_not_a_directive() {
        let found = directives("// A table, shared by two functions: both stay.\n// exit: 3\n").unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].key.as_str(), found[0].value.as_str()), ("exit", "3"));
    }

    #[test]
    fn directives_end_with_the_comment() {
        assert_eq!(directives("// exit: 3\nint x;\n// exit: 4\n").unwrap().len(), 1);
    }

    #[test]
    fn filters_select_variants_by_part_of_their_name() {
        let filter = vec!["lld".to_owned()];
        assert!(applies(&filter, "pie-gcc+lld"));
        assert!(!applies(&filter, "pie-gcc+bfd"));
        let others = vec!["!lld".to_owned()];
        assert!(!applies(&others, "pie-gcc+lld") && applies(&others, "pie-gcc+bfd"));
    }
}
