//! Order files against a real linker, real symbol tables and arbitrary bytes.

use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::lld::{OrderFile, Unnamed, write};
use super::origin::{Identity, Origin};
use super::read::{ListedOrder, read};
use crate::{Layout, LayoutRequest, Room, Strategy, lay_out};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_trace::Step;

fn with_image<T>(path: &Path, check: impl FnOnce(&ElfFile<'_>, &FunctionTable<'_>) -> T) -> T {
    let bytes = std::fs::read(path).expect("the image is readable");
    let file = ElfFile::parse(&bytes).expect("an ELF image");
    let functions = ElfFunctions::collect(&file).expect("well-formed tables").table;
    check(&file, &functions)
}

fn tool(command: &mut Command) {
    let output = command.output().expect("the tool starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A program of two files that have local functions of the same names, in addition to `step_0` to `step_29`.
fn build(directory: &Path, linker_flags: &[&str]) -> PathBuf {
    let numbered = |line: fn(u32) -> String| (0..30).map(line).collect::<String>();
    let attribute = "__attribute__((noinline))";
    let steps =
        numbered(|n| format!("__attribute__((noinline)) int step_{n}(int x) {{ return x * {n} + 7; }}\n"));
    let calls = numbered(|n| format!("x += step_{n}(x);"));
    let first = format!(
        "{steps}{attribute} static int helper(int x) {{ return x + 1; }}\nint other(int);\n\
         int main(int x) {{ {calls} return helper(x) + other(x); }}\n"
    );
    let second = format!(
        "{attribute} static int helper(int x) {{ return x - 3; }}\nint other(int x) {{ return helper(x); }}\n"
    );
    std::fs::write(directory.join("first.c"), first).expect("writable");
    std::fs::write(directory.join("second.c"), second).expect("writable");
    let program = directory.join("program");
    tool(
        Command::new("cc")
            .current_dir(directory)
            .args(["-O1", "-fno-ipa-icf", "-ffunction-sections", "first.c", "second.c", "-o", "program"])
            .args(linker_flags),
    );
    program
}

/// lld as the Rust toolchain brings it.
fn lld_flag() -> String {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc starts").stdout;
    let sysroot = PathBuf::from(String::from_utf8(sysroot).expect("a path").trim());
    let directory = sysroot.join("lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld");
    assert!(directory.join("ld.lld").exists(), "the Rust toolchain has no lld in {}", directory.display());
    format!("-B{}", directory.display())
}

#[test]
fn an_order_file_that_was_cut_is_noted() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = build(directory.path(), &[]);
    let (_, order, listed) = ordered(&program, Strategy::Random, Unnamed::WriteAddress);
    assert_eq!(listed.coverage.stated_lines, None);
    let text = String::from_utf8_lossy(&order.bytes);
    let first = text.lines().find(|line| !line.starts_with('#')).and_then(|line| text.find(line));
    with_image(&program, |_, functions| {
        for at in first.expect("functions are listed")..order.bytes.len() {
            let cut = read(&order.bytes[..at], functions);
            assert!(cut.coverage.stated_lines.is_some(), "cut at {at}");
        }
    });
}

fn ordered(path: &Path, strategy: Strategy, unnamed: Unnamed) -> (Layout, OrderFile, ListedOrder) {
    with_image(path, |file, functions| {
        let layout =
            lay_out(file, functions, &[], Room::Linker, &LayoutRequest::of(strategy, 3)).expect("a layout");
        let identity = Identity::BuildId(file.build_id());
        let origin = Origin { identity, request: LayoutRequest::of(strategy, 3), coverage: None };
        let order = write(functions, &layout, &origin, unnamed);
        let listed = read(&order.bytes, functions);
        (layout, order, listed)
    })
}

#[test]
fn lld_lays_functions_out_as_listed() {
    let directory = tempfile::tempdir().expect("a directory");
    let lld = lld_flag();
    let program = build(directory.path(), &["-fuse-ld=lld", &lld]);
    let (_, order, _) = ordered(&program, Strategy::Random, Unnamed::Omit);
    let file = directory.path().join("order.txt");
    std::fs::write(&file, &order.bytes).expect("writable");
    let flag = format!("-Wl,--symbol-ordering-file={}", file.display());
    let program = build(directory.path(), &["-fuse-ld=lld", &lld, &flag, "-Wl,--no-warn-symbol-ordering"]);
    let text = String::from_utf8(order.bytes).expect("plain names");
    let wanted: Vec<&str> = text.lines().filter(|line| line.starts_with("step_")).collect();
    let got: Vec<String> = with_image(&program, |_, functions| {
        functions
            .iter()
            .map(|(index, _)| functions.display_name(index))
            .filter(|name| name.starts_with("step_"))
            .collect()
    });
    assert_eq!(got, wanted);
    assert_eq!(got.len(), 30);
    assert!(!got.is_sorted_by_key(|name| name[5..].parse::<u32>().ok()), "the seed must change something");
}

#[test]
fn local_functions_are_found_by_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build(directory.path(), &[]);
    with_image(&program, |_, functions| {
        let list =
            "# two of one name\nsecond.c:helper\nhelper\nsrc/first.c:helper\nsecond.c;helper\nmain.llvm.77\n";
        let listed = read(list.as_bytes(), functions);
        let [second, first, main] = listed.functions[..] else { panic!("{listed:?}") };
        let names = [second, first, main].map(|index| functions.display_name(index));
        assert_eq!(names, ["helper", "helper", "main"]);
        assert!(functions.get(first).start < functions.get(second).start, "first.c is linked first");
        let coverage = listed.coverage;
        assert_eq!((coverage.lines, coverage.by[&Step::SourceFile], coverage.by[&Step::Suffix]), (5, 3, 1));
        assert_eq!((coverage.ambiguous, coverage.duplicate, coverage.unknown), (1, 1, 0));
        assert_eq!(coverage.examples, ["helper"]);
    });
}

