//! Third-party programs that check whether a report of the gate conforms to its format.
//!
//! `scripts/install-validators` installs them, pinned, if they are missing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::process::{self, Outcome, succeed};
use crate::workspace;

const LIMIT: Duration = Duration::from_secs(600);

/// Where they are installed; installs them once.
///
/// # Panics
/// When they cannot be installed: the formats would not be tested.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let script = workspace::root().join("scripts/install-validators");
        succeed(&mut Command::new(script));
        workspace::root().join("target/validators")
    })
}

fn run(command: &mut Command) -> Outcome {
    process::run(command, LIMIT).unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// `check-jsonschema`: validates `file` by a schema in a file.
///
/// # Panics
/// When it does not conform to the schema.
pub fn json_schema(schema: &Path, file: &Path) {
    succeed(check_jsonschema().arg("--schemafile").arg(schema).arg(file));
}

/// `check-jsonschema`: `file` must not conform to the schema.
///
/// # Panics
/// When it does.
pub fn not_json_schema(schema: &Path, file: &Path) {
    let outcome = run(check_jsonschema().arg("--schemafile").arg(schema).arg(file));
    assert!(!outcome.success(), "{} should not be valid", file.display());
}

/// `check-jsonschema`: validates `file` by a built-in schema, such as `vendor.github-actions`.
///
/// # Panics
/// When it does not conform to the schema.
pub fn built_in_schema(schema: &str, file: &Path) {
    succeed(check_jsonschema().args(["--builtin-schema", schema]).arg(file));
}

/// `check-jsonschema`: the files are valid schemas.
///
/// # Panics
/// When one is not.
pub fn meta_schema(files: &[PathBuf]) {
    succeed(check_jsonschema().arg("--check-metaschema").args(files));
}

fn check_jsonschema() -> Command {
    Command::new(directory().join("python/bin/check-jsonschema"))
}

/// Microsoft's multitool: validates SARIF by its schema, its rules, and those of code scanning on GitHub.
///
/// # Panics
/// When it reports anything except that we have no address on the web.
pub fn sarif(file: &Path) {
    const NO_ADDRESS: &str = "SARIF2005";
    let folder = tempfile::tempdir().expect("a temporary directory");
    let log = folder.path().join("log.sarif");
    let tool = directory().join("node/node_modules/@microsoft/sarif-multitool-linux/Sarif.Multitool");
    let mut command = Command::new(tool);
    command.arg("validate").arg(file).arg("--output").arg(&log).args(["--rule-kind", "Sarif;Ghas"]);
    // Otherwise it looks for a system library that may be missing.
    command.env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1");
    let outcome = run(&mut command);
    assert!(outcome.success(), "{outcome}");
    let text = std::fs::read_to_string(&log).expect("it writes a log");
    let log: serde_json::Value = serde_json::from_str(text.trim_start_matches('\u{feff}')).expect("JSON");
    let results = log["runs"][0]["results"].as_array().cloned().unwrap_or_default();
    let others: Vec<_> = results.iter().filter(|result| result["ruleId"] != NO_ADDRESS).collect();
    assert!(others.is_empty(), "{}: {others:#?}", file.display());
}

/// Validates JUnit XML by the XSD of Jenkins.
///
/// # Panics
/// When it does not conform to the schema.
pub fn junit(file: &Path) {
    let mut command = Command::new(directory().join("python/bin/xmlschema-validate"));
    succeed(command.arg("--schema").arg(directory().join("junit-10.xsd")).arg(file));
}

/// GitHub's renderer, with its tables and links: Markdown to HTML.
///
/// # Panics
/// When it cannot be run.
pub fn rendered_markdown(file: &Path) -> String {
    const SCRIPT: &str = "import sys, cmarkgfm\n\
        print(cmarkgfm.github_flavored_markdown_to_html(open(sys.argv[1], encoding='utf-8').read(), \
        cmarkgfm.Options.CMARK_OPT_UNSAFE))";
    succeed(Command::new(directory().join("python/bin/python")).args(["-c", SCRIPT]).arg(file))
}

/// How GitHub's own library for actions writes annotations: each a level, a message and properties.
///
/// # Panics
/// When it cannot be run.
pub fn annotations_of_the_toolkit(annotations: &serde_json::Value) -> String {
    let library = directory().join("node/node_modules/@actions/core/lib/core.js");
    let script = format!(
        "import * as core from {:?};\nimport {{ readFileSync }} from 'fs';\n\
         for (const [level, message, properties] of JSON.parse(readFileSync(process.argv[1], 'utf8')))\n\
           core[level](message, properties);",
        library.display().to_string()
    );
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), annotations.to_string()).expect("a temporary file can be written");
    succeed(Command::new("node").args(["--input-type=module", "-e", &script]).arg(file.path()))
}

/// Checks workflows by actionlint, including their shell scripts.
///
/// # Panics
/// When it finds anything.
pub fn workflow(file: &Path) {
    succeed(Command::new(directory().join("python/bin/actionlint")).arg(file));
    built_in_schema("vendor.github-workflows", file);
}

/// YAML as JSON.
///
/// # Panics
/// When it is not YAML.
pub fn yaml(file: &Path) -> serde_json::Value {
    const SCRIPT: &str = "import sys, json, ruamel.yaml\n\
        print(json.dumps(ruamel.yaml.YAML(typ='safe', pure=True).load(open(sys.argv[1], encoding='utf-8'))))";
    let text = succeed(Command::new(directory().join("python/bin/python")).args(["-c", SCRIPT]).arg(file));
    serde_json::from_str(&text).expect("JSON")
}
