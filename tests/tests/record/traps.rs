//! Programs that use SIGTRAP themselves behave the same while they are recorded.

use std::process::Command;

use end_to_end::process::{Ending, run, succeed};
use end_to_end::recorded_programs::{UNTIL_LET_GO, compile};
use end_to_end::workspace::reorder;

const LIMIT: std::time::Duration = std::time::Duration::from_secs(120);

/// Each function runs once, so each call of one is a breakpoint.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static volatile int seen, code, is_nested;
int step_1(int n) { return n + 1; }
int step_2(int n) { return n + 2; }
int step_3(int n) { return n + 3; }
int step_4(int n) { return n + 4; }
int step_5(int n) { return n + 5; }
int step_6(int n) { return n + 6; }
int step_7(int n) { return n + 7; }
static void handler(int number, siginfo_t *information, void *context) {
    code = information->si_code;
    seen++;
    if (is_nested && seen == 1) {
        raise(SIGTRAP);
        step_1(seen);
        printf("nested %d\n", seen);
    }
    step_2(seen);
}
static void *thread(void *unused) { step_3(1); raise(SIGTRAP); step_4(1); return unused; }
static void breakpoint(void) {
#ifdef __x86_64__
    __asm__ volatile("int3");
#else
    raise(SIGTRAP);
#endif
}
int main(int count, char **words) {
    const char *what = words[1];
    struct sigaction action;
    sigset_t set;
    int status;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&set);
    sigaddset(&set, SIGTRAP);
    if (!strcmp(what, "handler")) {
        sigaction(SIGTRAP, &action, 0);
        breakpoint(); printf("%d %d\n", seen, code);
        raise(SIGTRAP); printf("%d %d\n", seen, code);
        kill(getpid(), SIGTRAP); printf("%d %d\n", seen, code);
        signal(SIGTRAP, SIG_DFL);
        step_5(1);
        sigaction(SIGTRAP, &action, &action); printf("%d\n", action.sa_handler == SIG_DFL);
        raise(SIGTRAP);
    } else if (!strcmp(what, "nested")) {
        is_nested = 1; sigaction(SIGTRAP, &action, 0); raise(SIGTRAP);
    } else if (!strcmp(what, "once")) {
        action.sa_flags |= SA_RESETHAND; sigaction(SIGTRAP, &action, 0); raise(SIGTRAP);
        step_5(1);
        sigaction(SIGTRAP, 0, &action); printf("%d\n", action.sa_handler == SIG_DFL);
    } else if (!strcmp(what, "stack")) {
        stack_t stack = { malloc(1 << 16), 0, 1 << 16 };
        sigaltstack(&stack, 0); action.sa_flags |= SA_ONSTACK | SA_NODEFER; sigaction(SIGTRAP, &action, 0); raise(SIGTRAP); raise(SIGTRAP);
    } else if (!strcmp(what, "threads")) {
        pthread_t threads[4];
        sigaction(SIGTRAP, &action, 0); raise(SIGTRAP);
        for (int i = 0; i < 4; i++) { pthread_create(threads + i, 0, thread, 0); pthread_join(threads[i], 0); }
    } else if (!strcmp(what, "fork")) {
        sigaction(SIGTRAP, &action, 0); raise(SIGTRAP);
        if (!fork()) { step_5(1); raise(SIGTRAP); step_6(1); raise(SIGTRAP); _exit(seen); }
        wait(&status); printf("%d\n", WEXITSTATUS(status));
    } else if (!strcmp(what, "known and blocked")) {
        sigaction(SIGTRAP, &action, 0); raise(SIGTRAP);
        sigprocmask(SIG_BLOCK, &set, 0); step_5(1); raise(SIGTRAP); step_6(1); printf("%d\n", seen);
        sigprocmask(SIG_UNBLOCK, &set, 0);
    } else if (!strcmp(what, "died of")) {
        step_5(1); raise(SIGTRAP);
    } else if (!strcmp(what, "blocked")) {
        sigaction(SIGTRAP, &action, 0); sigprocmask(SIG_BLOCK, &set, 0); step_5(1);
        raise(SIGTRAP); step_6(1); printf("%d\n", seen); sigprocmask(SIG_UNBLOCK, &set, 0);
    } else if (!strcmp(what, "waited for")) {
        struct timespec limit = { 60, 0 };
        sigprocmask(SIG_BLOCK, &set, 0); step_5(1); kill(getpid(), SIGTRAP); step_6(1);
        printf("%d\n", sigtimedwait(&set, 0, &limit)); step_7(1);
    } else if (!strcmp(what, "ignored")) {
        signal(SIGTRAP, SIG_IGN); step_5(1); raise(SIGTRAP); step_6(1);
        execl(words[0], words[0], "inherited", (char *)0);
    } else if (!strcmp(what, "inherited")) {
        step_5(1); raise(SIGTRAP); step_6(1);
    }
    printf("%s: %d\n", what, seen);
    return 9;
}
"#;

