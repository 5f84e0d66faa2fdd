//! `reorder gate` in a repository with continuous integration: what it passes, what it fails and what it says.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use end_to_end::gate_project::{GateProject, NEW_FUNCTION, status};
use end_to_end::process::Outcome;
use end_to_end::{gate_validators, workspace};
use serde_json::Value;

/// Built, recorded, and said to be good.
fn accepted() -> GateProject {
    let project = GateProject::new();
    project.build_and_record();
    let outcome = project.gate(&["--update-baseline"]);
    assert!(outcome.success(), "{outcome}");
    project.commit("The baseline");
    project
}

/// The same, with a function more in its start.
fn worse() -> GateProject {
    let project = accepted();
    project.add_to_startup();
    project.commit("Plugins");
    project.build_and_record();
    project
}

fn json(project: &GateProject, words: &[&str]) -> (i32, Value) {
    let outcome = project.gate(&[words, &["--format", "json"]].concat());
    let text = outcome.stdout_text();
    (status(&outcome), serde_json::from_str(&text).unwrap_or_else(|_| panic!("{outcome}")))
}

/// Metric, part and scenario of each check with this verdict.
fn with_verdict(report: &Value, verdict: &str) -> Vec<String> {
    let checks = report["checks"].as_array().unwrap().iter();
    let word = |check: &Value, key: &str| check[key].as_str().unwrap_or("-").to_owned();
    checks
        .filter(|check| check["verdict"] == verdict)
        .map(|check| ["metric", "part", "scenario"].map(|key| word(check, key)).join(" "))
        .collect()
}

#[test]
fn a_function_in_the_start_fails_the_gate_and_is_named_in_every_form() {
    let project = GateProject::new();
    // The first run has nothing to compare with.
    let outcome = project.script("./ci", &[]);
    assert_eq!(status(&outcome), 2, "{outcome}");
    assert!(outcome.stderr_text().contains("--update-baseline"), "{outcome}");
    project.run("reorder gate --update-baseline");
    project.commit("The baseline");
    let outcome = project.script("./ci", &[]);
    assert_eq!(status(&outcome), 0, "{outcome}");
    assert_valid(&project);
    assert!(project.read("gate.github").is_empty(), "nothing to annotate");
    assert!(!project.read("gate.xml").contains("<failure"));

    project.add_to_startup();
    project.commit("Plugins");
    let outcome = project.script("./ci", &[]);
    assert_eq!(status(&outcome), 1, "{outcome}");
    assert!(outcome.stdout_text().contains(NEW_FUNCTION), "{outcome}");
    assert_valid(&project);
    for form in ["txt", "json", "md", "github", "sarif", "xml"] {
        assert!(project.read(&format!("gate.{form}")).contains(NEW_FUNCTION), "{form}");
    }
    let report: Value = serde_json::from_str(&project.read("gate.json")).unwrap();
    assert_eq!(report["outcome"], "fail");
    let change = &report["explanations"][0]["functions"][0];
    assert_eq!((&change["name"], &change["change"]), (&NEW_FUNCTION.into(), &"added".into()));
    assert!(with_verdict(&report, "fail").contains(&"faults linux-4k startup".to_owned()), "{report:#}");
    // Tools that show findings beside files find the limit.
    let line = project.read("reorder.toml").lines().position(|line| line.starts_with("faults")).unwrap() + 1;
    let sarif: Value = serde_json::from_str(&project.read("gate.sarif")).unwrap();
    let place = &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "reorder.toml");
    assert_eq!(place["region"]["startLine"], line);
    assert!(project.read("gate.github").contains(&format!(",file=reorder.toml,line={line}::")));
    // In the summary the verdict and the function are no markup and come before all figures.
    let html = gate_validators::rendered_markdown(&project.file("gate.md"));
    let (head, details) = html.split_once("<details>").unwrap();
    assert!(
        head.contains("checks failed") && head.contains(&format!("<code>{NEW_FUNCTION}</code>")),
        "{head}"
    );
    assert_eq!(details.matches("<tr>").count(), report["checks"].as_array().unwrap().len() + 1);
}

