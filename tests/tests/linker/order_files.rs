//! Order files as found in practice: unknown, duplicate, mangled, suffixed and ambiguous names, and functions that stay.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use end_to_end::process::{self, Outcome, shell};
use end_to_end::workspace;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

/// Two files with a local function of the same name each, a mangled name, and a clone with a suffix.
const FIRST: &str = "\
__attribute__((noinline)) static int helper(int n) { return n * 3 + 1; }\n\
__attribute__((noinline)) int alpha(int n) { return helper(n) + 1; }\n\
__attribute__((noinline)) int beta(int n) { return helper(n) + 2; }\n\
__attribute__((noinline)) int gamma_(int n) { return helper(n) + 3; }\n\
__attribute__((noinline)) int _ZN5space8functionEi(int n) { return n + 9; }\n\
__attribute__((noinline)) int suffixed(int n) __asm__(\"suffixed.llvm.123456\");\n\
int suffixed(int n) { return n + 8; }\n";
const SECOND: &str = "\
#include <stdio.h>\n\
int alpha(int), beta(int), gamma_(int), _ZN5space8functionEi(int);\n\
int suffixed(int) __asm__(\"suffixed.llvm.123456\");\n\
__attribute__((noinline)) static int helper(int n) { return n * 5 + 2; }\n\
int run(int count) {\n\
printf(\"%d %d %d %d %d %d\\n\", alpha(count), beta(count), gamma_(count), helper(count),\n\
_ZN5space8functionEi(count), suffixed(count)); return 0; }\n";
const HOST: &str =
    "int run(int); int main(int count, char **arguments) { (void)arguments; return run(count); }\n";
const OUTPUT: &str = "5 6 7 7 10 9\n";

struct Case {
    directory: TempDir,
    image: PathBuf,
}

impl Case {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        fs::write(directory.path().join("first.c"), FIRST).unwrap();
        fs::write(directory.path().join("second.c"), SECOND).unwrap();
        fs::write(directory.path().join("host.c"), HOST).unwrap();
        // A library without startup code: all of its text can move, so any order is possible exactly.
        let line = format!(
            "cd '{}' && gcc -O1 -falign-functions=16 -fPIC -shared -nostartfiles -Wl,-Bsymbolic first.c second.c \
             -o image && gcc -O1 host.c ./image -o host",
            directory.path().display()
        );
        shell(&line, LIMIT).unwrap();
        Self { directory, image }
    }

    /// Applies `order` to the image; gives the output's path and the messages.
    fn apply(&self, image: &Path, order: &str) -> (PathBuf, Outcome) {
        let (file, output) = (self.directory.path().join("order"), self.directory.path().join("output"));
        fs::write(&file, order).unwrap();
        let mut command = workspace::reorder();
        command.arg("apply").arg(image).arg("--order").arg(&file).arg("-o").arg(&output);
        let outcome = process::run(&mut command, LIMIT).unwrap();
        assert!(outcome.success(), "{outcome}");
        (output, outcome)
    }

    /// The program must print the same with `library` instead of the original.
    fn assert_works(&self, library: &Path) {
        let place = self.directory.path().join("run");
        fs::create_dir_all(&place).unwrap();
        fs::copy(library, place.join("image")).unwrap();
        let line = format!("cd '{}' && ../host", place.display());
        assert_eq!(shell(&line, LIMIT).unwrap(), OUTPUT);
    }

    /// The names of code in order of their addresses, local names as often as they occur.
    fn names_by_address(&self, image: &Path) -> Vec<String> {
        let listing = shell(&format!("nm -n '{}'", image.display()), LIMIT).unwrap();
        listing
            .lines()
            .filter_map(|line| line.split_once(" T ").or_else(|| line.split_once(" t ")))
            .map(|(_, name)| name.to_owned())
            .collect()
    }
}

fn positions(names: &[String], wanted: &[&str]) -> Vec<usize> {
    wanted.iter().map(|name| names.iter().position(|candidate| candidate == name).unwrap()).collect()
}

#[test]
fn named_functions_lie_in_the_order_of_the_file() {
    let case = Case::new();
    case.assert_works(&case.image);
    let wanted = ["gamma_", "run", "alpha", "beta"];
    let (output, _) = case.apply(&case.image, &wanted.join("\n"));
    case.assert_works(&output);
    let found = positions(&case.names_by_address(&output), &wanted);
    assert!(found.is_sorted(), "{found:?}");
}

