//! The journey of someone who builds a stripped program with cargo: every link after the first recording is ordered, also
//! after an edit, and also by recordings of an ordered program, although no build has a name to go by.

use std::fmt::Write as _;

use end_to_end::linker_wrapper::Build;
use serde_json::Value;

const FUNCTIONS: usize = 600;
/// Every so many functions one runs.
const STRIDE: usize = 20;

/// Pairs of functions exactly alike, which only a name can tell apart. One of each runs.
const TWINS: usize = 20;

/// Each function but the twins has numbers of its own, so that its code is like no other; `edit` changes one that runs.
fn source(edit: u64) -> String {
    let mut text = String::from("use std::hint::black_box;\n");
    for number in 0..FUNCTIONS {
        let edit = if number == 3 * STRIDE { edit } else { 0 };
        writeln!(
            text,
            "#[inline(never)] fn work_{number}(n: u64) -> u64 {{ let mut n = n ^ {edit}; for _ in 0..black_box(2) {{ \
             n = black_box(n.wrapping_mul({}).rotate_left({})); n ^= black_box({}); n = n.wrapping_add({}); }} black_box(n) }}",
            number * 7919 + 3,
            number % 63,
            number * 104_729 + 11,
            number * 31 + 5,
        )
        .unwrap();
    }
    for number in 0..TWINS {
        for twin in ["first", "second"] {
            writeln!(
                text,
                "#[inline(never)] fn {twin}_{number}(n: u64) -> u64 {{ black_box(black_box(n).wrapping_mul({number})) }}"
            )
            .unwrap();
        }
    }
    text.push_str("fn main() {\n    let all = std::env::args().len() > 1;\n    let mut sum = 1;\n");
    for number in 0..FUNCTIONS {
        let condition = if number % STRIDE == 0 { "" } else { "if all " };
        writeln!(text, "    {condition}{{ sum = work_{number}(sum); }}").unwrap();
    }
    for number in 0..TWINS {
        writeln!(text, "    sum ^= first_{number}(sum); if all {{ sum ^= second_{number}(sum); }}").unwrap();
    }
    text.push_str("    println!(\"{sum}\");\n}\n");
    text
}

/// Builds, and gives the report of the link, if there is one.
fn build(project: &Build) -> Option<Value> {
    let _ = project.run("rm -f report.json");
    // cargo does not know that the traces have changed.
    project.must("touch src/main.rs && cargo build --offline --quiet");
    let symbols = project.must("llvm-nm$LLVM target/debug/journey 2>&1").stdout_text();
    assert!(symbols.contains("no symbols"), "it is stripped: {symbols}");
    let report = std::fs::read(project.folder().join("report.json")).ok()?;
    Some(serde_json::from_slice(&report).unwrap())
}

fn record(project: &Build) {
    project.must("reorder record -o traces -- target/debug/journey");
}

/// The link is ordered by what `steps` found; gives its page faults.
fn assert_ordered(stage: &str, report: &Value) -> u64 {
    assert_eq!(report["is_ordered"], true, "{stage}: {report}");
    let number = |name: &str| report["faults"][name].as_u64().unwrap_or_else(|| panic!("{stage}: {report}"));
    let (before, after, bound) = (number("before"), number("after"), number("bound"));
    assert!(bound <= after && after < before, "{stage}: {report}");
    let names = &report["names"];
    let found: u64 = names["found"].as_u64().unwrap()
        + names["found_again"].as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>();
    assert!(found * 100 >= names["names"].as_u64().unwrap() * 98, "{stage}: {report}");
    assert!(after * 4 <= before * 3, "{stage}: {before} → {after}");
    after
}

