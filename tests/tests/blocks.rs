//! Copies of basic blocks (`apply --layout blocks`): a random half of the blocks of real programs, in random order.
//!
//! One test per program and way to build it. The programs are those in `tests/copies`; each is copied with three seeds, and
//! once more with functions moved besides. Every output is verified by the command, and run: with the same words the same output,
//! status and signals as the original.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use end_to_end::process::{self, Outcome};
use end_to_end::workspace::{self, reorder};
use libtest_mimic::{Arguments, Failed, Trial};
use object::{Object, ObjectSymbol, SymbolKind};

/// Compilers and verification share the system with other tests.
const LIMIT: Duration = Duration::from_secs(600);

/// A program and what it is called with.
struct Program {
    source: &'static str,
    /// After the compiler's own flags.
    flags: &'static str,
    calls: &'static [&'static [&'static str]],
}

const C_PROGRAMS: [Program; 4] = [
    Program { source: "control.c", flags: "-w", calls: &[&[], &["more"]] },
    Program { source: "signals.c", flags: "", calls: &[&[], &["more"]] },
    Program { source: "assembly.c", flags: "", calls: &[&[]] },
    Program { source: "frames.c", flags: "-fno-optimize-sibling-calls", calls: &[&[]] },
];

/// How the exceptions of `endings.cpp` are thrown.
const ENDINGS: &[&[&str]] = &[
    &[],
    &["quiet"],
    &["listed"],
    &["destroyed"],
    &["allowed"],
    &["outside"],
    &["quiet", "handled"],
    &["destroyed", "handled"],
    &["outside", "handled"],
];

/// How the exceptions of `unwinding.cpp` end the program.
const UNWINDING: &[&[&str]] = &[
    &[],
    &["thread", "handled"],
    &["quiet", "handled"],
    &["quiet"],
    &["foreign", "handled"],
    &["none"],
    &["twice", "handled"],
    &["forced", "handled"],
];

const CPP_PROGRAMS: [Program; 3] = [
    Program { source: "exceptions.cpp", flags: "-pthread", calls: &[&[]] },
    Program { source: "unwinding.cpp", flags: "-pthread -w", calls: UNWINDING },
    Program { source: "endings.cpp", flags: "-std=c++14 -w", calls: ENDINGS },
];

/// Clang does not let loads throw.
const GCC_PROGRAMS: [Program; 1] =
    [Program { source: "faults.cpp", flags: "-fnon-call-exceptions", calls: &[&[]] }];

const RUST_PROGRAMS: [Program; 1] =
    [Program { source: "panics.rs", flags: "", calls: &[&[], &["more"], &["more", "careless"]] }];

/// The loader knows functions of these by name.
const NAMED_PROGRAMS: [Program; 1] =
    [Program { source: "backtraces.c", flags: "-fno-optimize-sibling-calls -rdynamic", calls: &[&[]] }];

/// Flags of a way to build, for both compilers of a language; together they have all levels and kinds of files.
const GCC: [&str; 6] = [
    "-O0 -fPIE -pie",
    "-O2 -fPIE -pie",
    "-Os -fPIE -pie",
    "-O2 -fno-pie -no-pie",
    "-O2 -fPIE -static-pie",
    "-Os -fno-pie -static -Wl,--eh-frame-hdr",
];
const CLANG: [&str; 4] =
    ["-O0 -fPIE -pie", "-O2 -fPIE -pie -fuse-ld=lld", "-Os -fno-pie -no-pie", "-O2 -fPIE -static-pie"];
const RUST: [&str; 3] =
    ["-Copt-level=0", "-Copt-level=3 -Ccodegen-units=1", "-Copt-level=s -Ctarget-feature=+crt-static"];
const NAMED: [&str; 3] = ["-O0 -fPIE -pie", "-O2 -fPIE -pie", "-Os -fno-pie -no-pie"];
const CROSS: [&str; 4] = ["-O0 -fPIE -pie", "-O2 -fPIE -pie", "-Os -fPIE -pie", "-O2 -fno-pie -no-pie"];

/// A line of the list of tests.
struct Family {
    compiler: &'static str,
    builds: &'static [&'static str],
    programs: &'static [Program],
    /// Runs the program; none where the processor is this one.
    emulator: &'static [&'static str],
}

