//! A program with its libraries, and Python wheels: what is moved together, and the messages.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use end_to_end::process::{self, Outcome, shell};
use end_to_end::workspace::reorder;

const LIMIT: Duration = Duration::from_secs(600);

fn run(command: &mut Command) -> Outcome {
    process::run(command, LIMIT).unwrap()
}

/// A program with a library of its own next to it.
fn program_with_library(directory: &Path) {
    let functions = |prefix: &str| -> String {
        let one = |index: usize| {
            format!("int {prefix}{index}(int x) {{ return printf(\"{prefix}{index} %d\\n\", x); }}\n")
        };
        format!("#include <stdio.h>\n{}", (0..40).map(one).collect::<String>())
    };
    fs::write(directory.join("own.c"), functions("own")).unwrap();
    let main = "int own7(int); int own31(int);\nint main(int c, char **v) { (void)v; main3(c); own31(1); main17(2); return own7(3) > 99; }\n";
    fs::write(directory.join("main.c"), functions("main") + main).unwrap();
    let line = format!(
        "cd '{}' && gcc -O1 -fPIC -shared own.c -o libown.so && gcc -O1 main.c -L. -lown -Wl,-rpath,'$ORIGIN' -o program",
        directory.display()
    );
    shell(&line, LIMIT).unwrap();
}

#[test]
fn a_program_moves_together_with_the_libraries_that_it_loads() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    program_with_library(directory);
    let program = directory.join("program");
    let before = run(&mut Command::new(&program));
    let traces = directory.join("traces");
    let recorded = run(reorder().args(["record", "--libraries", "-o"]).arg(&traces).arg("--").arg(&program));
    assert_eq!(recorded.stdout_text(), before.stdout_text());
    let set = directory.join("set");
    let applied = run(reorder()
        .args(["apply", "--format", "json"])
        .arg(&program)
        .arg("-t")
        .arg(&traces)
        .arg("--set")
        .arg(&set));
    assert!(applied.success(), "{applied}");
    let report: serde_json::Value = serde_json::from_str(&applied.stdout_text()).unwrap();
    let outputs: Vec<&str> =
        report["images"].as_array().unwrap().iter().filter_map(|image| image["output"].as_str()).collect();
    for name in ["program", "libown.so", "libc.so.6"] {
        let output = set.join(name);
        assert!(outputs.contains(&output.to_str().unwrap()), "{outputs:?}");
        let old = if name == "libc.so.6" { None } else { Some(directory.join(name)) };
        if let Some(old) = old {
            let verified = run(reorder().arg("verify").arg(&old).arg(&output));
            assert!(verified.success(), "{verified}");
            assert_ne!(fs::read(&old).unwrap(), fs::read(&output).unwrap(), "{name} did not move");
        }
    }
    let loader = run(Command::new("bash").args(["-c", report["start"].as_str().unwrap()]));
    assert_eq!(loader.stdout_text(), before.stdout_text());
    let order = |image: &Path| {
        let listing = shell(&format!("nm -n '{}' | grep -o ' T own[0-9]*'", image.display()), LIMIT).unwrap();
        listing.split_whitespace().filter(|word| *word != "T").take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(order(&set.join("libown.so")), ["own31", "own7"], "what ran first stands first");
}

