//! `perf record -g` across moved frames: by frame pointers and by unwind entries, on original and permuted programs.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use end_to_end::process::{self, shell};
use end_to_end::workspace;

const LIMIT: Duration = Duration::from_secs(120);
const SEEDS: [&str; 3] = ["1", "2", "3"];

/// Spins below a chain of calls long enough for a few hundred samples of the processor's clock.
const SOURCE: &str = r#"
#include <stdio.h>
#include <time.h>
#define STEP __attribute__((noinline))
static volatile unsigned long sum;
STEP unsigned long innermost(unsigned long n) { for (unsigned long i = 0; i < n; i++) sum += i * n; return sum; }
STEP unsigned long middle(unsigned long n) { return innermost(n) + 1; }
STEP unsigned long unused(unsigned long n) { return middle(n) * 3; }
STEP unsigned long outer(unsigned long n) { return middle(n + 1) + 2; }
STEP unsigned long outermost(unsigned long n) { return outer(n) ^ 3; }
int main(int count, char **words) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        outermost(20000);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) * 1e-9 < 0.3);
    return count > 5 ? (int)unused(*words[1]) : 0;
}
"#;
/// Builds the program with `flags`, permutes it and lets perf sample it with `stacks`.
fn check(flags: &str, stacks: &str) {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    fs::write(directory.join("spin.c"), SOURCE).unwrap();
    let path = |name: &str| directory.join(name).display().to_string();
    let ballast = workspace::root().join("tests/fixtures/ballast.c").display().to_string();
    let (source, original) = (path("spin.c"), path("spin"));
    let fixed = "-O1 -g0 -fPIE -pie -fno-optimize-sibling-calls";
    shell(&format!("gcc {fixed} {flags} '{source}' '{ballast}' -o '{original}'"), LIMIT).unwrap();
    let before = default_stack(directory, "spin", stacks);
    // The caller of a function without a frame of its own is missing where frame pointers tell the stack.
    assert!(before.starts_with("innermost ") && before.ends_with(" outer outermost main"), "{before}");
    for seed in SEEDS {
        let name = format!("spin{seed}");
        let mut command = workspace::reorder();
        command.args(["apply", &original, "--strategy", "random", "--seed", seed, "-o", &path(&name)]);
        let outcome = process::run(&mut command, LIMIT).unwrap();
        assert!(outcome.success(), "{outcome}");
        assert_ne!(fs::read(&original).unwrap(), fs::read(path(&name)).unwrap(), "nothing moved");
        assert_eq!(default_stack(directory, &name, stacks), before, "seed {seed}");
    }
}

/// The functions on the stack, up to `main`, of nearly all samples of `name`.
fn default_stack(directory: &Path, name: &str, stacks: &str) -> String {
    // perf's cache of images may contain an earlier run's image under the same build-id.
    let perf = format!("cd '{}' && perf --buildid-dir cache", directory.display());
    shell(
        &format!("{perf} record --quiet -e cpu-clock -F 499 --call-graph {stacks} -o {name}.data ./{name}"),
        LIMIT,
    )
    .unwrap();
    // One line a frame, from the innermost outwards; an empty line between samples.
    shell(&format!("{perf} script -i {name}.data -F ip,sym > {name}.txt 2> {name}.errors"), LIMIT).unwrap();
    let text = fs::read_to_string(directory.join(format!("{name}.txt"))).unwrap();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for sample in text.split("\n\n") {
        let frames: Vec<&str> = sample
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1))
            .take_while(|name| *name != "main")
            .collect();
        *counts.entry(format!("{} main", frames.join(" "))).or_default() += 1;
    }
    let all: usize = counts.values().sum();
    let (stack, count) = counts.into_iter().max_by_key(|(_, count)| *count).unwrap();
    // Some samples are taken in the kernel, or between the instructions that make a frame.
    assert!(count >= 20 && count * 4 >= all * 3, "{name} {stacks}: {count} of {all} samples are {stack}");
    stack
}

#[test]
fn frame_pointers_lead_through_moved_functions() {
    check("-fno-omit-frame-pointer", "fp");
}

#[test]
fn unwind_entries_lead_through_moved_functions() {
    check("-fomit-frame-pointer", "dwarf,1024");
}
