//! The recipes of the gate, run as they are written: the guide's, that of the action, and those to copy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use end_to_end::gate_project::{GateProject, NEW_FUNCTION, run_in, status};
use end_to_end::process::{self, Outcome};
use end_to_end::{gate_validators, workspace};
use serde_json::Value;

fn recipe(name: &str) -> PathBuf {
    workspace::root().join("recipes").join(name)
}

/// The blocks of code below this heading, each with the info string of its fence.
fn blocks(document: &str, heading: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(workspace::root().join(document)).unwrap();
    let (_, section) = text.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let fenced = section.split("\n```").collect::<Vec<_>>();
    let block = |text: &&str| {
        let (language, body) = text.split_once('\n').unwrap();
        (language.to_owned(), format!("{body}\n"))
    };
    fenced.iter().skip(1).step_by(2).map(block).collect()
}

/// A clean clone of the branch of this name.
fn cloned(project: &GateProject, branch: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let line = format!("git clone -q --branch {branch} '{}' .", project.path().display());
    let outcome = run_in(directory.path(), &line, &[]);
    assert!(outcome.success(), "{outcome}");
    directory
}

#[test]
fn the_recipe_of_the_guide_runs_as_written_in_a_clean_clone() {
    let blocks = blocks("GUIDE.md", "In CI");
    let [(toml, configuration), (once, first), (every, ci)] = blocks.as_slice() else {
        panic!("reorder.toml, what is done once, and what runs for every change: {blocks:?}")
    };
    assert_eq!([toml, once, every], ["toml", "sh", "sh"]);
    // The only line that is not run: the command under test is on the PATH already.
    let is_install = |line: &&str| line.starts_with("cargo install ");
    assert_eq!(ci.lines().filter(is_install).count(), 1);
    let ci: String = ci.lines().filter(|line| !is_install(line)).map(|line| format!("{line}\n")).collect();

    let project = GateProject::new();
    project.write("reorder.toml", configuration);
    let identity = "git config user.name Test && git config user.email test@example.org\n";
    project.run(&format!("{identity}{first}"));
    project.run("git diff --quiet HEAD -- reorder.toml reorder-baseline.json && git branch change");

    let clone = cloned(&project, "main");
    let summary = clone.path().join("summary.md");
    let environment = [("GITHUB_STEP_SUMMARY", summary.to_str().unwrap())];
    let outcome = run_in(clone.path(), &ci, &environment);
    assert_eq!(status(&outcome), 0, "{outcome}");

    project.run("git checkout -q change");
    project.add_to_startup();
    project.commit("Plugins");
    let clone = cloned(&project, "change");
    let summary = clone.path().join("summary.md");
    let environment = [("GITHUB_STEP_SUMMARY", summary.to_str().unwrap())];
    let outcome = run_in(clone.path(), &ci, &environment);
    assert_eq!(status(&outcome), 1, "{outcome}");
    assert!(outcome.stdout_text().contains(NEW_FUNCTION), "{outcome}");
    assert!(std::fs::read_to_string(summary).unwrap().contains(NEW_FUNCTION));
}

#[test]
fn recipes_are_what_their_systems_take() {
    gate_validators::built_in_schema("vendor.github-actions", &workspace::root().join("action.yml"));
    for name in ["github-action.yml", "github-steps.yml", "github-code-scanning.yml", "github-comment.yml"] {
        gate_validators::workflow(&recipe(name));
    }
    gate_validators::built_in_schema("vendor.gitlab-ci", &recipe("gitlab-ci.yml"));
    // Jobs that run code of a pull request have no write permission, and jobs with it run none of that code.
    for name in ["github-action.yml", "github-steps.yml"] {
        assert_eq!(
            gate_validators::yaml(&recipe(name))["permissions"],
            serde_json::json!({ "contents": "read" })
        );
    }
    let comment = std::fs::read_to_string(recipe("github-comment.yml")).unwrap();
    assert!(!comment.contains("checkout"));
    // Every recipe is in the list.
    let list = std::fs::read_to_string(recipe("README.md")).unwrap();
    for file in std::fs::read_dir(recipe("")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(name == "README.md" || list.contains(&format!("]({name})")), "{name}");
    }
}