/// All forms that one run wrote.
fn assert_valid(project: &GateProject) {
    let schemas = workspace::root().join("reorder/schemas");
    let schema = |name: &str| schemas.join(format!("{name}.schema.json"));
    gate_validators::json_schema(&schema("gate"), &project.file("gate.json"));
    gate_validators::json_schema(&schema("baseline"), &project.file("reorder-baseline.json"));
    gate_validators::json_schema(&schema("configuration"), &project.file("reorder.toml"));
    gate_validators::sarif(&project.file("gate.sarif"));
    gate_validators::junit(&project.file("gate.xml"));
    assert!(project.read("gate.txt").lines().count() > 10);
    assert!(project.read("gate.md").len() < 64 << 10);
}

#[test]
fn the_schemas_are_schemas_and_say_no() {
    let schemas = workspace::root().join("reorder/schemas");
    let files = ["gate", "baseline", "configuration"].map(|name| schemas.join(format!("{name}.schema.json")));
    gate_validators::meta_schema(&files);
    let project = accepted();
    for (schema, file, from, to) in [
        (1, "reorder-baseline.json", "reorder-baseline/1", "reorder-baseline/9"),
        (1, "reorder-baseline.json", "\"faults\"", "\"fautls\""),
        (2, "reorder.toml", "image =", "imgae ="),
        (2, "reorder.toml", "[\"gzip\"", "[3"),
    ] {
        let text = project.read(file);
        assert!(text.contains(from));
        let extension = file.rsplit('.').next().unwrap();
        let wrong = format!("wrong.{extension}");
        project.write(&wrong, text.replacen(from, to, 1));
        gate_validators::not_json_schema(&files[schema], &project.file(&wrong));
    }
}

#[test]
fn warnings_only_are_asked_for() {
    let project = worse();
    let (status, report) =
        json(&project, &["--warn-only", "--export", "github=a.github", "--export", "sarif=a.sarif"]);
    assert_eq!((status, &report["outcome"]), (0, &"warn".into()));
    assert!(!with_verdict(&report, "fail").is_empty(), "findings are told all the same");
    let annotations = project.read("a.github");
    assert!(annotations.starts_with("::warning ") && !annotations.contains("::error"), "{annotations}");
    assert!(project.read("a.sarif").contains("\"level\": \"warning\""));
    assert_eq!(json(&project, &[]).0, 1);
}

#[test]
fn limits_are_absolute_relative_and_of_one_scenario() {
    let project = worse();
    let configuration = project.read("reorder.toml");
    let failing = |limits: &str, scenario: &str| {
        let (head, _) = configuration.split_once("[gate.limits]").unwrap();
        let off =
            "startup-bytes = \"off\"\ntext-bytes = \"off\"\nfile-bytes = \"off\"\ncompressed = \"off\"\n";
        project.write("reorder.toml", format!("{head}[gate.limits]\n{off}{limits}\n{scenario}\n"));
        let (status, report) = json(&project, &[]);
        assert_eq!(status, i32::from(report["findings"] != 0));
        let mut failing = with_verdict(&report, "fail");
        failing.retain(|check| check.contains("linux-4k"));
        failing
    };
    let all = ["faults linux-4k help", "faults linux-4k startup", "faults linux-4k -"];
    assert_eq!(failing("faults = \"+2 %\"", ""), all);
    assert_eq!(failing("faults = \"+200 %\"", ""), [""; 0]);
    assert_eq!(failing("faults = \"+2\"", ""), ["faults linux-4k -"], "two for each start, four in all");
    assert_eq!(
        failing("faults = \"off\"\n\"faults.linux-4k\" = 7", ""),
        ["faults linux-4k help", "faults linux-4k -"]
    );
    assert_eq!(
        failing("faults = \"off\"", "[scenario.startup.limits]\nfaults = \"+1\""),
        ["faults linux-4k startup"]
    );
    assert_eq!(
        failing("faults = \"+0\"", "[scenario.startup.limits]\nfaults = \"off\""),
        ["faults linux-4k help", "faults linux-4k -"]
    );
    // Absolute limits need no baseline.
    project.write("reorder.toml", format!("{configuration}\n[scenario.help.limits]\nfaults.linux-4k = 3\n"));
    let (status, report) = json(&project, &["--baseline", "off"]);
    assert_eq!((status, with_verdict(&report, "fail")), (1, vec!["faults linux-4k help".to_owned()]));
}

