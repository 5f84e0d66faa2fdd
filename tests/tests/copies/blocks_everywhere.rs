//! Images with copied blocks (`apply --layout blocks`) in the other commands: faults are those of the copies, questions
//! about a function lead to its copies, and the map leads back.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use end_to_end::workspace::reorder;
use serde_json::Value;
use tempfile::TempDir;

/// Each of the steps has 8 KiB that never run between two parts that do, so functions need many pages and blocks one.
const SOURCE: &str = r#"
#define STEP(n) __attribute__((noinline)) int step##n(int x) { \
    if (__builtin_expect(x == 1000 + n, 0)) { __asm__ volatile(".skip 8192, 0x90"); return 1; } \
    return x * n + 3; }
STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6)
int main(int count, char **words) {
    (void)words;
    return step1(count) + step2(count) + step3(count) + step4(count) + step5(count) + step6(count) == 0;
}
"#;

fn call(words: &[&str], directory: &Path) -> Output {
    reorder().args(words).current_dir(directory).output().unwrap()
}

fn done(words: &[&str], directory: &Path) -> String {
    let output = call(words, directory);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(words: &[&str], directory: &Path) -> Value {
    serde_json::from_str(&done(&[words, &["--format", "json"]].concat(), directory)).unwrap()
}

/// `program`, its `traces`, and `fast` with copies, whose map is `map`.
fn built() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    fs::write(place.join("program.c"), SOURCE).unwrap();
    let mut compiler = Command::new("gcc");
    // Cold parts would go to functions of their own.
    compiler.args(["-O1", "-fno-reorder-blocks-and-partition", "-o", "program", "program.c"]);
    assert!(compiler.current_dir(place).status().unwrap().success());
    done(&["record", "-q", "--blocks", "-o", "traces", "--", "./program"], place);
    done(&["apply", "program", "-t", "traces", "--layout", "blocks", "-o", "fast", "--map", "map"], place);
    directory
}

/// The segment of copies begins after the program's last address.
fn copies_begin(place: &Path) -> u64 {
    use object::{Object, ObjectSection};
    let bytes = fs::read(place.join("fast")).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    file.section_by_name(".text.reorder").unwrap().address()
}

#[test]
fn faults_are_those_of_the_copies() {
    let directory = built();
    let words = ["simulate", "program", "fast", "-t", "traces", "--model", "linux-4k", "--config", "off"];
    let total = &json(&words, directory.path())["totals"][0];
    let faults = |name: &str| total[name].as_u64().unwrap();
    // Six functions of 8 KiB each; of all blocks that run, those of the C library's own startup code stay on a second page.
    assert!(faults("lower_bound_faults") > 12, "{total}");
    assert!(faults("faults") >= 6, "{total}");
    assert!(faults("new_faults") <= 3 && faults("block_bound_faults") == 1, "{total}");
    // All that is copied fits on one page, so the other faults are of code that stays.
    assert_eq!(total["copies"], serde_json::json!({ "faults": 1, "bound_faults": 1 }));
    let text = done(&words, directory.path());
    assert!(text.contains("of blocks"), "{text}");
    assert!(text.contains("faults of copies alone: 1 (bound 1)"), "{text}");
}

#[test]
fn the_predicted_pages_are_touched() {
    let directory = built();
    let words = ["measure", "program", "fast", "-t", "traces", "--agreement", "--within", "0"];
    let agreement = json(&words, directory.path());
    assert_eq!(agreement["difference_percent"], 0.0, "{agreement}");
}

#[test]
fn questions_lead_to_the_copies() {
    let directory = built();
    let words = ["explain", "program", "step3", "-t", "traces", "--new", "fast", "--config", "off"];
    let blocks = json(&words, directory.path())["functions"][0]["blocks"].clone();
    assert!(blocks["executed_bytes"].as_u64().unwrap() < 100, "{blocks}");
    let copies = copies_begin(directory.path());
    let place = blocks["parts"][0]["new"][0].as_str().unwrap().to_owned();
    let place = u64::from_str_radix(place.trim_start_matches("0x"), 16).unwrap();
    assert!((copies..copies + 4096).contains(&place), "{place:#x} {copies:#x}");
    let text = done(&words, directory.path());
    assert!(text.contains("executed") && text.contains("becomes"), "{text}");
    let inspected = json(&["inspect", "program"], directory.path());
    assert!(inspected["copies"]["functions"].as_u64().unwrap() >= 7, "{inspected}");
}

