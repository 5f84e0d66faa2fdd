//! Debug information that cannot be updated is refused with a cure, and the verifier finds the errors in an output that
//! was made nevertheless.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use end_to_end::process::{self, shell};
use end_to_end::workspace::{reorder, root};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use reorder_base::tool_versions::llvm;
use reorder_verify::{VerifyOptions, verify};
use tempfile::TempDir;

/// Without the limits that are tested, a command would run for hours; a busy system takes some of these minutes.
const LIMIT: Duration = Duration::from_secs(600);

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

    /// Applies a random order; gives the message if that failed.
    fn apply(&self, old: &str, new: &str) -> Result<(), String> {
        let mut apply = reorder();
        apply.args(["apply", "--strategy", "random", "--seed", "3"]);
        apply.arg(self.path(old)).arg("-o").arg(self.path(new));
        let outcome = process::run(&mut apply, LIMIT).unwrap();
        if outcome.success() { Ok(()) } else { Err(outcome.stderr_text()) }
    }

    /// The refusal names `reason` and both options.
    fn is_refused(&self, old: &str, reason: &str) {
        let said = self.apply(old, "refused").unwrap_err();
        for part in ["refused (R10)", reason, "--debug drop", "--debug keep-stale"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    fn is_proven(&self, old: &str, new: &str) {
        assert_eq!(self.differences(old, new), "");
    }

    /// The verifier reports `place`.
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

    /// Replaces `from` by `to`, of the same size, everywhere in a section.
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

/// A program may find data that was appended to it by its position, or from the end of its file.
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
    folder.is_found("appended", "elsewhere", "bytes after the sections");
    // Zeros are not data.
    folder.apply("zeros", "moved").unwrap();
    // Without changes of size there is no reason to refuse.
    let mut drop = reorder();
    drop.args(["apply", "--strategy", "random", "--debug", "drop"]).arg(folder.path("appended"));
    let outcome = process::run(drop.arg("-o").arg(folder.path("dropped")), LIMIT).unwrap();
    assert!(outcome.success(), "{outcome}");
    assert!(folder.read("dropped").ends_with(b"HELLO-PAYLOAD"));
}

/// In split units of clang and gcc, offsets are relative to the starts of the unit's ranges.
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
         for compiler in clang++$LLVM g++; do for section in '' -ffunction-sections; do \
         $compiler -O2 -g -gsplit-dwarf $section -fPIE -pie main.cpp other.o ballast.o -o $compiler$section || exit 1; done; done && \
         clang++$LLVM -O2 -g -gdwarf-4 -gsplit-dwarf -fPIE -pie main.cpp other.o ballast.o -o four",
    );
    folder.is_refused(&llvm("clang++"), "in a file of its own");
    folder.is_refused("g++", "in a file of its own");
    folder.apply(&format!("{}-ffunction-sections", llvm("clang++")), "moved").unwrap();
    folder.is_refused("four", "in a file of its own");
    // The same unit, not marked as split while it is written: DW_AT_GNU_dwo_name and DW_AT_GNU_dwo_id.
    folder.replace("four", ".debug_abbrev", &[0xb0, 0x42], &[0xd0, 0x42], "half");
    folder.replace("half", ".debug_abbrev", &[0xb1, 0x42], &[0xd1, 0x42], "hidden");
    folder.apply("hidden", "moved").unwrap();
    folder.is_proven("hidden", "moved");
    folder.replace("moved", ".debug_abbrev", &[0xd0, 0x42], &[0xb0, 0x42], "half");
    folder.replace("half", ".debug_abbrev", &[0xd1, 0x42], &[0xb1, 0x42], "torn");
    folder.is_found("four", "torn", "the DW_TAG_compile_unit at 0xb");
}

/// Unwind instructions contain distances from the start of an entry, or addresses.
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

