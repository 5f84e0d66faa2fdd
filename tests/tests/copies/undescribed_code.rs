//! Programs without unwind tables and symbols: functions are found by following control, recorded, and copied; nothing moves.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use end_to_end::process::{Ending, Outcome, shell};
use end_to_end::workspace::reorder;
use object::{Object, ObjectSection};
use reorder_verify::{VerifyOptions, verify};
use serde_json::Value;
use tempfile::TempDir;

use crate::runs::{LIMIT, original, run};

/// Functions that are called, pointed to by data, given to others, and reached by dispatches with and without a known bound.
const MAIN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
extern unsigned sum_of_constants(unsigned), first_of_list(void);
enum kind { plus, times, minus, xors, shifts, halves, negates, keeps };
struct step { enum kind kind; int number; };
static int compare(const void *one, const void *other) { return *(const int *)one - *(const int *)other; }
__attribute__((noinline)) static long apply(const struct step *step, long value) {
  switch (step->kind) {
    case plus: return value + step->number; case times: return value * step->number; case minus: return value - 3;
    case xors: return value ^ 0x55; case shifts: printf("shifts %ld\n", value); return value << 1;
    case halves: return value / 2; case negates: return -value; case keeps: return value;
  }
  __builtin_unreachable();
}
__attribute__((noinline)) static int choose(unsigned x, int y) {
  switch (x) {
    case 0: return y + 3; case 1: return y * 5; case 2: printf("two\n"); return 7; case 3: return y ^ 9;
    case 4: return y - 4; case 5: return y << 2; case 6: return ~y; default: return -1;
  }
}
int main(int count, char **words) {
  (void)words;
  static const struct step steps[] = {{plus, 4}, {times, 7}, {xors, 0}, {shifts, 0}, {minus, 0}, {negates, 0}, {halves, 0}, {keeps, 0}};
  int numbers[] = {5, 3, 9, 1, 7};
  long value = count;
  qsort(numbers, 5, sizeof *numbers, compare);
  for (int i = 0; i < 8; i++) value = apply(&steps[i], value);
  for (unsigned x = 0; x < 9; x++) value += choose(x, numbers[x % 5]);
  for (int i = 0; i < TABLE; i++) value = value * 31 + mix(table[i](i + count));
  printf("%ld %u %u\n", value, sum_of_constants(3), first_of_list());
  return 0;
}
"#;

/// Threads, a forked process, a timer and SIGTRAP, all while functions are called through pointers.
const BUSY_MAIN: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
extern unsigned sum_of_constants(unsigned), first_of_list(void);
static volatile sig_atomic_t ticks, traps;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int started;
static void tick(int signal) { (void)signal; ticks++; }
static void trapped(int signal) { (void)signal; traps++; table[TABLE - 1](3); }
static void start(void) { started = mix(5); }
static long through_table(int from) {
  long value = from;
  for (int round = 0; round < 20; round++)
    for (int i = 0; i < TABLE; i++) value = value * 31 + table[(i * 7 + from) % TABLE](i);
  return value;
}
static void *work(void *number) { pthread_once(&once, start); return (void *)through_table((int)(long)number); }
int main(void) {
  signal(SIGPROF, tick);
  signal(SIGTRAP, trapped);
  struct itimerval often = {{0, 500}, {0, 500}};
  setitimer(ITIMER_PROF, &often, NULL);
  pthread_t threads[4];
  for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
  raise(SIGTRAP);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTRAP);
  sigprocmask(SIG_BLOCK, &set, NULL);
  long value = through_table(9);
  sigprocmask(SIG_UNBLOCK, &set, NULL);
  for (int i = 0; i < 4; i++) { void *result; pthread_join(threads[i], &result); value ^= (long)result; }
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) { printf("child %ld\n", through_table(11)); fflush(stdout); _exit(0); }
  int status;
  waitpid(child, &status, 0);
  raise(SIGTRAP);
  printf("%ld %d %d %d %u %u\n", value, started, (int)traps, status, sum_of_constants(3), first_of_list());
  return 0;
}
"#;

/// Constants in code, which one function reads and another names: they are no functions, and a breakpoint there would change them.
const ASSEMBLY: &str = r#"
    .text
    .p2align 4
    .globl sum_of_constants, first_of_list
sum_of_constants:
    mov constants(%rip), %eax
    add constants+4(%rip), %eax
    add %edi, %eax
    ret
constants:
    .long 0x90909090, 0x12345678
    .p2align 4
first_of_list:
    lea list(%rip), %rdx
    mov (%rdx), %eax
    xor 8(%rdx), %eax
    ret
list:
    .byte 0x55, 0x48, 0x89, 0xe5, 0xe8, 1, 2, 3, 4, 0x5d, 0xc3, 0x90
    .fill 65536, 1, 0xcc
    .section .note.GNU-stack,"",@progbits
"#;

/// A program with more code than the C runtime has: functions are looked for only in such.
fn built(compiler: &str, flags: &str) -> (TempDir, PathBuf) {
    built_with(MAIN, compiler, flags)
}