#[test]
fn the_map_leads_back_and_copies_are_replaced() {
    let directory = built();
    let place = directory.path();
    done(&["apply", "fast", "--order", "map", "-o", "back"], place);
    assert_eq!(fs::read(place.join("back")).unwrap(), fs::read(place.join("program")).unwrap());
    let message = |words: &[&str]| {
        let output = call(words, place);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    done(&["apply", "fast", "-t", "traces", "--layout", "blocks", "-o", "again"], place);
    assert_eq!(fs::read(place.join("again")).unwrap(), fs::read(place.join("fast")).unwrap());
    done(&["apply", "fast", "-t", "traces", "-o", "moved"], place);
    done(&["apply", "program", "-t", "traces", "-o", "direct"], place);
    assert_eq!(fs::read(place.join("moved")).unwrap(), fs::read(place.join("direct")).unwrap());
    let forwards = message(&["apply", "program", "--order", "map", "-o", "again"]);
    assert!(forwards.contains("leads back only"), "{forwards}");
    let both =
        message(&["apply", "program", "-t", "traces", "--layout", "both", "--map", "both.map", "-o", "x"]);
    assert!(both.contains("--map"), "{both}");
    done(&["apply", "program", "-t", "traces", "--layout", "blocks", "--in-place"], place);
    assert_eq!(fs::read(place.join("program")).unwrap(), fs::read(place.join("fast")).unwrap());
}

/// At a fixed address `main` runs where it is, because the address that the C library calls stays. A copy of `near`, on the same
/// page, would save nothing; a copy of `far` saves its page.
#[test]
fn code_on_pages_that_are_needed_anyway_is_not_copied() {
    const PAGES: &str = r#"
__attribute__((noinline, aligned(4096))) int far(int x) {
    if (__builtin_expect(x == 1000, 0)) { __asm__ volatile(".skip 8192, 0x90"); return 1; }
    return x + 2; }
__attribute__((noinline)) int near(int x) { __asm__ volatile(""); return x + 1; }
int main(int count, char **words) { (void)words; return near(count) + far(count) == 0; }
"#;
    for (flags, copied) in [(["-fno-pie", "-no-pie"], "far"), (["-fPIE", "-pie"], "far main near")] {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        fs::write(place.join("program.c"), PAGES).unwrap();
        let mut compiler = Command::new("gcc");
        compiler.args(["-O1", "-fno-reorder-blocks-and-partition", "-fno-reorder-functions"]);
        compiler.args(flags).args(["-o", "program", "program.c"]);
        assert!(compiler.current_dir(place).status().unwrap().success());
        done(&["record", "-q", "--blocks", "-o", "traces", "--", "./program"], place);
        done(&["apply", "program", "-t", "traces", "--layout", "blocks", "-o", "fast"], place);
        let bytes = fs::read(place.join("fast")).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let names = object::Object::symbols(&file);
        let mut names: Vec<&str> = names
            .filter_map(|symbol| object::ObjectSymbol::name(&symbol).ok()?.strip_suffix(".reorder"))
            .filter(|name| ["far", "main", "near"].contains(name))
            .collect();
        names.sort_unstable();
        assert_eq!(names.join(" "), copied, "{flags:?}");
    }
}

#[test]
fn optimize_takes_the_layout_that_needs_fewer_pages() {
    let directory = built();
    let place = directory.path();
    let optimize = |layout: &str| {
        let words = ["optimize", "program", "-o", layout, "--run", "", "--measure-runs", "0"];
        json(&[&words[..], &["--layout", layout]].concat(), place)
    };
    let (auto, blocks, functions) = (optimize("auto"), optimize("blocks"), optimize("functions"));
    assert_eq!(fs::read(place.join("auto")).unwrap(), fs::read(place.join("blocks")).unwrap());
    let pages = |report: &Value| report["total"]["new_faults"].as_u64().unwrap();
    assert!(pages(&auto) < pages(&functions) && pages(&auto) == pages(&blocks), "{auto} {functions}");
    assert!(auto["bytes_before"].as_u64() < auto["file_bytes"].as_u64(), "{auto}");
    assert!(functions["bytes_before"].is_null() && functions["clones"].is_null(), "{functions}");
    assert!(
        functions["memories"].is_null() && blocks["memories"].is_null(),
        "one layout has nothing beside it"
    );
    for (layout, faults) in [("functions", "functions_faults"), ("blocks", "blocks_faults")] {
        let words = ["simulate", "program", layout, "-t", "traces", "--model", "all", "--config", "off"];
        let simulated = json(&words, place);
        let shown: Vec<_> =
            auto["memories"].as_array().unwrap().iter().map(|memory| &memory[faults]).collect();
        let totals = simulated["totals"].as_array().unwrap();
        assert_eq!(shown.len(), totals.len());
        let needed: Vec<_> = totals.iter().map(|total| &total["new_faults"]).collect();
        assert_eq!(shown, needed, "{layout}: those of simulate");
    }
}

/// The figure of a check of `reorder gate`, and of its baseline.
fn gated(report: &Value, metric: &str, part: &Value) -> [Option<f64>; 2] {
    let is_meant =
        |check: &&Value| check["metric"] == metric && check["part"] == *part && check["scenario"].is_null();
    let check = report["checks"].as_array().unwrap().iter().find(is_meant).unwrap();
    ["baseline", "current"].map(|side| check[side].as_f64())
}

#[test]
fn the_gate_counts_the_faults_of_the_copies() {
    let directory = built();
    let place = directory.path();
    let common = ["-t", "traces", "--baseline", "base.json", "--config", "off"];
    let gate = |image: &'static str, more: &[&'static str]| {
        json(&[&["gate", image], &common[..], more].concat(), place)
    };
    gate("program", &["--update-baseline"]);
    let report = gate("fast", &["--all", "--warn-only"]);
    let words = ["simulate", "program", "fast", "-t", "traces", "--model", "linux-4k", "--config", "off"];
    let total = &json(&words, place)["totals"][0];
    let faults = ["faults", "new_faults"].map(|side| total[side].as_f64());
    assert!(faults[1] < faults[0], "{total}");
    assert_eq!(gated(&report, "faults", &"linux-4k".into()), faults, "those of simulate");
    let [before, after] = gated(&report, "text-bytes", &Value::Null);
    assert!(before < after, "copies are code");
    let [before, after] = gated(&report, "pinned-functions", &Value::Null);
    assert!(before == after && after.is_some(), "pins are those of the image without copies");
    let remarks = report["remarks"].to_string();
    assert!(remarks.contains("the image has copies of"), "{remarks}");
    assert!(report["explanations"].as_array().unwrap().is_empty(), "the same functions run: {report:#}");

    // Traces of the image with copies: these are functions of it.
    done(&["record", "-q", "-o", "own", "--", "./fast"], place);
    let own = json(&["gate", "fast", "-t", "own", "--baseline", "off", "--config", "off", "--all"], place);
    assert_eq!(gated(&own, "trace-coverage", &Value::Null)[1], Some(100.0));
    assert!(own["remarks"].to_string().contains("traces are of the image with its copies"), "{own:#}");

    // A list of copies that does not lead back.
    let mut bytes = fs::read(place.join("fast")).unwrap();
    let list = {
        use object::{Object, ObjectSection};
        let file = object::File::parse(&*bytes).unwrap();
        file.section_by_name(".reorder.clones").unwrap().file_range().unwrap().0 as usize
    };
    bytes[list + 9] ^= 0x55;
    fs::write(place.join("damaged"), bytes).unwrap();
    let report = gate("damaged", &["--all", "--warn-only"]);
    let remarks = report["remarks"].to_string();
    assert!(remarks.contains("those of the original functions"), "{remarks}");
    assert!(
        gated(&report, "faults", &"linux-4k".into())[1] >= faults[0],
        "nothing runs in copies: {report:#}"
    );
}