#[test]
fn listed_functions_are_read_back_in_order() {
    let own = std::env::current_exe().expect("this test");
    let (layout, order, listed) = ordered(&own, Strategy::Random, Unnamed::WriteAddress);
    assert_eq!(order.summary.chosen, layout.order.len());
    let summary = order.summary;
    assert_eq!(summary.named + summary.ambiguous + summary.unnamed, summary.chosen);
    assert!(order.summary.named > 1000, "this program has symbols: {:?}", order.summary);
    assert_eq!(listed.coverage.unknown, 0, "{:?}", listed.coverage);
    // Functions whose names others have are listed by their address, so that none is lost.
    assert!(summary.ambiguous > 0 && listed.coverage.ambiguous == 0, "{summary:?} {:?}", listed.coverage);
    let mut written = layout.order.iter();
    assert!(listed.functions.iter().all(|function| written.any(|other| other == function)));
    assert_eq!(listed.functions.len(), layout.order.len());
}

#[test]
fn stripped_functions_are_listed_by_address() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build(directory.path(), &["-s"]);
    let (layout, order, _) = ordered(&program, Strategy::Random, Unnamed::Omit);
    assert!(order.summary.unnamed >= 30, "{:?}", order.summary);
    assert!(order.bytes.split(|&byte| byte == b'\n').all(|line| line.is_empty() || line.starts_with(b"#")));
    let (_, _, listed) = ordered(&program, Strategy::Random, Unnamed::WriteAddress);
    assert_eq!(listed.functions, layout.order);
    assert_eq!(listed.coverage.by[&Step::Address], layout.order.len());
}

#[test]
fn unlisted_functions_follow_in_their_old_order() {
    let listed = [4, 1, 4].map(FunctionIndex);
    let layout = Layout::of_listed(&listed, 6).expect("few functions");
    assert_eq!(layout.order, [4, 1, 0, 2, 3, 5].map(FunctionIndex));
    assert_eq!(layout.chosen, 2);
}

#[test]
fn arbitrary_bytes_are_counted_and_never_fatal() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build(directory.path(), &[]);
    with_image(&program, |_, functions| {
        let start = functions.iter().next().map(|(_, function)| function.start).expect("functions");
        let line = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            "(0x|function@0x|function@|first\\.c:|:|;|#)?[0-9a-fx+]{0,20}".prop_map(String::into_bytes),
            "(first|second)\\.c[:;](helper|main|step_[0-9])(\\.llvm\\.[0-9]+)?".prop_map(String::into_bytes),
            Just(start.to_string().into_bytes()),
        ];
        proptest!(ProptestConfig::with_cases(256), |(lines in prop::collection::vec(line, 0..40))| {
            let listed = read(&lines.join(&b'\n'), functions);
            let coverage = &listed.coverage;
            prop_assert_eq!(coverage.found() + coverage.ambiguous + coverage.unknown, coverage.lines);
            prop_assert_eq!(coverage.found(), listed.functions.len() + coverage.duplicate);
            let layout = Layout::of_listed(&listed.functions, functions.len()).expect("few functions");
            prop_assert_eq!(layout.chosen, listed.functions.len());
            prop_assert_eq!(&layout.order[..layout.chosen], &listed.functions[..]);
        });
    });
}
