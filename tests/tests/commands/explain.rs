//! `reorder explain`: answers about functions of a real program, compared with `nm` and with the result of `apply`.

use std::path::Path;
use std::process::{Command, Output};

use end_to_end::workspace::reorder;
use serde_json::Value;

/// `shared` always runs, `extra` with an argument, `spare` with three; `lonely` has no references; another function
/// takes an address inside `anchored`.
const SOURCE: &str = "
#define BODY(x) volatile int y = x; for (int i = 0; i < 3; i++) y += i * x; return y;
__attribute__((noinline)) int shared(int x) { BODY(x) }
__attribute__((noinline)) int filler(int x) { BODY(x + 1) }
__attribute__((noinline)) int extra(int x) { BODY(x + 2) }
__attribute__((noinline)) int spare(int x) { BODY(x + 3) }
__attribute__((noinline)) int lonely(int x) { BODY(x + 4) }
__asm__(\".text\\n.type anchored,@function\\nanchored: nop\\ninside: mov $3, %eax\\nret\\n.size anchored,.-anchored\\n\"
        \".type taker,@function\\ntaker: lea inside(%rip), %rax\\njmp *%rax\\n.size taker,.-taker\\n\");
int taker(void);
int main(int count, char **words) {
    int sum = shared(count) + taker();
    if (count > 1) sum += extra(count);
    if (count > 3) sum += spare(count);
    return sum == 12345;
}
";

fn call(arguments: &[&str], directory: &Path) -> Output {
    reorder().args(arguments).current_dir(directory).output().unwrap()
}

fn explained(arguments: &[&str], directory: &Path) -> Value {
    let words =
        [&["explain", "program"], arguments, &["-t", "traces", "--format", "json", "--config", "off"]];
    let output = call(&words.concat(), directory);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn built(directory: &Path) {
    std::fs::write(directory.join("program.c"), SOURCE).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-o", "program", "program.c"]).current_dir(directory);
    assert!(compiler.status().expect("gcc is installed").success());
    for (folder, arguments) in [("traces/bare", &[][..]), ("traces/extra", &["x"])] {
        let words = [&["record", "-q", "-o", folder, "--", "./program"], arguments].concat();
        assert!(call(&words, directory).status.success());
    }
}

fn address_of(symbol: &str, image: &str, directory: &Path) -> String {
    let output = Command::new("nm").arg(image).current_dir(directory).output().expect("nm is installed");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.ends_with(&format!(" {symbol}"))).unwrap();
    format!("0x{}", line.split(' ').next().unwrap().trim_start_matches('0'))
}

#[test]
fn answers_are_those_of_nm_and_of_apply() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    built(directory);
    let planned = explained(&["shared", "extra", "spare", "lonely", "anchored"], directory);
    assert!(call(&["apply", "-q", "program", "-t", "traces", "-o", "moved"], directory).status.success());
    let moved = explained(&["shared", "extra", "spare", "lonely", "anchored", "--new", "moved"], directory);
    for (index, (symbol, reason, runs)) in [
        ("shared", "needed", 2),
        ("extra", "needed", 1),
        ("spare", "referenced", 0),
        ("lonely", "left-in-order", 0),
        ("anchored", "pinned", 0),
    ]
    .into_iter()
    .enumerate()
    {
        for answers in [&planned, &moved] {
            let answer = &answers["functions"][index];
            assert_eq!(answer["name"], symbol);
            assert_eq!(answer["placement"]["reason"], reason, "{symbol}");
            assert_eq!(answer["runs"].as_array().unwrap().len(), runs, "{symbol}");
            assert_eq!(
                answer["old"]["address"],
                address_of(symbol, "program", directory).as_str(),
                "{symbol}"
            );
            assert_eq!(answer["new"]["address"], address_of(symbol, "moved", directory).as_str(), "{symbol}");
        }
    }
    let anchored = &planned["functions"][4];
    assert_eq!(anchored["pin"]["reason"], "inside_addressed");
    assert_eq!(anchored["old"]["address"], anchored["new"]["address"]);
    let extra = &planned["functions"][1];
    assert_eq!(extra["runs"][0]["scenario"], "extra");
    assert_eq!(extra["runs"][0]["rank"], extra["runs"][0]["of_functions"], "it runs last");
    assert!(planned["functions"][2]["placement"]["because"][0].as_str().unwrap().contains("main"));
}

#[test]
fn an_address_inside_a_function_stands_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    built(directory);
    let inside = address_of("inside", "program", directory);
    let by_address = call(&["explain", "program", &inside, "-t", "traces"], directory);
    assert!(String::from_utf8_lossy(&by_address.stdout).starts_with("anchored\n"));
}

#[test]
fn faults_of_functions_add_up_to_those_of_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    built(directory);
    let simulated = call(
        &["simulate", "program", "-t", "traces/extra", "--model", "linux-4k", "--format", "json"],
        directory,
    );
    let simulated: Value = serde_json::from_slice(&simulated.stdout).unwrap();
    let listed = Command::new("nm").arg("program").current_dir(directory).output().unwrap();
    let addresses: std::collections::BTreeSet<String> = String::from_utf8(listed.stdout)
        .unwrap()
        .lines()
        .filter(|line| line.contains(" T ") || line.contains(" t "))
        .map(|line| format!("0x{}", line.split(' ').next().unwrap()))
        .collect();
    let mut sum = 0;
    let mut seen = std::collections::BTreeSet::new();
    for address in addresses {
        let words =
            ["explain", "program", &address, "-t", "traces/extra", "--model", "linux-4k", "--format", "json"];
        let output = call(&words, directory);
        // Labels of sections that hold no functions.
        let Ok(answer) = serde_json::from_slice::<Value>(&output.stdout) else { continue };
        let function = &answer["functions"][0];
        if seen.insert(function["old"]["address"].as_str().unwrap().to_owned()) {
            sum += function["runs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|run| run["faults"].as_u64().unwrap())
                .sum::<u64>();
        }
    }
    assert_eq!(simulated["totals"][0]["faults"], sum);
}
