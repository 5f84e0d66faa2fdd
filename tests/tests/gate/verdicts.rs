//! `reorder gate` in a repository with continuous integration: what passes, what fails, and the messages.

use end_to_end::gate_project::{GateProject, NEW_FUNCTION, status};
use end_to_end::process::Outcome;
use end_to_end::{gate_validators, workspace};
use serde_json::Value;

/// Built, recorded, and with a baseline.
fn accepted() -> GateProject {
    let project = GateProject::new();
    project.build_and_record();
    let outcome = project.gate(&["--update-baseline"]);
    assert!(outcome.success(), "{outcome}");
    project.commit("The baseline");
    project
}

/// The same, with one more function in its startup.
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
fn a_function_added_to_startup_fails_and_is_named() {
    let project = GateProject::new();
    // The first run has no baseline.
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
    // Tools that show findings next to files find the limit.
    let line = project.read("reorder.toml").lines().position(|line| line.starts_with("faults")).unwrap() + 1;
    let sarif: Value = serde_json::from_str(&project.read("gate.sarif")).unwrap();
    let place = &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "reorder.toml");
    assert_eq!(place["region"]["startLine"], line);
    assert!(project.read("gate.github").contains(&format!(",file=reorder.toml,line={line}::")));
    // In the summary the verdict and the function are not markup and come before all figures.
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
    assert!(!project.read("gate.txt").is_empty());
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
    assert_eq!(project.read("summary.md").matches("### ").count(), 2, "a second time after the first");
    // Elsewhere it reports what is missing and continues.
    let outcome = project.gate(&["--github"]);
    assert_eq!(status(&outcome), 1);
    assert!(outcome.stderr_text().contains("GITHUB_STEP_SUMMARY"), "{outcome}");
}

/// The text that the runner passes on unchanged, and the commands after it.
fn split_off_commands(stdout: &str) -> (String, String) {
    let (first, rest) = stdout.split_once('\n').unwrap();
    let word = first.strip_prefix("::stop-commands::").unwrap();
    let (text, annotations) = rest.split_once(&format!("::{word}::\n")).unwrap();
    (text.to_owned(), annotations.to_owned())
}

#[test]
fn no_output_overwrites_an_input_or_another_output() {
    let project = accepted();
    let trace = project.run("ls traces/startup/* | sed -n 1p").trim().to_owned();
    project
        .run("cp build/program old && ln -s build/program link && ln reorder.toml hard && echo main > order");
    let names = ["build/program", "reorder.toml", "reorder-baseline.json", "old", "order", &trace];
    let bytes = || names.map(|name| std::fs::read(project.file(name)).unwrap());
    let before = bytes();
    let refused = |words: &[&str], part: &str| {
        let outcome = project.gate(words);
        assert_eq!(status(&outcome), 2, "{words:?}: {outcome}");
        assert!(outcome.stderr_text().contains(part), "{part}: {outcome}");
        assert!(outcome.stdout.is_empty() && bytes() == before, "{words:?}: {outcome}");
    };
    for (file, part) in [
        ("build/program", "the image"),
        ("link", "the image"),
        ("build/../build/program", "the image"),
        ("hard", "the configuration"),
        ("reorder-baseline.json", "the baseline"),
        ("order", "the order file"),
        (&trace, "a trace"),
    ] {
        refused(&["--order", "order", "--export", &format!("json={file}")], part);
    }
    refused(&["--measure", "old", "--export", "json=old"], "the program to compare with");
    refused(&["--update-baseline", "--export", "json=reorder-baseline.json"], "the baseline");
    refused(&["--export", "json=new", "--export", "text=./new"], "another output");
    refused(&["--export", "json=-", "--export", "sarif=-"], "stdout");
    refused(&["--export", "text=-", "--format", "json"], "--export json=FILE");
    refused(&["--github", "--format", "json"], "--export json=FILE");
    refused(&["--export", "json=build"], "directory");
    refused(&["--update-baseline", "--baseline", "program.c"], "not a baseline");
    refused(&["--update-baseline", "--baseline", "build/program"], "not a baseline");
    refused(&["--update-baseline", "--baseline", "no/such/folder/a.json"], "no/such/folder");
    assert!(!project.file("new").exists());
    // A file that begins like a baseline is overwritten, damaged or not.
    for text in ["", "{\n\"schema\": \"reorder-baseline/1\",\n<<<<<<<"] {
        project.write("damaged.json", text);
        let outcome = project.gate(&["--update-baseline", "--baseline", "damaged.json"]);
        assert!(outcome.success(), "{outcome}");
        assert_eq!(project.read("damaged.json"), project.read("reorder-baseline.json"));
    }
}

