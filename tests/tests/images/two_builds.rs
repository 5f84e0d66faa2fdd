//! Two builds of one program, one of them edited and linked in another order: `simulate` compares them by the names of their
//! functions, and by their code where they are stripped.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use end_to_end::process::{self, Outcome, shell};
use end_to_end::workspace::reorder;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(300);

/// 60 functions of different code, of which every tenth runs; `edited` is larger in the second build.
fn source(is_second: bool) -> String {
    let mut text = String::new();
    let order: Vec<usize> = if is_second { (0..60).rev().collect() } else { (0..60).collect() };
    for number in &order {
        writeln!(
            text,
            "__attribute__((noinline)) int work{number}(int n) {{ volatile int m = n; for (int i = 0; i < {}; i++) m = m * {} + {}; \
             return m ^ {}; }}",
            number % 7 + 2,
            number * 31 + 7,
            number * 17 + 3,
            number * 13 + 1,
        )
        .unwrap();
    }
    // More than the gate allows by default.
    let edit = if is_second {
        "for (int i = 0; i < n; i++) m += work7(m) * work8(i);".repeat(40)
    } else {
        String::new()
    };
    writeln!(text, "__attribute__((noinline)) int edited(int n) {{ volatile int m = n; {edit} return m; }}")
        .unwrap();
    text.push_str("int main(int count, char **words) { int sum = edited(count) * 0; (void)words;\n");
    for number in 0..60 {
        let condition = if number % 10 == 0 { "" } else { "if (count > 1) " };
        writeln!(text, "{condition}sum += work{number}(count);").unwrap();
    }
    text.push_str("return sum == 42; }\n");
    text
}

fn simulate(directory: &Path, words: &[&str]) -> Outcome {
    let words = [&["simulate"][..], words, &["-t", "traces"]].concat();
    process::run(reorder().args(words).current_dir(directory), LIMIT).unwrap()
}

#[test]
fn another_build_is_compared_by_names_and_by_code() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::write(directory.join("one.c"), source(false)).unwrap();
    fs::write(directory.join("two.c"), source(true)).unwrap();
    fs::write(directory.join("other.c"), "int main(void) { return 0; }").unwrap();
    let place = directory.display();
    let build = format!(
        "cd '{place}' && mkdir old new && gcc -O1 one.c -o old/program && gcc -O1 two.c -o new/program && \
         gcc -O1 other.c -o other && for kind in old new; do strip -o $kind/stripped $kind/program; done"
    );
    shell(&build, LIMIT).unwrap();
    for (old, new, is_named) in [
        ("old/program", "new/program", true),
        ("old/stripped", "new/stripped", false),
        ("old/stripped", "new/program", true),
    ] {
        let _ = fs::remove_dir_all(directory.join("traces"));
        let record = ["record", "-o", "traces", "--", &format!("./{old}")];
        let recorded = process::run(reorder().args(record).current_dir(directory), LIMIT).unwrap();
        assert!(recorded.success(), "{recorded}");
        let outcome = simulate(directory, &[old, new, "--format", "json"]);
        assert!(outcome.success(), "{old} {new} {outcome}");
        let report: Value = serde_json::from_slice(&outcome.stdout).unwrap();
        let pairs = &report["other_build"];
        let number = |name: &str| pairs[name].as_u64().unwrap();
        // Without names, those that were edited are not found: `main` and `edited`.
        assert!(
            number("functions") >= 8 && number("missing") <= if old.contains("stripped") { 4 } else { 0 },
            "{report}"
        );
        assert!(report["totals"][0]["new_faults"].as_u64().unwrap() > 0, "{report}");
        let sizes = &pairs["sizes"];
        assert!(sizes["new_bytes"].as_u64() > sizes["old_bytes"].as_u64(), "{report}");
        let changed = sizes["functions"].as_array().unwrap();
        if is_named {
            assert!(changed.iter().any(|change| change["name"] == "edited"), "{report}");
        }
        let text = simulate(directory, &[old, new]).stdout_text();
        assert!(
            text.contains("new is another build: ") && text.contains("functions that changed most"),
            "{text}"
        );
    }
    // The gate names what grew.
    let gate = |words: &[&str]| {
        let words = [&["gate"][..], words, &["-t", "traces", "--baseline", "baseline.json"]].concat();
        process::run(reorder().args(words).current_dir(directory), LIMIT).unwrap()
    };
    fs::remove_dir_all(directory.join("traces")).unwrap();
    let record = ["record", "-o", "traces", "--", "./old/program"];
    let recorded = process::run(reorder().args(record).current_dir(directory), LIMIT).unwrap();
    assert!(recorded.success(), "{recorded}");
    let updated = gate(&["old/program", "--update-baseline"]);
    assert!(updated.success(), "{updated}");
    let failed = gate(&["new/program", "--against", "old/program"]);
    assert_eq!(failed.ending, process::Ending::Exited(1), "{failed}");
    assert!(
        failed.stdout_text().contains("since old/program") && failed.stdout_text().contains("edited +"),
        "{failed}"
    );
    // What has hardly a function in common is no build of it.
    let outcome = simulate(directory, &["old/stripped", "other"]);
    assert!(!outcome.success() && outcome.stderr_text().contains("give an image that"), "{outcome}");
}
