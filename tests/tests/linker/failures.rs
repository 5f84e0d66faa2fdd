//! Links that fail, and links that are killed: a link that fails without us fails with us, with the same messages and
//! status, and a link that is killed leaves no incomplete output and no running linker.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use end_to_end::linker_wrapper::{Build, LIMIT};
use end_to_end::process::Ending;
use reorder_base::tool_versions::llvm;

fn objects() -> Build {
    let build = Build::new("build").unwrap();
    build.write("main.c", "int missing(void); int main(void) { return missing(); }").unwrap();
    build.write("whole.c", "int main(void) { return 0; }").unwrap();
    build
        .write("undefined.rs", "unsafe extern \"C\" { fn missing(); } fn main() { unsafe { missing() } }")
        .unwrap();
    build.write("whole.rs", "fn main() {}").unwrap();
    build.must("gcc -c main.c whole.c");
    build
}

/// `with` fails as `plain` does, with traces and without. `$WAY` in the line selects us as the linker.
fn assert_same_failure(line: &str, way: &str) {
    let mut build = objects();
    build.write("start.list", "main\nmissing\n").unwrap();
    let plain = build.run(&line.replace("$WAY", "")).unwrap();
    assert!(!plain.success() && matches!(plain.ending, Ending::Exited(_)), "{line}\n{plain}");
    assert!(!build.folder().join("program").exists());
    assert!(!said(&plain.stderr_text(), &build).is_empty(), "{line}: nothing to compare\n{plain}");
    let files = fs::read_dir(build.folder()).unwrap().count();
    for traces in ["", "start.list"] {
        build.set("REORDER_TRACES", traces);
        let with = build.run(&line.replace("$WAY", way)).unwrap();
        assert_eq!(with.ending, plain.ending, "{line} with {traces:?}\n{plain}\n{with}");
        assert_eq!(
            said(&with.stderr_text(), &build),
            said(&plain.stderr_text(), &build),
            "{line} with {traces:?}"
        );
        assert_eq!(with.stdout_text(), plain.stdout_text(), "{line} with {traces:?}");
        assert_eq!(fs::read_dir(build.folder()).unwrap().count(), files, "{line}: files are left");
    }
}

/// The messages without names that differ in each run: temporary files, and of rustc's message the command.
fn said(text: &str, build: &Build) -> String {
    let links = build.links().to_string_lossy().into_owned();
    let text = text.replace(&links, "");
    let mut words = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.contains("= note:  \"") && !line.starts_with("error: linking with `"))
    {
        // Names of temporary files differ in each run, and so do those of rustc's objects.
        let line = line.split_whitespace().filter(|word| !word.contains("/cc") && !word.contains("rustc"));
        words.push(line.collect::<Vec<_>>().join(" "));
    }
    words.join("\n")
}

#[test]
fn gcc_and_bfd_fail_alike() {
    for arguments in ["main.o", "whole.o nowhere.o", "whole.o -Wl,--no-such-option", "whole.o -lnowhere"] {
        assert_same_failure(&format!("gcc $WAY {arguments} -o program"), "-B$LINKS");
    }
}

#[test]
fn clang_and_lld_fail_alike() {
    for arguments in ["main.o", "whole.o nowhere.o", "whole.o -Wl,--no-such-option", "whole.o -lnowhere"] {
        assert_same_failure(&format!("clang$LLVM $WAY -fuse-ld=lld {arguments} -o program"), "-B$LINKS");
    }
}

#[test]
fn rustc_fails_alike() {
    for arguments in [
        "undefined.rs",
        "whole.rs -C link-arg=nowhere.o",
        "whole.rs -C link-arg=-Wl,--no-such-option",
        "whole.rs -C link-arg=-lnowhere",
    ] {
        assert_same_failure(&format!("rustc $WAY {arguments} -o program"), "-C linker=reorder-cc");
    }
}

#[test]
fn other_statuses_are_handed_on() {
    let mut build = objects();
    build
        .write("status", "#!/bin/sh\ncase \"$1\" in --version) echo GNU ld 1;; *) exit 77;; esac\n")
        .unwrap();
    build
        .write("signal", "#!/bin/sh\ncase \"$1\" in --version) echo GNU ld 1;; *) kill -9 $$;; esac\n")
        .unwrap();
    build.must("chmod +x status signal");
    build.set("REORDER_LINKER", "./status");
    assert_eq!(build.run("reorder-ld whole.o").unwrap().ending, Ending::Exited(77));
    build.set("REORDER_LINKER", "./signal");
    let ending = build.run("exec reorder-ld whole.o").unwrap().ending;
    assert!(matches!(ending, Ending::Signalled(9) | Ending::Exited(137)), "{ending:?}");
    build.set("REORDER_DRIVER", "./status");
    assert_eq!(build.run("reorder-cc whole.o").unwrap().ending, Ending::Exited(77));
    build.set("REORDER_DRIVER", "./signal");
    assert_eq!(build.run("reorder-cc whole.o").unwrap().ending, Ending::Exited(137));
}

