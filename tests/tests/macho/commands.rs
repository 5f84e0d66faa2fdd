//! What commands do with a Mach-O file by default, and their messages where they do not apply to it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use end_to_end::process::{self, Ending, Outcome, shell};
use end_to_end::workspace;
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
const FUNCTIONS: u64 = 90;
const ARCHITECTURES: [&str; 2] = ["arm64", "x86_64"];

/// A program of functions of many sizes for both processors, the two together as `both`, and lists of a few runs.
fn programs() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut source = String::new();
    for number in 0..FUNCTIONS {
        let size = 40 + number * 97 % 400;
        writeln!(
            source,
            "__attribute__((noinline)) void step{number}(void) {{ __asm__ volatile(\".rept {size}\\nnop\\n.endr\"); }}"
        )
        .unwrap();
    }
    let calls: String = (0..FUNCTIONS).map(|number| format!("step{number}();")).collect();
    writeln!(source, "int main(void) {{ {calls} return 0; }}").unwrap();
    fs::write(directory.path().join("main.c"), source).unwrap();
    let line = format!(
        "cd '{}' && for arch in arm64 x86_64; do \
         clang$LLVM --target=$arch-apple-macos12 -O1 -c main.c -o $arch.o && \
         ld64.lld$LLVM -arch $arch -platform_version macos 12 12 -undefined dynamic_lookup $arch.o -o $arch || exit 1; \
         done && llvm-lipo$LLVM -create arm64 x86_64 -output both",
        directory.path().display()
    );
    shell(&line, LIMIT).unwrap();
    fs::create_dir(directory.path().join("starts")).unwrap();
    for start in 0..7 {
        let is_run = |number: &u64| (number * 31 + start * 17) % 7 < 2;
        let names: String = (0..FUNCTIONS).filter(is_run).fold("main\n".to_owned(), |mut names, number| {
            writeln!(names, "step{number}").unwrap();
            names
        });
        fs::write(directory.path().join(format!("starts/{start}.trace")), names).unwrap();
    }
    directory
}

fn reorder(directory: &Path, words: &[&str]) -> Outcome {
    process::run(workspace::reorder().current_dir(directory).args(words), LIMIT).unwrap()
}

fn json(directory: &Path, words: &[&str]) -> Value {
    let outcome = reorder(directory, &[words, &["--format", "json"]].concat());
    assert!(outcome.success(), "{outcome}");
    serde_json::from_slice(&outcome.stdout).unwrap()
}

#[test]
fn layouts_suit_the_pages_of_the_processor() {
    let directory = programs();
    let path = directory.path();
    for (architecture, default, other) in [("arm64", "16k", "4k"), ("x86_64", "4k", "16k")] {
        let applied = |memory: &[&str]| {
            let words = ["apply", architecture, "-t", "starts", "-o", "new"];
            let outcome = reorder(path, &[&words, memory].concat());
            assert!(outcome.success(), "{outcome}");
            fs::read(path.join("new")).unwrap()
        };
        assert!(
            applied(&[]) == applied(&["--memory", default]),
            "{architecture} is not laid out for {default}"
        );
        assert!(applied(&[]) != applied(&["--memory", other]), "the program is too small to tell");

        let words = ["order", architecture, "-t", "starts", "-o", "order"];
        assert_eq!(json(path, &words)["memory"], default);
    }
}

#[test]
fn faults_are_counted_by_the_pages_of_the_processor() {
    let directory = programs();
    let path = directory.path();
    for (architecture, model) in [("arm64", "ios-16k"), ("x86_64", "macos-4k")] {
        let simulated = json(path, &["simulate", architecture, "-t", "starts"]);
        assert!(simulated.to_string().contains(model), "{simulated:#}");
        assert_eq!(json(path, &["explain", architecture, "main", "-t", "starts"])["model"], model);
        let page = json(path, &["report", architecture, "-t", "starts", "-o", "page.html"]);
        assert!(page.to_string().contains(model), "{page:#}");
        let baseline = format!("{architecture}.baseline");
        let words = ["gate", architecture, "-t", "starts", "--update-baseline", "--baseline", &baseline];
        let gated = json(path, &words);
        let faults = gated["checks"].as_array().unwrap().iter().find(|check| check["metric"] == "faults");
        assert_eq!(faults.unwrap()["part"], model, "{gated:#}");
    }
}

#[test]
fn missing_architectures_are_answered_with_existing_ones() {
    let directory = programs();
    let path = directory.path();
    let commands: [&[&str]; 6] = [
        &["inspect"],
        &["apply", "-t", "starts", "-o", "new"],
        &["order", "-t", "starts"],
        &["simulate", "-t", "starts"],
        &["report", "-t", "starts", "-o", "page.html"],
        &["explain", "main", "-t", "starts"],
    ];
    for words in commands {
        let of = |file: &'static str| {
            let words = [&words[..1], &[file], &words[1..], &["--arch", "ppc"]].concat();
            let outcome = reorder(path, &words);
            assert_eq!(outcome.ending, Ending::Exited(2), "{words:?}: {outcome}");
            outcome.stderr_text()
        };
        let said = of("both");
        assert!(
            said.contains("only for x86_64, arm64") && said.contains("--arch x86_64"),
            "{words:?}: {said}"
        );
        let said = of("arm64");
        assert!(said.contains("only for arm64") && said.contains("leave out --arch"), "{words:?}: {said}");
    }
}

