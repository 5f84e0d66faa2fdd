//! Copies of functions (`apply --clone`): execution, what other tools read, and what the verifier refuses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use end_to_end::process::{Ending, shell};
use end_to_end::unwind_padding::{paddings, says_nothing};
use end_to_end::workspace::reorder;
use object::{Object, ObjectSection};
use reorder_verify::{VerifyOptions, verify};
use tempfile::TempDir;

use crate::runs::{LIMIT, run};

/// Calls, a switch, exceptions, a pointer that is compared, and a table of pointers.
const SOURCE: &str = r#"
#include <cstdio>
#include <stdexcept>
#include <string>
typedef int (*Step)(int);
__attribute__((noinline)) static int deepest(int x) { if (x > 3) throw std::runtime_error("deep"); std::printf("at %d\n", x); return x + 1; }
__attribute__((noinline)) static int guarded(int x) { try { return deepest(x); } catch (const std::exception &e) { std::printf("caught %s\n", e.what()); return -x; } }
__attribute__((noinline)) static int choose(int x) { switch (x) { case 0: return guarded(9); case 1: return guarded(1); case 2: return 22; case 3: return guarded(3); case 4: return 44; case 5: return 55; default: return 7; } }
__attribute__((noinline)) static int twice(int x) { return guarded(x) + guarded(x); }
extern const Step steps[] = {deepest, guarded, choose, twice};
__attribute__((noinline)) bool is_first(Step step) { return step == deepest; }
int main(int count, char **) {
  int sum = 0;
  for (int i = 0; i < 7; i++) sum += choose(i);
  for (Step step : steps) sum += is_first(step) ? step(count) : step(2);
  std::printf("%d\n", sum);
  return sum == 0;
}
"#;

/// A program, and the same with copies of all its functions.
struct Pair {
    directory: TempDir,
    old: PathBuf,
    new: PathBuf,
}

impl Pair {
    fn build(flags: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("program.cpp"), SOURCE).unwrap();
        shell(&format!("cd '{}' && g++ -O2 {flags} program.cpp -o old", directory.path().display()), LIMIT)
            .unwrap();
        let (old, new) = (path("old"), path("new"));
        let applied = run(reorder()
            .arg("apply")
            .arg(&old)
            .args(["--strategy", "random", "--seed", "3", "--clone=all", "-o"])
            .arg(&new));
        assert!(applied.success(), "{applied}");
        assert!(applied.stdout_text().contains("functions copied"), "{applied}");
        Self { directory, old, new }
    }

    fn bytes(&self) -> (Vec<u8>, Vec<u8>) {
        (fs::read(&self.old).unwrap(), fs::read(&self.new).unwrap())
    }
}

fn is_proven(old: &[u8], new: &[u8]) -> bool {
    verify(old, new, VerifyOptions::default()).is_ok_and(|report| report.is_proven())
}

/// File range of a section.
fn section(bytes: &[u8], name: &str) -> std::ops::Range<usize> {
    let file = object::File::parse(bytes).unwrap();
    let (start, size) = file.section_by_name(name).unwrap().file_range().unwrap();
    start as usize..(start + size) as usize
}

#[test]
fn copies_behave_and_survive_tools() {
    for flags in ["-fPIE -pie", "-no-pie", "-static-pie", "-fPIE -pie -fuse-ld=gold", "-s -fPIE -pie"] {
        let pair = Pair::build(flags);
        let before = run(&mut Command::new(&pair.old));
        assert!(before.success(), "{before}");
        assert_eq!(run(&mut Command::new(&pair.new)), before, "{flags}");
        let verified = run(reorder().arg("verify").arg(&pair.old).arg(&pair.new));
        assert!(verified.success(), "{flags}: {verified}");
        for tool in ["strip -s", "llvm-strip$LLVM -s", "patchelf --set-rpath /nowhere"] {
            let edited = pair.directory.path().join("edited");
            let line = format!("cp '{}' '{1}' && {tool} '{1}'", pair.new.display(), edited.display());
            if tool.starts_with("patchelf") && flags.contains("static") {
                continue;
            }
            shell(&line, LIMIT).unwrap();
            assert_eq!(run(&mut Command::new(&edited)), before, "{flags}: {tool}");
        }
    }
}

