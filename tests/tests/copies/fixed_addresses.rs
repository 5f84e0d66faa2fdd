//! Copies of blocks in programs at a fixed address, where nothing lists pointers: tables of addresses that code jumps through, and
//! numbers that `--assume-pointers` takes for pointers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use end_to_end::process::shell;
use end_to_end::workspace::reorder;
use object::{Object, ObjectSection};
use reorder_verify::{VerifyOptions, verify};
use serde_json::Value;
use tempfile::TempDir;

use crate::runs::{LIMIT, original, run};

/// A switch with a case that is split off, an interpreter that jumps to labels, and one whose labels are loaded early.
const DISPATCHES: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int choose(unsigned x, int y) {
  switch (x) {
    case 0: return y + 3; case 1: return y * 5; case 2: printf("two\n"); return 7; case 3: return y ^ 9;
    case 4: if (y < -100000) abort(); return y - 4; case 5: return y << 2; case 6: return ~y; case 8: return y / 3;
    default: return -1;
  }
}
__attribute__((noinline)) int interpret(const unsigned char *code) {
  static const void *const labels[] = {&&add, &&twice, &&jump, &&print, &&stop};
  int sum = 1;
  goto *labels[*code++];
add: sum += *code++; goto *labels[*code++];
twice: sum *= 2; goto *labels[*code++];
jump: if (sum < 500) { code -= *code; goto *labels[*code++]; } code++; goto *labels[*code++];
print: printf("sum %d\n", sum); goto *labels[*code++];
stop: return sum;
}
__attribute__((noinline)) long slow(const unsigned char *code, long value) {
  static const void *const labels[] = {&&up, &&down, &&out};
  for (;;) {
    const void *next = labels[*code % 3];
    code++;
    if (value == 77) printf("seventy-seven\n");
    goto *next;
  up: value += 5; continue;
  down: value -= 2; continue;
  out: return value;
  }
}
int main(int count, char **words) {
  (void)words;
  int sum = 0;
  for (unsigned x = 0; x < 11; x++) sum += choose(x, count + (int)x);
  static const unsigned char code[] = {0, 9, 1, 3, 2, 3, 4}, steps[] = {0, 1, 3, 4, 6, 2};
  printf("%d %d %ld\n", sum, interpret(code), slow(steps, 69));
  return 0;
}
"#;

/// Pointers in tables, in a variable and as operands, which are compared with each other.
const POINTERS: &str = r#"
#include <stdio.h>
typedef long (*Step)(long);
__attribute__((noinline)) long first(long x) { return x + 1; }
__attribute__((noinline)) long second(long x) { return x * 3; }
__attribute__((noinline)) long third(long x) { return x - 7; }
struct entry { const char *name; Step step; long flags; };
struct entry entries[] = {{"first", first, 1}, {"second", second, 2}, {"third", third, 3}};
Step chosen = second;
__attribute__((noinline)) int is_second(Step step) { return step == second; }
__attribute__((noinline)) Step pick(long which) { return which == 1 ? first : which == 2 ? second : third; }
int main(int count, char **words) {
  (void)words;
  long sum = count;
  for (int i = 0; i < 3; i++) {
    sum = entries[i].step(sum);
    printf("%s %d %d %ld\n", entries[i].name, is_second(entries[i].step), pick(i + 1) == entries[i].step, sum);
  }
  printf("%d %ld\n", is_second(chosen), chosen(sum));
  return chosen != entries[1].step;
}
"#;

fn built(source: &str, build: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("program.c"), source).unwrap();
    shell(&format!("cd '{}' && {build} program.c -o program", directory.path().display()), LIMIT).unwrap();
    let program = directory.path().join("program");
    (directory, program)
}

/// Copies a random half of the blocks; gives the report.
fn copied(program: &Path, output: &Path, seed: u32, flags: &[&str]) -> Value {
    let seed = seed.to_string();
    let mut command = reorder();
    command.arg("apply").arg(program).args(["--layout", "blocks", "--strategy", "random", "--seed", &seed]);
    let applied = run(command.args(flags).args(["--format", "json", "-o"]).arg(output));
    assert!(applied.success(), "{applied}");
    serde_json::from_str(&applied.stdout_text()).unwrap()
}

fn verified(program: &Path, output: &Path) -> String {
    let verified = run(reorder().arg("verify").arg(program).arg(output));
    assert!(verified.success(), "{verified}");
    verified.stdout_text()
}