// case: programs that use SIGTRAP themselves are recorded
#[test]
fn a_handler_of_sigtrap_works_as_ever() {
    let whats = ["handler", "nested", "once", "stack", "threads", "fork", "known and blocked", "died of"];
    assert_same(&compile(SOURCE, &["-pthread"]).path, &whats, &[]);
    // Its C library is recorded, too, and blocks all signals while it makes a thread: another thread's breakpoint may take the
    // handler away meanwhile. Each run is a different race.
    let program = compile(SOURCE, &["-pthread", "-static"]);
    assert_same(&program.path, &whats, &[]);
    assert_same(&program.path, &whats, &["--blocks"]);
    (0..20).for_each(|_| assert_same(&program.path, &["threads"], &[]));
}

// case: programs that use SIGTRAP themselves are recorded
#[test]
fn blocked_and_ignored_sigtrap_is_kept_on_request() {
    let program = compile(SOURCE, &["-pthread"]);
    let whats = ["handler", "nested", "once", "stack", "threads", "fork", "known and blocked", "died of"];
    let others = ["blocked", "waited for", "ignored"];
    assert_same(&program.path, &[&whats[..], &others].concat(), &["--keep-sigtrap"]);
    // Otherwise a message says why the program may have died.
    let traces = program.directory.path().join("traces");
    let mut plain = reorder();
    let plain =
        run(plain.args(["record", "-o"]).arg(traces).arg("--").arg(&program.path).arg("ignored"), LIMIT);
    let plain = plain.unwrap();
    assert!(
        plain.ending == Ending::Exited(128 + 5) && plain.stderr_text().contains("--keep-sigtrap"),
        "{plain}"
    );
}

// case: programs that use SIGTRAP themselves are recorded
#[test]
fn sigtrap_that_is_ignored_from_the_start_stays_so() {
    let program = compile(SOURCE, &["-pthread"]);
    let (path, traces) = (program.path.display(), program.directory.path().join("traces"));
    let line = format!(
        "trap '' TRAP; exec {} record -o '{}' -- '{path}' inherited",
        reorder().get_program().display(),
        traces.display()
    );
    let outcome = run(Command::new("bash").args(["-c", &line]), LIMIT).unwrap();
    assert!(outcome.ending == Ending::Exited(9) && outcome.stdout_text() == "inherited: 0\n", "{outcome}");
}

/// The program prints the same, ends in the same way, and is recorded to its end.
fn assert_same(program: &std::path::Path, whats: &[&str], flags: &[&str]) {
    for what in whats {
        let alone = run(Command::new(program).arg(what), LIMIT).unwrap();
        let traces = tempfile::tempdir().unwrap();
        let mut recorded = reorder();
        recorded.args(["record", "-o"]).arg(traces.path()).args(flags).arg("--").arg(program).arg(what);
        let recorded = run(&mut recorded, LIMIT).unwrap();
        let status = match alone.ending {
            Ending::Signalled(signal) => Ending::Exited(128 + signal),
            ending => ending,
        };
        assert_eq!(
            (status, alone.stdout_text()),
            (recorded.ending, recorded.stdout_text()),
            "{what}: {recorded}"
        );
        let shown = succeed(reorder().args(["traces", "show"]).arg(traces.path()));
        assert!(shown.contains(" main\n"), "{what}: {shown}");
    }
}

// case: a daemon goes on when the recorded program has ended
#[test]
fn what_goes_on_without_the_program_is_told() {
    let source = r#"
        int step_later(int n) { return n; }
        int main(int count, char **words) {
            if (fork()) return 0;
            until_let_go();
            return step_later(1);
        }"#;
    let program = compile(&format!("{UNTIL_LET_GO}{source}"), &[]);
    let traces = program.directory.path().join("traces");
    let path = traces.to_str().unwrap();
    let mut command = reorder();
    let outcome = run(command.args(["record", "-o", path, "--"]).arg(&program.path), LIMIT).unwrap();
    assert!(
        outcome.success()
            && outcome.stderr_text().contains("one process kept running after the program ended"),
        "{outcome}"
    );
    let shown = succeed(reorder().args(["traces", "show", path]));
    assert!(
        !shown.contains("step_later") && shown.contains("one process kept running unrecorded"),
        "{shown}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&succeed(reorder().args(["traces", "show", path, "--format", "json"]))).unwrap();
    assert_eq!(json["traces"][0]["left_running"], 1, "{json}");
    let mut command = reorder();
    let whole = run(
        command.args(["record", "-o"]).arg(program.directory.path().join("whole")).args(["--", "true"]),
        LIMIT,
    )
    .unwrap();
    assert!(!whole.stderr_text().contains("kept running"), "{whole}");
}
