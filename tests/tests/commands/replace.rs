//! Effects on the file: attributes, links, running programs, and every way in which writing can fail.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use end_to_end::process::{self, Ending, Outcome, copy_executable, shell};
use end_to_end::workspace;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
const RANDOM: [&str; 4] = ["--strategy", "random", "--seed", "5"];

/// A directory on the file system of the build: a temporary one in memory may not support attributes.
fn scratch() -> TempDir {
    let directory = workspace::directory_on_disk();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// The ordinary program of the fixtures.
fn program(directory: &Path) -> PathBuf {
    let image = directory.join("program");
    let source = workspace::root().join("tests/fixtures/plain_program/main.c");
    shell(&format!("gcc -O2 -fPIE -pie '{}' -o '{}'", source.display(), image.display()), LIMIT).unwrap();
    image
}

fn apply(image: &Path, arguments: &[&str]) -> Outcome {
    let mut command = workspace::reorder();
    process::run(command.arg("apply").arg(image).args(RANDOM).args(arguments), LIMIT).unwrap()
}

fn apply_in_place(image: &Path) -> Outcome {
    apply(image, &["--in-place"])
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

// case: attributes, links, full disks, death while writing
#[test]
fn mode_owner_and_attributes_are_kept() {
    let directory = scratch();
    let image = program(directory.path());
    let path = image.display();
    shell(&format!("setfattr -n user.note -v kept '{path}' && setfacl -m u:1:rx '{path}'"), LIMIT).unwrap();
    let is_root = nix::unistd::geteuid().is_root();
    if is_root {
        shell(&format!("chown 1:1 '{path}' && /sbin/setcap cap_net_raw+ep '{path}'"), LIMIT).unwrap();
    }
    shell(&format!("chmod u+s '{path}'"), LIMIT).unwrap();
    if is_root {
        // Changing the mode of a privileged file may drop the capability: set it last.
        shell(&format!("/sbin/setcap cap_net_raw+ep '{path}'"), LIMIT).unwrap();
    }
    let output = directory.path().join("output");
    let outcome = apply(&image, &["-o", &output.to_string_lossy()]);
    assert!(outcome.success(), "{outcome}");
    let describe = |file: &Path| {
        let line = format!(
            "cd '{}' && f='{}'; stat -c '%a %u %g %s' $f; getfattr -d -m - --absolute-names $f | tail -n +2; getfacl -cn $f",
            directory.path().display(),
            file.file_name().unwrap().to_string_lossy()
        );
        shell(&line, LIMIT).unwrap()
    };
    assert_eq!(describe(&image), describe(&output));
    assert!(describe(&output).contains("user.note=\"kept\""), "{}", describe(&output));
}

#[test]
fn a_file_of_a_package_is_told_of() {
    let directory = scratch();
    let image = program(directory.path());
    let info = directory.path().join("dpkg/info");
    fs::create_dir_all(&info).unwrap();
    let canonical = image.canonicalize().unwrap();
    fs::write(info.join("tool.list"), format!("/.\n{}\n", canonical.display())).unwrap();
    let apply = |arguments: &[&str]| {
        let mut command = workspace::reorder();
        command.env("DPKG_ADMINDIR", directory.path().join("dpkg")).arg("apply").arg(&image);
        process::run(command.args(RANDOM).args(["--format", "json"]).args(arguments), LIMIT).unwrap()
    };
    let elsewhere = apply(&["-o", &directory.path().join("other").to_string_lossy()]);
    assert!(elsewhere.success() && !elsewhere.stderr_text().contains("package"), "{elsewhere}");
    let in_place = apply(&["--in-place"]);
    let expected = format!("dpkg-divert --local --no-rename --add {}", canonical.display());
    for said in [in_place.stdout_text(), in_place.stderr_text()] {
        assert!(said.contains("of the package tool") && said.contains(&expected), "{said}");
    }
}

// case: attributes, links, full disks, death while writing
#[test]
fn a_symbolic_link_stays_and_its_target_is_replaced() {
    let directory = scratch();
    let image = program(directory.path());
    let before = fs::read(&image).unwrap();
    let link = directory.path().join("link");
    symlink("program", &link).unwrap();
    let outcome = apply_in_place(&link);
    assert!(outcome.success(), "{outcome}");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_ne!(fs::read(&image).unwrap(), before);
    assert_eq!(names(directory.path()), ["link", "program"]);
}

// case: attributes, links, full disks, death while writing
#[test]
fn other_names_of_the_same_file_are_told_of() {
    let directory = scratch();
    let image = program(directory.path());
    let other = directory.path().join("other");
    fs::hard_link(&image, &other).unwrap();
    let before = fs::read(&other).unwrap();
    let outcome = apply_in_place(&image);
    assert!(outcome.success(), "{outcome}");
    assert!(outcome.stderr_text().contains("other name"), "{outcome}");
    assert_eq!(fs::read(&other).unwrap(), before, "the other name keeps the old file");
    assert_eq!(fs::metadata(&image).unwrap().nlink(), 1);
}

// case: attributes, links, full disks, death while writing
#[test]
fn a_directory_without_permission_is_a_clean_failure() {
    let directory = scratch();
    let image = program(directory.path());
    // The superuser can write everywhere, and other users may not reach the build directory: so a copy of the
    // command runs as nobody.
    let open = tempfile::tempdir().unwrap();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (command_copy, image_copy, locked) =
        (open.path().join("reorder"), open.path().join("program"), open.path().join("locked"));
    copy_executable(workspace::reorder_path(), &command_copy).unwrap();
    copy_executable(&image, &image_copy).unwrap();
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = if nix::unistd::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&command_copy);
        command
    } else {
        Command::new(&command_copy)
    };
    command.arg("apply").arg(&image_copy).args(RANDOM).arg("-o").arg(locked.join("output"));
    let outcome = process::run(&mut command, LIMIT).unwrap();
    assert_eq!(outcome.ending, Ending::Exited(2), "{outcome}");
    assert!(outcome.stderr_text().contains("locked"), "the message names the place: {outcome}");
    assert!(names(&locked).is_empty());
}

