//! Entries of functions with copies: callers may read what stands before one, through the function's address.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use end_to_end::process::shell;
use end_to_end::workspace::reorder;
use object::{Object, ObjectSymbol};
use reorder_verify::{VerifyOptions, verify};
use tempfile::TempDir;

use crate::runs::{LIMIT, run};

/// A program, and where the same with copies is to be.
struct Pair {
    _directory: TempDir,
    old: PathBuf,
    new: PathBuf,
}

impl Pair {
    /// `build` makes `old` of `program.c`.
    fn build(source: &str, build: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("program.c"), source).unwrap();
        shell(&format!("cd '{}' && {build}", directory.path().display()), LIMIT).unwrap();
        let (old, new) = (directory.path().join("old"), directory.path().join("new"));
        Self { _directory: directory, old, new }
    }
}

/// clang gives each type hash a symbol of its own on x86-64, so the hash is a function that runs into the next one. Callers read it
/// through the address of that one, before which a copy has nothing. With `.kcfi_traps` the image is refused (R9).
#[test]
fn functions_that_code_runs_into_keep_their_addresses() {
    const HASHED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
typedef int (*step)(int);
__attribute__((noinline)) static int first(int x) { return 3 * x + atoi("1"); }
__attribute__((noinline)) static int second(int x) { return x ^ atoi("5"); }
static const step steps[] = {first, second};
int main(int count, char **words) {
  int sum = 0;
  for (int at = 0; at < 8; at++) sum = sum * 7 + steps[(at * count) & 1](at + count);
  printf("%d %d\n", sum, first(count));
  return 0;
}
"#;
    for flags in ["-fsanitize=kcfi", "-fsanitize=kcfi -fpatchable-function-entry=13,11"] {
        let build =
            format!("clang$LLVM -O1 -fPIE -pie {flags} program.c -o old && objcopy -R .kcfi_traps old");
        let Pair { _directory, old, new } = Pair::build(HASHED, &build);
        let before = run(&mut Command::new(&old));
        assert!(before.success(), "{before}");
        // Which blocks are copied depends on the seed.
        let has_copied_entries = (1..=16).any(|seed: u32| {
            let applied = run(reorder()
                .arg("apply")
                .arg(&old)
                .args(["--layout", "blocks", "--strategy", "random", "--seed", &seed.to_string(), "-o"])
                .arg(&new));
            assert!(applied.success(), "{applied}");
            assert_eq!(run(&mut Command::new(&new)), before, "{flags}, seed {seed}");
            let bytes = fs::read(&new).unwrap();
            let file = object::File::parse(&*bytes).unwrap();
            let is_copied = |name: &str| file.symbols().any(|symbol| symbol.name() == Ok(name));
            is_copied("first.reorder") || is_copied("second.reorder")
        });
        assert!(has_copied_entries, "{flags}");
    }
}

/// The writer keeps such addresses. So the copy's address is stored while a return precedes the function, which then becomes a
/// no-operation in both files.
#[test]
fn addresses_of_copies_of_what_code_runs_into_are_not_proven() {
    const NEIGHBOURS: &str = r#"
__attribute__((visibility("hidden"))) int first(int x);
int (*const steps[])(int) = {first};
int main(int count, char **words) { return steps[count - 1](count) != 4; }
asm(".type other,@function\nother: .cfi_startproc\n mov $7, %eax\n ret\n .cfi_endproc\n .size other, . - other\n"
    ".globl first\n.type first,@function\nfirst: .cfi_startproc\n lea 1(%rdi,%rdi,2), %eax\n ret\n .cfi_endproc\n"
    ".size first, . - first\n");
"#;
    /// `mov $7,%eax` and the return, in `other` and in its copy.
    const OTHER: [u8; 6] = [0xb8, 7, 0, 0, 0, 0xc3];
    const NO_OPERATION: u8 = 0x90;
    let Pair { _directory, old, new } = Pair::build(NEIGHBOURS, "gcc -O1 -fPIE -pie program.c -o old");
    let applied =
        run(reorder().arg("apply").arg(&old).args(["--clone=all", "--strategy", "random", "-o"]).arg(&new));
    assert!(applied.success(), "{applied}");
    assert_eq!(run(&mut Command::new(&new)), run(&mut Command::new(&old)));
    let (mut before, mut after) = (fs::read(&old).unwrap(), fs::read(&new).unwrap());
    assert!(verify(&before, &after, VerifyOptions::default()).unwrap().is_proven());
    for bytes in [&mut before, &mut after] {
        let places = bytes.windows(OTHER.len()).enumerate().filter(|(_, window)| *window == OTHER);
        let returns: Vec<usize> = places.map(|(place, _)| place + OTHER.len() - 1).collect();
        assert!(!returns.is_empty());
        returns.iter().for_each(|place| bytes[*place] = NO_OPERATION);
    }
    let report = verify(&before, &after, VerifyOptions::default()).unwrap();
    let is_found = |place: &str| place.starts_with("the address of the function at");
    assert!(report.differences.iter().any(|difference| is_found(&difference.place)), "{report:#?}");
}