/// lld makes each of these callers enter `__morestack_non_split`, which goes on after the `ret` that follows its call; in the large
/// code model the call goes through a register. A copy has nothing after that `ret`.
#[test]
fn callers_of_what_goes_on_elsewhere_stay() {
    const SPLIT: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int twice(int x) { return 2 * x; }
int main(int count, char **words) {
  for (int at = 1; at < count; at++) { int number = atoi(words[at]); printf("%d\n", number); printf("%d\n", twice(number)); }
  return 0;
}
"#;
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (directory.path().join("old"), directory.path().join("new"));
    fs::write(directory.path().join("program.c"), SPLIT).unwrap();
    let build = format!(
        "cd '{}' && gcc -O1 -fPIE -pie -fsplit-stack -mcmodel=large -fcf-protection=none \
         -B/usr/lib/llvm$LLVM/bin -fuse-ld=lld program.c -o old",
        directory.path().display()
    );
    shell(&build, LIMIT).unwrap();
    let applied =
        run(reorder().arg("apply").arg(&old).args(["--clone=all", "--strategy", "random", "-o"]).arg(&new));
    assert!(applied.success(), "{applied}");
    let before = run(Command::new(&old).arg("4"));
    assert_eq!(before.stdout_text(), "4\n8\n");
    assert_eq!(run(Command::new(&new).arg("4")), before);
}

/// The writer makes no such copies. So the calls are copied while `hlt` follows them, which then becomes `ret` in both files.
#[test]
fn copies_of_calls_before_a_return_are_not_proven() {
    const CALLS: &str = r#"
int main(void) { return 0; }
asm(".type caller,@function\ncaller: .cfi_startproc\n call leaf\n hlt\n .cfi_endproc\n .size caller, . - caller\n"
    ".type leaf,@function\nleaf: .cfi_startproc\n ret\n .cfi_endproc\n .size leaf, . - leaf\n");
"#;
    const HALT: u8 = 0xf4;
    const RETURN: u8 = 0xc3;
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (directory.path().join("old"), directory.path().join("new"));
    fs::write(directory.path().join("program.c"), CALLS).unwrap();
    shell(&format!("cd '{}' && gcc -O1 -fPIE -pie program.c -o old", directory.path().display()), LIMIT)
        .unwrap();
    for layout in [&["--clone=all"][..], &["--layout", "blocks"]] {
        let applied = run(reorder()
            .arg("apply")
            .arg(&old)
            .args(layout)
            .args(["--strategy", "random", "--seed", "1", "-o"])
            .arg(&new));
        assert!(applied.success(), "{applied}");
        let (mut before, mut after) = (fs::read(&old).unwrap(), fs::read(&new).unwrap());
        assert!(is_proven(&before, &after));
        let returns = |bytes: &mut [u8]| {
            let calls = |at: &usize| bytes[*at] == 0xe8 && bytes[*at + 5] == HALT;
            let calls: Vec<usize> = (0..bytes.len() - 5).filter(calls).collect();
            calls.iter().for_each(|call| bytes[call + 5] = RETURN);
            calls.len()
        };
        assert_eq!((returns(&mut before), returns(&mut after)), (1, 2), "{layout:?}");
        let report = verify(&before, &after, VerifyOptions::default()).unwrap();
        let is_found = |place: &str| place.starts_with("the copied call at");
        assert!(report.differences.iter().any(|difference| is_found(&difference.place)), "{report:#?}");
    }
}