#[test]
fn a_lost_summary_affects_no_other_output() {
    let project = worse();
    let script = "reorder gate --github --export json=$'\\xff=.json' --export text=-";
    let outcome = project.script(script, &[("GITHUB_STEP_SUMMARY", "/no/such/folder/summary.md")]);
    assert_eq!(status(&outcome), 1, "{outcome}");
    assert!(outcome.stderr_text().contains("the summary was not written"), "{outcome}");
    let (text, annotations) = split_off_commands(&outcome.stdout_text());
    assert_eq!(text, project.gate(&[]).stdout_text());
    assert!(annotations.contains(NEW_FUNCTION));
    project.run("test -s $'\\xff=.json'");
    // Other forms are not commands either, and annotations are not repeated.
    let outcome = project.gate(&["--github", "--export", "json=-"]);
    let (text, _) = split_off_commands(&outcome.stdout_text());
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["outcome"], "fail");
    assert_eq!(project.gate(&["--github", "--export", "github=-"]).stdout_text(), annotations);
}

#[test]
fn a_new_baseline_is_not_judged_but_tells_what_it_gives_up() {
    let project = worse();
    let configuration = project.read("reorder.toml");
    project.write("reorder.toml", configuration.replace("[scenario.help]\nprogram = \"build/program\"\narguments = [\"--help\"]\ntraces = [\"traces/help\"]\n", ""));
    let outcome = project.gate(&["--update-baseline", "--export", "json=a.json"]);
    assert_eq!(status(&outcome), 0, "{outcome}");
    let report: Value = serde_json::from_str(&project.read("a.json")).unwrap();
    assert_eq!((&report["outcome"], &report["findings"]), (&"updated".into(), &0.into()));
    let count = report["checks"].as_array().unwrap().len();
    assert_eq!(with_verdict(&report, "unlimited").len(), count);
    let text = outcome.stdout_text();
    assert!(!text.contains("FAIL") && !text.contains("GONE"), "{text}");
    assert!(text.contains("no longer in the baseline: ") && text.contains("linux-4k, help ("), "{text}");
    assert!(text.contains("worse than in the old baseline: ") && text.contains(NEW_FUNCTION), "{text}");
    // The report must not claim that a baseline was written if it cannot be.
    project.run("mkdir kept && cp reorder-baseline.json kept && chmod a-w kept");
    if std::fs::write(project.file("kept/probe"), "").is_err() {
        let outcome = project.gate(&["--update-baseline", "--baseline", "kept/reorder-baseline.json"]);
        assert_eq!(status(&outcome), 2, "{outcome}");
        assert!(outcome.stdout.is_empty(), "{outcome}");
    }
}