/// Only the file of a split unit says whether an address is that of a function or the one after the last call of the
/// preceding function.
#[test]
fn addresses_that_only_other_files_name() {
    const SOURCE: &str = r#"
#include <stdlib.h>
int foreign(int), next(int);
void leave(int);
int main(int count, char **arguments) { if (count > 5) next(count); leave(count); }
__attribute__((noinline)) void leave(int x) { exit(foreign(x) & 1); }
__attribute__((noinline)) int next(int x) { return foreign(x) * 3; }
"#;
    let folder = Folder::build(
        &[("main.c", SOURCE), ("other.c", "int foreign(int x) { return x * x + 1; }")],
        "gcc -O1 -c $BALLAST other.c && SPLIT='-g -gsplit-dwarf -ffunction-sections -fPIE -pie' && \
         gcc -Os $SPLIT main.c other.o ballast.o -o close && \
         clang$LLVM -O2 $SPLIT -fuse-ld=lld main.c other.o ballast.o -o apart",
    );
    folder.is_refused("close", "only files of split units name");
    folder.apply("apart", "moved").unwrap();
    folder.is_proven("apart", "moved");
    let [old, new] = ["apart", "moved"].map(|name| {
        let bytes = folder.read(name);
        let file = object::File::parse(&*bytes).unwrap();
        let main = file.symbol_by_name("main").unwrap();
        (main.address() + main.size()).to_le_bytes()
    });
    assert_ne!(old, new);
    // The address after the call was updated; its old value is wrong.
    folder.replace("moved", ".debug_addr", &new, &old, "stale");
    folder.is_found("apart", "stale", ".debug_addr: the address");
}

/// Executing a line program does not show instructions that name files, and unknown instructions may contain addresses.
#[test]
fn line_programs_with_other_instructions() {
    // One sequence over two functions; `instructions` take 15 bytes.
    let source = |instructions: &str| {
        format!(
            ".text\n.globl one,two\n.type one,@function\n.type two,@function\none: leal 1(%rdi),%eax\n ret\n.size one,.-one\n\
             .p2align 4\ntwo: leal 2(%rdi),%eax\n ret\n.size two,.-two\n.Lend:\n\
             .section .debug_abbrev,\"\",@progbits\n.byte 1,0x11,0, 0x10,6, 0x11,1, 0x12,1, 3,8, 0,0, 0\n\
             .section .debug_info,\"\",@progbits\n.long 2f-1f\n1: .short 2\n.long .debug_abbrev\n.byte 8\n.byte 1\n.long .Lprogram\n\
             .quad one\n.quad .Lend\n.asciz \"x.s\"\n2:\n.section .debug_line,\"\",@progbits\n.Lprogram:\n.long 4f-3f\n3: .short 2\n\
             .long 6f-5f\n5: .byte 1,1,-5,14,10, 0,1,1,1,1,0,0,0,1\n.byte 0\n.asciz \"first.s\"\n.byte 0,0,0\n.byte 0\n6:\n\
             {instructions}\n.byte 0,9,2\n.quad one\n.byte 1\n.byte 2\n.uleb128 two-one\n.byte 3,5,1\n.byte 2\n\
             .uleb128 .Lend-two\n.byte 0,1,1\n4:\n.section .note.GNU-stack,\"\",@progbits\n"
        )
    };
    const MAIN: &str = "int one(int), two(int); int main(int c, char **v) { return one(c) + two(c) == 9; }";
    let folder = Folder::build(
        &[
            ("main.c", MAIN),
            // advance_line by 0 six times, advance_pc by 0.
            ("none.s", &source(".byte 3,0,3,0,3,0,3,0,3,0,3,0,2,0x80,0")),
            ("file.s", &source(".byte 0,13,3\n.asciz \"second.s\"\n.byte 0,0,0")),
            ("unknown.s", &source(".byte 0,13,0x90,1,2,3,4,5,6,7,8,9,10,11,12")),
        ],
        "for name in none file unknown; do gcc -O1 -Wl,--build-id=none -fPIE -pie main.c $name.s $BALLAST -o $name || exit 1; done",
    );
    folder.apply("none", "moved").unwrap();
    folder.is_proven("none", "moved");
    folder.is_found("file", "moved", "instructions that no rows show");
    folder.is_refused("file", "DW_LNE_define_file");
    folder.is_refused("unknown", "the unknown instruction 0x90");
}