// case: names in order files
#[test]
fn unknown_and_duplicate_names_are_told_and_change_nothing() {
    let case = Case::new();
    let (clean, _) = case.apply(&case.image, "beta\nalpha\n");
    let expected = fs::read(clean).unwrap();
    let (output, outcome) = case.apply(&case.image, "# comment\nbeta\nno_such_function\nalpha\nbeta\n\n");
    assert_eq!(fs::read(&output).unwrap(), expected);
    assert!(outcome.stderr_text().contains("no_such_function"), "{outcome}");
    case.assert_works(&output);
}

// case: names in order files
#[test]
fn mangled_and_suffixed_names_are_found() {
    let case = Case::new();
    let (output, _) = case.apply(&case.image, "suffixed.llvm.123456\n_ZN5space8functionEi\nrun\n");
    let names = case.names_by_address(&output);
    assert!(positions(&names, &["suffixed.llvm.123456", "_ZN5space8functionEi", "run"]).is_sorted());
    // The suffix changes with every build, so that a name without it, or with another, means the same function.
    let (other, _) = case.apply(&case.image, "suffixed.llvm.99\n_ZN5space8functionEi\nrun\n");
    assert_eq!(fs::read(&other).unwrap(), fs::read(&output).unwrap());
    case.assert_works(&output);
}

// case: names in order files
#[test]
fn a_local_name_can_be_limited_to_its_file() {
    let case = Case::new();
    let before = shell(&format!("nm '{}' | grep ' t helper'", case.image.display()), LIMIT).unwrap();
    assert_eq!(before.lines().count(), 2, "two local functions of one name: {before}");
    let (output, _) = case.apply(&case.image, "second.c:helper\nrun\nfirst.c:helper\nalpha\n");
    let names = case.names_by_address(&output);
    let helpers: Vec<usize> = (0..names.len()).filter(|&index| names[index] == "helper").collect();
    let [run, alpha] = positions(&names, &["run", "alpha"])[..] else { unreachable!() };
    assert!(helpers[0] < run && run < helpers[1] && helpers[1] < alpha, "{names:?}");
    case.assert_works(&output);
}

#[test]
fn a_full_order_is_followed_around_pinned_functions() {
    let case = Case::new();
    let all: Vec<String> = case.names_by_address(&case.image).into_iter().rev().collect();
    let (output, _) = case.apply(&case.image, &all.join("\n"));
    case.assert_works(&output);
    let found = positions(&case.names_by_address(&output), &["run", "gamma_", "beta", "alpha"]);
    assert!(found.is_sorted(), "{found:?}");
}

// case: more is wanted than pins leave room for
#[test]
fn an_order_is_followed_where_pins_leave_room() {
    let case = Case::new();
    let image = case.directory.path().join("relative_pointers");
    let fixtures = workspace::root().join("tests/fixtures");
    let line = format!(
        "gcc -O2 -fPIE -pie '{0}/relative_pointers/main.c' '{0}/ballast.c' -o '{1}'",
        fixtures.display(),
        image.display()
    );
    shell(&line, LIMIT).unwrap();
    // All functions are wanted first, in reverse order; some of them are pinned.
    let all: Vec<String> = case.names_by_address(&image).into_iter().rev().collect();
    let (output, _) = case.apply(&image, &all.join("\n"));
    assert_eq!(shell(&format!("'{}'", output.display()), LIMIT).unwrap(), "220\n");
    let addresses =
        |image: &Path| shell(&format!("nm '{}' | grep ' T target_'", image.display()), LIMIT).unwrap();
    assert_eq!(addresses(&image), addresses(&output), "pinned functions stay");
    let wanted = ["ballast_8", "ballast_6", "ballast_4", "ballast_2"];
    let found = positions(&case.names_by_address(&output), &wanted);
    let before = positions(&case.names_by_address(&image), &wanted);
    assert!(!before.is_sorted() && found.is_sorted(), "{before:?} {found:?}");
}

// case: all that is wanted is pinned
#[test]
fn an_order_of_pinned_functions_changes_nothing() {
    let case = Case::new();
    let image = case.directory.path().join("relative_pointers");
    let source = workspace::root().join("tests/fixtures/relative_pointers/main.c");
    shell(&format!("gcc -O2 -fPIE -pie '{}' -o '{}'", source.display(), image.display()), LIMIT).unwrap();
    let (output, outcome) = case.apply(&image, "target_two\ntarget_one\n");
    assert_eq!(fs::read(&output).unwrap(), fs::read(&image).unwrap());
    let said = outcome.stderr_text() + &outcome.stdout_text();
    assert!(said.contains("target_one") && said.contains("target_two"), "{said}");
}
