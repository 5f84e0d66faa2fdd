//! Reports of the gate with names that contain markup, commands or broken syntax: third-party programs read them.

use std::path::PathBuf;

use end_to_end::{gate_validators, workspace};
use reorder::gate::render::ExportFormat;
use reorder::gate::{
    AppliedLimit, ChangeKind, Check, Explanation, FunctionChange, GateReport, Key, Limit, Metric, OtherTools,
    Outcome, Place, Remark, Unit, Verdict,
};
use reorder_base::address::Address;
use reorder_report::visible::visible_start;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Markdown, HTML, workflow commands, XML, SARIF's links and placeholders, controls, and names that are merely odd.
const HOSTILE: &[&str] = &[
    "a|b",
    "a\\|b",
    "\\",
    "\\\\|",
    "`x`",
    "``",
    "``` x",
    "~~~",
    "<script>alert(1)</script>",
    "<!-- ",
    "</details>",
    "</td><td>",
    "<img src=x onerror=y>",
    "a\nb",
    "\n\n# heading",
    "\r\n::error::x",
    "::error title=x::y",
    "::stop-commands::x",
    "##[error]x",
    "@octocat",
    "a@b.example",
    "#1",
    "# h",
    "- item",
    "1. x",
    "> quote",
    "---",
    "[l](http://evil.example)",
    "![i](x)",
    "[x]: http://evil.example",
    "http://evil.example/x",
    "https://e.example",
    "www.evil.example",
    "**b**",
    "_e_",
    "__b__",
    "*",
    "~~s~~",
    "&lt;",
    "&#124;",
    "&",
    "\"",
    "'",
    "%0A",
    "%25",
    "%",
    "{0}",
    "{x}",
    "${{ secrets.X }}",
    "$(x)",
    "operator[](int)",
    "main::{closure#0}",
    "a,b:c",
    "]]>",
    "<![CDATA[",
    "\u{0}",
    "\u{1b}[31m",
    "\u{7f}",
    "\u{85}",
    "\u{2028}",
    "\u{202e}x",
    "\u{200b}",
    "\u{feff}",
    "\u{fffe}",
    "\u{10ffff}",
    "a\tb",
    " ",
    "  x ",
    "",
    "é数🦀",
    ":x:",
    "\u{e000}",
];

fn change(name: &str) -> FunctionChange {
    FunctionChange {
        name: name.to_owned(),
        change: ChangeKind::Added,
        address: Address(0x1000),
        old_bytes: None,
        new_bytes: Some(12),
        faults: 1,
        pages: vec![Address(0x1000)],
    }
}

fn failing(scenario: &str) -> Check {
    Check {
        key: Key::of_scenario(Metric::Faults, "linux-4k", scenario),
        unit: Unit::Faults,
        baseline: Some(1.0),
        current: Some(2.0),
        lower_bound: None,
        limit: Some(AppliedLimit {
            text: "+2 %".to_owned(),
            source: format!("[scenario.{scenario}.limits] faults"),
            limit: Limit::Percent(2.0),
        }),
        worst: Some(1.02),
        verdict: Verdict::Fail,
        place: Some(Place { file: format!("a b/{}.toml", visible_start(scenario, 50)), line: 3 }),
    }
}

fn explanation(scenario: &str, names: impl Iterator<Item = String>) -> Explanation {
    let functions: Vec<FunctionChange> = names.map(|name| change(&name)).collect();
    Explanation {
        scenario: scenario.to_owned(),
        model: "linux-4k".to_owned(),
        old_faults: 1,
        new_faults: 2,
        added: functions.len() as u64,
        removed: 0,
        resized: 0,
        functions,
    }
}

