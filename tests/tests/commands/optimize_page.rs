//! `reorder optimize --report` and `reorder report` write the same page.

use std::path::Path;
use std::process::{Command, Output};

use end_to_end::workspace::reorder;

/// `first` has pages of its own: a copy of code on pages that are needed anyway would not be made.
const SOURCE: &str = "
__attribute__((noinline, aligned(4096))) int first(int x) {
    volatile int y = x;
    if (__builtin_expect(y == 1000, 0)) { __asm__ volatile(\".skip 8192, 0x90\"); return 1; }
    return y * 3; }
__attribute__((noinline)) int spare(int x) { volatile int y = x; return y * 5; }
__attribute__((noinline)) int second(int x) { volatile int y = x; return y * 7; }
int main(int count, char **words) { return (words[1][0] == 'a' ? first(count) : second(count)) == 1; }
";

fn call(arguments: &[&str], directory: &Path) -> Output {
    reorder().args(arguments).current_dir(directory).output().unwrap()
}

#[test]
fn both_commands_write_the_same_page() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    std::fs::write(directory.join("program.c"), SOURCE).unwrap();
    let mut compiler = Command::new("gcc");
    compiler
        .args(["-O1", "-fno-reorder-blocks-and-partition", "-o", "program", "program.c"])
        .current_dir(directory);
    assert!(compiler.status().expect("gcc is installed").success());
    let optimize = ["optimize", "program", "-o", "fast", "--measure-runs", "0", "--run", "a", "--run", "b"];
    for layout in ["functions", "blocks"] {
        let more = ["--layout", layout, "--keep-traces", layout, "--report", "one.html"];
        let output = call(&[&optimize[..], &more].concat(), directory);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let output = call(&["report", "program", "fast", "-t", layout, "-o", "other.html"], directory);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        let (one, other) = (read("one.html"), read("other.html"));
        assert!(one.starts_with("<!doctype html>") || one.starts_with("<!DOCTYPE html>"));
        assert!(one == other, "{layout}: pages of {} and {} bytes differ", one.len(), other.len());
        assert_eq!(one.contains("\"copies\":"), layout == "blocks");
    }
    for taken in ["program", "fast"] {
        let refused = call(&[&optimize[..], &["--report", taken]].concat(), directory);
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("would replace an image"));
    }
    // An output that does not exist yet is not a file to compare with.
    let fresh = ["optimize", "program", "-o", "fresh", "--measure-runs", "0", "--run", "a", "--report"];
    for page in ["fresh", "./fresh", "blocks/../fresh"] {
        let refused = call(&[&fresh[..], &[page]].concat(), directory);
        assert_eq!(refused.status.code(), Some(2), "{page}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("would replace an image"));
        assert!(!directory.join("fresh").exists(), "{page}");
    }
}
