//! Debug information of copies: addr2line, llvm-symbolizer, gdb and lldb say of a copied instruction what they say of the
//! original, for both compilers and the forms of DWARF; breakpoints by line stop in either.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use end_to_end::process::{self, succeed};
use end_to_end::workspace::{reorder, root};
use libtest_mimic::{Arguments, Trial};
use object::{Object as _, ObjectSection as _};
use reorder_base::little_endian::u64_at;
use reorder_base::tool_versions::llvm;

const LIMIT: Duration = Duration::from_secs(300);

/// A name and the compiler's options.
const BUILDS: [(&str, &str); 17] = [
    ("gcc 5", "gcc -g -gdwarf-5 -O2"),
    ("gcc 4", "gcc -g -gdwarf-4 -O2"),
    ("gcc 3", "gcc -g -gdwarf-3 -gstrict-dwarf -O1"),
    ("gcc 2", "gcc -g -gdwarf-2 -gstrict-dwarf -O0"),
    ("gcc without optimisation", "gcc -g -O0"),
    ("gcc sections", "gcc -g -O2 -ffunction-sections -Wl,--gc-sections"),
    ("gcc macros", "gcc -g3 -O2"),
    ("gcc types", "gcc -g -O2 -fdebug-types-section"),
    ("gcc wide", "gcc -g -gdwarf64 -O2"),
    ("gcc compressed", "gcc -g -gz=zlib -O2"),
    ("gcc whole program", "gcc -g -O2 -flto"),
    ("gcc index", "gcc -g -O2 -fuse-ld=gold -Wl,--gdb-index"),
    ("clang 5", "clang$LLVM -g -gdwarf-5 -O2"),
    ("clang 4", "clang$LLVM -g -gdwarf-4 -O2"),
    ("clang without optimisation", "clang$LLVM -g -O0"),
    ("clang compressed", "clang$LLVM -g -gz=zstd -O2 -fuse-ld=lld"),
    ("clang names", "clang$LLVM -g -gpubnames -O2 -fuse-ld=lld -Wl,--debug-names"),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = BUILDS.iter().map(|&(name, compiler)| {
        Trial::test(name, move || {
            let pair = Pair::build(compiler);
            pair.lines_by_address();
            pair.stops("gdb", &["-nx", "-batch", "-x"], GDB);
            pair.stops(&llvm("lldb"), &["--no-lldbinit", "--batch", "-s"], LLDB);
            Ok(())
        })
    });
    let others = [
        Trial::test("the way back", || {
            the_way_back();
            Ok(())
        }),
        Trial::test("what the verifier finds", || {
            what_the_verifier_finds();
            Ok(())
        }),
        Trial::test("a statement after a guard", || {
            a_statement_after_a_guard();
            Ok(())
        }),
    ];
    libtest_mimic::run(&arguments, trials.chain(others).collect()).exit_code()
}

/// One program before and after, each in a folder of its own under the same name.
struct Pair {
    _directory: tempfile::TempDir,
    old: PathBuf,
    new: PathBuf,
}

impl Pair {
    fn build(compiler: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sources = root().join("tests/debug");
        let [old, new] = ["old", "new"].map(|folder| {
            fs::create_dir(directory.path().join(folder)).unwrap();
            directory.path().join(folder).join("program")
        });
        let line = format!(
            "cd '{}' && {compiler} -fPIE -pie main.c other.c -o '{}'",
            sources.display(),
            old.display()
        );
        process::shell(&line, LIMIT).unwrap();
        let mut apply = reorder();
        apply.args(["apply", "--layout", "blocks", "--strategy", "random", "--seed", "7"]);
        succeed(apply.arg(&old).arg("-o").arg(&new));
        succeed(reorder().arg("verify").arg(&old).arg(&new));
        Self { _directory: directory, old, new }
    }