/// Code in so many sections that a link takes seconds.
fn long_link() -> Build {
    let build = Build::new("build").unwrap();
    build.write("main.c", "int main(void) { return 0; }").unwrap();
    let macros = ".macro many\n.section .text.f\\@,\"ax\",@progbits\n.type f\\@,@function\nf\\@: .zero 64\nret\n\
                  .size f\\@,.-f\\@\n.endm\n.rept 30000\nmany\n.endr\n.section .note.GNU-stack,\"\",@progbits\n";
    build.write("many.s", macros).unwrap();
    build.must("gcc -c main.c many.s");
    build
}

/// Processes with this folder as their working directory.
fn processes_in(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let process = entry.path();
        if fs::read_link(process.join("cwd")).is_ok_and(|directory| directory == folder) {
            let command = fs::read(process.join("cmdline")).unwrap_or_default();
            // A zombie has no command line.
            if !command.is_empty() {
                let words = String::from_utf8_lossy(&command).replace('\0', " ");
                found.push(words.chars().take(200).collect());
            }
        }
    }
    found
}

/// A running `line`, silent and in a process group of its own.
fn started(build: &Build, line: &str) -> Child {
    let mut command = build.command(line);
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Kills `line` at several times, with `older` as the old output.
fn assert_killed(line: &str, traces: &str) {
    let mut build = long_link();
    build.write("start.list", "main\nf7\nf29999\n").unwrap();
    build.set("REORDER_TRACES", traces);
    build.set("REORDER_CACHE", "off");
    let begun = Instant::now();
    build.must(line);
    let whole_time = begun.elapsed();
    let whole = build.bytes("program");
    let older = b"older".to_vec();
    let steps = 6;
    for step in 1..steps {
        build.write("program", &older).unwrap();
        let mut child = started(&build, &format!("exec {line}"));
        sleep(whole_time * step / steps);
        child.kill().unwrap();
        child.wait().unwrap();
        let begun = Instant::now();
        while !processes_in(build.folder()).is_empty() {
            assert!(
                begun.elapsed() < LIMIT,
                "{line} killed at {step}/{steps}: {:?}",
                processes_in(build.folder())
            );
            sleep(Duration::from_millis(20));
        }
        // Linkers remove the old output when they begin, and so do we.
        let left = fs::read(build.folder().join("program")).ok();
        assert!(
            left.as_ref().is_none_or(|left| *left == older || *left == whole),
            "{line}: {} bytes are left after {step} of {steps} parts of the time",
            left.map_or(0, |left| left.len())
        );
        let _ = fs::remove_file(build.folder().join("program"));
    }
}

#[test]
fn a_killed_linker_leaves_nothing_half() {
    for linker in ["ld.lld$LLVM", "ld.mold"] {
        let start = "$(gcc -print-file-name=Scrt1.o) $(gcc -print-file-name=libc.so)";
        let line = format!(
            "reorder-ld --reorder-linker={linker} -pie -dynamic-linker /lib64/ld-linux-x86-64.so.2 main.o many.o {start} \
             -o program"
        );
        assert_killed(&line, "start.list");
    }
}

#[test]
fn a_killed_compiler_leaves_nothing_half() {
    assert_killed("reorder-cc main.o many.o -o program --reorder-linker=ld.lld$LLVM", "start.list");
    assert_killed(
        "reorder-cc --reorder-driver=clang$LLVM -fuse-ld=lld main.o many.o -o program",
        "start.list",
    );
}

#[test]
fn a_killed_compiler_stops_a_linker_that_orders_nothing() {
    // The output is not protected then, as without us; but the linker must not continue.
    for driver in ["gcc", &llvm("clang")] {
        let mut build = objects();
        build
            .write("slow", "#!/bin/sh\ncase $1 in --version) echo GNU ld 1;; *) exec sleep 3000;; esac\n")
            .unwrap();
        build.must("chmod +x slow");
        build.set("REORDER_LINKER", "./slow");
        build.set("REORDER_DRIVER", driver);
        let mut child = started(&build, "exec reorder-cc whole.o -o program");
        let begun = Instant::now();
        while !processes_in(build.folder()).iter().any(|words| words.starts_with("sleep")) {
            assert!(begun.elapsed() < LIMIT, "{:?}", processes_in(build.folder()));
            assert!(child.try_wait().unwrap().is_none(), "the link has ended");
            sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let begun = Instant::now();
        while !processes_in(build.folder()).is_empty() {
            assert!(begun.elapsed() < LIMIT, "{driver}: {:?}", processes_in(build.folder()));
            sleep(Duration::from_millis(10));
        }
    }
}
