//! `reorder traces`: imports, merges and converts recordings of a real program.

use std::path::Path;
use std::process::{Command, Output};

use end_to_end::profiles::{DEMO_A, DEMO_B, sample};
use end_to_end::workspace::{self, reorder};
use reorder_base::tool_versions::llvm;

fn run(arguments: &[&str], directory: &Path) -> Output {
    let output = reorder().args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// `demo`, recorded twice with each argument.
fn recorded(directory: &Path) {
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-o"]).arg(directory.join("demo")).arg(sample("source/demo.c"));
    assert!(compiler.status().expect("gcc is installed").success());
    for argument in ["a", "b"] {
        run(&["record", "-o", "traces", "--runs", "2", "--", "./demo", argument], directory);
    }
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}

#[test]
fn merging_again_in_another_order_gives_the_same_file() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    recorded(directory);
    let files: Vec<String> = std::fs::read_dir(directory.join("traces"))
        .unwrap()
        .map(|entry| format!("traces/{}", entry.unwrap().file_name().to_string_lossy()))
        .collect();
    assert_eq!(files.len(), 4, "{files:?}");
    let whole = run(&["traces", "merge", "--sample", "2", "traces"], directory).stdout;
    run(&["traces", "merge", "--sample", "2", "-o", "part.trace", &files[2], &files[0]], directory);
    run(
        &["traces", "merge", "--sample", "2", "-o", "rest.trace", &files[3], &files[1], &files[2]],
        directory,
    );
    let again = run(&["traces", "merge", "--sample", "2", "rest.trace", "part.trace"], directory).stdout;
    assert_eq!(String::from_utf8(again).unwrap(), String::from_utf8(whole).unwrap());
    let all = run(&["traces", "merge", "-o", "all.trace", "traces"], directory);
    assert!(String::from_utf8_lossy(&all.stdout).contains("4 of 4 traces kept"), "{all:?}");
}

#[test]
fn lists_have_each_function_once_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    recorded(directory);
    let mut only = std::fs::read_dir(directory.join("traces")).unwrap().map(|entry| entry.unwrap().path());
    let path = only.next().unwrap();
    let is_a = std::fs::read_to_string(&path).unwrap().contains("draw_frame");
    let list = lines(&run(&["traces", "convert", "--to", "list", path.to_str().unwrap()], directory).stdout);
    let expected: Vec<&str> = if is_a { DEMO_A.to_vec() } else { DEMO_B.to_vec() };
    let ours: Vec<&String> = list.iter().filter(|name| expected.contains(&name.as_str())).collect();
    assert_eq!(ours, expected);
}

#[test]
fn a_list_imported_for_an_image_has_its_addresses() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    recorded(directory);
    std::fs::write(directory.join("list"), "load_config\nmain\nload_confg\n").unwrap();
    let output = run(&["traces", "import", "-o", "imported", "--image", "demo", "list"], directory);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("load_confg"), "what is not found is told: {told}");
    let text = std::fs::read_to_string(directory.join("imported/demo.0001.trace")).unwrap();
    let events: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(events.len(), 2, "{text}");
    assert!(events[0][1].starts_with("0x") && events[0][3] == "load_config", "{text}");
    assert!(text.contains("# build-id: ") && text.contains("# identity: "), "{text}");
}