#[test]
fn optimize_lays_out_a_program_and_its_libraries() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    program_with_library(directory);
    let optimize = |words: &[&str]| {
        let first = ["optimize", "./program", "--libraries", "-o", "set", "--measure-runs", "2"];
        run(reorder().args(first).args(words).current_dir(directory))
    };
    let outcome = optimize(&["--run", "", "--run", "one two", "--keep-traces", "traces", "--format", "json"]);
    assert!(outcome.success(), "{outcome}");
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout_text()).unwrap();
    let images = report["images"].as_array().unwrap();
    let image = |name: &str| {
        let found = images.iter().find(|image| image["image"].as_str().unwrap().ends_with(name));
        found.unwrap_or_else(|| panic!("{name} is not in {report}"))
    };
    let faults = |value: &serde_json::Value, key: &str| value[key].as_u64().unwrap();
    for name in ["/program", "/libown.so", "/libc.so.6"] {
        let image = image(name);
        assert!(faults(image, "new_faults") <= faults(image, "old_faults"), "{image}");
        assert!(faults(image, "lower_bound_faults") <= faults(image, "new_faults"), "{image}");
        assert!(fs::exists(directory.join(image["output"].as_str().unwrap())).unwrap());
    }
    let sum = |key: &str| images.iter().map(|image| faults(image, key)).sum::<u64>();
    for key in ["old_faults", "new_faults", "lower_bound_faults"] {
        assert_eq!(faults(&report["total"], key), sum(key));
    }
    assert!(sum("new_faults") < sum("old_faults"), "{report}");
    for run in report["runs"].as_array().unwrap() {
        let figures = run["measured"]["figures"].as_array().unwrap();
        let minor = figures.iter().find(|figure| figure["kind"] == "minor_faults").unwrap();
        assert!(minor["new"]["median"].as_f64().unwrap() > 0.0, "{run}");
    }
    assert_eq!(
        fs::read_dir(directory.join("traces"))
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("libown"))
            .count(),
        2
    );
    let before = run(Command::new("./program").current_dir(directory));
    let after =
        run(Command::new("bash").args(["-c", report["start"].as_str().unwrap()]).current_dir(directory));
    assert_eq!(after.stdout_text(), before.stdout_text());
    let left: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(".reorder"))
        .collect();
    assert!(left.is_empty(), "{left:?}");

    let text = optimize(&["--run", ""]);
    for expected in [
        "text page faults, simulated",
        "all images",
        "the whole process, measured",
        "moved and verified in set",
    ] {
        assert!(text.stdout_text().contains(expected), "{expected}: {text}");
    }
    let automatic = optimize(&["--run", "", "--layout", "auto"]);
    assert!(
        !automatic.success() && automatic.stderr_text().contains("--layout functions, blocks or both"),
        "{automatic}"
    );
}

/// Copies make the symbols of functions lead to them, and these symbols have names.
#[test]
fn names_are_placed_in_libraries_with_copied_blocks() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    program_with_library(directory);
    let words =
        ["optimize", "./program", "--libraries", "--layout", "blocks", "-o", "set", "--measure-runs", "0"];
    let outcome = run(reorder().args(words).args(["--run", ""]).current_dir(directory));
    assert!(outcome.success(), "{outcome}");
    assert!(!outcome.stderr_text().contains("stay where they are"), "{outcome}");
    let names = |image: &Path| {
        let bytes = fs::read(image).unwrap();
        bytes.windows(7).position(|window| window == b"\0own31\0").unwrap()
    };
    let (old, new) = (directory.join("libown.so"), directory.join("set/libown.so"));
    assert!(names(&new) < names(&old), "the name that the program looks up stands first");
    let verified = run(reorder().arg("verify").args([&old, &new]));
    assert!(verified.success(), "{verified}");
    let before = run(Command::new("./program").current_dir(directory));
    let after = run(Command::new("set/program").current_dir(directory).env("LD_LIBRARY_PATH", "set"));
    assert_eq!(after.stdout_text(), before.stdout_text());
}

#[test]
fn a_set_never_takes_the_place_of_its_inputs() {
    let scratch = tempfile::tempdir().unwrap();
    program_with_library(scratch.path());
    let program = scratch.path().join("program");
    let before = fs::read(&program).unwrap();
    let refused = run(reorder()
        .arg("apply")
        .arg(&program)
        .args(["--strategy", "random", "--seed", "1", "--set"])
        .arg(scratch.path()));
    assert!(!refused.success() && refused.stderr_text().contains("would replace an image"), "{refused}");
    assert_eq!(fs::read(&program).unwrap(), before);
}

/// Moves the program `arguments` begin with, at random, and expects a refusal that says `reason` and writes no file.
fn refused_set(directory: &Path, program: &str, set: &str, environment: &[(&str, &str)], reason: &str) {
    let applied = run(reorder().current_dir(directory).envs(environment.iter().copied()).args([
        "apply",
        program,
        "--strategy",
        "random",
        "--seed",
        "1",
        "--set",
        set,
    ]));
    assert!(!applied.success() && applied.stderr_text().contains(reason), "{program}: {applied}");
    assert!(!directory.join(set).exists(), "{program}");
}