fn built_with(main: &str, compiler: &str, flags: &str) -> (TempDir, PathBuf) {
    const FUNCTIONS: usize = 200;
    let mut source = String::from(
        "__attribute__((noinline)) static int mix(int x) { return x * 31 ^ x >> 3; }\nstatic int f0(int x) { return x + 1; }\n",
    );
    for number in 1..FUNCTIONS {
        let before = number - 1;
        writeln!(
            source,
            "__attribute__((noinline)) static int f{number}(int x) {{\n  int y = x * {number} + 7;\n  \
             if (y % 3 == 1) y += f{before}(x / 2); else if (y % 5 == 2) y ^= {number} << (x & 3);\n  \
             for (int i = 0; i < (x & 3); i++) y = mix(y) + i;\n  return y;\n}}"
        )
        .unwrap();
    }
    writeln!(source, "#define TABLE {}\nstatic int (*const table[])(int) = {{", FUNCTIONS / 2).unwrap();
    (0..FUNCTIONS / 2).for_each(|number| writeln!(source, "f{},", 2 * number + 1).unwrap());
    source.push_str("};\n");
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("program.c"), source + main).unwrap();
    fs::write(directory.path().join("constants.s"), ASSEMBLY).unwrap();
    let silent = "-fno-asynchronous-unwind-tables -fno-unwind-tables -fno-stack-protector";
    let build = format!(
        "cd '{}' && {compiler} -O2 -w {silent} {flags} program.c constants.s -o program && strip program",
        directory.path().display()
    );
    shell(&build, LIMIT).unwrap();
    let program = directory.path().join("program");
    (directory, program)
}

fn recorded(program: &Path, traces: &Path, before: &Outcome) {
    let recorded = run(reorder().args(["record", "--blocks", "-o"]).arg(traces).arg("--").arg(program));
    assert!(recorded.success(), "{recorded}");
    assert_eq!(recorded.stdout_text(), before.stdout_text(), "recording changes nothing");
}

fn applied(program: &Path, output: &Path, flags: &[&str]) -> Value {
    let mut command = reorder();
    command.arg("apply").arg(program).args(["--layout", "blocks", "--format", "json", "-o"]).arg(output);
    let applied = run(command.args(flags));
    assert!(applied.success(), "{applied}");
    serde_json::from_str(&applied.stdout_text()).unwrap()
}

fn differences(program: &Path, output: &[u8]) -> Vec<String> {
    let report = verify(&fs::read(program).unwrap(), output, VerifyOptions::default()).unwrap();
    report.differences.iter().map(|found| format!("{}: {}", found.place, found.found)).collect()
}

fn is_copied_as_recorded_and_at_random(compiler: &str, flags: &str) {
    let (directory, program) = built(compiler, flags);
    let before = original(&program);
    let traces = directory.path().join("traces");
    recorded(&program, &traces, &before);
    let output = directory.path().join("copied");
    let report = applied(&program, &output, &["--traces", traces.to_str().unwrap()]);
    assert!(report["clones"]["functions"].as_u64().unwrap() > 100, "{report}");
    let after = run(&mut Command::new(&output));
    assert_eq!((after.ending, after.stdout_text()), (before.ending, before.stdout_text()));
    let verified = run(reorder().arg("verify").arg(&program).arg(&output));
    assert!(verified.stdout_text().contains("functions that control was followed to"), "{verified}");
    for seed in ["1", "2", "3"] {
        applied(&program, &output, &["--strategy", "random", "--seed", seed]);
        let after = run(&mut Command::new(&output));
        assert_eq!((after.ending, after.stdout_text()), (before.ending, before.stdout_text()), "seed {seed}");
    }
}

#[test]
fn gcc_programs_without_unwind_tables_are_copied() {
    is_copied_as_recorded_and_at_random("gcc", "");
}

#[test]
fn clang_programs_without_unwind_tables_are_copied() {
    is_copied_as_recorded_and_at_random("clang$LLVM", "");
}

#[test]
fn programs_of_sections_without_unwind_tables_are_copied() {
    is_copied_as_recorded_and_at_random("gcc", "-ffunction-sections -fcf-protection=none");
}

