//! Runs every command block of README and GUIDE in a folder that contains everything it refers to.
//!
//! One test for each block, named by its first line. A block that is not in the table fails: its author adds it here with
//! its preparation, or with the place where it is run instead.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so where it stands")]

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::time::Duration;

use end_to_end::documents::{Block, blocks};
use end_to_end::process::{self, shell};
use end_to_end::workspace;
use libtest_mimic::{Arguments, Failed, Trial};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(900);

/// How a block is tested.
enum Way {
    /// Run after these lines of preparation, with some words replaced.
    Run(&'static str, &'static [(&'static str, &'static str)]),
    /// Not run here, with the reason.
    Elsewhere(&'static str),
}

use Way::{Elsewhere, Run};

/// Replaces the compiler commands for the program of the workplace.
const GCC: (&str, &str) = ("gcc …", "g++ -O1 main.cpp");
const CLANG: (&str, &str) = ("clang …", "clang++$LLVM -O1 main.cpp -o program");
/// A fast build, which must not replace the commands under test or what the system has.
const INSTALL: (&str, &str) = (
    "cargo install",
    "cargo install --quiet --profile unoptimised --offline --root installed --target-dir \"$TARGET\"",
);
const LOCKED: (&str, &str) = (
    "--profile unoptimised --offline --root installed --target-dir \"$TARGET\" --locked",
    "--profile unoptimised --offline --locked --root installed --target-dir \"$TARGET\"",
);
const PACKAGE: (&str, &str) = ("--path reorder", "--path \"$ROOT/reorder\"");
const PLUGIN_PACKAGE: (&str, &str) = ("--path linker-plugin", "--path \"$ROOT/linker-plugin\"");

/// A library for the other system, and a list of the functions that it executes first.
const MACH_O: &str = "
    printf 'int f(int a) { return a + 1; }\\nint g(int a) { return f(a) + 2; }\\nint h(int a) { return g(a) * 3; }\\n' > app.c
    clang$LLVM --target=arm64-apple-macos12 -O1 -fno-inline -c app.c -o app.o
    ld64.lld$LLVM -arch arm64 -platform_version macos 12 12 -dylib -undefined dynamic_lookup app.o -o MyApp
    printf '_h\\n_f\\n' > profiles";

/// Profiles from the compiler and the system.
const PROFILES: &str = "
    clang++$LLVM -O1 -fprofile-generate -mllvm -pgo-temporal-instrumentation main.cpp -o instrumented
    mkdir -p runs
    LLVM_PROFILE_FILE=app.profraw ./instrumented --first-screen
    LLVM_PROFILE_FILE=default.profraw ./instrumented status
    cp app.profraw runs/1.profraw && cp default.profraw runs/2.profraw
    perf record -q -e cpu-clock -F 5000 -o perf.data ./program --long > perf.log 2>&1 || { cat perf.log; exit 1; }
    mkdir -p devices && cp traces/*.trace devices/";

/// The repository of the guide's section on CI.
const REPOSITORY: &str = "
    git init -q -b main && git config user.name demo && git config user.email demo@example.org
    printf 'build/program: main.cpp\\n\\tmkdir -p build && g++ -O1 main.cpp -o build/program\\n' > Makefile
    printf '[scenario.startup]\\nprogram = \"build/program\"\\ntraces = [\"traces/startup\"]\\n' > reorder.toml
    printf '[scenario.help]\\nprogram = \"build/program\"\\narguments = [\"--help\"]\\ntraces = [\"traces/help\"]\\n' >> reorder.toml
    printf '[gate]\\nimage = \"build/program\"\\n' >> reorder.toml
    rm -rf traces && git add . && git commit -q -m start";

const WHEEL: &str = "
    mkdir -p package moved package-1.0.dist-info
    printf 'int f(int a) { return a + 1; }\\nint g(int a) { return f(a) + 2; }\\nint h(int a) { return g(a) * 3; }\\n' > library.c
    gcc -O1 -fno-inline -fPIC -shared library.c -o package/library.so
    printf 'Metadata-Version: 2.1\\nName: package\\nVersion: 1.0\\n' > package-1.0.dist-info/METADATA
    python3 -c 'if True:
      import base64, hashlib, zipfile
      names = [\"package/library.so\", \"package-1.0.dist-info/METADATA\"]
      digest = lambda name: base64.urlsafe_b64encode(hashlib.sha256(open(name, \"rb\").read()).digest()).decode().rstrip(\"=\")
      with zipfile.ZipFile(\"package.whl\", \"w\") as wheel:
        for name in names: wheel.write(name)
        lines = [f\"{name},sha256={digest(name)},{len(open(name, chr(114) + chr(98)).read())}\" for name in names]
        wheel.writestr(\"package-1.0.dist-info/RECORD\", \"\\n\".join(lines + [\"package-1.0.dist-info/RECORD,,\"]) + \"\\n\")'
    rm -rf traces && printf 'h\\nf\\n' > traces";

const SCENARIOS: &str = "
    printf '[scenario.status]\\nprogram = \"./program\"\\narguments = [\"status\"]\\ntraces = [\"traces\"]\\n' > reorder.toml
    printf '[scenario.both]\\nprogram = \"./program\"\\narguments = [\"--first-screen\"]\\ntraces = [\"traces\"]\\n' >> reorder.toml";

const CARGO: &str = "
    mkdir -p src && printf 'fn main() { println!(\"{}\", std::env::args().count()); }\\n' > src/main.rs
    printf '[package]\\nname = \"demo\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n[workspace]\\n' > Cargo.toml
    export CARGO_TARGET_DIR=$PWD/target";

/// First line of a block, without its comment, and how it is tested.
const TABLE: &[(&str, Way)] = &[
    ("scripts/demo", Run("cd \"$ROOT\"; export CARGO_TARGET_DIR=$PLACE/target", &[])),
    ("cargo install --path reorder --locked", Run("", &[INSTALL, PACKAGE, PLUGIN_PACKAGE])),
    ("sudo apt install ./reorder_0.1.0-1_amd64.deb", Elsewhere("scripts/package installs what it has made")),
    ("reorder optimize ./program -o program.fast --run '--first-screen'", Run("", &[])),
    ("reorder inspect MyApp", Run(MACH_O, &[])),
    ("dsymutil MyApp.new -o MyApp.dSYM", Elsewhere("needs a Mac")),
    ("make", Run(REPOSITORY, &[])),
    (
        "cargo install --locked --path reorder",
        Run(REPOSITORY, &[
            INSTALL,
            LOCKED,
            PACKAGE,
            // The results of the other block of that section.
            ("make\n", "make\nreorder record\nreorder gate --update-baseline\n"),
        ]),
    ),
    ("reorder traces show perf.data", Run(PROFILES, &[])),
    ("scripts/test", Elsewhere("is what runs this test")),
    (
        "reorder optimize /usr/bin/git -o git.fast --run status --run 'log --oneline'",
        Run("git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first", &[]),
    ),
    (
        "reorder optimize /usr/lib/postgresql/15/bin/postgres -o postgres.fast --run '-D data' --until 'ready to accept connections'",
        Elsewhere("needs a database; tests/tests/commands/optimize_endings.rs does it with a server of its own"),
    ),
    (
        "reorder optimize /usr/bin/gdb --libraries -o fast --run --version --run '-batch -ex \"show version\"'",
        Elsewhere("needs a package; tests/tests/commands/sets_and_wheels.rs does it with a program of its own"),
    ),
    (
        "reorder measure --whole-process --new-libraries fast /usr/bin/gdb fast/gdb -- --version",
        Elsewhere("needs a package; tests/tests/measure_process.rs does it with a program of its own"),
    ),
    (
        "reorder optimize php -o php.fast --run '' --stdin page.php",
        Elsewhere("needs packages; tests/tests/commands/optimize_endings.rs does it with a filter of its own"),
    ),
    ("[lints.rust]", Elsewhere("is a file")),
    ("reorder inspect ./program", Run("", &[])),
    (
        "reorder apply ./program -t traces -o program.fast --check '--first-screen' --check 'status'",
        Run("", &[]),
    ),
    ("reorder inspect MyApp --all", Run(MACH_O, &[])),
    ("scripts/macos-check.sh --make check MyTool", Elsewhere("needs a Mac")),
    ("reorder record -o traces -- ./program --first-screen", Run("", &[CLANG])),
    ("clang … -ffunction-sections -fuse-ld=lld -Wl,-Map=program.map", Run("", &[CLANG])),
    (
        "gcc -B \"$(reorder-ld --reorder-links)\" …",
        Run(
            "printf 'cmake_minimum_required(VERSION 3.10)\\nproject(demo CXX)\\nadd_executable(demo main.cpp)\\n' > CMakeLists.txt
             printf '#!/bin/sh\\nset -e\\nexport \"$@\"\\nc++ $LDFLAGS main.cpp -o configured\\n./configured\\n' > configure
             chmod +x configure",
            &[
                ("gcc -B", "g++ -B"),
                ("clang -fuse-ld", "clang++$LLVM -fuse-ld"),
                ("--reorder-links)\" …     #", "--reorder-links)\" . > cmake.log && cmake --build . > cmake.log #"),
                ("--reorder-links)\" …", "--reorder-links)\" main.cpp -o linked && ./linked"),
            ],
        ),
    ),
    ("# .cargo/config.toml", Elsewhere("is a file; the block after it does the same")),
    ("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=reorder-cc cargo build --release", Run(CARGO, &[])),
    (
        "REORDER_DRIVER=aarch64-linux-gnu-gcc cargo build --target aarch64-unknown-linux-gnu",
        Run(CARGO, &[
            ("REORDER_DRIVER", "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=reorder-cc REORDER_DRIVER"),
            ("rustflags", ": rustflags"),
        ]),
    ),
    (
        "cargo build --release -p reorder-linker-plugin",
        Run("", &[
            ("cargo build --release -p reorder-linker-plugin", "cargo build --quiet --profile unoptimised --manifest-path \"$ROOT/Cargo.toml\" --target-dir \"$TARGET\" -p reorder-linker-plugin"),
            GCC,
            ("/path/libreorder_plugin.so", "$TARGET/unoptimised/libreorder_plugin.so"),
        ]),
    ),
    ("reorder apply ./program -t traces --memory read-around --effort thorough -o program.fast", Run("", &[])),
    ("reorder traces show app.profraw", Run(PROFILES, &[])),
    (
        "reorder traces merge --sample 200 day1/ -o day1.trace",
        Run("cp -r traces day1; reorder traces merge --sample 200 traces -o day2.trace", &[]),
    ),
    (
        "reorder explain ./program parse_options 0x41a0 -t traces",
        Run("reorder apply ./program -t traces -o program.fast", &[
            ("0x41a0", "0x$(nm program | awk '$3 == \"main\" { print $1 }')"),
        ]),
    ),
    ("reorder record --blocks -o traces -- ./program --first-screen", Run("", &[])),
    ("reorder apply ./program -t traces --layout blocks -o program.fast", Run("", &[])),
    ("reorder record -o traces/status -- ./program status", Run("", &[])),
    (
        "reorder report ./program program.fast -t traces -o report.html",
        Run("mkdir build; cp program build; reorder apply ./program -t traces -o program.fast; reorder apply ./program -t traces --set fast", &[]),
    ),
    (
        "reorder measure ./program program.fast -- --first-screen",
        Run("reorder apply ./program -t traces -o program.fast", &[
            // The scenarios name files, and the lines before do not make them.
            ("reorder measure  ", "source scenarios; reorder measure  "),
        ]),
    ),
    ("new: pages touched 46 → read ahead 655 → mapped by fault-around 277", Elsewhere("is what a command prints")),
    ("reorder gate ./program -t traces --update-baseline", Run("", &[])),
    ("reorder gate ./program -t traces --against ./program.before", Run("cp program program.before; reorder gate ./program -t traces --update-baseline", &[])),
    ("reorder record -o traces --libraries -- ./program --first-screen", Run("rm -r traces", &[])),
    ("reorder apply ./program -t traces --clone -o program.fast", Run("", &[])),
    ("reorder apply package.whl -t traces -o moved/package.whl", Run(WHEEL, &[])),
    (
        "reorder apply /usr/bin/git -t traces --in-place",
        Run("mkdir -p admin && cp /var/lib/dpkg/status admin/ && touch admin/diversions && mkdir -p admin/info admin/updates", &[
            ("/usr/bin/git", "$PWD/program"),
            ("dpkg-divert", "dpkg-divert --admindir \"$PWD/admin\""),
        ]),
    ),
];

fn main() -> std::io::Result<ExitCode> {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for document in ["README.md", "GUIDE.md"] {
        for block in blocks(&workspace::root().join(document))? {
            let name =
                format!("{}:{} {}{}", block.document, block.line, first_words(&block), note_on(&block));
            trials.push(Trial::test(name, move || check(&block)));
        }
    }
    trials.push(Trial::test("every row of the table is of a block", every_row_is_used));
    Ok(libtest_mimic::run(&arguments, trials).exit_code())
}

fn every_row_is_used() -> Result<(), Failed> {
    let documents = ["README.md", "GUIDE.md"].map(|name| blocks(&workspace::root().join(name)));
    let all: Vec<Block> = documents.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    for (first, way) in TABLE {
        let ours: Vec<&Block> = all.iter().filter(|block| first_words(block) == *first).collect();
        if ours.is_empty() {
            return Err(format!("no block begins with {first}").into());
        }
        let Run(_, replaced) = way else { continue };
        let used: Vec<Vec<bool>> = ours.iter().map(|block| with_replaced(block, replaced).1).collect();
        for (index, (from, _)) in replaced.iter().enumerate() {
            if !used.iter().any(|used| used[index]) {
                return Err(format!("the block of {first} has no words {from}").into());
            }
        }
    }
    Ok(())
}

/// The commands with some words replaced, and which of these were found.
fn with_replaced(block: &Block, replaced: &[(&str, &str)]) -> (String, Vec<bool>) {
    let mut commands = block.commands.join("\n") + "\n";
    let mut used = Vec::new();
    for (from, to) in replaced {
        used.push(commands.contains(from));
        commands = commands.replace(from, to);
    }
    (commands, used)
}

fn way_of(block: &Block) -> Option<&'static Way> {
    TABLE.iter().find(|(first, _)| *first == first_words(block)).map(|(_, way)| way)
}

/// Why a block is not run, for the list of tests.
fn note_on(block: &Block) -> String {
    match way_of(block) {
        Some(Elsewhere(reason)) => format!(" (not run: {reason})"),
        _ => String::new(),
    }
}

/// The first command without its comment.
fn first_words(block: &Block) -> &str {
    let line = block.commands[0].as_str();
    if line.starts_with('#') { line } else { line.split("  ").next().unwrap_or(line).trim() }
}

fn check(block: &Block) -> Result<(), Failed> {
    let Some(way) = way_of(block) else {
        return Err(format!("{}:{} is not in the table of this test", block.document, block.line).into());
    };
    let Run(preparation, replaced) = way else { return Ok(()) };
    let (commands, _) = with_replaced(block, replaced);
    let workplace = workplace();
    let target = workspace::reorder_path().parent().unwrap().parent().unwrap();
    let mut run = Command::new("bash");
    run.args(["-euo", "pipefail", "-c", &format!("{preparation}\n{commands}")]).current_dir(workplace.path());
    run.env("ROOT", workspace::root()).env("PLACE", workplace.path()).env("TARGET", target);
    run.env("REORDER", workspace::reorder_path()).env("REORDER_CACHE", workplace.path().join("cache"));
    run.env("PATH", format!("{}:{}", workplace.path().join("bin").display(), std::env::var("PATH").unwrap()));
    let outcome = process::run(&mut run, LIMIT)?;
    if outcome.success() { Ok(()) } else { Err(format!("{commands}\n{outcome}").into()) }
}

/// A folder with a program that has the functions and the scenarios of the documents, its recordings, and the commands.
fn workplace() -> TempDir {
    static MODEL: OnceLock<TempDir> = OnceLock::new();
    let model = MODEL.get_or_init(model);
    let folder = workspace::directory_on_disk();
    shell(&format!("cp -r '{}/.' '{}'", model.path().display(), folder.path().display()), LIMIT).unwrap();
    folder
}

const PROGRAM: &str = r#"
#include <cstdio>
#include <cstring>
#define NOINLINE __attribute__((noinline, used))
struct Config { static int load(int size); };
NOINLINE int Config::load(int size) { std::puts("loaded"); return size + 1; }
extern "C" NOINLINE int parse_options(int count) { std::puts("parsed"); return count; }
template <int Number> NOINLINE int part(int value) { return value * Number + (value >> 3); }
template <int Number> int all(int value) { return part<Number>(all<Number - 1>(value)); }
template <> NOINLINE int all<0>(int value) { return value; }
NOINLINE unsigned work(unsigned value) { for (int turn = 0; turn < 50000000; turn++) value = value * 3 + turn; return value; }
int main(int count, char **words) {
    int value = parse_options(count);
    for (int at = 1; at < count; at++) {
        if (!std::strcmp(words[at], "--first-screen")) value += Config::load(value);
        if (!std::strcmp(words[at], "status")) value += all<300>(value);
        if (!std::strcmp(words[at], "--long")) value += work(value);
    }
    return std::printf("%d\n", value) < 0;
}
"#;

fn model() -> TempDir {
    let folder = workspace::directory_on_disk();
    let path = folder.path();
    let wrapper = workspace::build("reorder-linker-plugin", &["--bins"]);
    std::fs::create_dir(path.join("bin")).unwrap();
    let link = |file: &Path| {
        std::os::unix::fs::symlink(file, path.join("bin").join(file.file_name().unwrap())).unwrap();
    };
    link(workspace::reorder_path());
    link(&wrapper.join("reorder-ld"));
    link(&wrapper.join("reorder-cc"));
    std::fs::write(path.join("main.cpp"), PROGRAM).unwrap();
    std::fs::write(path.join("scenarios"), SCENARIOS).unwrap();
    let make = format!(
        "cd '{}' && g++ -O1 main.cpp -o program && for words in --first-screen status; do \
         bin/reorder record -q -o traces -- ./program $words > /dev/null; done",
        path.display()
    );
    shell(&make, LIMIT).unwrap();
    folder
}
