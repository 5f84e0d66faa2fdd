//! The recorder on real programs: which functions ran first, in which order, and that the program is not affected.
//!
//! Each test compiles a small program and compares the whole recorded order of its own functions, or the program's
//! behaviour, with its source.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use end_to_end::recorded_programs::{UNTIL_LET_GO, build, compile, recorded, request, steps};
use end_to_end::workspace::reorder;
use reorder_run::record::{RecordRequest, record};
use reorder_system::stops::Ending;

const ORDER: &str = r#"
    #include <stdlib.h>
    void step_never(void) { abort(); }
    int step_c(int x) { return x + 3; }
    int step_b(int x) { return step_c(x) + 2; }
    int step_a(int x) { return x + 1; }
    __attribute__((constructor)) void step_constructor(void) {}
    __attribute__((destructor)) void step_destructor(void) {}
    int main(int count, char **words) {
        volatile int x = count;
        for (int round = 0; round < 3; round++) x = step_b(x) + step_a(x);
        return 0;
    }"#;

#[test]
fn recorded_order_is_that_of_first_execution() {
    let expected = ["step_constructor", "main", "step_b", "step_c", "step_a", "step_destructor"];
    for flags in [&["-pie", "-fPIE"][..], &["-no-pie"], &["-static-pie", "-fPIE"], &["-static"]] {
        let program = compile(ORDER, flags);
        let outcome = recorded(&program, &[]);
        assert_eq!(outcome.ending, Ending::Exited(0), "{flags:?}");
        assert_eq!(outcome.traces.len(), 1, "{flags:?}");
        assert_eq!(steps(&outcome, 0), expected, "{flags:?}");
        let times: Vec<_> =
            outcome.traces[0].trace.events.iter().map(|event| event.nanoseconds.unwrap()).collect();
        assert!(times.is_sorted(), "{flags:?}");
    }
}

#[test]
fn runs_are_recorded_one_by_one() {
    let program = compile(ORDER, &[]);
    let outcome = record(&RecordRequest { runs: 3, first_run: 7, ..request(&program.path, &[]) }).unwrap();
    let runs: Vec<u32> = outcome.traces.iter().map(|recorded| recorded.trace.run).collect();
    assert_eq!(runs, [7, 8, 9]);
    assert_eq!(steps(&outcome, 0), steps(&outcome, 2));
}

#[test]
fn threads_that_meet_at_one_function_are_all_served() {
    let program = compile(
        r#"
        #include <pthread.h>
        #include <stdatomic.h>
        static pthread_barrier_t barrier;
        static atomic_int sum;
        #define STEPS S(0) S(1) S(2) S(3) S(4) S(5) S(6) S(7) S(8) S(9)
        #define S(n) void step_##n(void) { sum++; }
        STEPS
        #undef S
        void *work(void *unused) {
        #define S(n) pthread_barrier_wait(&barrier); step_##n();
            STEPS
            return 0;
        }
        int main(void) {
            pthread_t threads[8];
            pthread_barrier_init(&barrier, 0, 8);
            for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, work, 0);
            for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
            return sum == 80 ? 0 : 1;
        }"#,
        &["-pthread"],
    );
    for _ in 0..20 {
        let outcome = recorded(&program, &[]);
        assert_eq!(outcome.ending, Ending::Exited(0));
        let expected: Vec<String> =
            std::iter::once("main".to_owned()).chain((0..10).map(|step| format!("step_{step}"))).collect();
        assert_eq!(steps(&outcome, 0), expected);
    }
}

#[test]
fn forked_and_vforked_processes_belong_to_the_trace() {
    let program = compile(
        r#"
        #include <sys/wait.h>
        #include <unistd.h>
        void step_before(void) {}
        void step_child(void) {}
        void step_both(void) {}
        void step_vfork(void) {}
        void step_grandchild(void) {}
        int main(void) {
            int status = 0, sum = 0;
            step_before();
            if (fork() == 0) {
                step_child(); step_both();
                if (fork() == 0) { step_both(); step_grandchild(); _exit(3); }
                wait(&status);
                _exit(WEXITSTATUS(status) + 1);
            }
            wait(&status); sum += WEXITSTATUS(status);
            step_both();
            if (vfork() == 0) { step_vfork(); _exit(5); }
            wait(&status); sum += WEXITSTATUS(status);
            step_vfork();
            return sum;
        }"#,
        &[],
    );
    let outcome = recorded(&program, &[]);
    assert_eq!(outcome.ending, Ending::Exited(9));
    let expected = ["main", "step_before", "step_child", "step_both", "step_grandchild", "step_vfork"];
    assert_eq!(steps(&outcome, 0), expected);
    assert_eq!(outcome.traces.len(), 1);
}