/// gcc does not align functions at -O1: after the call that ends `stop` comes the return of `nothing`.
#[test]
fn a_call_that_ends_a_function_may_have_a_copy() {
    const CALLS: &str = r#"
#include <stdlib.h>
volatile int x;
__attribute__((noinline, noreturn)) void stop(void) { x = 1; abort(); }
__attribute__((noinline)) void nothing(void) { }
int main(int count, char **words) { if (count > 2) stop(); nothing(); return 0; }
"#;
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (directory.path().join("old"), directory.path().join("new"));
    fs::write(directory.path().join("program.c"), CALLS).unwrap();
    let build = format!(
        "cd '{}' && gcc -O1 -fPIE -pie -fcf-protection=none program.c -o old && nm -S old",
        directory.path().display()
    );
    let symbols = shell(&build, LIMIT).unwrap();
    let range = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        let numbers: Vec<u64> =
            line.split(' ').take(2).map(|number| u64::from_str_radix(number, 16).unwrap()).collect();
        numbers[0]..numbers[0] + numbers[1]
    };
    assert_eq!(range("stop").end, range("nothing").start, "the functions are not neighbours");
    let applied =
        run(reorder().arg("apply").arg(&old).args(["--clone=all", "--strategy", "random", "-o"]).arg(&new));
    assert!(applied.success(), "{applied}");
    let symbols = shell(&format!("nm '{}'", new.display()), LIMIT).unwrap();
    assert!(symbols.contains("stop.reorder"), "{symbols}");
}

#[test]
fn startup_runs_in_the_copies() {
    let pair = Pair::build("-fPIE -pie");
    let trace = |image: &Path, name: &str| -> String {
        let traces = pair.directory.path().join(name);
        let recorded = run(reorder().args(["record", "-o"]).arg(&traces).arg("--").arg(image));
        assert!(recorded.success(), "{recorded}");
        run(reorder().args(["traces", "show"]).arg(&traces)).stdout_text()
    };
    let shown = trace(&pair.new, "traces");
    for name in ["main", "choose", "guarded", "deepest", "twice"] {
        assert!(
            shown.lines().any(|line| line.contains(name) && line.contains(".reorder")),
            "{name}:\n{shown}"
        );
    }
}

#[test]
fn debuggers_walk_out_of_copies() {
    let pair = Pair::build("-fPIE -pie -fomit-frame-pointer");
    let symbols = shell(&format!("nm '{}'", pair.new.display()), LIMIT).unwrap();
    let deepest = symbols.lines().find(|line| line.contains("deepest") && line.ends_with(".reorder"));
    let deepest = deepest.and_then(|line| line.split(' ').nth(2)).unwrap();
    let line = format!(
        "gdb -nx -batch -ex 'set debuginfod enabled off' -ex \"break *'{deepest}'\" -ex run -ex bt '{}' 2>&1",
        pair.new.display()
    );
    let shown = shell(&line, LIMIT).unwrap();
    let frames: Vec<&str> = shown.lines().filter(|line| line.starts_with('#')).collect();
    for (frame, name) in frames.iter().zip(["deepest", "guarded"]) {
        assert!(frame.contains(name), "{shown}");
    }
    assert!(frames.last().is_some_and(|frame| frame.contains("main") || frame.contains("_start")), "{shown}");
}

/// Each forgery changes the code of a copy, a reference to it, or its unwind entry.
#[test]
fn forged_copies_are_refused() {
    let pair = Pair::build("-fPIE -pie");
    let (old, new) = pair.bytes();
    assert!(is_proven(&old, &new));
    let copies = section(&new, ".text.reorder");
    let mut accepted = Vec::new();
    let mut tried = 0;
    let mut forge = |at: usize, what: &str| {
        let mut forged = new.clone();
        forged[at] ^= 0x04;
        tried += 1;
        if is_proven(&old, &forged) {
            accepted.push((what.to_owned(), at, new[at]));
        }
    };
    // Every byte of the tables; of the copies all except filler, which is unreachable.
    for name in [".eh_frame_hdr", ".eh_frame"] {
        section(&new, name).step_by(3).for_each(|at| forge(at, name));
    }
    // After the magic number and the old length, of which only the page counts.
    section(&new, ".reorder.clones").skip(16).step_by(3).for_each(|at| forge(at, "list"));
    copies.filter(|at| new[*at] != 0xcc).step_by(2).for_each(|at| forge(at, "copies"));
    let headers = 64 + usize::from(u16::from_le_bytes([new[56], new[57]])) * 56;
    (0..headers).for_each(|at| forge(at, "headers"));
    assert!(tried > 1200, "{tried}");
    // The last terminator in the section has no effect, and neither has what pads entries.
    let frames = section(&new, ".eh_frame");
    let paddings = paddings(&new[frames.clone()]);
    assert!(!paddings.is_empty());
    let has_effect = |at: usize| {
        let within = at - frames.start;
        let padding = paddings.iter().find(|padding| padding.contains(&within));
        let stays_silent = padding.is_some_and(|padding| {
            let mut forged = new[frames.clone()].to_vec();
            forged[within] ^= 0x04;
            says_nothing(&forged[padding.clone()])
        });
        at + 4 < frames.end && !stays_silent
    };
    accepted.retain(|(what, at, _)| what != ".eh_frame" || has_effect(*at));
    assert!(accepted.is_empty(), "{} of {tried} forgeries pass: {accepted:x?}", accepted.len());
}