#[test]
fn traces_are_imported_in_terms_of_an_image() {
    let directory = programs();
    let path = directory.path();
    let imported = ["traces", "import", "starts/0.trace", "--image", "both", "-o"];
    let outcome = reorder(path, &[&imported[..], &["none"]].concat());
    assert!(!outcome.success() && outcome.stderr_text().contains("--arch"), "{outcome}");
    for architecture in ARCHITECTURES {
        let output = format!("{architecture}.traces");
        let outcome = reorder(path, &[&imported[..], &[&output, "--arch", architecture]].concat());
        assert!(outcome.success(), "{outcome}");
        // By address and UUID: the image of the other processor has other addresses.
        let words = ["simulate", "both", "--arch", architecture, "-t"];
        let faults = |traces: &str| json(path, &[&words[..], &[traces]].concat())["totals"].take();
        assert!(faults("starts/0.trace")[0]["faults"].as_u64().unwrap() > 0);
        assert_eq!(faults("starts/0.trace"), faults(&output));
    }
    let words = ["traces", "convert", "--to", "list", "--image", "both", "--arch", "arm64", "starts/0.trace"];
    let outcome = reorder(path, &words);
    assert!(outcome.success() && outcome.stdout_text().contains("_main"), "{outcome}");
}

// case: a universal file of which one image stays
#[test]
fn an_image_that_is_refused_stays_and_the_others_move() {
    let directory = programs();
    let path = directory.path();
    let line = format!(
        "cd '{}' && ld64.lld$LLVM -w -arch x86_64 -platform_version macos 10.6 10.6 -no_pie -undefined dynamic_lookup \
         x86_64.o -o fixed && llvm-lipo$LLVM -create arm64 fixed -output both",
        path.display()
    );
    shell(&line, LIMIT).unwrap();
    let outcome = reorder(path, &["apply", "both", "-t", "starts", "-o", "new", "--map", "new.map"]);
    assert!(outcome.success(), "{outcome}");
    let said = outcome.stderr_text();
    assert!(said.contains("the image for x86_64 stays as it is") && said.contains("(M2)"), "{said}");
    assert!(said.contains("-no_pie"), "the cure: {said}");
    assert!(path.join("new.map").exists(), "one image moved, so one map has the name that was given");
    let report = json(path, &["apply", "both", "-t", "starts", "-o", "again"]);
    let [left] = report["left"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!((left["image"].as_str(), left["code"].as_str()), (Some("x86_64"), Some("M2")), "{report}");
    assert!(left["reason"].as_str().unwrap().contains("fixed address"), "{report}");
    let report = json(path, &["apply", "arm64", "-t", "starts", "-o", "single"]);
    assert!(report["left"].is_null(), "{report}");
    let line = format!(
        "cd '{}' && llvm-lipo$LLVM new -thin x86_64 -output stayed && cmp stayed fixed && \
         llvm-lipo$LLVM new -thin arm64 -output moved && ! cmp -s moved arm64",
        path.display()
    );
    shell(&line, LIMIT).unwrap();
    let outcome = reorder(path, &["verify", "both", "new"]);
    assert!(outcome.success(), "{outcome}");
    let outcome = reorder(path, &["apply", "fixed", "-t", "starts", "-o", "alone"]);
    assert!(!outcome.success() && !path.join("alone").exists(), "{outcome}");
}

/// The image cannot be written, its maps could.
#[test]
fn maps_appear_only_with_the_image_that_they_describe() {
    let directory = programs();
    let path = directory.path();
    let apply = "apply both -t starts -o new --map new.map";
    let names = || {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    // A limit on file sizes simulates the full disk.
    let line = format!(
        "cd '{}' && trap '' XFSZ; ulimit -f 32; exec '{}' {apply}",
        path.display(),
        workspace::reorder_path().display(),
    );
    let outcome = process::run(Command::new("bash").args(["-c", &line]), LIMIT).unwrap();
    assert_eq!(outcome.ending, Ending::Exited(2), "{outcome}");
    assert_eq!(names(), before);

    let outcome = reorder(path, &apply.split(' ').collect::<Vec<_>>());
    assert!(outcome.success(), "{outcome}");
    for architecture in ARCHITECTURES {
        let size = fs::metadata(path.join(format!("new.map.{architecture}"))).unwrap().len();
        assert!(size < 32 << 10, "a map of {size} bytes would not have been written first");
    }
}
