//! Links that generate code: the page faults that a link states are those that its output has.

use std::fmt::Write as _;

use end_to_end::linker_wrapper::Build;
use serde_json::Value;

const FUNCTIONS: usize = 300;
/// Every so many functions one runs.
const STRIDE: usize = 12;

/// Functions of different code, in the halves of the program.
fn half(numbers: std::ops::Range<usize>) -> String {
    let mut text = String::new();
    for number in numbers {
        let steps: String = (1..30).map(|step| format!("m ^= m * {};", step * number + step)).collect();
        writeln!(
            text,
            "__attribute__((noinline)) int work_{number}(int n) {{ volatile int m = n; {steps} return m; }}"
        )
        .unwrap();
    }
    text
}

fn main_file() -> String {
    let mut text = String::new();
    (0..FUNCTIONS).for_each(|number| writeln!(text, "int work_{number}(int);").unwrap());
    text.push_str("int main(int count, char **words) { (void)words; int sum = 0;\n");
    for number in 0..FUNCTIONS {
        let condition = if number % STRIDE == 0 { "" } else { "if (count > 1) " };
        writeln!(text, "{condition}sum += work_{number}(count);").unwrap();
    }
    text.push_str("return sum == 42; }\n");
    text
}

fn simulated(project: &Build, traces: &str) -> u64 {
    let line = format!("reorder simulate program -t {traces} --model linux-4k --config off --format json");
    let report: Value = serde_json::from_slice(&project.must(&line).stdout).unwrap();
    report["totals"][0]["faults"].as_u64().unwrap()
}

#[test]
fn faults_of_links_with_lto_are_those_of_the_output() {
    for lto in ["-flto=thin", "-flto"] {
        let mut project = Build::new("lto").unwrap();
        project.set("REORDER_REPORT", project.folder().join("report.json"));
        project.set("REORDER_TRACES", project.folder().join("traces"));
        project.write("one.c", half(0..FUNCTIONS / 2)).unwrap();
        project.write("two.c", half(FUNCTIONS / 2..FUNCTIONS)).unwrap();
        project.write("main.c", main_file()).unwrap();
        let link = format!(
            "clang$LLVM -O1 {lto} -ffunction-sections -fuse-ld=lld -B \"$(reorder-ld --reorder-links)\" one.c two.c main.c -o program"
        );
        project.must(&link);
        project.must("reorder record -o traces -- ./program");
        let before = simulated(&project, "traces");
        project.must(&link);
        let report = std::fs::read(project.folder().join("report.json")).unwrap();
        let report: Value = serde_json::from_slice(&report).unwrap();
        project.must("reorder record -o again -- ./program");
        let after = simulated(&project, "again");
        assert!(after < before, "{lto}: {before} → {after}, {report}");
        assert_eq!(report["faults"]["before"], before, "{lto}: {report}");
        assert_eq!(report["faults"]["after"], after, "{lto}: {report}");
    }
}
