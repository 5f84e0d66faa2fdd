//! `reorder record` without a program: the scenarios of `reorder.toml`.

use std::path::Path;
use std::process::{Command, Output};

use end_to_end::workspace::reorder;

/// Runs `home` in the directory that holds `here`, `named` if NAME is set, and fails with an argument.
const SOURCE: &str = "
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) int home(int x) { volatile int y = x; return y + 1; }
__attribute__((noinline)) int named(int x) { volatile int y = x; return y + 2; }
int main(int count, char **words) {
    int sum = access(\"here\", F_OK) == 0 ? home(count) : 0;
    if (getenv(\"NAME\")) sum += named(count);
    return count > 1 ? 3 : sum == 77;
}
";

const CONFIGURATION: &str = "
[scenario.plain]
program = 'build/program'
traces = ['traces/plain']
directory = 'place'
[scenario.named]
program = 'build/program'
traces = ['traces/named']
arguments = ['x']
environment = { NAME = 'yes' }
status = 3
[scenario.only-traces]
traces = ['other']
";

fn call(arguments: &[&str], directory: &Path) -> Output {
    reorder().args(arguments).current_dir(directory).output().unwrap()
}

fn project(directory: &Path) {
    for folder in ["build", "place", "below"] {
        std::fs::create_dir(directory.join(folder)).unwrap();
    }
    std::fs::write(directory.join("place/here"), "").unwrap();
    std::fs::write(directory.join("program.c"), SOURCE).unwrap();
    std::fs::write(directory.join("reorder.toml"), CONFIGURATION).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-o", "build/program", "program.c"]).current_dir(directory);
    assert!(compiler.status().expect("gcc is installed").success());
}

fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_scenario_is_recorded_where_its_traces_are() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    project(directory);
    let output = call(&["record", "--runs", "2"], &directory.join("below"));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{told}");
    let read = |name: &str| std::fs::read_to_string(directory.join("traces").join(name)).unwrap();
    let plain = read("plain/program.001.001.trace");
    assert!(plain.contains("\thome\n") && !plain.contains("\tnamed\n"), "{plain}");
    let named = read("named/program.002.001.trace");
    assert!(named.contains("\tnamed\n") && !named.contains("\thome\n"), "{named}");
    assert!(!directory.join("other").exists());
}

/// Waits for ever once it has read its input, and says when it does.
const SERVER: &str = "
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) int fed(int x) { volatile int y = x; return y + 1; }
int main(void) {
    int sum = getchar() == 'f' ? fed(1) : 0;
    puts(\"ready\");
    fflush(stdout);
    for (;;) sleep(sum + 1);
}
";

#[test]
fn scenarios_say_how_servers_end_and_what_they_read() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    std::fs::write(directory.join("server.c"), SERVER).unwrap();
    std::fs::write(directory.join("input"), "food").unwrap();
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-o", "server", "server.c"]).current_dir(directory);
    assert!(compiler.status().expect("gcc is installed").success());
    let scenario = |keys: &str| {
        let text = format!("[scenario.serve]\nprogram = './server'\ntraces = ['traces']\n{keys}\n");
        std::fs::write(directory.join("reorder.toml"), text).unwrap();
    };
    for keys in ["stdin = 'input'\nuntil = 'ready'", "stdin = 'input'\nstop-after = 0.5"] {
        scenario(keys);
        let output = call(&["record"], directory);
        assert_eq!(output.status.code(), Some(0), "{keys}: {output:?}");
        let trace = std::fs::read_to_string(directory.join("traces/server.001.001.trace")).unwrap();
        assert!(trace.contains("\tfed\n"), "{keys}: {trace}");
        let measured = call(&["measure", "--runs", "2", "--format", "json"], directory);
        assert_eq!(measured.status.code(), Some(0), "{keys}: {measured:?}");
    }
    for (keys, told) in [
        ("stop-after = -1.0", "[scenario.serve] has a stop-after that is no number of seconds"),
        ("until = ''", "[scenario.serve] has an empty until"),
        ("stdin = 'absent'", "absent"),
    ] {
        scenario(keys);
        for command in ["record", "measure"] {
            let output = call(&[command], directory);
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.code() == Some(2) && stderr.contains(told), "{command} {keys}: {stderr}");
        }
    }
}

#[test]
fn recordings_are_replaced_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    project(directory);
    assert!(call(&["record", "--runs", "3"], directory).status.success());
    let place = directory.join("traces/plain");
    for (name, text) in
        [("program.009.001.trace", "no trace"), ("notes.trace", "# reorder trace 1\n"), ("list", "main\n")]
    {
        std::fs::write(place.join(name), text).unwrap();
    }
    assert!(call(&["record", "--scenario", "plain"], directory).status.success());
    assert_eq!(files(&place), ["list", "notes.trace", "program.001.001.trace", "program.009.001.trace"]);
    assert_eq!(files(&directory.join("traces/named")).len(), 3, "another scenario");
    // A scenario that cannot be run changes no files.
    std::fs::remove_file(directory.join("build/program")).unwrap();
    assert_eq!(call(&["record"], directory).status.code(), Some(2));
    assert_eq!(files(&place).len(), 4);
}

#[test]
fn starts_that_fail_keep_their_earlier_recordings() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    project(directory);
    assert!(call(&["record", "--runs", "2"], directory).status.success());
    let failing = CONFIGURATION.replace("status = 3", "status = 0");
    std::fs::write(directory.join("reorder.toml"), failing).unwrap();
    let output = call(&["record"], directory);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("scenario named ended with exit status 3 and is not recorded"), "{told}");
    assert!(told.contains("status = 3"), "{told}");
    assert_eq!(files(&directory.join("traces/named")).len(), 2, "as before");
    assert_eq!(files(&directory.join("traces/plain")).len(), 1, "recorded again");
    let shared = CONFIGURATION.replace("traces/named", "below/../traces/plain");
    std::fs::write(directory.join("reorder.toml"), shared).unwrap();
    let output = call(&["record"], directory);
    assert!(String::from_utf8_lossy(&output.stderr).contains("the same place for traces"));
}

#[test]
fn mistakes_are_told_with_what_to_type() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    project(directory);
    let fails = |words: &[&str], part: &str| {
        let output = call(words, directory);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {told}");
        assert!(told.contains(part), "{part} in {told}");
    };
    fails(&["record", "--scenario", "plane"], "plain");
    fails(&["record", "--scenario", "only-traces"], "has no program");
    fails(&["record", "--", "build/program"], "-o traces");
    fails(&["record", "-o", "traces"], "-- PROGRAM");
    fails(&["record", "--config", "off"], "[scenario.NAME]");
    let shared = CONFIGURATION.replace("traces/named", "traces/plain");
    std::fs::write(directory.join("reorder.toml"), shared).unwrap();
    fails(&["record"], "the same place for traces");
}