#[test]
fn a_scenario_that_vanished_is_a_finding() {
    let project = accepted();
    let configuration = project.read("reorder.toml");
    project.write("reorder.toml", configuration.replace("[scenario.help]\nprogram = \"build/program\"\narguments = [\"--help\"]\ntraces = [\"traces/help\"]\n", ""));
    let (status, report) = json(&project, &[]);
    assert_eq!(status, 1);
    let gone = with_verdict(&report, "gone");
    assert!(gone.contains(&"faults linux-4k help".to_owned()), "{gone:?}");
    let outcome = project.gate(&["--export", "junit=a.xml", "--export", "sarif=a.sarif"]);
    assert!(outcome.stdout_text().contains("GONE"), "{outcome}");
    gate_validators::junit(&project.file("a.xml"));
    gate_validators::sarif(&project.file("a.sarif"));
}

#[test]
fn the_baseline_and_every_form_have_the_same_bytes_again() {
    let project = worse();
    let first = project.read("reorder-baseline.json");
    project.run("git stash -q 2>/dev/null || true; git checkout -q HEAD~1 && make -s -B && reorder record -q && reorder gate --update-baseline");
    assert_eq!(project.read("reorder-baseline.json"), first, "as committed");
    project.run("reorder gate --update-baseline");
    assert_eq!(project.read("reorder-baseline.json"), first, "twice");
    project.run("git checkout -q main && make -s -B && reorder record -q");
    let forms = ["text", "json", "markdown", "github", "sarif", "junit"];
    let written = |threads: &str| {
        let exports: Vec<String> =
            forms.iter().flat_map(|form| ["--export".to_owned(), format!("{form}=a.{form}")]).collect();
        let mut words: Vec<&str> = exports.iter().map(String::as_str).collect();
        words.extend(["--threads", threads]);
        assert_eq!(status(&project.gate(&words)), 1);
        forms.map(|form| project.read(&format!("a.{form}")))
    };
    let one = written("1");
    assert_eq!(one, written("16"));
    assert_eq!(one[0], project.gate(&[]).stdout_text(), "the text is what stdout has");
}

#[test]
fn annotations_and_summary_come_from_one_flag() {
    let project = worse();
    project.write("summary.md", "# What others wrote");
    let summary = project.file("summary.md");
    let environment = [("GITHUB_STEP_SUMMARY", summary.to_str().unwrap())];
    let outcome = project.script("reorder gate --github --export markdown=gate.md", &environment);
    assert_eq!(status(&outcome), 1, "{outcome}");
    let expected = format!("# What others wrote\n\n{}", project.read("gate.md"));
    assert_eq!(project.read("summary.md"), expected, "appended");
    let stdout = outcome.stdout_text();
    let (text, annotations) = split_off_commands(&stdout);
    assert_eq!(text, project.gate(&[]).stdout_text());
    assert!(
        annotations.lines().all(|line| line.starts_with("::error ")) && annotations.contains(NEW_FUNCTION)
    );
    project.script("reorder gate --github", &environment);
    assert_eq!(project.read("summary.md").matches("### ").count(), 2, "a second time behind the first");
    // Elsewhere it says what is missing and goes on.
    let outcome = project.gate(&["--github"]);
    assert_eq!(status(&outcome), 1);
    assert!(outcome.stderr_text().contains("GITHUB_STEP_SUMMARY"), "{outcome}");
}

/// The text that the runner passes on as it is, and the commands behind it.
fn split_off_commands(stdout: &str) -> (String, String) {
    let (first, rest) = stdout.split_once('\n').unwrap();
    let word = first.strip_prefix("::stop-commands::").unwrap();
    let (text, annotations) = rest.split_once(&format!("::{word}::\n")).unwrap();
    (text.to_owned(), annotations.to_owned())
}

#[test]
fn mistakes_say_how_to_go_on() {
    let project = accepted();
    let explained = |words: &[&str], part: &str| {
        let outcome: Outcome = project.gate(words);
        assert_eq!(status(&outcome), 2, "{outcome}");
        assert!(outcome.stderr_text().contains(part), "{part}: {outcome}");
    };
    explained(&["--export", "yaml=a"], "sarif");
    explained(&["--export", "json"], "FORM=FILE");
    explained(&["--export", "json=no/such/folder/a.json"], "no/such/folder");
    explained(&["--baseline", "other.json"], "--update-baseline");
    explained(&["--update-baseline", "--warn-only"], "--warn-only");
    for damaged in ["", "{", "{\"schema\": \"reorder-baseline/2\"}", "[1]\n", "\u{0}\u{1}"] {
        project.write("damaged.json", damaged);
        explained(&["--baseline", "damaged.json"], "--update-baseline");
    }
}