#[test]
fn each_exec_of_the_image_is_a_trace_of_its_own() {
    let program = compile(
        r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static char **self;
        void step_first(void) {}
        void step_second(void) {}
        void *step_thread(void *unused) {
            execl(self[0], self[0], "again", (char *)0);
            abort();
        }
        int main(int count, char **words) {
            self = words;
            if (count > 1) { step_second(); return 4; }
            step_first();
            if (fork() == 0) execl("/bin/sh", "sh", "-c", "\"$0\" from-shell; exit $?", words[0], (char *)0);
            int status;
            wait(&status);
            if (WEXITSTATUS(status) != 4) return 1;
            pthread_t thread;
            pthread_create(&thread, 0, step_thread, 0);
            pthread_join(thread, 0);
            return 1;
        }"#,
        &["-pthread"],
    );
    let outcome = recorded(&program, &[]);
    assert_eq!(outcome.ending, Ending::Exited(4));
    let all: Vec<Vec<String>> = (0..outcome.traces.len()).map(|trace| steps(&outcome, trace)).collect();
    assert_eq!(
        all,
        [vec!["main", "step_first", "step_thread"], vec!["main", "step_second"], vec!["main", "step_second"]]
    );
    // The shell in between is an `exec` as well, but not of a traced image.
    let programs: Vec<u32> = outcome.traces.iter().map(|recorded| recorded.program).collect();
    assert_eq!(programs, [1, 3, 4]);
}

#[test]
fn signals_reach_the_program_unchanged() {
    let program = compile(
        r#"
        #include <pthread.h>
        #include <setjmp.h>
        #include <signal.h>
        #include <unistd.h>
        static volatile int seen;
        static sigjmp_buf back;
        void step_handler(int signal) { seen += signal; }
        void step_fault(int signal) { siglongjmp(back, 1); }
        void step_jump(void) { *(volatile int *)8 = 1; }
        void step_trap(int signal) { seen += 1000; }
        void step_landed(void) {}
        void *step_waits(void *unused) { for (;;) pause(); }
        int main(void) {
            signal(SIGUSR1, step_handler);
            signal(SIGRTMIN + 3, step_handler);
            signal(SIGSEGV, step_fault);
            signal(SIGTRAP, step_trap);
            raise(SIGUSR1);
            raise(SIGRTMIN + 3);
            if (sigsetjmp(back, 1) == 0) step_jump(); else step_landed();
            step_trap(0);
            raise(SIGTRAP);
            __asm__ volatile("int3");
            pthread_t thread;
            pthread_create(&thread, 0, step_waits, 0);
            usleep(1000);
            pthread_cancel(thread);
            pthread_join(thread, 0);
            if (seen != SIGUSR1 + SIGRTMIN + 3 + 3000) return 1;
            kill(getpid(), SIGTERM);
            return 2;
        }"#,
        &["-pthread"],
    );
    let outcome = recorded(&program, &[]);
    assert_eq!(outcome.ending, Ending::Killed(15));
    let expected =
        ["main", "step_handler", "step_jump", "step_fault", "step_landed", "step_trap", "step_waits"];
    assert_eq!(steps(&outcome, 0), expected);
}

#[test]
fn a_stopped_process_stays_stopped_until_it_is_continued() {
    let program = compile(
        r#"
        #include <signal.h>
        #include <sys/wait.h>
        #include <unistd.h>
        void step_stopped(void) {}
        void step_continued(void) {}
        int main(void) {
            pid_t child = fork();
            if (child == 0) { raise(SIGSTOP); step_continued(); _exit(6); }
            int status;
            if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) return 1;
            usleep(20000);
            if (waitpid(child, &status, WNOHANG) != 0) return 2;
            step_stopped();
            kill(child, SIGCONT);
            waitpid(child, &status, 0);
            return WEXITSTATUS(status);
        }"#,
        &[],
    );
    let outcome = recorded(&program, &[]);
    assert_eq!(outcome.ending, Ending::Exited(6));
    assert_eq!(steps(&outcome, 0), ["main", "step_stopped", "step_continued"]);
}

#[test]
fn resolvers_of_indirect_functions_come_before_constructors() {
    let program = compile(
        r#"
        static int step_chosen(void) { return 0; }
        static void *step_resolves(void) { return step_chosen; }
        int step_indirect(void) __attribute__((ifunc("step_resolves")));
        __attribute__((constructor)) void step_constructor(void) {}
        int main(void) { return step_indirect(); }"#,
        &["-Wl,-z,now"],
    );
    let outcome = recorded(&program, &[]);
    assert_eq!(outcome.ending, Ending::Exited(0));
    assert_eq!(steps(&outcome, 0), ["step_indirect", "step_constructor", "main", "step_chosen"]);
}