// case: attributes, links, full disks, death while writing
#[test]
fn a_full_disk_is_a_clean_failure() {
    let directory = scratch();
    let image = program(directory.path());
    let before = fs::read(&image).unwrap();
    // A limit on file sizes simulates the full disk: the write fails half-way with an error.
    let line = format!(
        "trap '' XFSZ; ulimit -f 8; exec '{}' apply '{}' --strategy random --seed 5 --in-place",
        workspace::reorder_path().display(),
        image.display()
    );
    let outcome = process::run(Command::new("bash").args(["-c", &line]), LIMIT).unwrap();
    assert_eq!(outcome.ending, Ending::Exited(2), "{outcome}");
    assert_eq!(fs::read(&image).unwrap(), before);
    assert_eq!(names(directory.path()), ["program"]);
}

// case: attributes, links, full disks, death while writing
#[test]
fn killed_at_any_time_the_file_is_old_or_new() {
    let directory = scratch();
    let image = program(directory.path());
    let old = fs::read(&image).unwrap();
    let output = directory.path().join("output");
    assert!(apply(&image, &["-o", &output.to_string_lossy()]).success());
    let new = fs::read(&output).unwrap();
    for delay in 0..40 {
        fs::write(&image, &old).unwrap();
        let mut child = workspace::reorder()
            .arg("apply")
            .arg(&image)
            .args(RANDOM)
            .arg("--in-place")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_micros(delay * 700));
        let _ = child.kill();
        child.wait().unwrap();
        let now = fs::read(&image).unwrap();
        assert!(now == old || now == new, "killed after {delay} steps the file is neither old nor new");
    }
}

// case: a running program survives
#[test]
fn a_running_program_survives_its_replacement() {
    let directory = scratch();
    let image = directory.path().join("program");
    let source = directory.path().join("main.c");
    fs::write(
        &source,
        "#include <stdio.h>\n#include <stdlib.h>\n\
         __attribute__((noinline)) int twice(int n) { return 2 * n; }\n\
         __attribute__((noinline)) int next(int n) { return twice(n) + 1; }\n\
         int main(void) { char line[32]; setvbuf(stdout, NULL, _IOLBF, 0);\n\
         while (fgets(line, sizeof line, stdin)) printf(\"%d\\n\", next(atoi(line))); return 0; }\n",
    )
    .unwrap();
    shell(&format!("gcc -O1 -fPIE -pie '{}' -o '{}'", source.display(), image.display()), LIMIT).unwrap();
    let mut child = Command::new(&image).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut questions = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    writeln!(questions, "4").unwrap();
    assert_eq!(answers.next().unwrap().unwrap(), "9");
    let outcome = apply_in_place(&image);
    assert!(outcome.success(), "{outcome}");
    writeln!(questions, "10").unwrap();
    assert_eq!(answers.next().unwrap().unwrap(), "21");
    drop(questions);
    assert!(child.wait().unwrap().success());
}