#[test]
fn a_set_that_would_not_start_from_its_own_images_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    let line = format!(
        "cd '{}' && mkdir bin lib names
        functions() {{ for n in 0 1 2 3 4 5; do echo \"int $1$n(int x) {{ return x * $n + 1; }}\"; done; }}
        functions own > own.c; functions main > main.c; echo 'int own1(int);int main(int c, char **v) {{ (void)v; return own1(c) > 9; }}' >> main.c
        gcc -fPIC -shared own.c -o lib/libown.so -Wl,-soname,libown.so
        gcc -fPIC -shared own.c -o names/same -Wl,-soname,same
        gcc main.c names/same -o same
        gcc main.c -Llib -lown -o bin/beside -Wl,-rpath,'$ORIGIN/../lib'
        gcc main.c -Llib -lown -o bin/before -Wl,--disable-new-dtags,-rpath,\"$PWD/lib\"",
        directory.display()
    );
    shell(&line, LIMIT).unwrap();
    let names = directory.join("names");
    let search = [("LD_LIBRARY_PATH", names.to_str().unwrap())];
    refused_set(directory, "same", "set", &search, "would have the same name");
    refused_set(directory, "bin/before", "set", &[], "the moved program would load");
    // A library that is left out, and was found next to the program.
    fs::write(directory.join("order"), "main3\nmain1\n").unwrap();
    let traces = directory.join("traces");
    let recorded = run(reorder().current_dir(directory).args(["record", "-o", "traces", "--", "bin/beside"]));
    assert!(recorded.success() && traces.exists(), "{recorded}");
    let move_to = |set: &str| {
        run(reorder().current_dir(directory).args(["apply", "bin/beside", "-t", "traces", "--set", set]))
    };
    let refused = move_to("far/away/set");
    assert!(!refused.success() && refused.stderr_text().contains("would not start"), "{refused}");
    assert!(!directory.join("far").exists(), "a folder that was made for the set stays");
    let applied = move_to("set");
    assert!(applied.success(), "{applied}");
    let moved = run(&mut Command::new(directory.join("set/beside")));
    assert!(moved.success(), "{moved}");
}

#[test]
fn no_code_of_the_program_runs_when_its_libraries_are_listed() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    fs::write(
        directory.join("audit.c"),
        "#include <fcntl.h>\nunsigned la_version(unsigned v) { open(\"executed\", O_CREAT | O_WRONLY, 0600); return v; }\n",
    )
    .unwrap();
    fs::write(directory.join("main.c"), "int main(void) { return 0; }\n").unwrap();
    let line = format!(
        "cd '{}' && gcc -fPIC -shared audit.c -o libaudit.so && gcc main.c -o program -Wl,--audit,\"$PWD/libaudit.so\"",
        directory.display()
    );
    shell(&line, LIMIT).unwrap();
    refused_set(directory, "program", "set", &[], "auditing libraries");
    assert!(!directory.join("executed").exists());
}

#[test]
fn libraries_loaded_by_path_are_listed_for_a_shell() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    program_with_library(directory);
    let line = format!(
        "cd '{}' && gcc -O1 -fPIC -shared own.c -o plain.so && gcc -O1 main.c ./plain.so -o by-path",
        directory.display()
    );
    shell(&line, LIMIT).unwrap();
    let applied = run(reorder().current_dir(directory).env_remove("LD_LIBRARY_PATH").args([
        "apply",
        "by-path",
        "--strategy",
        "random",
        "--seed",
        "1",
        "--format",
        "json",
        "--set",
        "a set",
    ]));
    assert!(applied.success(), "{applied}");
    let report: serde_json::Value = serde_json::from_str(&applied.stdout_text()).unwrap();
    let images = report["images"].as_array().unwrap();
    let plain = images.iter().find(|image| image["image"] == "./plain.so").expect("it is listed");
    assert!(plain["left_out"].as_str().unwrap().contains("by a path"), "{plain}");
    let before = run(Command::new("./by-path").current_dir(directory));
    let line = report["start"].as_str().unwrap();
    let started = run(Command::new("bash").args(["-c", line]).current_dir(directory));
    assert_eq!(started.stdout_text(), before.stdout_text(), "{line}");
    assert!(line.contains(&format!("'{}/a set'", directory.display())), "{line}");
}

/// Reads every line of a wheel's list and compares it with the files.
const CHECK_LIST: &str = "
import base64, csv, hashlib, io, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
assert wheel.testzip() is None
record = next(name for name in wheel.namelist() if name.endswith('.dist-info/RECORD'))
rows = list(csv.reader(io.StringIO(wheel.read(record).decode())))
for name, digest, size in rows:
    if digest:
        data = wheel.read(name)
        found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()
        assert digest == 'sha256=' + found and int(size) == len(data), name