const FAMILIES: [Family; 11] = [
    Family { compiler: "gcc", builds: &GCC, programs: &C_PROGRAMS, emulator: &[] },
    Family { compiler: "clang$LLVM", builds: &CLANG, programs: &C_PROGRAMS, emulator: &[] },
    Family { compiler: "g++", builds: &GCC, programs: &CPP_PROGRAMS, emulator: &[] },
    Family { compiler: "g++", builds: &GCC, programs: &GCC_PROGRAMS, emulator: &[] },
    Family { compiler: "clang++$LLVM", builds: &CLANG, programs: &CPP_PROGRAMS, emulator: &[] },
    Family { compiler: "gcc", builds: &NAMED, programs: &NAMED_PROGRAMS, emulator: &[] },
    Family { compiler: "clang$LLVM", builds: &NAMED, programs: &NAMED_PROGRAMS, emulator: &[] },
    Family { compiler: "rustc --edition 2021", builds: &RUST, programs: &RUST_PROGRAMS, emulator: &[] },
    Family { compiler: "aarch64-linux-gnu-gcc", builds: &CROSS, programs: &C_PROGRAMS, emulator: &AARCH64 },
    Family {
        compiler: "aarch64-linux-gnu-gcc",
        builds: &NAMED,
        programs: &NAMED_PROGRAMS,
        emulator: &AARCH64,
    },
    Family { compiler: "aarch64-linux-gnu-g++", builds: &CROSS, programs: &CPP_PROGRAMS, emulator: &AARCH64 },
];

const AARCH64: [&str; 3] = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"];