#[test]
fn what_cannot_move_is_offered_copies_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    // Most of the text belongs to no function.
    let source = "int known(int x) { return x + 1; }\nint main(void) { return known(-1); }\n__asm__(\".text\\n.rept 4000\\n xor %eax, %edi\\n ret\\n.endr\\n\");\n";
    fs::write(directory.path().join("image.c"), source).unwrap();
    let line = format!("cd '{}' && gcc -O1 image.c -o image && strip image", directory.path().display());
    shell(&line, LIMIT).unwrap();
    let output = directory.path().join("output");
    let apply = |arguments: &[&str], input: &Path, output: &Path| {
        run(reorder()
            .arg("apply")
            .arg(input)
            .args(["--strategy", "random", "--seed", "1"])
            .args(arguments)
            .arg("-o")
            .arg(output))
    };
    let refused = apply(&[], &image, &output);
    assert_eq!(refused.ending, Ending::Exited(2), "{refused}");
    assert!(refused.stderr_text().contains("(R5)") && refused.stderr_text().contains("--clone"), "{refused}");
    let cloned = apply(&["--clone"], &image, &output);
    assert!(cloned.success(), "{cloned}");
    assert!(run(&mut Command::new(&output)).success());
    // An image with copies is the image without them.
    let again = apply(&["--clone"], &output, &directory.path().join("again"));
    assert!(again.success(), "{again}");
    assert_eq!(fs::read(directory.path().join("again")).unwrap(), fs::read(&output).unwrap());
    let moved = apply(&[], &output, &directory.path().join("moved"));
    assert!(moved.stderr_text().contains("(R5)"), "{moved}");
}

/// The new image with the section's old bytes at this offset.
fn with_old_bytes(old: &[u8], new: &[u8], name: &str, at: usize, count: usize) -> Vec<u8> {
    let (from, to) = (section(old, name).start + at, section(new, name).start + at);
    let mut forged = new.to_vec();
    forged[to..to + count].copy_from_slice(&old[from..from + count]);
    forged
}

/// Self-relative fields must have followed their section, also where they are not read as addresses.
#[test]
fn unwind_fields_that_did_not_follow_are_refused() {
    let pair = Pair::build("-fPIE -pie");
    let (old, new) = pair.bytes();
    let size = section(&old, ".eh_frame").len();
    let (before, after) = (section(&old, ".eh_frame"), section(&new, ".eh_frame"));
    let mut tried = 0;
    for at in 0..size - 4 {
        let differs = old[before.start + at..][..4] != new[after.start + at..][..4];
        if differs {
            tried += 1;
            assert!(!is_proven(&old, &with_old_bytes(&old, &new, ".eh_frame", at, 4)), "field at {at:#x}");
        }
    }
    // Function starts, exception tables and the personality routine.
    assert!(tried > 20, "{tried}");
}

/// Builds, copies everything (or what is pinned), and compares the runs; gives the output of `apply`.
fn same_with(source: &str, build: &str, which: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("program.c"), source).unwrap();
    shell(&format!("cd '{}' && {build}", directory.path().display()), LIMIT).unwrap();
    let applied = run(reorder()
        .arg("apply")
        .arg(path("program"))
        .args(["--strategy", "random", "--seed", "2", which, "--format", "json", "-o"])
        .arg(path("copies")));
    assert!(applied.success(), "{applied}");
    let before = run(&mut Command::new(path("program")));
    assert!(before.success(), "{before}");
    assert_eq!(run(&mut Command::new(path("copies"))), before, "{applied}");
    applied.stdout_text()
}