const LIBRARY: &str = r#"
    void step_unused(void) {}
    void step_inner(void) {}
    void step_library(void) { step_inner(); }
    static void *step_resolves(void) { return step_library; }
    void step_indirect(void) __attribute__((ifunc("step_resolves")));
    __attribute__((constructor)) void step_load(void) {}"#;

#[test]
fn resolvers_and_constructors_of_libraries_are_traced() {
    let directory = tempfile::tempdir().unwrap();
    let library = build(directory.path(), "libstep.so", LIBRARY, &["-shared", "-fPIC"]);
    let source = "void step_indirect(void); int main(void) { step_indirect(); return 0; }";
    let flags = [library.to_str().unwrap(), "-Wl,-z,now", "-Wl,-rpath,$ORIGIN"];
    let program = build(directory.path(), "program", source, &flags);
    let outcome = record(&RecordRequest { images: vec![library], ..request(&program, &[]) }).unwrap();
    assert_eq!(outcome.ending, Ending::Exited(0));
    let images: Vec<&str> = outcome.traces.iter().map(|recorded| recorded.image_name.as_str()).collect();
    assert_eq!(images, ["libstep.so", "program"]);
    assert_eq!(steps(&outcome, 0), ["step_indirect", "step_load", "step_library", "step_inner"]);
    assert_eq!(steps(&outcome, 1), ["main"]);
}

#[test]
fn libraries_opened_late_by_any_thread_are_traced() {
    let directory = tempfile::tempdir().unwrap();
    let library = build(directory.path(), "libstep.so", LIBRARY, &["-shared", "-fPIC"]);
    let source = r#"
        #include <dlfcn.h>
        #include <pthread.h>
        void *work(void *path) {
            void *library = dlopen(path, RTLD_NOW);
            if (library) ((void (*)(void))dlsym(library, "step_inner"))();
            return library;
        }
        int main(int count, char **words) {
            pthread_t thread;
            void *library = 0;
            pthread_create(&thread, 0, work, words[1]);
            pthread_join(thread, &library);
            return library ? 0 : 1;
        }"#;
    let program = build(directory.path(), "program", source, &["-pthread", "-ldl"]);
    let request = request(&program, &[library.to_str().unwrap()]);
    let outcome = record(&RecordRequest { images: vec![library], ..request }).unwrap();
    assert_eq!(outcome.ending, Ending::Exited(0));
    let names = steps(&outcome, 0);
    assert_eq!(names, ["step_load", "step_inner"]);
}

#[test]
fn a_process_that_outlives_the_program_loses_breakpoints() {
    let source = r#"
        #include <stdio.h>
        void step_late(FILE *file) { fputs("alive", file); }
        int main(int count, char **words) {
            if (fork() != 0) return 0;
            until_let_go();
            FILE *file = fopen(words[1], "w");
            step_late(file);
            fclose(file);
            rename(words[1], words[2]);
            return 0;
        }"#;
    let program = compile(&format!("{UNTIL_LET_GO}{source}"), &[]);
    let path = |name: &str| program.directory.path().join(name).to_str().unwrap().to_owned();
    let outcome = recorded(&program, &[&path("draft"), &path("result")]);
    assert_eq!(outcome.ending, Ending::Exited(0));
    assert_eq!(steps(&outcome, 0), ["main"]);
    // Two minutes: far longer than any event takes that happens at all.
    let alive = (0..2400).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        fs::read(path("result")).is_ok_and(|text| text == b"alive")
    });
    assert!(alive, "the child was killed or hit a breakpoint");
}

#[test]
fn the_command_leaves_input_output_and_status_to_the_program() {
    let program = compile(
        r#"
        #include <stdio.h>
        int main(void) {
            int byte, sum = 0;
            while ((byte = getchar()) != EOF) { putchar(byte + 1); sum++; }
            fputs("complaint\n", stderr);
            return sum;
        }"#,
        &[],
    );
    let traces = program.directory.path().join("traces");
    for run in 1..=2 {
        let mut child = reorder()
            .args(["record", "--quiet", "-o"])
            .arg(&traces)
            .arg("--")
            .arg(&program.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"HAL").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.stdout, b"IBM");
        assert_eq!(output.stderr, b"complaint\n");
        assert_eq!(output.status.code(), Some(3));
        let trace = traces.join(format!("program.{run:03}.001.trace"));
        let text = fs::read_to_string(&trace).unwrap();
        assert!(text.starts_with("# reorder trace 1\n") && text.contains("\tmain\n"), "{text}");
    }
}