fn report(checks: Vec<Check>, explanations: Vec<Explanation>) -> GateReport {
    GateReport {
        reorder: "0.1.0",
        image: "build/<b>|`program`".to_owned(),
        baseline: Some("@base|line.json".to_owned()),
        configuration: None,
        outcome: Outcome::Fail,
        findings: checks.len() as u64,
        checks,
        explanations,
        other_tools: OtherTools::between(&["<old>\u{1b}".to_owned()], &["`new` | x".to_owned()]),
        shows_all: false,
        remarks: vec![Remark {
            cause: "an @odd <note>\n::error::".to_owned(),
            next: Some("www.x | y".to_owned()),
        }],
    }
}

/// Each name once as a scenario and once as the only function that changed.
fn hostile() -> GateReport {
    report(
        HOSTILE.iter().map(|name| failing(name)).collect(),
        HOSTILE.iter().map(|name| explanation(name, std::iter::once((*name).to_owned()))).collect(),
    )
}

fn written(directory: &TempDir, report: &GateReport, format: ExportFormat, name: &str) -> (PathBuf, String) {
    let text = format.render(report).unwrap();
    assert_eq!(text, format.render(report).unwrap(), "the same again");
    let path = directory.path().join(name);
    std::fs::write(&path, &text).unwrap();
    (path, text)
}

#[test]
fn json_sarif_and_junit_hold_any_name() {
    let directory = tempfile::tempdir().unwrap();
    let report = hostile();
    let (path, text) = written(&directory, &report, ExportFormat::Json, "a.json");
    gate_validators::json_schema(&workspace::root().join("reorder/schemas/gate.schema.json"), &path);
    let read: Value = serde_json::from_str(&text).unwrap();
    for (index, name) in HOSTILE.iter().enumerate() {
        assert_eq!(read["explanations"][index]["functions"][0]["name"], *name, "JSON has names as they are");
    }
    gate_validators::sarif(&written(&directory, &report, ExportFormat::Sarif, "a.sarif").0);
    gate_validators::junit(&written(&directory, &report, ExportFormat::Junit, "a.xml").0);
}

#[test]
fn fingerprints_outlive_values_and_lines() {
    let fingerprints = |report: &GateReport| -> Vec<Value> {
        let sarif: Value = serde_json::from_str(&ExportFormat::Sarif.render(report).unwrap()).unwrap();
        let results = sarif["runs"][0]["results"].as_array().unwrap();
        results.iter().map(|result| result["partialFingerprints"].clone()).collect()
    };
    let first = hostile();
    let mut second = hostile();
    for check in &mut second.checks {
        check.current = Some(2.5);
        check.place = Some(Place { file: "other".to_owned(), line: 9 });
    }
    assert_eq!(fingerprints(&first), fingerprints(&second));
    let mut all: Vec<String> = fingerprints(&first).iter().map(ToString::to_string).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), HOSTILE.len(), "one for each check");
}

#[test]
fn markdown_shows_names_and_does_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    for names in HOSTILE.chunks(10) {
        let report = report(
            names.iter().map(|name| failing(name)).collect(),
            names.iter().map(|name| explanation(name, std::iter::once((*name).to_owned()))).collect(),
        );
        let (path, _) = written(&directory, &report, ExportFormat::Markdown, "a.md");
        let html = gate_validators::rendered_markdown(&path);
        assert_harmless(&html);
        let rows = html.matches("<tr>").count();
        assert_eq!(rows, 2 * (names.len() + 1), "findings and all checks, each with a head: {html}");
        assert_eq!(html.matches("<td").count(), 2 * names.len() * 6, "no cell more");
        for name in names {
            let shown = visible_start(name, 200).into_owned();
            let code = if shown.is_empty() {
                "(no name)".to_owned()
            } else {
                format!("<code>{}</code>", escaped(&shown))
            };
            assert!(html.contains(&format!("<li>{code} is new in this scenario")), "{name:?}: {html}");
        }
    }
}