#[test]
fn reports_do_not_tell_where_the_repository_is() {
    let project = accepted();
    project.run(
        "mkdir -p deep/inside && cd deep/inside && reorder gate --export json=a.json --export markdown=a.md",
    );
    let report: Value = serde_json::from_str(&project.read("deep/inside/a.json")).unwrap();
    for (key, path) in
        [("image", "build/program"), ("baseline", "reorder-baseline.json"), ("configuration", "reorder.toml")]
    {
        assert_eq!(report[key], format!("../../{path}"));
    }
    let folder = project.path().to_str().unwrap();
    assert!(
        ["json", "md"].iter().all(|form| !project.read(&format!("deep/inside/a.{form}")).contains(folder))
    );
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

#[test]
fn findings_alone_are_listed_and_the_rest_is_one_line() {
    let project = accepted();
    let text = project.gate(&["--quiet"]).stdout_text();
    assert!(text.lines().count() == 1 && text.contains("no finding"), "{text}");
    let all = project.gate(&["--quiet", "--all"]).stdout_text();
    assert!(all.lines().count() > 15 && all.ends_with(&text.replace("; --all lists them", "")), "{all}");
    project.add_to_startup();
    project.build_and_record();
    let outcome = project.gate(&["--quiet"]);
    let text = outcome.stdout_text();
    let table: Vec<&str> = text.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    assert!(!table.is_empty() && table.iter().all(|line| line.ends_with("FAIL")), "{text}");
    assert!(text.lines().last().unwrap().contains("are within their limits (--all lists them)"), "{text}");
}

#[test]
fn another_compiler_is_the_first_thing_to_know() {
    let project = accepted();
    project.add_to_startup();
    let clang = reorder_base::tool_versions::llvm("clang");
    project.run(&format!("make -s -B CC={clang} && reorder record --quiet"));
    let outcome = project.gate(&["--quiet"]);
    let text = outcome.stdout_text();
    let paragraphs: Vec<&str> = text.split("\n\n").collect();
    assert!(
        paragraphs[1].starts_with("a compiler or linker that the baseline's image does not name: "),
        "{text}"
    );
    assert!(paragraphs[1].contains("clang version") && !paragraphs[1].contains("GCC"), "{text}");
    for form in ["markdown", "github", "junit", "sarif", "json"] {
        let text = project.gate(&["--quiet", "--export", &format!("{form}=-")]).stdout_text();
        assert!(text.contains("clang version"), "{form}: {text}");
    }
}

#[test]
fn a_conflict_of_a_merge_accepts_nothing() {
    let project = accepted();
    project.run("git checkout -q -b other");
    project.add_to_startup();
    project.build_and_record();
    let updated = project.gate(&["--quiet", "--update-baseline"]);
    let told = updated.stdout_text();
    assert!(told.contains("accepted: ") && told.contains(" worse"), "{told}");
    project.commit("Plugins");
    project.run("git checkout -q main && sed -i 's/FILL(\\([0-9]*\\))/FILL(1\\1)/' program.c");
    project.build_and_record();
    project.gate(&["--quiet", "--update-baseline"]);
    project.commit("Larger functions");
    let merged = "git -c user.name=Test -c user.email=test@example.org merge other";
    assert_ne!(status(&project.script(merged, &[])), 0, "both sides have changed the figures");
    let before = project.read("reorder-baseline.json");
    for words in [&["--quiet"][..], &["--quiet", "--update-baseline"]] {
        let outcome = project.gate(words);
        let told = outcome.stderr_text();
        assert_eq!(status(&outcome), 2, "{outcome}");
        assert!(
            told.contains("an unresolved merge conflict") && !told.contains("--update-baseline"),
            "{told}"
        );
    }
    assert_eq!(project.read("reorder-baseline.json"), before);
    project.run("git checkout -q --ours .");
    project.build_and_record();
    assert_ne!(status(&project.gate(&["--quiet"])), 2, "it is judged again");
}

#[test]
fn one_constant_more_is_no_finding_in_a_small_program() {
    let project = accepted();
    let configuration = project.read("reorder.toml");
    project.write("reorder.toml", configuration.split("[gate.limits]").next().unwrap());
    let source = project.read("program.c");
    project
        .write("program.c", format!("{source}\nconst char constant[] = \"a text of some thirty bytes\";\n"));
    project.build_and_record();
    let (status, report) = json(&project, &[]);
    assert_eq!(status, 0, "{report:#}");
    let changed = |check: &&Value| check["metric"] == "compressed" && check["baseline"] != check["current"];
    assert!(report["checks"].as_array().unwrap().iter().any(|check| changed(&check)), "{report:#}");
}