/// Original address, address of the copy, bytes of an entry and count of each copied table, as the image lists them.
fn tables(bytes: &[u8]) -> Vec<[u64; 4]> {
    let file = object::File::parse(bytes).unwrap();
    let list = file.section_by_name(".reorder.clones").unwrap().data().unwrap();
    let number = |at: usize| u64::from_le_bytes(*list[at..].first_chunk().unwrap());
    let fragments = usize::try_from(number(16)).unwrap();
    let start = 24 + 32 * fragments;
    let count = usize::try_from(number(start)).unwrap();
    let table = |at: usize| [0, 8, 16, 24].map(|field| number(start + 8 + 32 * at + field));
    (0..count).map(table).collect()
}

/// Addresses where copied code ends, as the image lists them.
fn ends_of_code(bytes: &[u8]) -> Vec<u64> {
    let file = object::File::parse(bytes).unwrap();
    let list = file.section_by_name(".reorder.clones").unwrap().data().unwrap();
    let number = |at: usize| u64::from_le_bytes(*list[at..].first_chunk().unwrap());
    let fragments = usize::try_from(number(16)).unwrap();
    (0..fragments).map(|fragment| number(24 + 32 * fragment + 8) + number(24 + 32 * fragment + 24)).collect()
}

/// Position in the file of an address in the section of copies.
fn position(bytes: &[u8], address: u64) -> usize {
    let file = object::File::parse(bytes).unwrap();
    let section = file.section_by_name(".text.reorder").unwrap();
    let (offset, size) = section.file_range().unwrap();
    let within = address - section.address();
    assert!(within < size, "{address:#x} lies in no copy");
    usize::try_from(offset + within).unwrap()
}

fn is_proven(old: &[u8], new: &[u8]) -> bool {
    verify(old, new, VerifyOptions::default()).is_ok_and(|report| report.is_proven())
}

/// Positions in the file of the writable data.
fn data_range(bytes: &[u8]) -> std::ops::Range<usize> {
    let file = object::File::parse(bytes).unwrap();
    let (offset, size) = file.section_by_name(".data").unwrap().file_range().unwrap();
    usize::try_from(offset).unwrap()..usize::try_from(offset + size).unwrap()
}

/// The copies read tables of their own, whose entries lead to copies.
#[test]
fn tables_of_addresses_have_copies() {
    // Of code that keeps the index in memory no bound is proven.
    let compilers =
        [("gcc -O2", 4), ("gcc -O1", 4), ("gcc -O0", 0), ("clang$LLVM -O2", 4), ("clang$LLVM -O0", 0)];
    for (compiler, least) in compilers {
        let (directory, program) = built(DISPATCHES, &format!("{compiler} -fno-pie -no-pie -s"));
        let before = original(&program);
        let mut seen = 0;
        for seed in 1..30 {
            let output = directory.path().join(format!("copies{seed}"));
            copied(&program, &output, seed, &[]);
            assert_eq!(run(&mut Command::new(&output)), before, "{compiler}, seed {seed}");
            seen += tables(&fs::read(&output).unwrap()).len();
        }
        assert!(seen >= least, "{compiler}: only {seen} tables have copies");
    }
}

/// A table is on the page of the code that reads it, where possible. A trap shows disassemblers where the code ends.
#[test]
fn copied_tables_lie_between_copied_code() {
    for compiler in ["gcc", "clang$LLVM"] {
        let (directory, program) = built(DISPATCHES, &format!("{compiler} -O2 -fno-pie -no-pie -s"));
        let output = directory.path().join("copies");
        let mut between = 0;
        for seed in 1..30 {
            copied(&program, &output, seed, &[]);
            let new = fs::read(&output).unwrap();
            let (tables, ends) = (tables(&new), ends_of_code(&new));
            let last_of_code = ends.iter().max().unwrap();
            for [original, copy, entry, count] in &tables {
                let is_after_table = tables.iter().any(|[_, other, entry, count]| {
                    let end = other + entry * count;
                    end <= *copy && copy - end <= *entry
                });
                let code = ends.iter().filter(|end| *end <= copy).max().unwrap();
                let is_after_code = (1..=*entry).contains(&(copy - code));
                assert!(
                    is_after_code || is_after_table,
                    "{compiler}, seed {seed}: the table at {original:#x}"
                );
                assert!(!is_after_code || new[position(&new, copy - 1)] == 0xcc, "{compiler}, seed {seed}");
                between += usize::from(copy + entry * count < *last_of_code);
            }
        }
        assert!(between > 0, "{compiler}: all tables lie after all code");
    }
}

