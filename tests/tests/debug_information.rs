//! After debug information was updated, gdb, lldb and addr2line answer as before, for both compilers and
//! the forms of DWARF. Only addresses differ.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use end_to_end::process::{self, succeed};
use end_to_end::workspace::{reorder, root};
use libtest_mimic::{Arguments, Trial};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use reorder_base::tool_versions::llvm;

const LIMIT: Duration = Duration::from_secs(300);

/// A name, the compiler's options, and whether LLVM's own check of DWARF runs: it does not terminate on code that gcc
/// optimised.
const BUILDS: [(&str, &str, bool); 21] = [
    ("gcc 5", "gcc -g -gdwarf-5 -O2", false),
    ("gcc 4", "gcc -g -gdwarf-4 -O2", false),
    ("gcc 3", "gcc -g -gdwarf-3 -gstrict-dwarf -O1", false),
    ("gcc 2", "gcc -g -gdwarf-2 -gstrict-dwarf -O0", false),
    ("gcc without optimisation", "gcc -g -O0", true),
    ("gcc sections", "gcc -g -O2 -ffunction-sections -Wl,--gc-sections", false),
    ("gcc macros", "gcc -g3 -O2", false),
    ("gcc types", "gcc -g -O2 -fdebug-types-section", false),
    ("gcc wide", "gcc -g -gdwarf64 -O2", false),
    ("gcc frames", "gcc -g -O2 -fno-asynchronous-unwind-tables", false),
    ("gcc compressed", "gcc -g -gz=zlib -O2", false),
    ("gcc kept relocations", "gcc -g -O2 -Wl,--emit-relocs", false),
    ("gcc whole program", "gcc -g -O2 -flto", false),
    ("gcc index", "gcc -g -O2 -fuse-ld=gold -Wl,--gdb-index", false),
    ("clang 5", "clang$LLVM -g -gdwarf-5 -O2", true),
    ("clang 4", "clang$LLVM -g -gdwarf-4 -O2", true),
    ("clang compressed", "clang$LLVM -g -gz=zstd -O2 -fuse-ld=lld", true),
    ("clang sections", "clang$LLVM -g -O2 -ffunction-sections -Wl,--gc-sections -fuse-ld=lld", true),
    ("clang index", "clang$LLVM -g -ggnu-pubnames -O2 -fuse-ld=lld -Wl,--gdb-index", true),
    ("clang hashes", "clang$LLVM -g -O1 -fsanitize=function -fsanitize-trap=function", true),
    ("clang names", "clang$LLVM -g -gpubnames -O2 -fuse-ld=lld -Wl,--debug-names", true),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = BUILDS.iter().map(|&(name, compiler, is_checked)| {
        Trial::test(name, move || {
            Pair::build(compiler).answers_as_before(is_checked);
            Ok(())
        })
    });
    let others = [
        Trial::test("symbols inside the image", || {
            symbols_inside_the_image();
            Ok(())
        }),
        Trial::test("what the verifier finds", || {
            what_the_verifier_finds();
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
        let output = old.display();
        let ballast = root().join("tests/fixtures/ballast.c");
        let line = format!(
            "cd '{}' && {compiler} -c '{}' -o '{output}.o' && {compiler} -fPIE -pie main.c other.c '{output}.o' -o '{output}'",
            sources.display(),
            ballast.display()
        );
        process::shell(&line, LIMIT).unwrap();
        let mut apply = reorder();
        apply.args(["apply", "--strategy", "random", "--seed", "7"]).arg(&old).arg("-o").arg(&new);
        succeed(&mut apply);
        Self { _directory: directory, old, new }
    }

    // case: debug information answers as before
    fn answers_as_before(&self, is_checked: bool) {
        self.lines_by_address();
        self.session("gdb", &["-nx", "-batch", "-x"], GDB, &["Breakpoint", "triple = ", "#1 "]);
        self.session(&llvm("lldb"), &["--no-lldbinit", "--batch", "-s"], LLDB, &["stop reason", "frame #1"]);
        if is_checked {
            let verdicts = self.both(|image| {
                let mut command = Command::new(llvm("llvm-dwarfdump"));
                let outcome = process::run(command.arg("--verify").arg(image), LIMIT).unwrap();
                // Its first line names the file.
                masked(&outcome.stdout_text().lines().skip(1).collect::<Vec<_>>().join("\n"))
            });
            assert_eq!(verdicts[0], verdicts[1]);
        }
    }

    fn both<T>(&self, ask: impl Fn(&Path) -> T) -> [T; 2] {
        [ask(&self.old), ask(&self.new)]
    }

    /// The start of every function and 1,000 places in functions.
    fn lines_by_address(&self) {
        let functions = self.both(functions);
        assert_eq!(functions[0].len(), functions[1].len());
        let mut places = [Vec::new(), Vec::new()];
        let mut state = 7_u64;
        for number in 0..functions[0].len() + 1000 {
            // Knuth's MMIX generator: the places differ and are the same in every run.
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let chosen = (state >> 33) as usize;
            let at = if number < functions[0].len() { number } else { chosen % functions[0].len() };
            let (start, size) = functions[0][at];
            let within = if number < functions[0].len() || size == 0 { 0 } else { (state >> 17) % size };
            places[0].push(start + within);
            places[1].push(functions[1][at].0 + within);
        }
        for tool in ["addr2line", &llvm("llvm-addr2line")] {
            let answer = |image: &Path, places: &[u64]| {
                let mut command = Command::new(tool);
                command
                    .args(["-f", "-i", "-e"])
                    .arg(image)
                    .args(places.iter().map(|place| format!("{place:#x}")));
                let outcome = process::run(&mut command, LIMIT).unwrap();
                assert!(outcome.success(), "{tool}: {outcome}");
                outcome.stdout_text()
            };
            let (before, after) = (answer(&self.old, &places[0]), answer(&self.new, &places[1]));
            assert!(before.lines().filter(|line| line.contains("main.c:")).count() > 5, "{tool}: {before}");
            assert_eq!(before, after, "{tool}");
        }
    }

    /// The same script in a debugger; only addresses in the answers may differ.
    fn session(&self, tool: &str, arguments: &[&str], script: &str, expected: &[&str]) {
        let answers = self.both(|image| {
            let folder = image.parent().unwrap();
            fs::write(folder.join("script"), script).unwrap();
            let mut command = Command::new(tool);
            command.current_dir(folder).args(arguments).args(["script", "program"]);
            command.env("DEBUGINFOD_URLS", "").env("NO_COLOR", "1");
            let outcome = process::run(&mut command, LIMIT).unwrap();
            masked(&(outcome.stdout_text() + &outcome.stderr_text()))
        });
        for text in expected {
            assert!(answers[0].contains(text), "{tool} does not say `{text}`:\n{}", answers[0]);
        }
        let (before, after): (Vec<&str>, Vec<&str>) =
            (answers[0].lines().collect(), answers[1].lines().collect());
        let first = before.iter().zip(&after).find(|(before, after)| before != after);
        assert_eq!(first, None, "{tool}");
        assert_eq!(before.len(), after.len(), "{tool}");
    }
}

/// A stripped program with compressed symbols, as distributions make them: gdb finds names at the new addresses, which it
/// does only if the entry point in the symbols is the program's.
fn symbols_inside_the_image() {
    let directory = tempfile::tempdir().unwrap();
    let sources = root().join("tests/debug");
    process::shell(
        &format!(
            "cd '{}' && gcc -g -O2 -fPIE -pie '{sources}/main.c' '{sources}/other.c' -o full && objcopy --only-keep-debug full inside && \
             objcopy --strip-debug --remove-section .comment inside && xz inside && strip -s full && \
             objcopy --add-section .gnu_debugdata=inside.xz full old",
            directory.path().display(),
            sources = sources.display(),
        ),
        LIMIT,
    )
    .unwrap();
    let [old, new] = ["old", "new"].map(|name| directory.path().join(name));
    succeed(reorder().args(["apply", "--strategy", "random", "--seed", "7"]).arg(&old).arg("-o").arg(&new));
    let names = [&old, &new].map(|image| {
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-ex", "info symbol depth", "-ex", "info symbol cold_path"]).arg(image);
        let text = process::run(&mut gdb, LIMIT).unwrap().stdout_text();
        text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    });
    assert_eq!(names, [["depth", "cold_path"], ["depth", "cold_path"]]);
}

/// Debug information with one wrong byte is not proven.
fn what_the_verifier_finds() {
    let pair = Pair::build("gcc -g -O2");
    let bytes = fs::read(&pair.new).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    for name in
        [".debug_info", ".debug_line", ".debug_rnglists", ".debug_loclists", ".debug_aranges", ".debug_str"]
    {
        let (start, size) = file.section_by_name(name).unwrap().file_range().unwrap();
        let mut found = 0;
        const TRIES: u64 = 12;
        for number in 1..=TRIES {
            let mut changed = bytes.clone();
            changed[(start + size * number / (TRIES + 1)) as usize] ^= 0x10;
            fs::write(&pair.new, &changed).unwrap();
            let mut verify = reorder();
            verify.arg("verify").arg(&pair.old).arg(&pair.new);
            found += u64::from(!process::run(&mut verify, LIMIT).unwrap().success());
        }
        // Bytes of line programs and lists may not concern any function, such as views.
        assert!(found >= TRIES / 2, "{name}: {found} of {TRIES} changes found");
    }
}

/// Breakpoints by line and by name, steps through ten functions, frames and variables.
const GDB: &str = "\
set confirm off
set width 0
set print address off
break one
break main.c:26
break cold_path
break push
break sum
break digits
break depth
info line two
run
backtrace full
step
step
step
finish
continue
continue
backtrace
step
step
step
info locals
delete 1 2
continue
backtrace full
next
next
delete 4
continue
step
step
step
continue
backtrace full
step
step
up
info locals
continue
step
backtrace full
step
step
step
continue
step
step
backtrace 3
kill
";

const LLDB: &str = "\
settings set use-color false
settings set symbols.enable-external-lookup false
breakpoint set --name one
breakpoint set --file main.c --line 26
breakpoint set --name cold_path
breakpoint set --name push
breakpoint set --name digits
breakpoint set --name depth
run
thread backtrace
frame variable
thread step-in
thread step-in
frame variable
continue
thread step-in
thread step-in
breakpoint delete 1 2
continue
thread backtrace
frame variable
thread step-over
breakpoint delete 4
continue
thread step-in
thread step-in
frame variable
continue
thread backtrace
thread step-in
continue
thread backtrace
thread step-in
frame variable
kill
quit
";

/// Sized functions in the order of the symbol table, which relocation keeps.
fn functions(image: &Path) -> Vec<(u64, u64)> {
    let bytes = fs::read(image).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let is_code = |address: u64| {
        file.section_by_name(".text")
            .is_some_and(|text| (text.address()..text.address() + text.size()).contains(&address))
    };
    file.symbols()
        .filter(|symbol| {
            symbol.kind() == SymbolKind::Text && symbol.is_definition() && is_code(symbol.address())
        })
        .map(|symbol| (symbol.address(), symbol.size()))
        .collect()
}

/// Without addresses, process numbers, the folder, and gdb's notation of locations.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    for line in text.lines() {
        let mut rest = line;
        while let Some(at) = rest.find("0x") {
            masked.push_str(&rest[..at]);
            masked.push('@');
            rest = rest[at + 2..].trim_start_matches(|letter: char| letter.is_ascii_hexdigit());
        }
        masked.push_str(rest);
        masked.push('\n');
    }
    let masked = masked.replace("/new/", "/old/");
    let is_kept = |line: &&str| !line.contains("rocess ") && !line.contains("Current executable");
    masked.lines().filter(is_kept).collect::<Vec<_>>().join("\n")
}