assert sorted(name for name, _, _ in rows) == sorted(name for name in wheel.namelist() if not name.endswith('/'))
";

/// Makes a wheel of a library, next to one that is damaged.
const MAKE_WHEEL: &str = "
import sys, zipfile
library = open('libown.so', 'rb').read()
with zipfile.ZipFile('one.whl', 'w', zipfile.ZIP_DEFLATED) as wheel:
    wheel.writestr('p/bad.so', library[:200])
    wheel.writestr('p/own.so', library)
    wheel.writestr('p-1.dist-info/RECORD', 'p/bad.so,,\\np/own.so,,\\np-1.dist-info/RECORD,,\\n')
";

#[test]
fn damaged_images_in_a_wheel_stay() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    program_with_library(directory);
    let python = |script: &str| {
        let made = run(Command::new("python3").args(["-c", script]).current_dir(directory));
        assert!(made.success(), "{made}");
    };
    python(MAKE_WHEEL);
    let apply = ["apply", "one.whl", "--strategy", "random", "--seed", "3", "-o", "new.whl"];
    let applied = run(reorder().current_dir(directory).args(apply));
    assert!(applied.success() && applied.stderr_text().contains("p/bad.so stays as it is"), "{applied}");
    let verify = || run(reorder().current_dir(directory).args(["verify", "one.whl", "new.whl"]));
    assert!(verify().success(), "{}", verify());
    let shorter = MAKE_WHEEL.replace("one.whl", "new.whl").replace("[:200]", "[:100]");
    python(&shorter);
    let verified = verify();
    assert_eq!(verified.ending, process::Ending::Exited(1), "{verified}");
    assert!(verified.stdout_text().contains("differs: p/bad.so"), "{verified}");
}

// case: wheels of a large program, both processors
#[test]
fn a_wheel_installs_and_works_with_its_images_moved() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    let line = format!(
        "cd '{}' && python3 -m venv venv && venv/bin/pip download -q --no-deps --only-binary :all: \
         --python-version 3.11 --platform manylinux2014_x86_64 -d wheels markupsafe==3.0.2 regex==2024.11.6",
        directory.display()
    );
    shell(&line, LIMIT).unwrap();
    let wheels: Vec<_> =
        fs::read_dir(directory.join("wheels")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(wheels.len(), 2);
    fs::create_dir(directory.join("moved")).unwrap();
    for wheel in &wheels {
        let moved = directory.join("moved").join(wheel.file_name().unwrap());
        let applied = run(reorder()
            .arg("apply")
            .arg(wheel)
            .args(["--strategy", "random", "--seed", "5", "-o"])
            .arg(&moved));
        assert!(applied.success(), "{applied}");
        // The other has so few functions that a permutation may be the identity.
        let is_large = wheel.file_name().unwrap().to_string_lossy().starts_with("regex");
        assert!(!is_large || fs::read(wheel).unwrap() != fs::read(&moved).unwrap(), "nothing moved");
        let checked = run(Command::new("python3").args(["-c", CHECK_LIST]).arg(&moved));
        assert!(checked.success(), "{checked}");
        let proven = run(reorder().arg("verify").arg(wheel).arg(&moved));
        assert!(proven.success() && proven.stdout_text().contains("proven: "), "{proven}");
    }
    let use_both = "import sys, markupsafe._speedups, markupsafe, regex
print(markupsafe.escape('<a & \"b\">'), regex.findall(r'(?V1)\\b\\p{Lu}[a-z--[aeiou]]\\w*', 'Try My Ab Cde'), regex.sub(r'(?i)(x+)(?=y)', '-', 'aXxyxy'))";
    for folder in ["wheels", "moved"] {
        let line = format!(
            "cd '{}' && venv/bin/pip install -q --no-deps --no-index --target site-{folder} {folder}/*.whl",
            directory.display()
        );
        shell(&line, LIMIT).unwrap();
    }
    let result = |folder: &str| {
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", directory.join(format!("site-{folder}"))).args(["-c", use_both]);
        run(&mut command)
    };
    let before = result("wheels");
    assert!(before.success(), "{before}");
    assert_eq!(before.stdout_text(), result("moved").stdout_text());
}