/// Whatever a copied table, or the operand that names it, holds instead is reported.
#[test]
fn wrong_tables_of_addresses_are_reported() {
    let (directory, program) = built(DISPATCHES, "gcc -O2 -fno-pie -no-pie -s");
    let output = directory.path().join("copies");
    let mut changes = 0;
    for seed in 1..30 {
        copied(&program, &output, seed, &[]);
        let (old, new) = (fs::read(&program).unwrap(), fs::read(&output).unwrap());
        assert!(is_proven(&old, &new));
        for [original, copy, entry, count] in tables(&new) {
            assert_eq!(entry, 8, "the table at {original:#x}");
            let at = position(&new, copy);
            for number in 0..usize::try_from(count).unwrap() {
                let mut wrong = new.clone();
                wrong[at + 8 * number] ^= 1;
                assert!(!is_proven(&old, &wrong), "entry {number} of the table at {original:#x}");
                changes += 1;
            }
            let named = u32::try_from(copy).unwrap().to_le_bytes();
            let uses: Vec<usize> =
                (0..new.len() - 4).filter(|&place| new[place..place + 4] == named).collect();
            for place in uses {
                let mut wrong = new.clone();
                wrong[place] ^= 8;
                assert!(!is_proven(&old, &wrong), "the operand at {place:#x}");
                changes += 1;
            }
        }
    }
    assert!(changes > 20, "only {changes} changes");
}

/// Without the flag no pointer changes. With it, all pointers to a function lead to its copy, and comparisons still hold.
#[test]
fn pointers_lead_to_copies_on_request() {
    let mut followed = 0;
    for compiler in ["gcc -O2", "gcc -O0", "clang$LLVM -O2"] {
        let (directory, program) = built(POINTERS, &format!("{compiler} -fno-pie -no-pie -s"));
        let before = original(&program);
        for seed in 1..5 {
            let output = directory.path().join(format!("copies{seed}"));
            let kept = copied(&program, &output, seed, &[]);
            assert_eq!(kept["clones"]["assumed_pointers"], Value::Null, "{kept}");
            assert!(!verified(&program, &output).contains("assume"), "{compiler}, seed {seed}");
            let led = copied(&program, &output, seed, &["--assume-pointers"]);
            assert_eq!(run(&mut Command::new(&output)), before, "{compiler}, seed {seed}");
            let assumed = led["clones"]["assumed_pointers"]["words"].as_u64().unwrap_or(0);
            followed += assumed;
            let is_told = verified(&program, &output).contains("--assume-pointers");
            assert!(assumed == 0 || is_told, "{compiler}, seed {seed}: {led}");
        }
    }
    assert!(followed > 10, "only {followed} words lead to copies");
}

/// `optimize` names the assumption, too.
#[test]
fn the_assumption_is_told() {
    let (directory, program) = built(POINTERS, "gcc -O2 -fno-pie -no-pie -s -falign-functions=4096");
    let output = directory.path().join("fast");
    let mut command = reorder();
    command.arg("optimize").arg(&program).args([
        "--run",
        "",
        "--layout",
        "blocks",
        "--assume-pointers",
        "-o",
    ]);
    let optimized = run(command.arg(&output));
    assert!(optimized.success(), "{optimized}");
    assert!(verified(&program, &output).contains("--assume-pointers"), "{optimized}");
    assert!(optimized.stderr_text().contains("--assume-pointers"), "{optimized}");
}

/// A pointer that stays while others lead to the copy, or that leads elsewhere, is reported.
#[test]
fn pointers_that_differ_from_others_are_reported() {
    let (directory, program) = built(POINTERS, "gcc -O2 -fno-pie -no-pie -s");
    let output = directory.path().join("copies");
    let mut changes = 0;
    for seed in 1..5 {
        copied(&program, &output, seed, &["--assume-pointers"]);
        let (old, new) = (fs::read(&program).unwrap(), fs::read(&output).unwrap());
        assert!(is_proven(&old, &new));
        let data = data_range(&old);
        for at in (data.start..data.end - 7).step_by(8).filter(|&at| old[at..at + 8] != new[at..at + 8]) {
            let mut stays = new.clone();
            stays[at..at + 8].copy_from_slice(&old[at..at + 8]);
            assert!(!is_proven(&old, &stays), "seed {seed}: the word at {at:#x} stays");
            let mut elsewhere = new.clone();
            elsewhere[at] ^= 0x10;
            assert!(!is_proven(&old, &elsewhere), "seed {seed}: the word at {at:#x} leads elsewhere");
            changes += 2;
        }
    }
    assert!(changes > 8, "only {changes} changes");
}

