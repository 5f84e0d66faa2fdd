//! Data that a program finds in its own file or image: appended to the file, or in a note.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use end_to_end::process::{Ending, Outcome, shell};
use end_to_end::workspace::reorder;
use object::{Object, ObjectSection};
use reorder_verify::{Difference, VerifyOptions, verify};
use tempfile::TempDir;

use crate::runs::{LIMIT, run};

const PAGE: usize = 0x1000;

/// The paths of a program that `build` makes of `source`, and of the same with copies.
fn build(source: &str, build: &str) -> (TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("program.c"), source).unwrap();
    shell(&format!("cd '{}' && {build} program.c -o old", directory.path().display()), LIMIT).unwrap();
    let (old, new) = (directory.path().join("old"), directory.path().join("new"));
    (directory, old, new)
}

fn copy_all(old: &Path, new: &Path) -> Outcome {
    let mut command: Command = reorder();
    command.arg("apply").arg(old).args(["--clone=all", "--strategy", "random", "-o"]).arg(new);
    run(&mut command)
}

/// Where the list of copies has the length of the file without them: after its magic number.
fn length_of_old_file(image: &[u8]) -> usize {
    let file = object::File::parse(image).unwrap();
    let (offset, _) = file.section_by_name(".reorder.clones").unwrap().file_range().unwrap();
    offset as usize + 8
}

fn differences(before: &[u8], after: &[u8]) -> Vec<Difference> {
    verify(before, after, VerifyOptions::default()).unwrap().differences
}

/// The forged files have the appended data in the padding before the segment of copies, and their list of copies counts it as part
/// of the old file: every other check accepts that.
#[test]
fn copies_after_appended_data_are_refused_and_not_proven() {
    const PROGRAM: &str = r#"
#include <stdio.h>
__attribute__((noinline)) static int triple(int x) { return 3 * x; }
int main(int count, char **words) { printf("%d %s\n", triple(count), words[1] ? words[1] : "-"); return 0; }
"#;
    let (_directory, old, new) = build(PROGRAM, "gcc -O1 -fPIE -pie");
    let copied = copy_all(&old, &new);
    assert!(copied.success(), "{copied}");
    let (mut before, mut after) = (fs::read(&old).unwrap(), fs::read(&new).unwrap());
    assert_eq!(differences(&before, &after), []);

    let (data, end) = (b"appended", before.len());
    assert!(end.next_multiple_of(PAGE) - end > data.len(), "the copies begin right after the file");
    before.extend_from_slice(data);
    after[end..end + data.len()].copy_from_slice(data);
    let length = length_of_old_file(&after);
    after[length..length + 8].copy_from_slice(&(before.len() as u64).to_le_bytes());
    let found = differences(&before, &after);
    let [difference] = &found[..] else { panic!("{found:#?}") };
    assert!(difference.place.starts_with("the data at the end of the file"), "{difference:?}");

    fs::write(&old, &before).unwrap();
    fs::remove_file(&new).unwrap();
    let refused = copy_all(&old, &new);
    assert_eq!(refused.ending, Ending::Exited(2), "{refused}");
    let says = format!("refused (R13): the file has 8 bytes of appended data, from offset {end:#x} on");
    assert!(String::from_utf8_lossy(&refused.stderr).contains(&says), "{refused}");
    assert!(!new.exists());
}

/// The header of Crashpad's note may be taken. In both files, the note then gets the name that the program knows.
#[test]
fn a_taken_header_of_a_note_that_the_program_knows_is_not_proven() {
    const PROGRAM: &str = r#"
#include <stdio.h>
__asm__(".pushsection .note.own,\"a\",%note\n.balign 4\n.long 9, 8, 1\n.asciz \"Crashpad\"\n.balign 4\n.quad 0\n.popsection");
const char known[] = "Own_data";
int main(int count, char **words) { puts(count > 1 ? words[1] : known); return 0; }
"#;
    let (_directory, old, new) = build(PROGRAM, "clang$LLVM -fuse-ld=lld -O1 -fPIE -pie");
    let copied = copy_all(&old, &new);
    assert!(copied.success(), "{copied}");
    let says = "the segment of copies took the program header of Crashpad's note";
    assert!(String::from_utf8_lossy(&copied.stderr).contains(says), "{copied}");
    let (mut before, mut after) = (fs::read(&old).unwrap(), fs::read(&new).unwrap());
    assert_eq!(differences(&before, &after), []);

    let at = before.windows(8).position(|window| window == b"Crashpad").unwrap();
    for bytes in [&mut before, &mut after] {
        bytes[at..at + 8].copy_from_slice(b"Own_data");
    }
    let found = differences(&before, &after);
    let [difference] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(difference.found, "that of a note with Own_data, which the program holds", "{difference:?}");
}

/// In Bun itself the section `.bun` holds eight zero bytes; in an application it holds something else.
#[test]
fn copies_of_bun_itself_come_with_a_warning() {
    const PROGRAM: &str = r#"
#include <stdio.h>
__attribute__((section(".bun"), used)) static unsigned long application = APPLICATION;
__attribute__((noinline)) static int triple(int x) { return 3 * x; }
int main(int count, char **words) { printf("%d %s\n", triple(count), words[1] ? words[1] : "-"); return 0; }
"#;
    const WARNING: &str = "warning: an application that `bun build --compile` makes with this output crashes";
    for (application, is_warned_of) in [(0, true), (8, false)] {
        let (_directory, old, new) =
            build(PROGRAM, &format!("gcc -O1 -fPIE -pie -DAPPLICATION={application}"));
        let mut optimize: Command = reorder();
        optimize.arg("optimize").arg(&old).args([
            "--layout",
            "blocks",
            "--run",
            "1",
            "--measure-runs",
            "0",
            "-o",
        ]);
        let outcomes = [copy_all(&old, &new), run(optimize.arg(old.with_file_name("optimized")))];
        for outcome in outcomes {
            assert!(outcome.success(), "{outcome}");
            // Lines are as wide as the terminal.
            let words: Vec<&str> = str::from_utf8(&outcome.stderr).unwrap().split_whitespace().collect();
            assert_eq!(words.join(" ").contains(WARNING), is_warned_of, "{outcome}");
        }
    }
}