/// A unit of DWARF 4 of entries with one attribute each, without children, and further sections.
fn unit(attribute: &str, entries: &str, sections: &str) -> String {
    format!(
        ".section .debug_abbrev,\"\",@progbits\n.byte 1,0x11,1,0,0\n.byte 2,0x0b,0,{attribute},0,0\n.byte 0\n\
         .section .debug_info,\"\",@progbits\n.long 2f-1f\n1: .short 4\n.long .debug_abbrev\n.byte 8\n.byte 1\n{entries}.byte 0\n\
         2:\n{sections}.section .note.GNU-stack,\"\",@progbits\n"
    )
}

const RANGES: &str = "0x55,0x17";
const BUILD_ALL: &str =
    "for name in *.s; do gcc -O1 -fPIE -pie main.c $name $BALLAST -o ${name%.s} || exit 1; done";

/// Code of a known function, so large that code after it may belong to no function.
const BIG: &str = "big: .cfi_startproc\n.rept 400000\n incl %eax\n.endr\n ret\n.cfi_endproc\n";

/// A few bytes that expand to very many records are refused, without the memory or the time for them.
#[test]
fn small_files_that_would_be_large() {
    let lists = |count: usize, step: usize, range: &str| {
        let entries: String =
            (0..count).map(|number| format!(".byte 2\n.long .debug_ranges+{}\n", number * step)).collect();
        let section = format!(
            ".section .debug_ranges,\"\",@progbits\n.rept {count}\n.quad {range}\n.endr\n.quad 0,0\n"
        );
        unit(RANGES, &entries, &section)
    };
    let rows: String = (1..40_000).map(|line| format!(".loc 1 {line}\n incl %eax\n")).collect();
    let folder = Folder::build(
        &[
            ("main.c", PLAIN),
            // Each list is the end of another one, of code that is not in the image.
            ("endings.s", &lists(5000, 16, "1,2")),
            // One list, many times.
            ("again.s", &lists(10_000, 0, "alpha,alpha+1")),
            // Rows between functions.
            (
                "rows.s",
                &format!(".file 1 \"rows.s\"\n.text\n{BIG}{rows}.section .note.GNU-stack,\"\",@progbits\n"),
            ),
        ],
        BUILD_ALL,
    );
    let start = Instant::now();
    folder.is_refused("endings", "over and over");
    folder.apply("again", "moved").unwrap();
    folder.is_proven("again", "moved");
    folder.apply("rows", "moved").unwrap();
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
}

/// The verifier does not run for hours where both images hold lists that overlap each other.
#[test]
fn lists_that_the_judge_does_not_read_to_the_end() {
    let entries: String =
        (0..20_000).map(|number| format!(".byte 2\n.long .debug_ranges+{}\n", number * 16)).collect();
    let section = ".section .debug_ranges,\"\",@progbits\n.rept 20000\n.quad 1,2\n.endr\n.quad 0,0\n.asciz \"behind\"\n";
    let folder =
        Folder::build(&[("main.c", PLAIN), ("endings.s", &unit(RANGES, &entries, section))], BUILD_ALL);
    let mut apply = reorder();
    apply.args(["apply", "--strategy", "random", "--debug", "keep-stale"]).arg(folder.path("endings"));
    assert!(process::run(apply.arg("-o").arg(folder.path("stale")), LIMIT).unwrap().success());
    // One byte is changed, so that the verifier takes it for updated.
    folder.replace("stale", ".debug_ranges", b"behind", b"Behind", "new");
    let start = Instant::now();
    folder.is_found("endings", "new", "too many to judge");
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
}

/// What the row of one padding says is wrong for another one.
#[test]
fn rows_of_padding_belong_to_their_padding() {
    let rows = include_str!("../../fixtures/padding_in_line_rows/rows.S");
    let main = include_str!("../../fixtures/padding_in_line_rows/main.c");
    let folder =
        Folder::build(&[("main.c", main), ("rows.S", rows)], "gcc -O1 -fPIE -pie main.c rows.S -o old");
    folder.apply("old", "moved").unwrap();
    folder.is_proven("old", "moved");
    // The rows of padding are 80 lines after those of their functions. One line more is the row of the next padding.
    let advance = |lines: u8| [3, lines | 0x80, 0];
    folder.replace("moved", ".debug_line", &advance(80), &advance(81), "wrong");
    folder.is_found("old", "wrong", "rows outside of functions");
}