/// The last word of a text may equal the address of a function: " 4I", read as a word, is 0x493420. Such a word stays, and so do all
/// pointers to the function; `verify` reports an image in which it changed.
#[test]
fn the_end_of_a_text_is_no_pointer() {
    let source = r#"
#include <stdio.h>
__attribute__((noinline, section(".at_text"))) long chosen(long x) { return x * 3 + 1; }
__attribute__((noinline)) long other(long x) { return x + 5; }
struct { char text[24]; const char *after; } message = {TEXT " 4I", "text"};
long (*volatile steps[])(long) = {other, other, chosen};
int main(int count, char **words) {
  (void)words;
  printf("%ld %ld ", steps[0](count), steps[2](count));
  printf("%s %s %s\n", message.text, message.text + 16, message.after);
  return 0;
}
"#;
    let build = |text: &str| {
        built(
            source,
            &format!("gcc -O2 -fno-pie -no-pie -s -Wl,--section-start=.at_text=0x493420 -DTEXT='\"{text}\"'"),
        )
    };
    const ZEROS: &str = r"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    const TEXT: &str = "- bits + 1 : 24/";
    let ((directory, program), (zeros_directory, zeros)) = (build(TEXT), build(ZEROS));
    let before = original(&program);
    let mut reported = 0;
    for seed in 1..5 {
        let output = directory.path().join("copies");
        copied(&program, &output, seed, &["--assume-pointers"]);
        assert_eq!(run(&mut Command::new(&output)), before, "seed {seed}");
        // After zeros the word does look like a pointer. Where it changed, text before it in both images makes `verify` refuse that.
        let zeros_output = zeros_directory.path().join("copies");
        copied(&zeros, &zeros_output, seed, &["--assume-pointers"]);
        let (mut old, mut new) = (fs::read(&zeros).unwrap(), fs::read(&zeros_output).unwrap());
        // Words of pointers precede the pointer in `steps`, which has the same value.
        let message = [&[0; 16][..], b" 4I\0\0\0\0\0"].concat();
        let start = data_range(&old).find(|&at| old[at..].starts_with(&message)).unwrap();
        let (text, word) = (start..start + 16, start + 16..start + 24);
        if old[word.clone()] == new[word] {
            continue;
        }
        assert!(is_proven(&old, &new), "seed {seed}");
        for bytes in [&mut old, &mut new] {
            bytes[text.clone()].copy_from_slice(TEXT.as_bytes());
        }
        let report = verify(&old, &new, VerifyOptions::default()).unwrap();
        let [difference] = &*report.differences else { panic!("seed {seed}: {:?}", report.differences) };
        assert_eq!(difference.expected, "no change: it holds the end of a text", "seed {seed}");
        reported += 1;
    }
    assert!(reported > 0, "no word changed");
}

/// A pointer after eight characters is no end of a text if a zero is among its lowest bytes.
#[test]
fn a_pointer_after_a_text_leads_to_the_copy() {
    let source = r#"
#include <stdio.h>
__attribute__((noinline, section(".at_text"))) long chosen(long x) { return x * 3 + 1; }
struct { char text[8]; long (*volatile step)(long); const char *after; } record = {"checksum", chosen, "text"};
int main(int count, char **words) {
  (void)words;
  printf("%ld %.8s %s\n", record.step(count), record.text, record.after);
  return 0;
}
"#;
    for address in ["0x493400", "0x490020"] {
        let build = format!("gcc -O2 -fno-pie -no-pie -s -Wl,--section-start=.at_text={address}");
        let (directory, program) = built(source, &build);
        let (before, output) = (original(&program), directory.path().join("copies"));
        let mut words = 0;
        for seed in 1..5 {
            let report = copied(&program, &output, seed, &["--assume-pointers"]);
            assert_eq!(run(&mut Command::new(&output)), before, "{address}, seed {seed}");
            words += report["clones"]["assumed_pointers"]["words"].as_u64().unwrap_or(0);
        }
        assert!(words > 0, "{address}: no word leads to a copy");
    }
}