/// A handler resumes execution after the trap.
#[test]
fn code_after_traps_is_copied() {
    let source = r#"
#include <signal.h>
#include <stdio.h>
static void handler(int signal) { (void)signal; }
__attribute__((noinline)) int trapped(int x) { __asm__ volatile("int3"); printf("behind\n"); return x + 1; }
int main(int count, char **arguments) { (void)arguments; signal(SIGTRAP, handler); return trapped(count) - 2; }
"#;
    let report = same_with(source, "gcc -O1 program.c -o program", "--clone=all");
    assert!(!report.contains("\"name\": \"trapped\""), "{report}");
}

/// A handler without unwind entry compares the program counter with an address inside a function.
#[test]
fn what_is_known_inside_has_no_copy() {
    let source = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>
#include <unistd.h>
extern char fault_place[] __attribute__((visibility("hidden"))), fault_fix[] __attribute__((visibility("hidden")));
#ifdef TABLE
static char *const volatile places[] = {fault_place, fault_fix};
#else
#define places ((char *[]){fault_place, fault_fix})
#endif
#ifdef HANDLER
void handler(int signal, siginfo_t *information, void *context) {
  ucontext_t *user = context;
  (void)signal, (void)information;
  if ((char *)user->uc_mcontext.gregs[REG_RIP] != places[0]) _exit(3);
  user->uc_mcontext.gregs[REG_RIP] = (long)places[1];
}
#else
void handler(int, siginfo_t *, void *);
__attribute__((noinline)) int probe(const int *pointer) {
  int is_readable = 1, value;
  __asm__ volatile(".globl fault_place, fault_fix\n.hidden fault_place, fault_fix\nfault_place: movl (%2), %1\n jmp 4f\nfault_fix: movl $0, %0\n4:"
                   : "+r"(is_readable), "=r"(value) : "r"(pointer) : "memory");
  return is_readable;
}
int main(void) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, 0);
  printf("probe %d %d\n", probe(&(int){1}), probe((int *)8));
  return 0;
}
#endif
"#;
    let build = |linking: &str| {
        format!(
            "gcc -O1 {linking} -DHANDLER -fno-asynchronous-unwind-tables -c program.c -o handler.o && gcc -O1 {linking} program.c handler.o -o program && strip program"
        )
    };
    for linking in ["-fPIE -pie", "-no-pie", "-fPIE -pie -DTABLE", "-no-pie -DTABLE"] {
        for which in ["--clone", "--clone=all"] {
            let report = same_with(source, &build(linking), which);
            assert!(report.contains("inside_known"), "{linking} {which}: {report}");
        }
    }
}

/// Operands are found wherever reading begins: in a last instruction that the size of its function cuts off, after bytes between
/// functions that are no code, and in a function that another one contains.
#[test]
fn operands_at_odd_places_are_known() {
    let assembly = r#"
.text
.globl work, cut, after, outer, inner
.type work, @function
work: leal 1(%rdi), %eax
middle: ret
.size work, .-work
.type cut, @function
cut: nop
1: movl $middle, %eax
.size cut, 1b + 2 - cut
 ret
.byte 0x48
.type after, @function
after: movl $middle, %eax
 ret
.size after, .-after
.type outer, @function
outer: jmp inner
.byte 0x48, 0xb8
.type inner, @function
inner: movl $middle, %eax
 ret
.size inner, .-inner
.size outer, .-outer
.section .note.GNU-stack
"#;
    let source = r#"
#include <stdio.h>
int work(int), cut(void), after(void), outer(void), inner(void);
int main(int count, char **arguments) {
  (void)arguments;
  printf("%d %d\n", work(count), cut() == after() && outer() == inner());
  return 0;
}
"#;
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("odd.s"), assembly).unwrap();
    let build = format!("gcc -O1 -no-pie program.c '{}/odd.s' -o program", directory.path().display());
    let report = same_with(source, &build, "--clone=all");
    assert!(report.contains("\"name\": \"work\""), "`work` is not copied: {report}");
}

