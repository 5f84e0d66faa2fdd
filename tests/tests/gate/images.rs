//! The gate on images of all kinds, and with files that do not match.

use end_to_end::gate_project::{GateProject, run_in, status};
use end_to_end::{gate_validators, process, workspace};
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: std::time::Duration = std::time::Duration::from_secs(120);

/// Runs `reorder gate` in a directory; gives its status, report and messages.
fn gate(directory: &std::path::Path, words: &[&str]) -> (i32, Value, String) {
    let mut command = workspace::reorder();
    command.current_dir(directory).args(["gate", "--format", "json"]).args(words);
    let outcome = process::run(&mut command, LIMIT).unwrap();
    let report = serde_json::from_slice(&outcome.stdout).unwrap_or(Value::Null);
    (status(&outcome), report, outcome.stderr_text())
}

fn failing(report: &Value) -> Vec<&Value> {
    report["checks"].as_array().unwrap().iter().filter(|check| check["verdict"] == "fail").collect()
}

fn changed(report: &Value) -> Vec<(&str, &str)> {
    let functions = report["explanations"].as_array().unwrap().iter();
    let functions = functions.flat_map(|explanation| explanation["functions"].as_array().unwrap());
    functions.map(|change| (change["name"].as_str().unwrap(), change["change"].as_str().unwrap())).collect()
}

/// A program for another processor: a list replaces its recording.
struct Foreign {
    directory: TempDir,
    build: &'static str,
}

impl Foreign {
    fn new(build: &'static str) -> Self {
        Self { directory: tempfile::tempdir().unwrap(), build }
    }

    /// Builds it with these functions, four kilobytes of code each, and an entry that calls them all.
    fn build(&self, functions: &[&str]) {
        let definition = |name: &&str| format!("void {name}(void) {{ __asm__ volatile(\".zero 4000\"); }}\n");
        let definitions: String = functions.iter().map(definition).collect();
        let calls: String = functions.iter().map(|name| format!("{name}();")).collect();
        std::fs::write(
            self.directory.path().join("program.c"),
            format!("{definitions}int main(void) {{ {calls} return 0; }}\n"),
        )
        .unwrap();
        let trace: String = ["main"].iter().chain(functions).map(|name| format!("{name}\n")).collect();
        std::fs::write(self.directory.path().join("start.txt"), trace).unwrap();
        let outcome = run_in(self.directory.path(), self.build, &[]);
        assert!(outcome.success(), "{outcome}");
    }
}

const MACH_O: &str = "clang$LLVM --target=arm64-apple-macos12 -O1 -c program.c -o program.o\n\
    ld64.lld$LLVM -arch arm64 -platform_version macos 12 12 -undefined dynamic_lookup program.o -o program";
const AARCH64: &str = "clang$LLVM --target=aarch64-linux-gnu -O1 -ffreestanding -ffunction-sections -c program.c -o program.o\n\
    ld.lld$LLVM -e main program.o -o program";

#[test]
fn images_of_other_systems_are_gated() {
    for (build, model, missing) in [(MACH_O, "ios-16k", "linux-4k"), (AARCH64, "linux-4k", "ios-16k")] {
        let program = Foreign::new(build);
        let directory = program.directory.path();
        program.build(&["read_settings", "open_window"]);
        let words = ["program", "-t", "start.txt"];
        let (status, report, talk) = gate(directory, &[&words[..], &["--update-baseline"]].concat());
        assert_eq!((status, &report["outcome"]), (0, &"updated".into()), "{talk}");
        let checks = report["checks"].as_array().unwrap();
        assert!(checks.iter().any(|check| check["metric"] == "pinned-functions"), "{report:#}");
        assert!(checks.iter().any(|check| check["part"] == model), "{report:#}");
        assert!(checks.iter().all(|check| check["part"] != missing), "{report:#}");
        assert_eq!(gate(directory, &words).0, 0);

        let more: Vec<String> = (0..5).map(|index| format!("plugin{index}")).collect();
        let mut functions = vec!["read_settings", "open_window"];
        functions.extend(more.iter().map(String::as_str));
        program.build(&functions);
        let (status, report, talk) = gate(directory, &[&words[..], &["--export", "sarif=a.sarif"]].concat());
        assert_eq!(status, 1, "{talk}");
        let is_new =
            |change: &(&str, &str)| change.0.trim_start_matches('_') == "plugin3" && change.1 == "added";
        assert!(changed(&report).iter().any(is_new), "{report:#}");
        gate_validators::sarif(&directory.join("a.sarif"));
    }
}