#[test]
fn llvm_reads_what_is_converted_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    recorded(directory);
    run(&["traces", "convert", "--to", "llvm-text", "-o", "demo.proftext", "traces"], directory);
    let tool = |arguments: &[&str]| {
        let output = Command::new(llvm("llvm-profdata")).args(arguments).current_dir(directory).output();
        let output = output.expect("llvm-profdata is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    tool(&["merge", "demo.proftext", "-o", "demo.profdata"]);
    let shown = tool(&["show", "--temporal-profile-traces", "demo.profdata"]);
    assert!(shown.contains("Temporal Profile Traces (samples=4 seen=4)"), "{shown}");
    let ours = run(&["traces", "convert", "--to", "list", "traces"], directory).stdout;
    let back = run(&["traces", "convert", "--to", "list", "demo.profdata"], directory).stdout;
    assert_eq!(String::from_utf8(back).unwrap(), String::from_utf8(ours).unwrap());
}

/// GCC's profile without notes: names are found by their digests, that of the local function with its source file.
#[test]
fn profiles_of_gcc_are_found_by_digest() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    std::fs::copy(sample("source/demo.c"), directory.join("demo.c")).unwrap();
    let gcc = |arguments: &[&str]| {
        let status = Command::new("gcc").args(arguments).current_dir(directory).status();
        assert!(status.expect("gcc is installed").success());
    };
    gcc(&["-O1", "-fprofile-generate", "-c", "demo.c"]);
    gcc(&["-fprofile-generate", "demo.o", "-o", "instrumented"]);
    let program = Command::new(directory.join("instrumented"))
        .arg("a")
        .env("GCOV_PREFIX", directory.join("run"))
        .current_dir(directory)
        .status();
    assert!(program.unwrap().success());
    gcc(&["-O1", "demo.c", "-o", "demo"]);
    let order = run(&["order", "demo", "--unseen", "link", "-t", "run"], directory).stdout;
    let names: Vec<String> = lines(&order).into_iter().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(names, DEMO_A);
}

#[test]
fn counts_place_functions_that_no_trace_needs() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    recorded(directory);
    let counts = "# reorder trace 1\n# evidence: counts\n# weight: 1\n\
        - - - never_called 900000\n- - - init_ui 5\n- - - main 1\n";
    std::fs::write(directory.join("counts.trace"), counts).unwrap();
    let listed = |arguments: &[&str]| -> Vec<String> {
        let all = [&["order", "demo", "--unseen", "link", "-t"][..], arguments].concat();
        let mut lines = lines(&run(&all, directory).stdout);
        lines.retain(|line| !line.starts_with('#'));
        lines
    };
    // Most executions a byte first: `main` is larger than both.
    assert_eq!(listed(&["counts.trace"]), ["never_called", "init_ui", "main"]);
    // Functions that were chosen without a count keep their place after those with one.
    let references = |arguments: &[&str]| {
        let all = [&["order", "demo", "--unseen", "references", "-t"][..], arguments].concat();
        let mut lines = lines(&run(&all, directory).stdout);
        lines.retain(|line| !line.starts_with('#'));
        lines
    };
    let (chosen, with_counts) = (references(&["traces"]), references(&["traces", "counts.trace"]));
    assert!(chosen.iter().all(|name| with_counts.contains(name)), "{chosen:?} {with_counts:?}");
    let traced = listed(&["traces"]);
    let both = listed(&["traces", "counts.trace"]);
    assert_eq!(both[..traced.len()], traced, "functions that runs need stay first");
    assert_eq!(both[traced.len()], "never_called");
    let output = reorder().args(["simulate", "demo", "-t", "counts.trace"]).current_dir(directory).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("without an order of execution"));
}

/// A list of paths is given like a path.
#[test]
fn paths_are_taken_from_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let paths =
        ["llvm_raw/v10-a.profraw", "llvm_raw/v10-b.profraw"].map(|name| sample(name).display().to_string());
    std::fs::write(directory.path().join("paths"), paths.join("\n")).unwrap();
    let list = lines(&run(&["traces", "convert", "--to", "list", "@paths"], directory.path()).stdout);
    assert_eq!(list[0], "main", "{list:?}");
    let shown = lines(&run(&["traces", "show", "@paths"], directory.path()).stdout);
    assert_eq!(shown.iter().filter(|line| line.contains(" events in ")).count(), 2, "{shown:?}");
}