/// At a fixed address no table lists the pointers in `table`: its functions, and what they alone call, are learned from the one call
/// through it.
#[test]
fn functions_that_calls_through_pointers_enter_are_learned() {
    let (directory, program) = built("gcc", "-no-pie -fno-pie");
    let before = original(&program);
    let traces = directory.path().join("traces");
    recorded(&program, &traces, &before);
    let output = directory.path().join("copied");
    let traces_flag = ["--traces", traces.to_str().unwrap(), "--assume-pointers"];
    let report = applied(&program, &output, &traces_flag);
    let of_image = |report: &Value| report["functions"].as_u64().unwrap();
    let learned = of_image(&report);
    assert!(learned > 200, "{report}");
    assert!(report["clones"]["functions"].as_u64().unwrap() > 20, "{report}");
    let after = run(&mut Command::new(&output));
    assert_eq!((after.ending, after.stdout_text()), (before.ending, before.stdout_text()));
    assert_eq!(differences(&program, &fs::read(&output).unwrap()), [""; 0]);
    let simulated = run(reorder().arg("simulate").args([&program, &output]).arg("-t").arg(&traces));
    assert!(simulated.success(), "{simulated}");
    assert!(!simulated.stderr_text().contains("name no function"), "{simulated}");

    // What a trace says is not believed: functions that begin one byte later do not fit the code.
    let trace = fs::read_dir(&traces).unwrap().next().unwrap().unwrap().path();
    let shifted = shifted_starts(&fs::read_to_string(&trace).unwrap());
    fs::write(&trace, shifted).unwrap();
    let report = applied(&program, &output, &traces_flag);
    assert!(of_image(&report) < learned / 2, "{report}");
    let after = run(&mut Command::new(&output));
    assert_eq!((after.ending, after.stdout_text()), (before.ending, before.stdout_text()));
}

/// Steps over calls meet signals, other threads and other processes; `--keep-sigtrap` also keeps what the program does with SIGTRAP.
#[test]
fn learning_disturbs_no_signal_thread_or_process() {
    let (directory, program) = built_with(BUSY_MAIN, "gcc", "-no-pie -fno-pie -pthread");
    let before = original(&program);
    for run_number in 0..6 {
        let traces = directory.path().join(format!("traces{run_number}"));
        let mut command = reorder();
        command.args(["record", "--blocks", "--keep-sigtrap", "-o"]).arg(&traces).arg("--").arg(&program);
        let recorded = run(&mut command);
        assert_eq!(
            (recorded.ending, recorded.stdout_text()),
            (before.ending, before.stdout_text()),
            "{recorded}"
        );
        assert!(recorded.stderr_text().contains("were learned there"), "{recorded}");
    }
}

/// A trace whose functions begin one byte later and are one byte shorter.
fn shifted_starts(trace: &str) -> String {
    let shifted = |line: &str| {
        let mut words: Vec<String> = line.split('\t').map(str::to_owned).collect();
        if let [_, address, size, _] = &mut words[..]
            && let (Some(Ok(start)), Ok(bytes)) =
                (address.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16)), size.parse::<u64>())
        {
            (*address, *size) = (format!("{:#x}", start + 1), (bytes - 1).to_string());
        }
        words.join("\t") + "\n"
    };
    trace.lines().map(shifted).collect()
}

/// They may be entered in ways that nothing shows.
#[test]
fn found_functions_do_not_move() {
    let (directory, program) = built("gcc", "");
    let before = fs::read(&program).unwrap();
    let output = directory.path().join("moved");
    let refused = run(reorder().arg("apply").arg(&program).args(["--strategy", "random", "-o"]).arg(&output));
    assert_eq!(refused.ending, Ending::Exited(2), "{refused}");
    for part in ["R5", "--layout blocks"] {
        assert!(refused.stderr_text().contains(part), "{part}: {refused}");
    }
    assert!(!output.exists());
    assert_eq!(fs::read(&program).unwrap(), before);
}

#[test]
fn a_list_of_functions_that_does_not_fit_is_refuted() {
    let (directory, program) = built("gcc", "");
    let output = directory.path().join("copied");
    applied(&program, &output, &["--strategy", "random", "--seed", "4"]);
    let right = fs::read(&output).unwrap();
    assert_eq!(differences(&program, &right), [""; 0]);
    let file = object::File::parse(&*right).unwrap();
    let (offset, size) = file.section_by_name(".reorder.clones").unwrap().file_range().unwrap();
    let list = usize::try_from(offset).unwrap()..usize::try_from(offset + size).unwrap();
    let places = places_of_starts(&right[list.clone()]);
    assert!(places.len() > 100, "{}", places.len());
    // Each starts one byte later, and ends where it did.
    for place in places.iter().step_by(10).map(|place| list.start + place) {
        let mut wrong = right.clone();
        wrong[place] += 1;
        wrong[place + 1] -= 1;
        assert_ne!(differences(&program, &wrong), [""; 0], "the function at {place:#x} of the file");
    }
}

/// Where a list of copies states functions that were found, of those that lie less than 127 bytes after the one before: the number
/// has one byte.
fn places_of_starts(list: &[u8]) -> Vec<usize> {
    let number = |at: usize| usize::try_from(u64::from_le_bytes(*list[at..].first_chunk().unwrap())).unwrap();
    assert!(list.starts_with(b"REORDCL3"));
    let mut at = 16;
    for _ in 0..2 {
        at += 8 + 32 * number(at);
    }
    let runs = number(at);
    at += 8;
    for _ in 0..runs {
        at += 16 + number(at + 8);
    }
    let count = number(at);
    at += 8;
    let mut places = Vec::new();
    for _ in 0..count {
        let start = at;
        for _ in 0..2 {
            at += list[at..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        }
        places.extend((list[start] < 0x7f && list[start + 1] & 0x7f > 1).then_some(start));
    }
    assert_eq!(at, list.len());
    places
}