#[test]
fn stripped_links_are_ordered_after_edits_and_new_recordings() {
    let mut project = Build::new("journey").unwrap();
    project.set("REORDER_REPORT", project.folder().join("report.json"));
    project
        .write(
            "Cargo.toml",
            "[package]\nname = \"journey\"\nversion = \"1.0.0\"\nedition = \"2024\"\n\
             [profile.dev]\nopt-level = 1\nstrip = true\ndebug = false\nincremental = false\n[workspace]\n",
        )
        .unwrap();
    project
        .write(
            ".cargo/config.toml",
            "[build]\nrustc-wrapper = \"\"\n[target.x86_64-unknown-linux-gnu]\nlinker = \"reorder-cc\"\n",
        )
        .unwrap();
    project.write("src/main.rs", source(0)).unwrap();
    assert_eq!(build(&project), None, "there are no traces");
    record(&project);
    project.set("REORDER_TRACES", project.folder().join("traces"));

    assert_ordered("recorded", &build(&project).unwrap());
    project.write("src/main.rs", source(1)).unwrap();
    assert_ordered("edited", &build(&project).unwrap());
    record(&project);
    assert_ordered("recorded again", &build(&project).unwrap());
    // The older traces are of no help any more.
    project.must("rm -r traces");
    record(&project);
    project.write("src/main.rs", source(2)).unwrap();
    assert_ordered("edited, with a recording of an ordered program alone", &build(&project).unwrap());

    // What one link learns serves later ones only; once there is nothing to learn, links are equal.
    let linked = || {
        build(&project).unwrap();
        std::fs::read(project.folder().join("target/debug/journey")).unwrap()
    };
    assert!(linked() == linked(), "two links of the same files with the same names differ");

    // cargo prints nothing of all this; the account is kept.
    let doctor = project.run("reorder doctor --format json").unwrap();
    let said: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let is_link = |check: &&Value| {
        check["name"].as_str().unwrap().starts_with("last link of target/debug/deps/journey")
    };
    let links: Vec<&Value> = said["checks"].as_array().unwrap().iter().filter(is_link).collect();
    assert_eq!(links.len(), 1, "{doctor}");
    assert!(
        links[0]["passed"] == true && links[0]["found"].as_str().unwrap().contains("ordered"),
        "{doctor}"
    );
}

/// A link that is not ordered says so where a build lets nothing through.
#[test]
fn a_link_without_an_order_is_told_afterwards() {
    let mut project = Build::new("plain").unwrap();
    project.write("main.c", "int main(void) { return 0; }").unwrap();
    project.write("traces/start.list", "no_such_function\n").unwrap();
    project.set("REORDER_TRACES", project.folder().join("traces"));
    project.set("REORDER_PROGRAM", "program");
    project.set("REORDER_REPORT", "report.json");
    project.must("gcc -ffunction-sections -B $LINKS -fuse-ld=lld main.c -o program");
    let report: Value = serde_json::from_slice(&project.bytes("report.json")).unwrap();
    assert_eq!(report["is_ordered"], false, "{report}");
    let doctor = project.run("reorder doctor").unwrap();
    let text = doctor.stdout_text();
    let line = text.lines().find(|line| line.contains("last link of program"));
    assert!(
        line.is_some_and(|line| line.starts_with("failed") && line.contains("not ordered: ")),
        "{doctor}"
    );
    // Another project is not concerned.
    project.must("mkdir -p elsewhere");
    let elsewhere = project.run("cd elsewhere && reorder doctor").unwrap();
    assert!(!elsewhere.stdout_text().contains("last link of"), "{elsewhere}");
}

/// Figures that rest on a part of the functions that ran would be far from the truth.
#[test]
fn faults_are_left_out_where_few_functions_are_found() {
    let mut project = Build::new("plain").unwrap();
    let source =
        "__attribute__((noinline)) void one(void) { __asm__(\"\"); }\nint main(void) { one(); return 0; }";
    project.write("main.c", source).unwrap();
    project.set("REORDER_TRACES", project.folder().join("start.list"));
    project.set("REORDER_PROGRAM", "program");
    project.set("REORDER_REPORT", "report.json");
    let faults = |names: &str| {
        project.write("start.list", names).unwrap();
        project.must("gcc -ffunction-sections -B $LINKS -fuse-ld=lld main.c -o program");
        let report: Value = serde_json::from_slice(&project.bytes("report.json")).unwrap();
        assert_eq!(report["is_ordered"], true, "{report}");
        report["faults"].clone()
    };
    assert!(faults("main\none\n").is_object());
    assert!(faults("main\none\ntwo\nthree\nfour\n").is_null());
}