/// Parts through pipes, in any grouping, give one process's result; a command line that ran once is kept along with one that
/// ran often.
#[test]
fn a_fleet_s_parts_give_what_one_process_gives() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    recorded(directory);
    run(&["record", "-o", "traces/often", "--runs", "5", "--", "./demo", "a"], directory);
    run(&["record", "-o", "traces/once", "--", "./demo", "c"], directory);
    let sampling = ["traces", "merge", "--sample", "2", "--each", "command"];
    let whole = run(&[&sampling[..], &["traces"]].concat(), directory).stdout;
    let text = String::from_utf8(whole.clone()).unwrap();
    let argument = |word: &str| text.lines().filter(|line| *line == format!("# argument: {word}")).count();
    assert_eq!((argument("a"), argument("b"), argument("c")), (2, 2, 1), "{text}");

    let script = workspace::root().join("scripts/fleet/merge");
    let mut by_script = Command::new(script);
    by_script.args(["fleet.trace", "2", "traces"]).current_dir(directory);
    let status = by_script.env("REORDER", workspace::reorder_path()).status().unwrap();
    assert!(status.success());
    assert_eq!(std::fs::read(directory.join("fleet.trace")).unwrap(), whole);

    let line = "find traces -name '*.trace' | sort -r | $REORDER traces merge --sample 2 --each command @/dev/stdin \
                | $REORDER traces merge --sample 2 --each command - traces/often";
    let mut pipes = Command::new("bash");
    pipes.args(["-o", "pipefail", "-c", line]).current_dir(directory);
    let piped = pipes.env("REORDER", workspace::reorder_path()).output().unwrap();
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), text, "{}", String::from_utf8_lossy(&piped.stderr));

    let refused = reorder().args(["traces", "merge", "fleet.trace"]).current_dir(directory).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("--each command"), "{said}");
}

// case: a recording, a map or an order file that was cut
/// Concatenated files are one file; an incomplete file is never called exact.
#[test]
fn a_recording_that_is_cut_is_told_and_not_called_exact() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    recorded(directory);
    let mut files: Vec<_> =
        std::fs::read_dir(directory.join("traces")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let whole: Vec<u8> = files.iter().flat_map(|file| std::fs::read(file).unwrap()).collect();
    let shown = |contents: &[u8]| {
        std::fs::write(directory.join("some.trace"), contents).unwrap();
        let output = run(&["traces", "show", "--format", "json", "some.trace"], directory);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let evidence = |trace: &serde_json::Value| trace["evidence"].as_str().unwrap().to_owned();
        let evidence: Vec<String> = report["traces"].as_array().unwrap().iter().map(evidence).collect();
        (evidence, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(shown(&whole), (vec!["exact".to_owned(); 4], String::new()));
    let (evidence, told) = shown(&whole[..whole.len() - 3]);
    assert_eq!(evidence, ["exact", "exact", "exact", "cut"]);
    assert!(told.contains("the file ends inside this line") && told.contains("record again"), "{told}");
    // Merged files state their number of items, also where a cut falls between two recordings.
    run(&["traces", "merge", "-o", "all.trace", "traces"], directory);
    let merged = std::fs::read(directory.join("all.trace")).unwrap();
    let text = String::from_utf8_lossy(&merged);
    let last = text.rfind("# reorder trace").unwrap();
    let (evidence, told) = shown(&merged[..last]);
    assert_eq!(evidence, ["exact"; 3]);
    assert!(told.contains("only 3 of the 4 traces"), "{told}");
    // A list that a user wrote has no mark of its end.
    let (evidence, told) = shown(b"# reorder trace 1\n- - - main\n");
    assert_eq!(evidence, ["listed"]);
    assert!(told.contains("does not say how many events"), "{told}");
    let map = |name: &str| run(&["apply", "demo", "-t", "traces", "-o", "new", "--map", name], directory);
    map("map");
    let text = std::fs::read(directory.join("map")).unwrap();
    std::fs::write(directory.join("cut.map"), &text[..text.len() - 5]).unwrap();
    let outcome =
        reorder().args(["apply", "new", "--order", "cut.map", "-o", "old"]).current_dir(directory).output();
    let outcome = outcome.unwrap();
    assert!(
        String::from_utf8_lossy(&outcome.stderr)
            .contains("the end of the map, or some of its lines, are missing"),
        "{outcome:?}"
    );
}