#[test]
fn the_shell_recipe_and_that_of_gitlab_pass_and_fail() {
    let project = GateProject::new();
    project.build_and_record();
    project.run("reorder gate --update-baseline && rm -rf traces");
    let gitlab = gate_validators::yaml(&recipe("gitlab-ci.yml"));
    let lines = gitlab["gate"]["script"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
    // As the runner: every line of the script, up to the first that fails. The build of reorder is not tested.
    let gitlab: Vec<&str> = lines.filter(|line| !line.contains("cargo install")).collect();
    let shell = format!("{}\n", recipe("gate.sh").display());
    for (name, script) in [("gate.sh", shell), ("gitlab-ci.yml", gitlab.join("\n"))] {
        let run = |expected: i32| {
            let outcome = project.script(&format!("rm -rf traces\n{script}"), &[]);
            assert_eq!(status(&outcome), expected, "{name}: {outcome}");
            outcome.stdout_text()
        };
        run(0);
        let source = project.read("program.c");
        project.add_to_startup();
        assert!(run(1).contains(NEW_FUNCTION), "{name}");
        project.write("program.c", source);
    }
    let reports = ["gate/gate.json", "gate/gate.md", "gate/gate.xml", "gate.xml", "gate.json", "gate.md"];
    assert!(reports.iter().all(|report| project.file(report).is_file()));
}

/// What a runner of GitHub keeps between the steps of a job.
struct Runner {
    directory: tempfile::TempDir,
    inputs: BTreeMap<String, String>,
    outputs: BTreeMap<String, String>,
    path: String,
}

impl Runner {
    /// With the inputs' defaults and `given`.
    fn new(action: &Value, given: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for folder in ["temp", "home", "bin"] {
            std::fs::create_dir(directory.path().join(folder)).unwrap();
        }
        // Replaces a build that takes minutes: puts the command under test where cargo would install it.
        let cargo = format!(
            "#!/bin/sh\n[ \"$1 $2 $3 $4\" = 'install --quiet --locked --force' ] && [ \"$5 $7\" = '--path --root' ] &&\n\
             [ -f \"$6/Cargo.toml\" ] && mkdir -p \"$8/bin\" && ln -s '{}' \"$8/bin/reorder\" && echo built >&2\n",
            workspace::reorder_path().display()
        );
        let cargo_path = directory.path().join("bin/cargo");
        std::fs::write(&cargo_path, cargo).unwrap();
        std::fs::set_permissions(&cargo_path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let defaults = action["inputs"].as_object().unwrap().iter();
        let mut inputs: BTreeMap<String, String> = defaults
            .map(|(name, input)| (name.clone(), input["default"].as_str().unwrap().to_owned()))
            .collect();
        for (name, value) in given {
            assert!(inputs.insert((*name).to_owned(), (*value).to_owned()).is_some(), "no input {name}");
        }
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", directory.path().join("bin").display());
        Self { directory, inputs, outputs: BTreeMap::new(), path }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// Expressions of the forms that the action has.
    fn evaluated(&self, text: &str) -> String {
        let Some((before, rest)) = text.split_once("${{") else { return text.to_owned() };
        let (expression, after) = rest.split_once("}}").unwrap();
        let expression = expression.trim();
        let value = match expression.split_once('.').unwrap() {
            ("inputs", name) => self.inputs[name].clone(),
            ("steps", output) => self.outputs.get(output).cloned().unwrap_or_default(),
            ("runner", name) => name.to_owned(),
            _ => panic!("{expression}"),
        };
        format!("{before}{value}{}", self.evaluated(after))
    }

    /// Conditions: comparisons joined by `&&`.
    fn holds(&self, condition: &str) -> bool {
        condition.split(" && ").all(|comparison| {
            let (name, value) = comparison.split_once(" != ").unwrap();
            self.evaluated(&format!("${{{{ {name} }}}}")) != value.trim_matches('\'')
        })
    }

    /// Runs the steps in `workspace` up to the first that fails; gives the outcome of the last shell.
    fn run(&mut self, action: &Value, workspace: &Path) -> Outcome {
        let mut last = None;
        for step in action["runs"]["steps"].as_array().unwrap() {
            if step["if"].as_str().is_some_and(|condition| !self.holds(condition)) {
                continue;
            }
            let Some(run) = step["run"].as_str() else {
                // The cache is empty.
                assert!(step["uses"].as_str().unwrap().starts_with("actions/cache@"));
                continue;
            };
            assert!(!run.contains("${{"), "inputs reach the shell as variables, never as code");
            assert_eq!(step["shell"], "bash");
            let outcome = self.run_step(step, run, workspace);
            let is_failed = !outcome.success();
            last = Some(outcome);
            if is_failed {
                break;
            }
        }
        last.unwrap()
    }

    fn run_step(&mut self, step: &Value, run: &str, workspace: &Path) -> Outcome {
        let folder = step["working-directory"].as_str().map_or_else(String::new, |text| self.evaluated(text));
        let mut command = std::process::Command::new("bash");
        let script = self.file("step.sh");
        std::fs::write(&script, run).unwrap();
        command.args(["--noprofile", "--norc", "-e", "-o", "pipefail"]).arg(&script);
        command.current_dir(workspace.join(folder)).env_clear().env("PATH", &self.path);
        command.env("HOME", self.file("home")).env("RUNNER_TEMP", self.file("temp"));
        command.env("GITHUB_ACTION_PATH", end_to_end::workspace::root()).env("GITHUB_WORKSPACE", workspace);
        for name in ["GITHUB_OUTPUT", "GITHUB_PATH"] {
            std::fs::write(self.file(name), "").unwrap();
            command.env(name, self.file(name));
        }
        command.env("GITHUB_STEP_SUMMARY", self.file("summary.md"));
        for (name, value) in step["env"].as_object().into_iter().flatten() {
            command.env(name, self.evaluated(value.as_str().unwrap()));
        }
        let outcome = process::run(&mut command, std::time::Duration::from_secs(300)).unwrap();
        if let Some(id) = step["id"].as_str() {
            for line in self.read("GITHUB_OUTPUT").lines() {
                let (name, value) = line.split_once('=').unwrap();
                self.outputs.insert(format!("{id}.outputs.{name}"), value.to_owned());
            }
        }
        for line in self.read("GITHUB_PATH").lines() {
            self.path = format!("{line}:{}", self.path);
        }
        outcome
    }

    fn output(&self, action: &Value, name: &str) -> String {
        self.evaluated(action["outputs"][name]["value"].as_str().unwrap())
    }
}

const RECORD: &str = "make\nreorder record";

#[test]
fn the_action_installs_gates_and_hands_on_its_reports() {
    let action = gate_validators::yaml(&workspace::root().join("action.yml"));
    let project = GateProject::new();
    project.build_and_record();
    project.run("reorder gate --update-baseline");
    let mut runner = Runner::new(&action, &[("prepare", RECORD)]);
    let outcome = runner.run(&action, project.path());
    assert_eq!(status(&outcome), 0, "{outcome}");
    assert_eq!(runner.output(&action, "verdict"), "pass");
    assert_eq!(runner.outputs["sources.outputs.digest"].len(), 32);
    assert_eq!(runner.outputs["sources.outputs.system"].len(), 16);
    let steps = action["runs"]["steps"].as_array().unwrap();
    let key = steps.iter().find_map(|step| step["with"]["key"].as_str()).unwrap();
    let (digest, system) =
        (&runner.outputs["sources.outputs.digest"], &runner.outputs["sources.outputs.system"]);
    assert_eq!(runner.evaluated(key), format!("reorder-os-arch-{system}-{digest}"));

    project.add_to_startup();
    let mut runner = Runner::new(&action, &[("prepare", RECORD)]);
    let outcome = runner.run(&action, project.path());
    assert_eq!(status(&outcome), 1, "{outcome}");
    assert_eq!(runner.output(&action, "verdict"), "fail");
    let stdout = outcome.stdout_text();
    assert!(stdout.contains("\n::error title=reorder gate%3A page faults"), "{outcome}");
    assert_eq!(
        runner.read("summary.md"),
        std::fs::read_to_string(runner.output(&action, "markdown")).unwrap()
    );
    assert!(runner.read("summary.md").contains(NEW_FUNCTION));
    gate_validators::sarif(Path::new(&runner.output(&action, "sarif")));
    gate_validators::junit(Path::new(&runner.output(&action, "junit")));
    let report = std::fs::read_to_string(runner.output(&action, "json")).unwrap();
    assert!(report.contains(NEW_FUNCTION));
}

#[test]
fn switches_of_the_action_take_two_words() {
    let action = gate_validators::yaml(&workspace::root().join("action.yml"));
    let project = tempfile::tempdir().unwrap();
    for (name, value) in [("warn-only", "True"), ("warn-only", ""), ("install", "no"), ("install", "a\n::b")]
    {
        let mut runner = Runner::new(&action, &[(name, value)]);
        let outcome = runner.run(&action, project.path());
        assert_eq!(status(&outcome), 2, "{outcome}");
        let stdout = outcome.stdout_text();
        assert!(stdout.contains(&format!("::{name} is true or false, not ")), "{outcome}");
        assert_eq!(stdout.lines().count(), 1, "{outcome}");
    }
}

#[test]
fn inputs_of_the_action_reach_the_gate_as_they_are() {
    let action = gate_validators::yaml(&workspace::root().join("action.yml"));
    let project = GateProject::new();
    project.build_and_record();
    let image = "a $(touch hacked) ; \"program\"";
    project.run(&format!(
        "mkdir 'in ner' && cp build/program 'in ner/{image}' && cp -r traces/startup 'in ner/start ups'"
    ));
    project.run(&format!(
        "cd 'in ner' && reorder gate --config off -t 'start ups' --baseline base.json --update-baseline -- '{image}'"
    ));
    let inputs = [
        ("working-directory", "in ner"),
        ("image", image),
        ("traces", "start ups\n"),
        ("baseline", "base.json"),
        ("config", "off"),
        ("warn-only", "true"),
        ("arguments", "--model\nios-16k\n"),
        ("install", "false"),
    ];
    let mut runner = Runner::new(&action, &inputs);
    runner.path = format!("{}:{}", workspace::reorder_path().parent().unwrap().display(), runner.path);
    let outcome = runner.run(&action, project.path());
    assert_eq!(status(&outcome), 0, "{outcome}");
    assert!(!project.file("in ner/hacked").exists());
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(runner.output(&action, "json")).unwrap()).unwrap();
    assert_eq!(report["image"], image);
    let checks = report["checks"].as_array().unwrap();
    let models = checks.iter().filter(|check| check["metric"] == "faults" && check["verdict"] != "gone");
    assert!(models.clone().count() > 0 && models.clone().all(|check| check["part"] == "ios-16k"));

    // Without a baseline the step fails as one that could not run.
    let mut runner = Runner::new(&action, &[("baseline", "none.json"), ("install", "false")]);
    runner.path = format!("{}:{}", workspace::reorder_path().parent().unwrap().display(), runner.path);
    let outcome = runner.run(&action, project.path());
    assert_eq!(status(&outcome), 2, "{outcome}");
    assert_eq!(runner.output(&action, "verdict"), "error");
    assert_eq!(runner.output(&action, "json"), "");
}