/// A `LEA` of a place inside `work` counts wherever it may run, and not where its bytes are certainly parts of another instruction.
#[test]
fn parts_of_instructions_are_no_places_inside() {
    let source = r#"
#include <stdio.h>
#define LEA(prefix) prefix ".byte 0x8d, 0x05\n.long middle - . - 4\n.byte 0x90, 0x90\nret\n"
#define FUNCTION(name, code) ".globl " name "\n.type " name ", @function\n" name ": " code ".size " name ", . - " name "\n"
__asm__(".text\n" FUNCTION("work", "leal 1(%rdi), %eax\nmiddle: ret\n")
#if defined HIDDEN
        FUNCTION("hold", LEA(".byte 0x48, 0xb8\n"))
#elif defined ENTERED
        FUNCTION("hold", "jmp 1f\n" LEA(".byte 0x48, 0xb8\n1: "))
#elif defined NESTED
        FUNCTION("hold", "ret\n.byte 0x48, 0xb8\n" FUNCTION("nested", LEA("")))
#else
        FUNCTION("hold", "ret\n") LEA(".byte 0x48, 0xb8\n")
#endif
);
int work(int);
void hold(void);
int main(int count, char **arguments) {
  (void)arguments;
  hold();
  printf("%d\n", work(count));
  return 0;
}
"#;
    for linking in ["-fPIE -pie", "-fno-pie -no-pie"] {
        for (variant, is_known) in [("HIDDEN", false), ("ENTERED", true), ("NESTED", true), ("BETWEEN", true)]
        {
            let build = format!("gcc -O1 {linking} -D{variant} program.c -o program");
            let report = same_with(source, &build, "--clone=all");
            assert_eq!(report.contains("inside_known"), is_known, "{linking} {variant}: {report}");
        }
    }
}

/// In a program at a fixed address, numbers of four bytes equal some place inside a function by chance.
#[test]
fn numbers_are_no_places_inside() {
    let source = r#"
#include <stdio.h>
extern char middle[] __attribute__((visibility("hidden")));
extern const unsigned number[2] __attribute__((visibility("hidden")));
__asm__(".section .rodata\n.p2align 2\n.globl number\n.hidden number\nnumber: .long middle\n.long 7\n.text");
__attribute__((noinline)) int work(int x) {
  __asm__ volatile("nop\n.globl middle\n.hidden middle\nmiddle: nop");
  return x + 1;
}
int main(int count, char **arguments) {
  (void)arguments;
  printf("%d %d\n", work(count), number[1]);
  return 0;
}
"#;
    for optimization in ["-O0", "-O2"] {
        let build = format!("gcc {optimization} -fno-pie -no-pie program.c -o program && strip program");
        let report = same_with(source, &build, "--clone=all");
        assert!(!report.contains("inside_known"), "{optimization}: {report}");
    }
}

/// Branches back and forth between two functions are followed once.
#[test]
fn functions_that_jump_to_and_fro_are_copied() {
    let jumps = |own: &str, other: &str| -> String {
        (0..4000).map(|number| format!("{own}{number}: incl %eax\n jmp {other}{number}\n")).collect()
    };
    let one = |number: usize| format!("b{number}: jmp a{}\n", number + 1);
    let chain: String = (0..4000).map(one).collect();
    let assembly = format!(
        ".text\n.globl first\n.type first, @function\nfirst:\n xorl %eax, %eax\n{}a4000: ret\n.size first, .-first\n.type second, @function\nsecond:\n{chain}.size second, .-second\n.section .note.GNU-stack\n",
        jumps("a", "b")
    );
    let source =
        "#include <stdio.h>\nint first(void);\nint main(void) { printf(\"%d\\n\", first()); return 0; }\n";
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("jumps.s"), assembly).unwrap();
    let build = format!("gcc -O1 program.c '{}/jumps.s' -o program", directory.path().display());
    same_with(source, &build, "--clone=all");
}