    // case: debug information of copies
    /// Every byte of all copies that are as long as their originals.
    fn lines_by_address(&self) {
        let mut places = [Vec::new(), Vec::new()];
        for [original, copy, size, copy_size] in fragments(&self.new) {
            let known = if size == copy_size { size } else { 1 };
            places[0].extend(original..original + known);
            places[1].extend(copy..copy + known);
        }
        assert!(places[0].len() > 90, "{} places", places[0].len());
        // GNU's tool guesses between functions that were inlined by the length of their ranges.
        for (tool, options) in [("addr2line", "-se"), (&*llvm("llvm-addr2line"), "-fise")] {
            let answer = |image: &Path, places: &[u64]| {
                let mut command = Command::new(tool);
                command.arg(options).arg(image);
                let outcome =
                    process::run(command.args(places.iter().map(|place| format!("{place:#x}"))), LIMIT)
                        .unwrap();
                assert!(outcome.success(), "{tool}: {outcome}");
                outcome.stdout_text()
            };
            let (before, after) = (answer(&self.old, &places[0]), answer(&self.new, &places[1]));
            // GNU's tool does not read wide DWARF.
            let known = before.lines().filter(|line| line.contains(".c:")).count();
            assert!(known > 40 || tool == "addr2line", "{tool}: {before}");
            // Code of no unit has the names of symbols, and those of copies have a suffix.
            let without_suffix = |line: &str| match line.split_once(".reorder") {
                Some((name, _)) => name.to_owned(),
                None => line.to_owned(),
            };
            let after: String = after.lines().map(|line| without_suffix(line) + "\n").collect();
            let other = before.lines().zip(after.lines()).position(|(before, after)| before != after);
            let lines = other.map(|at| (before.lines().nth(at), after.lines().nth(at)));
            assert_eq!(lines, None, "{tool}");
            assert_eq!(before.lines().count(), after.lines().count(), "{tool}");
        }
    }

    /// Breakpoints by line: the same stops, with the same frames, in the same order.
    fn stops(&self, tool: &str, arguments: &[&str], script: &str) {
        let stops = [&self.old, &self.new].map(|image| {
            let folder = image.parent().unwrap();
            fs::write(folder.join("script"), script).unwrap();
            let mut command = Command::new(tool);
            command.current_dir(folder).args(arguments).args(["script", "program"]);
            command.env("DEBUGINFOD_URLS", "").env("NO_COLOR", "1");
            let outcome = process::run(&mut command, LIMIT).unwrap();
            let text = outcome.stdout_text() + &outcome.stderr_text();
            (frames(&text), text)
        });
        assert!(stops[0].0.len() > 10, "{tool} does not stop:\n{}", stops[0].1);
        assert_eq!(stops[0].0, stops[1].0, "{tool}\n{}\n{}", stops[0].1, stops[1].1);
    }
}

/// The frames of all backtraces: number, function and line.
fn frames(text: &str) -> Vec<String> {
    let frames = text.lines().map(str::trim).map(|line| line.trim_start_matches("* ")).filter_map(|line| {
        let rest = line.strip_prefix("frame #").or_else(|| line.strip_prefix('#'))?;
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let place = line.rsplit([' ', '/']).next()?;
        let (file, line_number) = place.split_once(".c:")?;
        // lldb also says the column.
        let line_number = line_number.split(':').next()?;
        // gdb ends a backtrace at `main` only where it runs in the original.
        matches!(file, "main" | "other").then(|| format!("{number} {file}.c:{line_number}"))
    });
    frames.collect()
}

/// What the image's list of copies says: original, copy, bytes of the original, bytes of the copy.
fn fragments(image: &Path) -> Vec<[u64; 4]> {
    let bytes = fs::read(image).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let record = file.section_by_name(".reorder.clones").unwrap().data().unwrap();
    let word = |at: usize| u64_at(record, at).unwrap();
    let count = usize::try_from(word(16)).unwrap();
    (0..count).map(|number| std::array::from_fn(|field| word(24 + 32 * number + 8 * field))).collect()
}