/// Functions whose pointers do not all look like pointers keep their addresses: one is packed, one has a flag in its low bit, one is
/// read in part. Each of them would differ from the pointer to the copy.
#[test]
fn pointers_in_other_forms_keep_all_others() {
    let source = r#"
#include <stdio.h>
#include <stdint.h>
typedef long (*Step)(long);
__attribute__((noinline)) long first(long x) { return x + 1; }
__attribute__((noinline)) long second(long x) { return x * 3; }
__attribute__((noinline)) long third(long x) { return x - 7; }
__attribute__((noinline)) long plain(long x) { return x ^ 5; }
struct entry { const char *name; Step step; } entries[] = {{"a", first}, {"b", second}, {"c", third}, {"d", plain}};
#ifdef OTHERS
struct __attribute__((packed)) { char kind; Step step; short rest; } packed[] = {{1, first, 2}};
char *flagged[] = {(char *)second + 1, (char *)entries};
struct { const char *name; Step step; } number = {"n", third};
__attribute__((noinline)) uint32_t low(void) { uint32_t part; __asm__ volatile("movl number+8, %0" : "=r"(part)); return part; }
#endif
int main(int count, char **words) {
  (void)words;
  for (int i = 0; i < 4; i++) printf("%s %ld\n", entries[i].name, entries[i].step(count));
#ifdef OTHERS
  printf("%d ", packed[count - 1].step == entries[0].step);
  printf("%d ", flagged[count - 1] - 1 == (char *)entries[1].step);
  printf("%d\n", low() == (uint32_t)(uintptr_t)entries[2].step);
#endif
  return 0;
}
"#;
    let changed = |flags: &str| {
        let (directory, program) = built(source, &format!("gcc -O1 -fno-pie -no-pie -s {flags}"));
        let before = original(&program);
        let mut words = 0;
        for seed in 1..20 {
            let output = directory.path().join(format!("copies{seed}"));
            let report = copied(&program, &output, seed, &["--assume-pointers"]);
            assert_eq!(run(&mut Command::new(&output)), before, "{flags}, seed {seed}");
            words += report["clones"]["assumed_pointers"]["words"].as_u64().unwrap_or(0);
        }
        words
    };
    let (alone, with_others) = (changed(""), changed("-DOTHERS"));
    assert!(alone > 2 * with_others && with_others > 0, "{alone} words, {with_others} with other forms");
}

/// Code that clears the low bits of a function's address finds the room for a patch before it, which a copy does not have.
#[test]
fn functions_with_room_for_a_patch_keep_their_addresses() {
    let source = r#"
#include <stdint.h>
#include <stdio.h>
typedef long (*Step)(long);
#define STEP(name, value) __attribute__((noinline, aligned(64))) long name(long x) { return x * value; }
STEP(first, 3) STEP(second, 5) STEP(third, 7)
struct entry { const char *name; Step step; } entries[] = {{"a", first}, {"b", second}, {"c", third}};
int main(int count, char **words) {
  (void)words;
  for (int i = 0; i < 3; i++) {
    uintptr_t flagged = ((uintptr_t)entries[i].step & ~(uintptr_t)63) | (uintptr_t)i;
    __asm__ volatile("" : "+r"(flagged));
    printf("%s %ld\n", entries[i].name, ((Step)(flagged & ~(uintptr_t)63))(count));
  }
  return 0;
}
"#;
    for flags in ["-fpatchable-function-entry=4,2", "-fpatchable-function-entry=0", "-fcf-protection=none"] {
        let (directory, program) = built(source, &format!("gcc -O2 -fno-pie -no-pie -s {flags}"));
        let before = original(&program);
        for seed in 1..12 {
            let output = directory.path().join(format!("copies{seed}"));
            copied(&program, &output, seed, &["--assume-pointers"]);
            assert_eq!(run(&mut Command::new(&output)), before, "{flags}, seed {seed}");
        }
    }
}

/// Where the loader's relocations list all pointers, the flag changes nothing.
#[test]
fn the_flag_concerns_fixed_addresses_alone() {
    let (directory, program) = built(POINTERS, "gcc -O2 -fPIE -pie -s");
    let outputs = ["one", "other"].map(|name| directory.path().join(name));
    copied(&program, &outputs[0], 3, &[]);
    copied(&program, &outputs[1], 3, &["--assume-pointers"]);
    assert_eq!(fs::read(&outputs[0]).unwrap(), fs::read(&outputs[1]).unwrap());
}
