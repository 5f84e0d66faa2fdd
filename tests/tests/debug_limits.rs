//! Debug information that cannot be brought up to date is refused with a cure, and the judge, asked about an output that
//! was made nevertheless, finds what is wrong with it.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use end_to_end::process::{self, shell};
use end_to_end::workspace::{reorder, root};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use reorder::verify::{VerifyOptions, verify};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

/// Programs in a folder of their own.
struct Folder(TempDir);

impl Folder {
    /// Writes `sources` and runs `script`, which builds from them and from `$BALLAST`.
    fn build(sources: &[(&str, &str)], script: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, text) in sources {
            fs::write(folder.path(name), text).unwrap();
        }
        let ballast = root().join("tests/fixtures/ballast.c");
        folder.shell(&format!("BALLAST='{}'; {script}", ballast.display()));
        folder
    }

    fn shell(&self, script: &str) {
        shell(&format!("cd '{}' && {script}", self.0.path().display()), LIMIT).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// Applies a random order; gives what was said if that failed.
    fn apply(&self, old: &str, new: &str) -> Result<(), String> {
        let mut apply = reorder();
        apply.args(["apply", "--strategy", "random", "--seed", "3"]);
        apply.arg(self.path(old)).arg("-o").arg(self.path(new));
        let outcome = process::run(&mut apply, LIMIT).unwrap();
        if outcome.success() { Ok(()) } else { Err(outcome.stderr_text()) }
    }

    /// The refusal names `reason` and both ways out.
    fn is_refused(&self, old: &str, reason: &str) {
        let said = self.apply(old, "refused").unwrap_err();
        for part in ["refused (R10)", reason, "--debug drop", "--debug keep-stale"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    fn is_proven(&self, old: &str, new: &str) {
        assert_eq!(self.differences(old, new), "");
    }

    /// The judge says that `place` is not what it should be.
    fn is_found(&self, old: &str, new: &str, place: &str) {
        let differences = self.differences(old, new);
        assert!(differences.contains(place), "{place}: {differences}");
    }

    fn differences(&self, old: &str, new: &str) -> String {
        let report = verify(&self.read(old), &self.read(new), VerifyOptions::default()).unwrap();
        assert_eq!(report.is_proven(), report.differences.is_empty());
        let lines = report.differences.iter().map(|found| format!("{}: {}\n", found.place, found.found));
        lines.collect()
    }

    /// Replaces `from` by `to`, of the same size, wherever it stands in a section.
    fn replace(&self, input: &str, section: &str, from: &[u8], to: &[u8], output: &str) {
        assert_eq!(from.len(), to.len());
        let mut bytes = self.read(input);
        let file = object::File::parse(&*bytes).unwrap();
        let (start, size) = file.section_by_name(section).unwrap().file_range().unwrap();
        let range = start as usize..(start + size) as usize;
        let places: Vec<usize> =
            range.filter(|&at| bytes.get(at..).is_some_and(|rest| rest.starts_with(from))).collect();
        assert!(!places.is_empty(), "{from:x?} is not in {section}");
        for at in places {
            bytes[at..at + to.len()].copy_from_slice(to);
        }
        fs::write(self.path(output), bytes).unwrap();
    }
}

const PLAIN: &str = r#"
int foreign(int);
__attribute__((noinline)) int alpha(int x) { int y = x * 3; y += foreign(y); return y ^ x; }
__attribute__((noinline)) int beta(int x) { int y = x * 5; y -= foreign(y); return y | x; }
__attribute__((noinline)) int foreign(int x) { return x * x + 1; }
int main(int count, char **arguments) { return alpha(count) + beta(count) == 7; }
"#;

/// A program may look for what was appended to it by its position, or from the end of its file.
#[test]
fn appended_bytes_stay_where_they_are() {
    let folder = Folder::build(
        &[("main.c", PLAIN)],
        "gcc -O1 -g -fPIE -pie main.c $BALLAST -o plain && (cat plain; printf 'HELLO-PAYLOAD') > appended && \
         cp plain zeros && truncate -s +100 zeros",
    );
    folder.is_refused("appended", "appended data");
    folder.apply("plain", "moved").unwrap();
    folder.shell("(cat moved; printf 'HELLO-PAYLOAD') > elsewhere");
    folder.is_proven("plain", "moved");
    folder.is_found("appended", "elsewhere", "bytes behind the sections");
    // Zeros are nobody's data.
    folder.apply("zeros", "moved").unwrap();
    // Without changes of size there is nothing to refuse.
    let mut drop = reorder();
    drop.args(["apply", "--strategy", "random", "--debug", "drop"]).arg(folder.path("appended"));
    let outcome = process::run(drop.arg("-o").arg(folder.path("dropped")), LIMIT).unwrap();
    assert!(outcome.success(), "{outcome}");
    assert!(folder.read("dropped").ends_with(b"HELLO-PAYLOAD"));
}

/// What clang and gcc put in a file of its own counts from the starts of the unit's ranges.
#[test]
fn split_units_whose_ranges_went_apart() {
    const SOURCE: &str = r#"
extern "C" int foreign(int);
template <class T> __attribute__((noinline)) T both(T x) { T y = x + 9; y += foreign(y); return y * 2; }
__attribute__((noinline)) int alpha(int x) { int y = x * 3; y += foreign(y); int z = y ^ x; z += foreign(z); return z + y; }
__attribute__((noinline)) int beta(int x) { int y = x * 5; y -= foreign(y); int z = y | x; z += foreign(z + 1); return z - y; }
int main(int count, char **) { return alpha(count) + beta(count) + both<int>(count) + both<long>(count) == 7; }
"#;
    const OTHER: &str = "int foreign(int x) { return x * x + 1; }";
    let folder = Folder::build(
        &[("main.cpp", SOURCE), ("other.c", OTHER)],
        "gcc -O1 -c $BALLAST other.c && \
         for compiler in clang++-22 g++; do for section in '' -ffunction-sections; do \
         $compiler -O2 -g -gsplit-dwarf $section -fPIE -pie main.cpp other.o ballast.o -o $compiler$section || exit 1; done; done && \
         clang++-22 -O2 -g -gdwarf-4 -gsplit-dwarf -fPIE -pie main.cpp other.o ballast.o -o four",
    );
    for compiler in ["clang++-22", "g++"] {
        folder.is_refused(compiler, "in a file of its own");
        folder.apply(&format!("{compiler}-ffunction-sections"), "moved").unwrap();
    }
    folder.is_refused("four", "in a file of its own");
    // The same unit, not known as split while it is written: DW_AT_GNU_dwo_name and DW_AT_GNU_dwo_id.
    folder.replace("four", ".debug_abbrev", &[0xb0, 0x42], &[0xd0, 0x42], "half");
    folder.replace("half", ".debug_abbrev", &[0xb1, 0x42], &[0xd1, 0x42], "hidden");
    folder.apply("hidden", "moved").unwrap();
    folder.is_proven("hidden", "moved");
    folder.replace("moved", ".debug_abbrev", &[0xd0, 0x42], &[0xb0, 0x42], "half");
    folder.replace("half", ".debug_abbrev", &[0xd1, 0x42], &[0xb1, 0x42], "torn");
    folder.is_found("four", "torn", "the DW_TAG_compile_unit at 0xb");
}

/// Instructions for unwinding are distances from the start of an entry, or addresses.
#[test]
fn frame_entries_of_code_that_went_apart() {
    let source = |end: &str, set: &str| {
        format!(
            ".text\n.cfi_sections .debug_frame\n.globl one,two,three\n.type one,@function\n.type two,@function\n\
             .type three,@function\n.cfi_startproc\none: subq $24,%rsp\n.cfi_def_cfa_offset 32\n{set}\n leal 1(%rdi),%eax\n \
             addq $24,%rsp\n.cfi_def_cfa_offset 8\n ret\n.size one,.-one\n{end}\ntwo: subq $40,%rsp\n leal 2(%rdi),%eax\n \
             call one\n addq $40,%rsp\n ret\n.size two,.-two\nthree: leal 3(%rdi),%eax\n ret\n.size three,.-three\n{}\n\
             .section .note.GNU-stack,\"\",@progbits\n",
            if end.is_empty() { ".cfi_endproc" } else { "" }
        )
    };
    const MAIN: &str = "int one(int), two(int), three(int); int main(int c, char **v) { return one(c) + two(c) + three(c) == 9; }";
    let folder = Folder::build(
        &[
            ("main.c", MAIN),
            ("three.s", &source("", "")),
            ("one.s", &source(".cfi_endproc", "")),
            // DW_CFA_set_loc with an address in the program, which this linker fills in.
            ("set.s", &source(".cfi_endproc", ".cfi_escape 1,0x10,0x11,0,0,0,0,0,0")),
        ],
        "for name in one three set; do gcc -O1 -Wl,--build-id=none -fPIE -pie main.c $name.s $BALLAST -o $name || exit 1; done",
    );
    folder.apply("one", "moved").unwrap();
    folder.is_proven("one", "moved");
    folder.is_refused("three", "went apart");
    folder.is_refused("set", "DW_CFA_set_loc");
    // The same entry, shorter while it is written.
    let bytes = folder.read("three");
    let file = object::File::parse(&*bytes).unwrap();
    let [one, three] = ["one", "three"].map(|name| file.symbol_by_name(name).unwrap());
    let whole = (three.address() + three.size() - one.address()).to_le_bytes();
    folder.replace("three", ".debug_frame", &whole, &one.size().to_le_bytes(), "short");
    folder.apply("short", "moved").unwrap();
    folder.is_proven("short", "moved");
    folder.replace("moved", ".debug_frame", &one.size().to_le_bytes(), &whole, "torn");
    folder.is_found("three", "torn", ".debug_frame: the entry");
}