/// Without copies the file is what it was, byte for byte.
fn the_way_back() {
    let pair = Pair::build("gcc -g -O2");
    let directory = tempfile::tempdir().unwrap();
    let [map, again, back] = ["map", "again", "back"].map(|name| directory.path().join(name));
    let mut apply = reorder();
    apply.args(["apply", "--layout", "blocks", "--strategy", "random", "--seed", "7"]);
    succeed(apply.arg(&pair.old).arg("-o").arg(&again).arg("--map").arg(&map));
    succeed(reorder().arg("apply").arg(&again).arg("--order").arg(&map).arg("-o").arg(&back));
    assert!(fs::read(&back).unwrap() == fs::read(&pair.old).unwrap(), "the way back leads elsewhere");
    // `strip` takes away what was added as well.
    let stripped = directory.path().join("stripped");
    succeed(Command::new("strip").arg(&pair.new).arg("-o").arg(&stripped));
    let bytes = fs::read(&stripped).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    assert!(file.sections().all(|section| !section.name().unwrap().starts_with(".debug_")));
    assert!(process::run(&mut Command::new(&stripped), LIMIT).unwrap().success());
}

/// A statement that begins at a dispatch begins after the comparison that only its copy has: a debugger stops once each time.
fn a_statement_after_a_guard() {
    let directory = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| directory.path().join(name));
    let source = root().join("tests/copies/guarded.c");
    let build = format!("gcc -O1 -g -fPIE -pie '{}' -o '{}'", source.display(), old.display());
    process::shell(&build, LIMIT).unwrap();
    let mut apply = reorder();
    succeed(apply.args(["apply", "--strategy", "random", "--clone=all"]).arg(&old).arg("-o").arg(&new));
    for image in [&old, &new] {
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-ex", "break guarded.c:4", "-ex", "ignore 1 1000", "-ex", "run"]);
        let stops = succeed(gdb.args(["-ex", "info breakpoints"]).arg(image));
        assert!(stops.contains("already hit 7 times"), "{stops}");
    }
}

/// What was added to debug information, with one wrong byte, is not proven.
fn what_the_verifier_finds() {
    let pair = Pair::build("gcc -g -O2");
    let [old, new] = [&pair.old, &pair.new].map(|image| fs::read(image).unwrap());
    let range = |bytes: &[u8], name: &str| {
        object::File::parse(bytes).unwrap().section_by_name(name).unwrap().file_range().unwrap()
    };
    for name in [".debug_info", ".debug_line", ".debug_rnglists", ".debug_aranges", ".debug_abbrev"] {
        let kept = range(&old, name).1;
        let (start, size) = range(&new, name);
        assert!(size > kept, "{name} has not grown");
        let mut found = 0;
        const TRIES: u64 = 12;
        for number in 1..=TRIES {
            let mut changed = new.clone();
            changed[(start + kept + (size - kept) * number / (TRIES + 1)) as usize] ^= 0x10;
            fs::write(&pair.new, &changed).unwrap();
            let mut verify = reorder();
            let outcome = process::run(verify.arg("verify").arg(&pair.old).arg(&pair.new), LIMIT).unwrap();
            found += u64::from(!outcome.success());
        }
        // Columns and file tables of line programs, padding of tables, may concern no copy.
        assert!(found >= TRIES / 2, "{name}: {found} of {TRIES} changes found");
    }
}

/// Stops at lines of five functions, wherever they run.
const GDB: &str = "\
set confirm off
set width 0
set print address off
break main.c:26
break main.c:27
break main.c:32
break main.c:44
break main.c:58
run
backtrace
continue
backtrace
continue
backtrace
continue
backtrace
continue
backtrace
continue
backtrace
continue
backtrace
kill
";

const LLDB: &str = "\
settings set use-color false
settings set symbols.enable-external-lookup false
breakpoint set --file main.c --line 26
breakpoint set --file main.c --line 32
breakpoint set --file main.c --line 44
breakpoint set --file main.c --line 58
run
thread backtrace
continue
thread backtrace
continue
thread backtrace
continue
thread backtrace
continue
thread backtrace
kill
quit
";
