//! `reorder report` on real programs: the figures, the bytes of the page, and the page in a real browser.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use end_to_end::workspace::{reorder, root};
use reorder_base::tool_versions::{llvm, llvm_library};
use serde_json::{Value, json};

/// Names that only an assembler can define: the first would end the page's data if it were not escaped.
const HOSTILE: [&str; 3] = [
    "</script><img src=x onerror=window.pwned=1>",
    "<!--<script>window.pwned=2//",
    "a&amp;\"b'`${window.pwned=3}`{{script}}",
];

/// Invalid text, and its replacement.
const NO_TEXT: (&[u8], &str) = (b"odd\xff\xfename", "odd\u{fffd}\u{fffd}name");

/// Functions of the program besides the hostile ones and `main`.
const FUNCTIONS: usize = 120;

fn run(directory: &Path, arguments: &[&str]) -> Output {
    let output = reorder().args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn built(command: &mut Command) {
    let output = command.output().expect("the compiler is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A program with functions of half a page of which each run executes some, and names that are not valid identifiers.
fn program(directory: &Path) {
    let mut assembly: Vec<u8> = b".text\n".to_vec();
    let names = HOSTILE.iter().map(|name| name.replace('"', "\\\"").into_bytes()).chain([NO_TEXT.0.to_vec()]);
    for (number, name) in names.enumerate() {
        for line in [
            "\n.globl \"@\"\n.type \"@\", @function\n\"@\":\n",
            &format!("odd_{number}:\n.globl odd_{number}\nret\n.skip 500, 0x90\n.size \"@\", .-\"@\"\n"),
        ] {
            let parts: Vec<&[u8]> = line.as_bytes().split(|&byte| byte == b'@').collect();
            // `@function` is the assembler's own.
            let mut text = parts[0].to_vec();
            for part in &parts[1..] {
                text.extend(if part.starts_with(b"function") { b"@" } else { name.as_slice() });
                text.extend(*part);
            }
            assembly.extend(text);
        }
    }
    assembly.extend(b".section .note.GNU-stack,\"\",@progbits\n");
    fs::write(directory.join("odd.s"), assembly).unwrap();
    let mut source =
        String::from("#include <string.h>\nvoid odd_0(void), odd_1(void), odd_2(void), odd_3(void);\n");
    for number in 0..FUNCTIONS {
        writeln!(
            source,
            "__attribute__((noinline)) void step_{number}(void) {{ __asm__ volatile(\".skip 2000, 0x90\"); }}"
        )
        .unwrap();
    }
    source.push_str("int main(int count, char **words) {\n  odd_0(); odd_1(); odd_2(); odd_3();\n");
    for number in (0..FUNCTIONS).step_by(3) {
        let scenario = if number % 2 == 0 { "open" } else { "search" };
        writeln!(source, "  if (count > 1 && (strcmp(words[1], \"both\") == 0 || strcmp(words[1], \"{scenario}\") == 0)) step_{number}();").unwrap();
    }
    source.push_str("  return 0;\n}\n");
    fs::write(directory.join("program.c"), source).unwrap();
    built(
        Command::new("gcc")
            .args(["-O2", "-fPIE", "-pie", "-o", "program", "program.c", "odd.s"])
            .current_dir(directory),
    );
}

/// The program with recordings of three runs, and the same relocated.
fn relocated() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    program(directory.path());
    for scenario in ["open", "search", "both"] {
        run(directory.path(), &["record", "-o", "traces", "--", "./program", scenario]);
    }
    run(directory.path(), &["apply", "program", "-t", "traces", "-o", "program.fast"]);
    directory
}

fn report(directory: &Path, arguments: &[&str]) -> Value {
    let arguments = [&["report"], arguments, &["--config", "off", "--format", "json"]].concat();
    serde_json::from_slice(&run(directory, &arguments).stdout).unwrap()
}

/// Faults as the page writes them.
fn figure(value: &Value) -> String {
    let number = value.as_f64().unwrap();
    let tenths = (number * 10.0).round() / 10.0;
    if tenths.fract() != 0.0 && tenths < 1000.0 {
        return format!("{tenths:.1}");
    }
    reorder_report::table::grouped(tenths.round() as u64).replace(' ', "\u{202f}")
}

/// The Python that has Playwright; axe-core is beside it.
fn tools() -> PathBuf {
    let python = Command::new(root().join("scripts/install-page-tools")).output().unwrap();
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    PathBuf::from(String::from_utf8(python.stdout).unwrap().trim())
}

fn screenshots(python: &Path, name: &str) -> PathBuf {
    python.ancestors().nth(2).unwrap().with_file_name("page-screenshots").join(name)
}

/// Uses the page in a browser; screenshots stay in the target directory.
fn browse(page: &Path, summary: &Value, name: &str, search: (&str, u64), hostile: &[&str]) {
    let python = tools();
    let model = &summary["models"][0];
    // Under the first model each page of a single recording faults once: the map must show as many.
    let touched: Vec<Value> = summary["scenarios"]
        .as_array()
        .unwrap()
        .iter()
        .map(|scenario| {
            assert_eq!(scenario["recordings"], 1);
            let faults = &scenario["models"][0];
            json!([figure(&faults["faults"]), faults.get("new_faults").map(figure)])
        })
        .collect();
    let expected = json!({
        "before": figure(&model["faults"]),
        "after": model.get("new_faults").map(figure),
        "bound": figure(&model["lower_bound_faults"]),
        "functions": summary["functions"],
        "scenarios": summary["scenarios"].as_array().unwrap().len(),
        "touched": touched,
        "search": [search.0, search.1],
        "hostile": hostile,
    });
    let expected_path = page.with_extension("expected.json");
    fs::write(&expected_path, expected.to_string()).unwrap();
    let screenshots = screenshots(&python, name);
    let outcome = Command::new(&python)
        .arg(root().join("tests/page/browser.py"))
        .args([page, &expected_path, &screenshots])
        .output()
        .unwrap();
    assert!(outcome.status.success(), "{name} in the browser:\n{}", String::from_utf8_lossy(&outcome.stderr));
}

#[test]
fn a_page_of_both_layouts_works_in_a_browser() {
    let directory = relocated();
    let directory = directory.path();
    let summary = report(directory, &["program", "program.fast", "-t", "traces", "-o", "report.html"]);
    assert_eq!(summary["command"], "report");
    assert_eq!(summary["page"], "report.html");
    let names: Vec<&str> = summary["scenarios"]
        .as_array()
        .unwrap()
        .iter()
        .map(|scenario| scenario["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["both", "open", "search"]);
    let model = &summary["models"][0];
    let faults = |key: &str| model[key].as_f64().unwrap();
    assert!(
        faults("new_faults") < faults("faults") && faults("lower_bound_faults") <= faults("new_faults"),
        "{summary:#}"
    );
    assert!(summary["functions_moved"].as_u64().unwrap() > 50, "{summary}");
    let shown = [HOSTILE.as_slice(), &[NO_TEXT.1]].concat();
    browse(&directory.join("report.html"), &summary, "both", ("step_11", 11), &shown);
}

/// Executed basic blocks copied, and nothing moved.
#[test]
fn a_page_of_copied_blocks_works_in_a_browser() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    program(directory);
    for scenario in ["open", "search", "both"] {
        run(directory, &["record", "--blocks", "-o", "traces", "--", "./program", scenario]);
    }
    run(directory, &["apply", "program", "-t", "traces", "--layout", "blocks", "-o", "program.fast"]);
    let arguments =
        ["report", "program", "program.fast", "-t", "traces", "-o", "report.html", "--config", "off"];
    let text = run(directory, &arguments);
    assert!(text.stderr.is_empty(), "{}", String::from_utf8_lossy(&text.stderr));
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains(" of these functions are executed (") && text.contains(" are copied, "), "{text}");
    let summary = report(directory, &["program", "program.fast", "-t", "traces", "-o", "report.html"]);
    let simulated =
        run(directory, &["simulate", "program", "program.fast", "-t", "traces", "--format", "json"]);
    let simulated: Value = serde_json::from_slice(&simulated.stdout).unwrap();
    let faults = |of: &Value, key: &str| of[key].as_f64().unwrap();
    let more = ["faults", "new_faults"]
        .map(|key| faults(&simulated["totals"][0], key) - faults(&summary["models"][0], key));
    // The map has functions alone. In each of the three runs, start-up code is on one page more, and on two once the functions
    // beside it run in their copies.
    assert_eq!(more, [3.0, 6.0]);
    let executed = |key: &str| summary["executed"][key].as_u64().unwrap();
    // Each of the four odd functions has 501 bytes and executes one instruction.
    assert!(executed("bytes") + 4 * 400 < executed("function_bytes"), "{summary:#}");
    let copies = |key: &str| summary["copies"][key].as_u64().unwrap();
    assert!(copies("functions") > 40 && copies("fragments") >= copies("functions"), "{summary:#}");
    assert_eq!(summary["functions_moved"], 0);
    let page = directory.join("report.html");
    browse(&page, &summary, "blocks", ("step_11", 11), &HOSTILE);
    let python = tools();
    let outcome = Command::new(&python)
        .arg(root().join("tests/page/fragments.py"))
        .arg(&page)
        .arg(summary["copies"].to_string())
        .arg(screenshots(&python, "fragments"))
        .output()
        .unwrap();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    // Traces with blocks alone show what runs, without a second image.
    let alone = report(directory, &["program", "-t", "traces", "-o", "alone.html"]);
    assert_eq!((&alone["executed"], alone.get("copies")), (&summary["executed"], None));
    browse(&directory.join("alone.html"), &alone, "executed", ("step_11", 11), &[]);
}

/// The same source with a larger function that runs, without one that ran, linked in another order.
#[test]
fn a_page_of_two_builds_works_in_a_browser() {
    let directory = relocated();
    let directory = directory.path();
    let source = fs::read_to_string(directory.join("program.c")).unwrap();
    let edited =
        source.replacen(".skip 2000", ".skip 9000", 1).replacen("step_6(void) {", "step_6b(void) {", 1);
    let edited = edited.replace(" step_6();", " step_6b();");
    fs::write(directory.join("edited.c"), edited).unwrap();
    built(
        Command::new("gcc")
            .args(["-O2", "-fPIE", "-pie", "-o", "edited", "odd.s", "edited.c"])
            .current_dir(directory),
    );
    let summary = report(directory, &["program", "edited", "-t", "traces", "-o", "report.html"]);
    let pairs = &summary["other_build"];
    assert_eq!(pairs["missing"], 1, "{pairs}");
    assert!(summary.get("functions_kept").is_none() && summary["functions_moved"].as_u64().unwrap() > 50);
    let simulated = run(directory, &["simulate", "program", "edited", "-t", "traces", "--format", "json"]);
    let simulated: Value = serde_json::from_slice(&simulated.stdout).unwrap();
    assert_eq!(summary["models"][0]["new_faults"], simulated["totals"][0]["new_faults"].as_f64().unwrap());
    assert_eq!(pairs, &simulated["other_build"]);
    browse(&directory.join("report.html"), &summary, "builds", ("step_11", 11), &[]);
}

/// What the page shows of a measured process: its title, its kinds, its files, and all faults before and after.
fn shown_process(process: &Value) -> Value {
    let rows = |of: &str| process[of].as_array().unwrap().len();
    let total = |side: &str| figure(&process["total"][side]["all"].as_f64().unwrap().round().into());
    json!([process["title"], rows("kinds"), rows("files"), total("old"), total("new")])
}

/// A program and a library of its own, moved together.
#[test]
fn a_page_of_a_set_shows_each_image() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let functions = |prefix: &str| {
        (0..60).map(|number| format!("__attribute__((noinline)) void {prefix}_{number}(void) {{ __asm__ volatile(\".rept 1000; inc %%eax; .endr\" ::: \"eax\"); }}\n")).collect::<String>()
    };
    let calls =
        |prefix: &str| (0..60).step_by(7).map(|number| format!("{prefix}_{number}();")).collect::<String>();
    fs::write(
        directory.join("own.c"),
        format!("{}void own(void) {{ {} }}\n", functions("own"), calls("own")),
    )
    .unwrap();
    let main = format!(
        "{}void own(void);\nint main(void) {{ own(); {} return 0; }}\n",
        functions("step"),
        calls("step")
    );
    fs::write(directory.join("main.c"), main).unwrap();
    // At -O1 gcc leaves no padding between functions, and none of so many equal ones finds another place.
    for line in [
        &["-O2", "-fPIC", "-shared", "-o", "libown.so", "own.c"][..],
        &["-O2", "-fPIE", "-pie", "-o", "program", "main.c", "-L.", "-lown", "-Wl,-rpath,$ORIGIN"],
    ] {
        built(Command::new("gcc").args(line).current_dir(directory));
    }
    run(directory, &["record", "-o", "traces", "--image", "libown.so", "--", "./program"]);
    run(directory, &["apply", "program", "-t", "traces", "--set", "fast"]);
    let process = ["measure", "--whole-process", "--new-libraries", "fast", "--runs", "1", "--start", "both"];
    let process = [&process[..], &["--format", "json", "./program", "fast/program"]].concat();
    fs::write(directory.join("process.json"), run(directory, &process).stdout).unwrap();
    let measured = ["program", "--set", "fast", "-t", "traces", "--measured", "process.json"];
    let summary = report(directory, &[&measured[..], &["-o", "report.html"]].concat());
    assert_eq!(summary["command"], "report_set");
    let processes = summary["images"][0]["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "cold and warm");
    assert!(summary["images"][1].get("processes").is_none());
    for (arguments, cause) in [
        (
            ["libown.so", "fast/libown.so", "-t", "traces", "--measured", "process.json"],
            "it has runs of ./program",
        ),
        (["program", "fast/program", "-t", "traces", "--measured", "main.c"], "not a measurement"),
    ] {
        let refused = [&["report"], &arguments[..], &["-o", "none.html"]].concat();
        let refused = reorder().args(refused).current_dir(directory).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains(cause), "{refused:?}");
        assert!(!directory.join("none.html").exists());
    }
    // A page that would replace what it is made of.
    let refused =
        reorder().arg("report").args(measured).args(["-o", "process.json"]).current_dir(directory).output();
    assert_eq!(refused.unwrap().status.code(), Some(2));
    let images = summary["images"].as_array().unwrap();
    let names: Vec<&str> = images.iter().map(|image| image["image"].as_str().unwrap()).collect();
    assert!(names.len() == 2 && names[0] == "program" && names[1].ends_with("libown.so"), "{names:?}");
    for image in images {
        let faults = |key: &str| image["models"][0][key].as_f64().unwrap();
        assert!(faults("new_faults") < faults("faults"), "{image:#}");
        let alone = report(
            directory,
            &[
                image["image"].as_str().unwrap(),
                image["new_image"].as_str().unwrap(),
                "-t",
                "traces",
                "-o",
                "one.html",
            ],
        );
        assert_eq!(alone["models"], image["models"], "the same as on a page of its own");
    }
    let wrong = reorder()
        .args(["report", "program", "--set", "traces", "-t", "traces", "-o", "none.html"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("--set traces"), "{wrong:?}");
    let expected: Vec<Value> = images
        .iter()
        .map(|image| {
            json!([figure(&image["models"][0]["faults"]), figure(&image["models"][0]["new_faults"])])
        })
        .collect();
    let python = tools();
    let outcome = Command::new(&python)
        .arg(root().join("tests/page/set.py"))
        .arg(directory.join("report.html"))
        .arg(Value::from(expected).to_string())
        .arg(screenshots(&python, "set"))
        .arg(Value::from(processes.iter().map(shown_process).collect::<Vec<_>>()).to_string())
        .output()
        .unwrap();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
}

#[test]
fn figures_are_those_of_simulate() {
    let directory = relocated();
    let directory = directory.path();
    let summary = report(directory, &["program", "program.fast", "-t", "traces", "-o", "report.html"]);
    let output = run(directory, &["simulate", "program", "program.fast", "-t", "traces", "--format", "json"]);
    let simulated: Value = serde_json::from_slice(&output.stdout).unwrap();
    let totals = simulated["totals"].as_array().unwrap();
    assert_eq!(summary["models"].as_array().unwrap().len(), totals.len());
    for (ours, total) in summary["models"].as_array().unwrap().iter().zip(totals) {
        for key in ["faults", "new_faults"] {
            assert_eq!(ours[key].as_f64(), total[key].as_f64(), "{key} of {}", total["model"]);
        }
        // The page adds up the bounds of runs; that of all runs together is no smaller.
        let bounds =
            [&ours["lower_bound_faults"], &total["lower_bound_faults"]].map(|bound| bound.as_f64().unwrap());
        assert!(bounds[0] <= bounds[1], "{bounds:?} of {}", total["model"]);
    }
}

#[test]
fn the_page_is_the_same_each_time_and_whole() {
    let directory = relocated();
    let directory = directory.path();
    let write = |page: &str, threads: &str| {
        run(
            directory,
            &["report", "program", "program.fast", "-t", "traces", "--threads", threads, "-o", page],
        );
        fs::read(directory.join(page)).unwrap()
    };
    let page = write("one.html", "1");
    assert_eq!(page, write("two.html", "2"), "the bytes depend on the run");
    let text = String::from_utf8(page).unwrap();
    assert!(text.ends_with("</html>\n"));
    assert!(!text.contains("{{"), "a part of the template is left");
    assert_eq!(text.matches("<script").count(), text.matches("</script>").count());
    assert!(!text.contains("pwned"), "a name stands in the page as it is");
    for address in ["http://", "https://"] {
        let allowed = text.matches("http://www.w3.org/2000/svg").count();
        let found = text.matches(address).count();
        assert_eq!(found, if address == "http://" { allowed } else { 0 }, "{address}");
    }
}

#[test]
fn an_image_is_never_replaced_by_its_page() {
    let directory = relocated();
    let directory = directory.path();
    let before = fs::read(directory.join("program")).unwrap();
    let output = reorder()
        .args(["report", "program", "-t", "traces", "-o", "./program"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another name"));
    assert_eq!(fs::read(directory.join("program")).unwrap(), before);
    let output = reorder()
        .args(["report", "program", "-t", "traces", "-o", "missing/report.html"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn what_is_read_is_never_replaced_by_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    program(directory);
    fs::create_dir(directory.join("traces")).unwrap();
    let files = [
        (
            "traces/one.trace",
            "# reorder trace 1\n# image: program\n# columns: nanoseconds address size name\n- - - main\n",
        ),
        ("names.txt", "main\nstep_3\n"),
        ("list", "names.txt\n"),
        ("reorder.toml", "[scenario.open]\ntraces = [\"names.txt\"]\n"),
    ];
    for (name, text) in files {
        fs::write(directory.join(name), text).unwrap();
    }
    for (traces, page) in [
        (&["-t", "traces"][..], "traces/one.trace"),
        (&["-t", "names.txt"], "names.txt"),
        (&["-t", "@list"], "./list"),
        (&["-t", "@list"], "traces/../names.txt"),
        (&["-t", "traces"], "reorder.toml"),
        (&[], "names.txt"),
    ] {
        let arguments = [&["report", "program"], traces, &["-o", page]].concat();
        let output = reorder().args(&arguments).current_dir(directory).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains("would replace"), "{arguments:?}: {said}");
    }
    for (name, text) in files {
        assert_eq!(fs::read_to_string(directory.join(name)).unwrap(), text);
    }
    run(directory, &["report", "program", "-t", "traces", "-o", "traces/report.html"]);
}

/// Two recordings of one scenario, of which one has the weight of three runs and executes more.
#[test]
fn a_scenario_costs_the_mean_of_its_recordings() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    program(directory);
    for (scenario, weight, functions) in [("open", 3, 40), ("open", 1, 4), ("timeless", 1, 9)] {
        let mut text = format!(
            "# reorder trace 1\n# image: program\n# weight: {weight}\n# columns: nanoseconds address size name\n"
        );
        for number in 0..functions {
            let time = if scenario == "open" { (number * 1000).to_string() } else { "-".to_owned() };
            writeln!(text, "{time} - - step_{number}").unwrap();
        }
        fs::create_dir_all(directory.join("traces").join(scenario)).unwrap();
        fs::write(directory.join(format!("traces/{scenario}/{weight}.trace")), text).unwrap();
    }
    let faults = |traces: &str| {
        let summary = report(directory, &["program", "-t", traces, "-o", "part.html"]);
        summary["models"][0]["faults"].as_f64().unwrap()
    };
    let (many, few, other) =
        (faults("traces/open/3.trace"), faults("traces/open/1.trace"), faults("traces/timeless"));
    assert!(many > few + 4.0, "{many} and {few}");
    let summary = report(
        directory,
        &["program", "-t", "traces", "--model", "linux-4k", "--model", "linux-4k", "-o", "report.html"],
    );
    assert_eq!(summary["models"].as_array().unwrap().len(), 1, "a model is asked for twice");
    let names: Vec<_> = summary["scenarios"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["open", "timeless"]);
    let mean = (many * 3.0 + few) / 4.0;
    assert_eq!(summary["scenarios"][0]["models"][0]["faults"], json!(mean));
    assert_eq!(summary["models"][0]["faults"], json!(mean + other));
    let output = run(
        directory,
        &["explain", "program", "step_3", "-t", "traces", "--config", "off", "--format", "json"],
    );
    let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = explained["functions"][0]["runs"].as_array().unwrap();
    assert_eq!((&runs[0]["nanoseconds"], &runs[1]["nanoseconds"]), (&json!(3000), &Value::Null));
}

#[test]
fn a_page_of_one_function_works_in_a_browser() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::write(directory.join("one.s"), ".globl _start\n.type _start,@function\n_start: mov $60, %eax\nxor %edi, %edi\nsyscall\n.size _start,.-_start\n").unwrap();
    built(
        Command::new("gcc").args(["-nostdlib", "-static-pie", "-o", "one", "one.s"]).current_dir(directory),
    );
    fs::write(directory.join("names.txt"), "_start\n").unwrap();
    let summary = report(directory, &["one", "-t", "names.txt", "-o", "report.html"]);
    assert_eq!(summary["functions"], 1);
    browse(&directory.join("report.html"), &summary, "one", ("_start", 1), &[]);
}

#[test]
fn what_was_not_found_is_told_with_its_likely_name() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    program(directory);
    fs::write(directory.join("names.txt"), "main\nstep_3\nstep_six\n<b>gone</b>\n").unwrap();
    let summary = report(directory, &["program", "-t", "names.txt", "-o", "report.html"]);
    let coverage = &summary["coverage"];
    assert_eq!((&coverage["events"], &coverage["missing_functions"]), (&json!(4), &json!(2)));
    let missing: Vec<&str> =
        coverage["missing"].as_array().unwrap().iter().map(|gone| gone["name"].as_str().unwrap()).collect();
    assert_eq!(missing, ["<b>gone</b>", "step_six"]);
    assert!(coverage["missing"][1]["likely"].as_str().unwrap().starts_with("step_"), "{coverage}");
    assert!(summary.get("new_image").is_none());
    let page = fs::read_to_string(directory.join("report.html")).unwrap();
    assert!(page.contains("\\u003cb>gone") && !page.contains("<b>gone"));
}

#[test]
fn images_that_only_a_linker_orders_have_a_page_too() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::write(
        directory.join("risc.c"),
        "int first(void) { return 1; }\nint second(void) { return first(); }\n",
    )
    .unwrap();
    built(
        Command::new(llvm("clang"))
            .args([
                "--target=riscv64-linux-gnu",
                "-O1",
                "-nostdlib",
                "-shared",
                "-fuse-ld=lld",
                "-o",
                "librisc.so",
                "risc.c",
            ])
            .current_dir(directory),
    );
    fs::write(directory.join("names.txt"), "second\nfirst\n").unwrap();
    let summary =
        report(directory, &["librisc.so", "-t", "names.txt", "--model", "android-16k", "-o", "report.html"]);
    assert!(summary["pins"]["unknown_because"].as_str().unwrap().contains("linker"), "{summary}");
    assert_eq!(summary["models"][0]["faults"], json!(1.0));
    browse(&directory.join("report.html"), &summary, "risc", ("second", 1), &[]);
}

/// Debian's LLVM: 129 000 functions.
#[test]
fn a_page_of_a_large_library_stays_below_ten_megabytes() {
    // The file itself: the link in LLVM's own directory is the development package's.
    let library = format!("/usr/lib/{}-linux-gnu/{}", std::env::consts::ARCH, llvm_library());
    let library = library.as_str();
    assert!(Path::new(library).is_file(), "{library} is missing: run scripts/install-tools");
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    for (tool, flag) in [("llvm-nm", "--version"), ("llvm-objdump", "--help")] {
        run(directory, &["record", "-o", "traces", "--image", library, "--", &llvm(tool), flag]);
    }
    run(directory, &["apply", library, "--strategy", "random", "--seed", "1", "-o", "library.new"]);
    let summary = report(directory, &[library, "library.new", "-t", "traces", "-o", "report.html"]);
    assert!(summary["functions"].as_u64().unwrap() > 100_000);
    let bytes = fs::metadata(directory.join("report.html")).unwrap().len();
    assert!(bytes < 10_000_000, "{bytes} bytes");
    browse(&directory.join("report.html"), &summary, "large", ("nothing has this name", 0), &[]);
}