/// No tags except ours, and none that loads a resource or links to one.
fn assert_harmless(html: &str) {
    const OURS: [&str; 15] = [
        "h3", "p", "code", "table", "thead", "tbody", "tr", "th", "td", "strong", "ul", "li", "details",
        "summary", "em",
    ];
    for tag in html.split('<').skip(1) {
        let name: String =
            tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
        assert!(OURS.contains(&name.as_str()), "<{tag}");
    }
    assert_eq!(html.matches("<details>").count(), 1);
    assert_eq!(html.matches("</details>").count(), 1);
    // Mentions are found in text outside of code, where a character follows the sign.
    let text = html.split("<code>").map(|part| part.split_once("</code>").map_or(part, |(_, text)| text));
    for text in text {
        let mention = text.match_indices('@').any(|(place, _)| {
            text[place + 1..].chars().next().is_some_and(|next| next.is_ascii_alphanumeric())
        });
        assert!(!mention, "{text}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[test]
fn markdown_of_100_000_names_is_below_the_limit() {
    const LIMIT: usize = 64 << 10;
    let directory = tempfile::tempdir().unwrap();
    let names = || (0..100_000).map(|index| format!("{}{index}", HOSTILE[index % HOSTILE.len()]));
    let long = |length: usize| HOSTILE.iter().map(move |name| name.repeat(length));
    let of_functions = report(vec![failing("s")], vec![explanation("s", names())]);
    let of_scenarios = report(
        names().map(|name| failing(&name)).collect(),
        names().map(|name| explanation(&name, names().take(20))).collect::<Vec<_>>(),
    );
    let of_long_names = report(
        long(10_000).map(|name| failing(&name)).collect(),
        long(10_000).map(|name| explanation(&name, long(10_000))).collect(),
    );
    for (report, left_out) in [
        (of_functions, "and 99 988 more functions"),
        (of_scenarios, "more scenarios changed"),
        (of_long_names, "do not fit"),
    ] {
        let (path, text) = written(&directory, &report, ExportFormat::Markdown, "a.md");
        assert!(text.len() < LIMIT && text.encode_utf16().count() < LIMIT, "{}", text.len());
        assert!(text.contains(left_out), "{left_out}: {text}");
        assert_harmless(&gate_validators::rendered_markdown(&path));
        // Annotations are bounded by number and length.
        let commands = ExportFormat::Github.render(&report).unwrap();
        assert!(commands.lines().count() <= 20 && commands.lines().all(|line| line.len() < LIMIT));
    }
}

#[test]
fn annotations_are_those_that_githubs_library_writes() {
    for names in HOSTILE.chunks(10) {
        let report = report(
            names.iter().map(|name| failing(name)).collect(),
            names.iter().map(|name| explanation(name, std::iter::once((*name).to_owned()))).collect(),
        );
        let text = ExportFormat::Github.render(&report).unwrap();
        let read: Vec<Value> = text.lines().map(understood).collect();
        assert_eq!(read.len(), names.len() + 1, "one for each finding, one for the note: {text}");
        assert_eq!(gate_validators::annotations_of_the_toolkit(&Value::Array(read)), text);
    }
    let many = report((0..25).map(|index| failing(&format!("s{index}"))).collect(), Vec::new());
    let text = ExportFormat::Github.render(&many).unwrap();
    assert_eq!(text.matches("::error ").count(), 10, "as many as GitHub shows");
    assert!(text.contains("%0A15 more findings are in the log"), "{text}");
}

/// A line as the runner reads it: `::level name=value,…::message`, with escapes in values and in the message.
fn understood(line: &str) -> Value {
    let (header, message) = line.strip_prefix("::").unwrap().split_once("::").unwrap();
    let (level, properties) = header.split_once(' ').unwrap();
    let plain = |text: &str| {
        let text = text.replace("%3A", ":").replace("%2C", ",");
        text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
    };
    let mut object = serde_json::Map::new();
    for property in properties.split(',') {
        let (name, value) = property.split_once('=').unwrap();
        match name {
            "line" => object.insert("startLine".to_owned(), json!(value.parse::<u64>().unwrap())),
            "title" | "file" => object.insert(name.to_owned(), json!(plain(value))),
            _ => panic!("{line}"),
        };
    }
    let message = message.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%");
    json!([level, message, object])
}