/// Unknown operations may contain addresses; macros may be imported from the middle of others.
#[test]
fn unknown_operations_and_overlapping_macros() {
    // Entries in which, one byte later, the header of a unit begins, and entries that extend to the end.
    let macros = ".section .debug_macro,\"\",@progbits\n.byte 4,0,0\n.rept 100\n.byte 3,4,0,1,4,3,0,4\n.endr\n.byte 0,0,0,0\n";
    let imports: String =
        (0..100).map(|number| format!(".byte 2\n.long .debug_macro+{}\n", 4 + 8 * number)).collect();
    let folder = Folder::build(
        &[
            ("main.c", PLAIN),
            ("operation.s", &unit("2,0x18", ".byte 2\n.byte 1,0xe4\n", "")),
            // DW_AT_macros.
            ("macros.s", &unit("0x79,0x17", &imports, macros)),
        ],
        BUILD_ALL,
    );
    folder.is_refused("operation", "the unknown operation 0xe4");
    let said = folder.apply("macros", "moved").unwrap_err();
    assert!(said.contains("units overlap each other") && said.contains("--debug drop"), "{said}");
}

/// Linkers may replace addresses of discarded code by the number that begins a base of a list.
#[test]
fn dead_ranges_that_look_like_bases() {
    let section = ".section .debug_ranges,\"\",@progbits\n.quad -1,-1\n.quad 0,8\n.quad -1,0\n.quad alpha,alpha+4\n.quad 0,0\n";
    let folder = Folder::build(
        &[("main.c", PLAIN), ("dead.s", &unit(RANGES, ".byte 2\n.long .debug_ranges\n", section))],
        BUILD_ALL,
    );
    folder.apply("dead", "moved").unwrap();
    folder.is_proven("dead", "moved");
}

/// By a view, gcc says at which of several rows for one address a variable gets its new location.
#[test]
fn views_of_locations() {
    let folder = Folder::build(
        &[("main.c", PLAIN)],
        "for version in 4 5; do gcc -O2 -g -gdwarf-$version -fPIE -pie main.c $BALLAST -o version$version || exit 1; done",
    );
    for (name, section) in [("version4", ".debug_loc"), ("version5", ".debug_loclists")] {
        folder.apply(name, "moved").unwrap();
        folder.is_proven(name, "moved");
        let mut bytes = folder.read("moved");
        let file = object::File::parse(&*bytes).unwrap();
        let at = file.section_by_name(section).unwrap().file_range().unwrap().0 as usize + first_views(&file);
        bytes[at] ^= 1;
        fs::write(folder.path("other"), bytes).unwrap();
        folder.is_found(name, "other", "debug information: the DW_TAG_");
    }
}

/// Offsets of the first pairs of views in their section that belong to a list whose first location is not empty.
fn first_views(file: &object::File<'_>) -> usize {
    let load = |id: gimli::SectionId| {
        let section = file.section_by_name(id.name()).and_then(|section| section.data().ok());
        Ok::<_, ()>(gimli::EndianSlice::new(section.unwrap_or_default(), gimli::LittleEndian))
    };
    let dwarf = gimli::Dwarf::load(load).unwrap();
    let mut units = dwarf.units();
    while let Some(header) = units.next().unwrap() {
        let unit = dwarf.unit(header).unwrap();
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs().unwrap() {
            let views = entry.attr_value(gimli::DW_AT_GNU_locviews);
            let list = entry.attr_value(gimli::DW_AT_location);
            if let (Some(gimli::AttributeValue::SecOffset(at)), Some(list)) = (views, list) {
                let mut list = dwarf.attr_locations(&unit, list).unwrap().unwrap();
                let first = list.next().unwrap().unwrap();
                if first.range.begin < first.range.end {
                    return at;
                }
            }
        }
    }
    panic!("there are no views");
}