#[test]
fn the_command_explains_what_cannot_be_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text");
    fs::write(&text, "no program").unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    for (name, content) in [("headless", "echo"), ("orphaned", "#!/no/such/shell\n")] {
        fs::write(path(name), content).unwrap();
        fs::set_permissions(path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (program, reason) in [
        ("/no/such/program", "No such file"),
        ("no-such-program-anywhere", "in PATH"),
        (text.to_str().unwrap(), "chmod +x"),
        (&path("headless"), "name what runs it"),
        (&path("orphaned"), "install /no/such/shell"),
    ] {
        let output =
            reorder().args(["record", "-o"]).arg(directory.path()).args(["--", program]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(reason) && stderr.contains(program), "{stderr}");
    }
}

#[test]
fn nothing_runs_if_traces_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("file"), "").unwrap();
    fs::write(
        path("reorder.toml"),
        "[scenario.a]\nprogram = '/bin/touch'\narguments = ['ran']\ntraces = ['/proc/x']\n",
    )
    .unwrap();
    for arguments in [
        &["record", "-o", "/proc/x", "--", "touch", "ran"] as &[&str],
        &["record", "-o", "file/traces", "--", "touch", "ran"],
        &["record"],
    ] {
        let output = reorder().args(arguments).current_dir(directory.path()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains("a directory that this user may write into"), "{arguments:?}: {stderr}");
        assert!(!path("ran").exists(), "{arguments:?}");
    }
    // A recording that did not begin leaves no files.
    let output =
        reorder().args(["record", "-o", "traces", "--", "./missing"]).current_dir(directory.path()).output();
    assert!(!output.unwrap().status.success() && !path("traces").exists());
}

#[test]
fn programs_of_another_processor_are_not_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("program.c");
    let program = directory.path().join("program");
    fs::write(&source, ORDER).unwrap();
    let compiled = Command::new("aarch64-linux-gnu-gcc")
        .arg("-w")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status()
        .unwrap();
    assert!(compiled.success());
    for arguments in
        [vec!["--", program.to_str().unwrap()], vec!["--image", program.to_str().unwrap(), "--", "true"]]
    {
        let output = reorder().args(["record", "-o"]).arg(directory.path()).args(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains("this image is for AArch64, and this reorder records what is for x86-64"),
            "{stderr}"
        );
        assert!(stderr.contains("record it on AArch64 with a reorder built for it"), "{stderr}");
    }
}

#[test]
fn a_stripped_system_program_behaves_and_its_trace_resolves() {
    use reorder_image::elf::file::ElfFile;
    use reorder_image::elf::functions::ElfFunctions;
    use reorder_trace::{ImageIdentity, Trace, resolve};

    let path = Path::new("/bin/bash").canonicalize().unwrap();
    let outcome =
        record(&request(&path, &["-c", "for i in 1 2 3; do x=$(echo $i | cat); done; exit 42"])).unwrap();
    assert_eq!(outcome.ending, Ending::Exited(42));
    let bytes = fs::read(&path).unwrap();
    let file = ElfFile::parse(&bytes).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap().table;
    let traces: Vec<Trace> = outcome.traces.iter().map(|recorded| recorded.trace.clone()).collect();
    let resolved = resolve(&traces, &functions, &ImageIdentity::of(&path, file.build_id())).unwrap();
    assert!(resolved.coverage.events > 100, "{:?}", resolved.coverage);
    assert_eq!(resolved.coverage.found_by(reorder_trace::Step::Address), resolved.coverage.events);
}

#[test]
fn recorded_traces_can_be_shown_and_counted() {
    let program = compile(ORDER, &[]);
    let traces = program.directory.path().join("traces");
    let run = |arguments: &[&str], paths: &[&Path]| {
        let output = reorder().args(arguments).args(paths).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    run(&["record", "--runs", "2", "-o", traces.to_str().unwrap(), "--"], &[&program.path]);
    let shown: serde_json::Value =
        serde_json::from_slice(&run(&["traces", "show", "--format", "json"], &[&traces])).unwrap();
    let events = shown["traces"][1]["events"].as_array().unwrap();
    let position = |name: &str| events.iter().position(|event| event["name"] == name).unwrap();
    assert!(position("main") < position("step_b") && position("step_b") < position("step_c"));

    let stats: serde_json::Value =
        serde_json::from_slice(&run(&["traces", "stats", "--format", "json"], &[&traces])).unwrap();
    let image = &stats["images"][0];
    assert_eq!(image["traces"], 2);
    assert_eq!(image["distinct_functions"], events.len());
    assert_eq!(image["common_functions"], events.len());
    assert!(image["touched"]["bytes"].as_u64().unwrap() > events.len() as u64);
}