/// Options of `apply` besides `--strategy random`.
const LAYOUTS: [&[&str]; 4] = [
    &["--layout", "blocks", "--seed", "1"],
    &["--layout", "blocks", "--seed", "2"],
    &["--layout", "blocks", "--seed", "3"],
    &["--layout", "both", "--seed", "4"],
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if !arguments.list {
        workspace::reorder_path();
    }
    let mut trials = Vec::new();
    for family in &FAMILIES {
        for program in family.programs {
            for build in family.builds {
                let name = format!("{} {} {build}", program.source, family.compiler);
                trials.push(Trial::test(name, move || check(family, program, build).map_err(Failed::from)));
            }
        }
    }
    trials.push(Trial::test("loader names functions", || names_are_right().map_err(Failed::from)));
    trials.push(Trial::test("symbols name functions", || symbols_name_functions().map_err(Failed::from)));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The program, built below `directory`; the path ends in the same name in every directory.
fn built(directory: &Path, compiler: &str, build: &str, program: &Program) -> Result<PathBuf, String> {
    let folder = directory.join("old");
    std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
    let image = folder.join("image");
    let source = workspace::root().join("tests/copies").join(program.source);
    let line =
        format!("{compiler} {build} {} '{}' -o '{}'", program.flags, source.display(), image.display());
    process::shell(&line, LIMIT)?;
    Ok(image)
}

fn run(command: &mut Command) -> Result<Outcome, String> {
    process::run(command, LIMIT).map_err(|error| error.to_string())
}

/// All calls of a program.
fn run_all(image: &Path, emulator: &[&str], calls: &[&[&str]]) -> Result<Vec<Outcome>, String> {
    let one = |words: &&[&str]| {
        let mut command = match emulator {
            [] => Command::new(image),
            [emulator, options @ ..] => {
                let mut command = Command::new(emulator);
                command.args(options).arg(image);
                command
            }
        };
        run(command.args(*words).current_dir(workspace::root()))
    };
    calls.iter().map(one).collect()
}

/// Applies a layout, verifies the output, and gives its path.
fn arranged(directory: &Path, old: &Path, layout: &[&str]) -> Result<PathBuf, String> {
    let folder = directory.join("new");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let new = folder.join("image");
    let _ = std::fs::remove_file(&new); // the first time there is none
    let applied =
        run(reorder().arg("apply").arg(old).args(["--strategy", "random"]).args(layout).arg("-o").arg(&new))?;
    if !applied.success() {
        return Err(format!("{layout:?}: {applied}"));
    }
    let verified = run(reorder().arg("verify").arg(old).arg(&new))?;
    match verified.success() {
        true => Ok(new),
        false => Err(format!("{layout:?}: {verified}")),
    }
}

// case: copies of random basic blocks behave like the original
fn check(family: &Family, program: &Program, build: &str) -> Result<(), String> {
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let old = built(scratch.path(), family.compiler, build, program)?;
    let before = run_all(&old, family.emulator, program.calls)?;
    for layout in LAYOUTS {
        let new = arranged(scratch.path(), &old, layout)?;
        let after = run_all(&new, family.emulator, program.calls)?;
        if let Some((before, after)) = before.iter().zip(&after).find(|(before, after)| before != after) {
            return Err(format!("after {layout:?}:\nbefore: {before}after: {after}"));
        }
    }
    Ok(())
}

/// A program that prints where its frames are, and a debugger at its innermost function: symbols name the same functions as
/// for the original.
fn symbols_name_functions() -> Result<(), String> {
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let [.., program] = &C_PROGRAMS;
    let old = built(scratch.path(), "gcc", "-O1 -fPIE -pie -fomit-frame-pointer", program)?;
    let (before, shown_before) = (frames(&old)?, debugged(&old)?);
    for name in ["frames", "third", "second", "first", "main"] {
        if ![&before, &shown_before].iter().all(|frames| frames.iter().any(|frame| frame == name)) {
            return Err(format!("the original's frames are {before:?} and {shown_before:?}"));
        }
    }
    for layout in LAYOUTS {
        let new = arranged(scratch.path(), &old, layout)?;
        for (before, after) in [(&before, frames(&new)?), (&shown_before, debugged(&new)?)] {
            if *before != after {
                return Err(format!("after {layout:?}: {before:?} became {after:?}"));
            }
        }
    }
    Ok(())
}

/// The loader's names for places on a stack: those of the original, or none where only the symbol of the other place has one.
fn names_are_right() -> Result<(), String> {
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let [program] = &NAMED_PROGRAMS;
    let old = built(scratch.path(), "gcc", "-O2 -fPIE -pie", program)?;
    let shown = |image: &Path| run(Command::new(image).arg("names")).map(|outcome| outcome.stdout_text());
    let before = shown(&old)?;
    for layout in LAYOUTS {
        let after = shown(&arranged(scratch.path(), &old, layout)?)?;
        let is_right = |(old, new): (&str, &str)| old == new || new == "name -";
        if before.lines().count() != after.lines().count() || !before.lines().zip(after.lines()).all(is_right)
        {
            return Err(format!("after {layout:?}:\n{before}became\n{after}"));
        }
        let known = |text: &str| {
            text.lines().filter(|line| line.starts_with("name ") && !line.ends_with(" -")).count()
        };
        if known(&after) * 2 < known(&before) {
            return Err(format!("after {layout:?} most names are missing:\n{after}"));
        }
    }
    Ok(())
}

/// Names of functions on the stacks that the program prints, by its symbols.
fn frames(image: &Path) -> Result<Vec<String>, String> {
    let printed = run(Command::new(image).arg("places"))?.stdout_text();
    let places: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix("at ")).collect();
    let bytes = std::fs::read(image).map_err(|error| error.to_string())?;
    let file = object::File::parse(&*bytes).map_err(|error| error.to_string())?;
    let name = |place: &&str| {
        let place = u64::from_str_radix(place, 16).map_err(|error| error.to_string())?;
        let mut functions = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
        let function =
            functions.find(|symbol| (symbol.address()..symbol.address() + symbol.size()).contains(&place));
        let name = function.and_then(|function| function.name().ok()).unwrap_or("no function");
        Ok(without_suffix(name))
    };
    places.iter().map(name).collect()
}

/// Names of the functions on the stack that a debugger shows where the program asks for its frames, from the innermost on.
fn debugged(image: &Path) -> Result<Vec<String>, String> {
    let line = format!(
        "gdb -nx -batch -ex 'set debuginfod enabled off' -ex 'break backtrace' -ex run -ex bt '{}' 2>&1",
        image.display()
    );
    let shown = process::shell(&line, LIMIT)?;
    // `#1  0x0000555555559081 in frames ()`
    let name = |frame: &str| Some(without_suffix(frame.split_once(" in ")?.1));
    let mut names: Vec<String> =
        shown.lines().filter(|line| line.starts_with('#')).filter_map(name).collect();
    // Below the outermost function of the program debuggers show more or less, by its symbol.
    names.truncate(names.iter().position(|name| name == "main").map_or(names.len(), |main| main + 1));
    Ok(names)
}

/// The name of a function, whose copy has a suffix, which debuggers write in brackets.
fn without_suffix(name: &str) -> String {
    name.split([' ', '.', '[']).next().unwrap_or_default().to_owned()
}
