//! The layout harness on a real link: positions of namesakes, and that simulated links match real ones.

use std::fs;
use std::path::Path;
use std::process::Command;

use end_to_end::layout_corpus::Corpus;
use end_to_end::layout_positions::positions;
use end_to_end::layout_profile::{profile_text, section_names};
use end_to_end::layout_simulated::simulated;
use end_to_end::process::succeed;
use end_to_end::workspace;
use reorder_base::tool_versions::llvm;

/// Both objects have a local function `shared`, of different size; the order file can name neither alone.
const FIRST: &str = "
    static int state;
    __attribute__((noinline)) static int shared(int n) { return n ? state += n * 3 : 7; }
    int late(int n) { return shared(n) ^ 5; }
    int second(int);
    int main(int count, char **words) { (void)words; return second(count) + late(count) < 0; }
";
const SECOND: &str = "
    static int state;
    __attribute__((noinline)) static int shared(int n) { for (int i = 0; i < n; i++) state ^= i * n; return state; }
    int unused(int n) { return n * 77; }
    int second(int n) { return shared(n + 2); }
";

fn link(directory: &Path, output: &str, flags: &[&str]) {
    succeed(
        Command::new(llvm("clang"))
            .current_dir(directory)
            .args(["-fuse-ld=lld", "-pie", "-o", output])
            .args(flags)
            .args(["first.o", "second.o"]),
    );
}

/// A program directory as `scripts/layout/corpus` makes it.
fn corpus(directory: &Path) -> Corpus {
    for (name, source) in [("first", FIRST), ("second", SECOND)] {
        let file = format!("{name}.c");
        fs::write(directory.join(&file), source).unwrap();
        succeed(Command::new(llvm("clang")).current_dir(directory).args([
            "-O1",
            "-fPIE",
            "-ffunction-sections",
            "-c",
            &file,
        ]));
    }
    link(directory, "image", &["-Wl,-Map=map"]);
    for set in ["train", "held-out"] {
        succeed(
            workspace::reorder().current_dir(directory).args(["record", "-o", set, "--", "./image", "a"]),
        );
    }
    Corpus::read(directory).unwrap()
}

#[test]
fn positions_and_simulated_links_agree_with_real_links() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let corpus = corpus(directory);

    // Both namesakes ran; each has a section and a name of its own.
    let names = section_names(&corpus);
    let shared: Vec<usize> =
        (0..corpus.names.len()).filter(|&index| corpus.names[index].0.ends_with(";shared")).collect();
    let [one, other] = shared[..] else { panic!("functions called shared: {shared:?}") };
    assert_ne!(names[one], names[other]);
    let ran = &corpus.train.starts[0].functions;
    assert!(ran.contains(&(one as u32)) && ran.contains(&(other as u32)));
    assert!(profile_text(&names, &corpus.train.starts).contains(&names[one].as_ref().unwrap().0));

    // `late` moves to the beginning, the rest keeps its order.
    fs::write(directory.join("order"), "late\n").unwrap();
    link(directory, "moved", &["-Wl,--symbol-ordering-file=order"]);
    let moved = positions(&corpus, &directory.join("moved")).unwrap();
    assert!(moved.unmatched.is_empty());
    assert_ne!(moved.spans, corpus.spans);
    let (listed, unfound) = corpus.listed(&directory.join("order")).unwrap();
    assert_eq!((listed.len(), unfound), (1, 0));
    assert_eq!(moved.spans, simulated(&corpus, &listed));

    // The linker moves both namesakes, in link order; one address each says the same.
    fs::write(directory.join("namesakes"), "shared\n").unwrap();
    link(directory, "both", &["-Wl,--symbol-ordering-file=namesakes", "-Wl,--no-warn-symbol-ordering"]);
    let both = positions(&corpus, &directory.join("both")).unwrap();
    assert_eq!(both.spans, simulated(&corpus, &[one as u32, other as u32]));
    assert_eq!(corpus.listed(&directory.join("namesakes")).unwrap(), (vec![], 1));
}

#[test]
fn a_link_of_other_objects_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let corpus = corpus(directory);
    fs::write(directory.join("second.c"), SECOND.replace("unused", "other")).unwrap();
    succeed(Command::new(llvm("clang")).current_dir(directory).args([
        "-O1",
        "-fPIE",
        "-ffunction-sections",
        "-c",
        "second.c",
    ]));
    link(directory, "other", &[]);
    let message = positions(&corpus, &directory.join("other")).unwrap_err();
    assert!(message.contains("not the same link"), "{message}");
}