#[test]
fn traces_of_an_older_build_are_told() {
    let project = GateProject::new();
    project.build_and_record();
    project.run("reorder gate --update-baseline");
    // The recordings stay the same; two of their functions get other names.
    let source =
        project.read("program.c").replace("read_settings", "load_settings").replace("show_help", "help");
    project.write("program.c", source);
    project.run("make -s");
    let (status, report, talk) = gate(project.path(), &[]);
    assert_eq!(status, 1, "{talk}");
    let metrics: Vec<&Value> = failing(&report).iter().map(|check| &check["metric"]).collect();
    assert_eq!(metrics, ["trace-coverage"], "{report:#}");
    assert!(report["remarks"].to_string().contains("record the scenarios again"), "{report:#}");
    assert!(changed(&report).contains(&("read_settings", "removed")), "{report:#}");
}

#[test]
fn a_stripped_image_is_gated_without_names() {
    let project = GateProject::new();
    project.run("make -s && strip build/program && reorder record -q && reorder gate --update-baseline");
    let (status, report, _) = gate(project.path(), &[]);
    assert_eq!((status, &report["outcome"]), (0, &"pass".into()));
    assert!(report["remarks"].to_string().contains("stripped"), "{report:#}");
    project.add_to_startup();
    project.run("make -s && strip build/program && reorder record -q");
    let (status, report, talk) = gate(project.path(), &[]);
    assert_eq!(status, 1, "{talk}");
    assert!(failing(&report).iter().any(|check| check["metric"] == "faults"), "{report:#}");
    assert!(changed(&report).iter().all(|(name, _)| name.starts_with("function@")), "{report:#}");
}

#[test]
fn hostile_baselines_end_in_a_verdict_or_in_words() {
    let project = GateProject::new();
    project.build_and_record();
    project.run("reorder gate --update-baseline");
    let baseline = project.read("reorder-baseline.json");
    let replaced = |from: &str, to: &str| {
        assert!(baseline.contains(from), "{from}");
        baseline.replace(from, to)
    };
    let is_name = |text: &&str| text.starts_with("[\"");
    let function = baseline.lines().find(is_name).unwrap().trim_end_matches(',').to_owned();
    let files = [
        (
            "a version of all kinds",
            replaced("\"reorder\": \"", "\"reorder\": \"x\\n::error::\\u001b[31m"),
            true,
        ),
        ("names of all kinds", replaced("read_settings", "</details>|\\n::error::\\u0000@a\\u202e"), true),
        ("far addresses", replaced(&function, "[\"main\",18446744073709551000,600]"), true),
        ("beyond all addresses", replaced(&function, "[\"main\",18446744073709551615,600]"), false),
        ("large functions", replaced(&function, "[\"main\",0,500000000]"), true),
        ("larger than any text", replaced(&function, "[\"main\",0,4000000000]"), false),
        ("an unknown figure", replaced("\"faults\"", "\"luck\""), false),
        ("large values", replaced("\"value\":100.0", "\"value\":1e308"), true),
        ("values beyond numbers", replaced("\"value\":100.0", "\"value\":1e999"), false),
        (
            "nothing",
            "{\"schema\":\"reorder-baseline/1\",\"figures\":[],\"functions\":[],\"scenarios\":[]}".into(),
            true,
        ),
        ("depth", "[".repeat(100_000), false),
        ("a function twice", replaced("\"order\":[", "\"order\":[0,0,"), false),
        ("no such function", replaced("\"order\":[", "\"order\":[4000000000,"), false),
    ];
    for (name, text, is_read) in files {
        project.write("hostile.json", text);
        let outcome = project.gate(&[
            "--baseline",
            "hostile.json",
            "--export",
            "sarif=a.sarif",
            "--export",
            "junit=a.xml",
            "--export",
            "json=a.json",
            "--export",
            "markdown=a.md",
            "--export",
            "github=a.github",
        ]);
        let status = status(&outcome);
        let texts = format!("{}\n{}", outcome.stdout_text(), outcome.stderr_text());
        assert!(!texts.contains('\u{1b}'), "{name}: {outcome}");
        assert!(!texts.lines().any(|line| line.trim_start().starts_with("::")), "{name}: {outcome}");
        assert_eq!([0, 1].contains(&status), is_read, "{name}: {outcome}");
        if is_read {
            gate_validators::sarif(&project.file("a.sarif"));
            gate_validators::junit(&project.file("a.xml"));
            let schema = workspace::root().join("reorder/schemas/gate.schema.json");
            gate_validators::json_schema(&schema, &project.file("a.json"));
            assert!(
                project
                    .read("a.github")
                    .lines()
                    .all(|line| line.starts_with("::error ") || line.starts_with("::notice "))
            );
        } else {
            assert_eq!(status, 2, "{name}: {outcome}");
            assert!(outcome.stderr_text().contains("--update-baseline"), "{name}: {outcome}");
        }
    }
}
