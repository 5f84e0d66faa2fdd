//! Permuted libraries under programs that are not: the C library, the C++ library, the compiler's library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use end_to_end::process::{self, Outcome};
use end_to_end::workspace;
use reorder_base::tool_versions::llvm_library;

const APPLY_LIMIT: Duration = Duration::from_secs(900);
const RUN_LIMIT: Duration = Duration::from_secs(300);
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
const CROSS_LIBRARIES: &str = "/usr/aarch64-linux-gnu/lib";

/// Permutes `names` of the folder `libraries` into a new directory.
fn permuted(directory: &Path, libraries: &str, names: &[&str], seed: u64) -> PathBuf {
    let folder = directory.join(format!("seed{seed}"));
    fs::create_dir(&folder).unwrap();
    for name in names {
        let library = Path::new(libraries).join(name);
        let mut command = workspace::reorder();
        command.arg("apply").arg(&library).args(["--strategy", "random", "--seed", &seed.to_string(), "-o"]);
        let outcome = process::run(command.arg(folder.join(name)), APPLY_LIMIT).unwrap();
        assert!(outcome.success(), "{name}: {outcome}");
        let (old, new) = (fs::read(&library).unwrap(), fs::read(folder.join(name)).unwrap());
        assert!(old.len() == new.len() && old != new, "{name} did not move");
    }
    folder
}

/// Runs `line` with the libraries of `folder`, or with the system's.
fn run(folder: Option<&Path>, directory: &Path, line: &str) -> Outcome {
    let mut command = Command::new("/usr/bin/bash");
    command
        .args(["-c", line])
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C.UTF-8");
    // The shell itself runs on the permuted libraries as well, like all its children.
    if let Some(folder) = folder {
        command.env("LD_LIBRARY_PATH", folder);
    }
    process::run(&mut command, RUN_LIMIT).unwrap()
}

// case: programs on permuted C and C++ libraries
#[test]
fn programs_run_on_permuted_c_and_cpp_libraries() {
    let scratch = tempfile::tempdir().unwrap();
    let names = ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"];
    let lines = [
        "for i in 1 2 3; do echo $((i * i)); done | sort -rn",
        "printf '%s\\n' b a c | sort | sed 's/b/x/' | tr a-z A-Z | md5sum",
        "git init -q repo && cd repo && git -c user.name=a -c user.email=b commit -q --allow-empty -m one \
         --date=2020-01-01T00:00:00Z && git log --format=%s && git status --short && cd .. && rm -rf repo",
        "sqlite3 :memory: \"with recursive n(i) as (select 1 union all select i + 1 from n where i < 500) \
         select sum(i * i), avg(i), group_concat(i % 7, '') from n\"",
        "perl -e 'my %h = map { $_ => $_ * 2 } 1..50; print join(\",\", map { \"$_=$h{$_}\" } sort keys %h), \"\\n\"'",
        "awk 'BEGIN { printf \"%.6f %.6f %.6f\\n\", sin(1), exp(2), log(10) }'",
        "echo 'throw' | cat - /dev/null; no_such_command; exit 3",
        "printf 'int main(void) { return 0; }' | gcc -O2 -S -x c - -o - | md5sum",
        "printf '#include <map>\\n#include <string>\\nint f(std::map<std::string, int> &m) { return m[\"a\"]; }' \
         | g++ -O1 -S -x c++ - -o - | md5sum",
        "ldd /usr/bin/true > /dev/null; sleep 0.01 & wait; echo waited",
    ];
    let before: Vec<Outcome> = lines.iter().map(|line| run(None, scratch.path(), line)).collect();
    for seed in [1, 2] {
        let folder = permuted(scratch.path(), LIBRARIES, &names, seed);
        let used = run(Some(&folder), scratch.path(), "ldd /usr/bin/git").stdout_text();
        assert!(used.contains(&*folder.join("libc.so.6").to_string_lossy()), "{used}");
        for (line, before) in lines.iter().zip(&before) {
            assert_eq!(&run(Some(&folder), scratch.path(), line), before, "seed {seed}: {line}");
        }
    }
}

// case: programs on permuted C and C++ libraries
#[test]
fn emulated_programs_run_on_permuted_libraries() {
    let scratch = tempfile::tempdir().unwrap();
    let fixtures = workspace::root().join("tests/fixtures");
    let build = format!(
        "cd '{}' && aarch64-linux-gnu-g++ -O1 '{1}/exceptions/main.cpp' -o exceptions -pthread && \
         aarch64-linux-gnu-gcc -O1 -rdynamic '{1}/forced_unwind/main.c' -o unwind -pthread -fexceptions && \
         aarch64-linux-gnu-gcc -O1 '{1}/static_pie/main.c' -o library -lm",
        scratch.path().display(),
        fixtures.display()
    );
    process::shell(&build, RUN_LIMIT).unwrap();
    let lines = ["exceptions 1", "library 40 hello", "unwind"];
    let run = |folder: Option<&Path>, options: &str, line: &str| {
        let path =
            folder.map_or_else(String::new, |folder| format!("-E LD_LIBRARY_PATH={}", folder.display()));
        let line = format!("qemu-aarch64-static -L /usr/aarch64-linux-gnu {path} {options} ./{line}");
        run(None, scratch.path(), &line)
    };
    let before: Vec<Outcome> = lines.iter().map(|line| run(None, "", line)).collect();
    assert!(before.iter().all(Outcome::success), "{before:?}");
    let names = ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"];
    for seed in [1, 2] {
        let folder = permuted(scratch.path(), CROSS_LIBRARIES, &names, seed);
        let used = run(Some(&folder), "-E LD_TRACE_LOADED_OBJECTS=1", lines[0]).stdout_text();
        for name in names {
            assert!(used.contains(&*folder.join(name).to_string_lossy()), "{used}");
        }
        for (line, before) in lines.iter().zip(&before) {
            assert_eq!(&run(Some(&folder), "", line), before, "seed {seed}: {line}");
        }
    }
}

// case: a compiler on its permuted libraries writes the same object
#[test]
fn a_compiler_on_its_permuted_library_writes_the_same_object() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = permuted(scratch.path(), LIBRARIES, &[&llvm_library()], 1);
    let source = workspace::root().join("tests/fixtures/exceptions/main.cpp");
    let compile = |folder: Option<&Path>, object: &str| {
        let line = format!("clang++$LLVM -O2 -c '{}' -o {object}", source.display());
        let outcome = run(folder, scratch.path(), &line);
        assert!(outcome.success(), "{outcome}");
        fs::read(scratch.path().join(object)).unwrap()
    };
    let used = run(Some(&folder), scratch.path(), "ldd /usr/bin/clang$LLVM").stdout_text();
    assert!(used.contains(&*folder.to_string_lossy()), "{used}");
    assert_eq!(compile(None, "before.o"), compile(Some(&folder), "after.o"));
}
