//! The recorder where programs end badly: killed in the middle of a fork, outlived by others, or out of reach.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use end_to_end::process::copy_executable;
use end_to_end::recorded_programs::{compile, request};
use end_to_end::workspace::reorder;
use reorder_run::record::record;
use reorder_system::stops::Ending;

/// Far longer than any run takes that ends at all.
const FOR_EVER: Duration = Duration::from_secs(120);

#[test]
fn breakpoints_do_not_harm_what_outlives_the_program() {
    const RECORDINGS: usize = 1200;
    const FUNCTIONS: usize = 400;
    // Four threads execute one function after the other for the first time; the guard reports how they ended.
    let mut source = String::from(
        "#include <fcntl.h>\n#include <pthread.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n",
    );
    for thread in ["a", "b", "c", "d"] {
        let name = |number: usize| format!("{thread}{number}");
        source.extend((0..FUNCTIONS).map(|number| format!("void {}(void) {{}}\n", name(number))));
        let calls: String = (0..FUNCTIONS).map(|number| format!("{}();", name(number))).collect();
        source.push_str(&format!("void *work_{thread}(void *unused) {{ {calls} return 0; }}\n"));
    }
    source.push_str(
        r#"
        int main(int count, char **words) {
            int ready[2], status, result;
            char byte = 'x';
            pthread_t threads[4];
            pipe(ready);
            if (fork()) {
                read(ready[0], &byte, 1);
                usleep(atoi(words[1]));
                return 0;
            }
            if (fork()) {
                wait(&status);
                result = open(words[2], O_CREAT | O_APPEND | O_WRONLY, 0666);
                write(result, status ? "!" : ".", 1);
                return 0;
            }
            write(ready[1], &byte, 1);
            pthread_create(threads, 0, work_a, 0);
            pthread_create(threads + 1, 0, work_b, 0);
            pthread_create(threads + 2, 0, work_c, 0);
            pthread_create(threads + 3, 0, work_d, 0);
            for (int thread = 0; thread < 4; thread++) pthread_join(threads[thread], 0);
            _exit(0);
        }"#,
    );
    let program = compile(&source, &["-pthread"]);
    let results = program.directory.path().join("results");
    for recording in 0..RECORDINGS {
        let delay = (recording % 50 * 100).to_string();
        let outcome = record(&request(&program.path, &[&delay, results.to_str().unwrap()])).unwrap();
        assert_eq!(outcome.ending, Ending::Exited(0));
    }
    let begun = Instant::now();
    let ended = || fs::read_to_string(&results).unwrap_or_default();
    while ended().len() < RECORDINGS {
        assert!(begun.elapsed() < FOR_EVER, "not all have ended: {}", ended());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(ended(), ".".repeat(RECORDINGS));
}

#[test]
fn a_process_whose_threads_fork_is_recorded_to_its_end() {
    let program = compile(
        r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <unistd.h>
        void step_child(void) { _exit(0); }
        void *work(void *unused) { for (;;) if (!fork()) step_child(); }
        int main(int count, char **words) {
            pthread_t thread;
            pthread_create(&thread, 0, work, 0);
            pthread_create(&thread, 0, work, 0);
            usleep(atoi(words[1]));
            _exit(3);
        }"#,
        &["-pthread"],
    );
    let (ended, endings) = mpsc::channel();
    let path = program.path.clone();
    // Not joined: one that hangs must not hang the test.
    std::thread::spawn(move || {
        for delay in (150..6000).step_by(100) {
            let outcome = record(&request(&path, &[&delay.to_string()])).unwrap();
            ended.send((delay, outcome.ending)).unwrap();
        }
    });
    for delay in (150..6000).step_by(100) {
        assert_eq!(endings.recv_timeout(FOR_EVER), Ok((delay, Ending::Exited(3))));
    }
}

#[test]
fn an_unreadable_program_runs_unrecorded() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    copy_executable(Path::new("/bin/echo"), Path::new(&path("secret"))).unwrap();
    // Not even by its owner.
    fs::set_permissions(path("secret"), Permissions::from_mode(0o111)).unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let script = format!("{} secret; (exec {} forked); echo after", path("secret"), path("secret"));
    let mut command = match nix::unistd::geteuid().is_root() {
        // Root can read all files.
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(reorder().get_program());
            command
        }
        false => reorder(),
    };
    let output = command.args(["record", "-o", &path("traces"), "--", "sh", "-c", &script]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(output.stdout, b"secret\nforked\nafter\n");
    assert!(
        stderr.contains("2 programs ran without being recorded: this user may execute but not read them"),
        "{stderr}"
    );
    // The shell itself.
    assert_eq!(fs::read_dir(path("traces")).unwrap().count(), 1);
}
