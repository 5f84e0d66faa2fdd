//! `record --passes`: a program that is stopped only in code that did not run before gets further, and its trace with it.

use end_to_end::recorded_programs::{Program, build, compile, request};
use reorder_run::record::{RecordOutcome, RecordRequest, RecordedTrace, record};
use reorder_trace::{Event, Trace};

/// Stands for a program whose threads get further the less they are held up: it ends after the first of its steps that begins with
/// a breakpoint.
const SOURCE: &str = r#"
    #ifdef __aarch64__
    #define IS_STOPPED(f) ((*(volatile unsigned *)(f) & 0xffe0001f) == 0xd4200000)
    #else
    #define IS_STOPPED(f) (*(volatile unsigned char *)(f) == 0xcc)
    #endif
    #define STEP(n) __attribute__((noinline)) void step_##n(void) { __asm__ volatile("" ::: "memory"); }
    STEP(0) STEP(1) STEP(2) STEP(3) STEP(4)
    static void (*const steps[])(void) = {step_0, step_1, step_2, step_3, step_4};
    static volatile int seen[8];
    __attribute__((noinline, section(".second"))) void last(int reached) {
        if (reached == 1) seen[1]++;
        else if (reached == 2) seen[2] += 3;
        else if (reached == 3) seen[3] += 5;
        else seen[0] += 7;
    }
    int work(void) {
        int reached = 0, is_stopped = 0;
        while (reached < 5 && !is_stopped) {
            is_stopped = IS_STOPPED(steps[reached]);
            steps[reached++]();
        }
        last(reached);
        return 0;
    }
    #ifndef IS_LIBRARY
    int main(void) { return work(); }
    #endif"#;

/// Opens a library and does its work, first in a process of its own and then here.
const OPENS: &str = r#"
    #include <dlfcn.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static int work(const char *path) {
        void *library = dlopen(path, RTLD_NOW);
        return library ? ((int (*)(void))dlsym(library, "work"))() : 9;
    }
    int main(int count, char **words) {
        if (fork() == 0) _exit(work(words[1]));
        wait(0);
        return work(words[1]);
    }"#;

fn built() -> Program {
    // `last` lies in a segment of its own.
    let far = "-Wl,--section-start=.second=0x8000000";
    compile(SOURCE, &["-O1", "-fcf-protection=none", "-static", "-no-pie", far])
}

fn recorded(program: &Program, passes: u32, blocks: bool) -> RecordOutcome {
    record(&RecordRequest { passes, blocks, ..request(&program.path, &[]) }).unwrap()
}

fn steps(trace: &Trace) -> Vec<String> {
    let names = trace.events.iter().filter_map(Event::symbol).map(|name| String::from_utf8_lossy(name));
    names.filter(|name| name.starts_with("step_")).map(|name| name.into_owned()).collect()
}

/// Blocks of the function `last` that ran.
fn blocks_of_last(trace: &Trace) -> usize {
    let last = trace.events.iter().find(|event| event.symbol().is_some_and(|name| name == b"last")).unwrap();
    last.blocks.as_ref().unwrap().blocks.len()
}

#[test]
fn each_pass_adds_what_the_earlier_ones_did_not_reach() {
    let program = built();
    for blocks in [false, true] {
        for (passes, reached) in [(1, 1), (2, 2), (4, 4), (9, 5)] {
            let outcome = recorded(&program, passes, blocks);
            assert_eq!(outcome.traces.len(), 1, "one trace for a run, whatever its passes");
            let trace = &outcome.traces[0].trace;
            let expected: Vec<String> = (0..reached).map(|number| format!("step_{number}")).collect();
            assert_eq!(steps(trace), expected, "{passes} passes, blocks: {blocks}");
            assert!(trace.events.is_sorted_by_key(|event| event.nanoseconds), "later passes come later");
        }
    }
}

#[test]
fn blocks_of_functions_that_ran_before_are_added_too() {
    let program = built();
    let of = |passes| blocks_of_last(&recorded(&program, passes, true).traces[0].trace);
    let (one, two, three) = (of(1), of(2), of(3));
    assert!(one < two && two < three, "{one} {two} {three}");
}

#[test]
fn libraries_that_are_opened_late_go_on_where_the_last_pass_ended() {
    let program = compile(OPENS, &["-O1"]);
    let flags = ["-O1", "-fcf-protection=none", "-fPIC", "-shared", "-DIS_LIBRARY"];
    let library = build(program.directory.path(), "library.so", SOURCE, &flags);
    for blocks in [false, true] {
        let of_passes = |passes| {
            let request = request(&program.path, &[library.to_str().unwrap()]);
            let outcome =
                record(&RecordRequest { passes, blocks, images: vec![library.clone()], ..request }).unwrap();
            let of_library = |recorded: &&RecordedTrace| recorded.image_name == "library.so";
            let trace = outcome.traces.iter().find(of_library).unwrap().trace.clone();
            (steps(&trace).len(), if blocks { blocks_of_last(&trace) } else { 0 })
        };
        let (first, second) = (of_passes(1), of_passes(2));
        assert_eq!((first.0, second.0), (2, 4), "each process goes one step further");
        assert!(!blocks || second.1 > first.1, "{first:?} {second:?}");
    }
}

#[test]
fn each_run_begins_anew() {
    let program = built();
    let outcome = record(&RecordRequest { passes: 3, runs: 2, ..request(&program.path, &[]) }).unwrap();
    let of_runs: Vec<Vec<String>> = outcome.traces.iter().map(|recorded| steps(&recorded.trace)).collect();
    assert_eq!(of_runs.len(), 2);
    assert!(of_runs.iter().all(|steps| steps.len() == 3), "{of_runs:?}");
    assert_eq!(outcome.traces.iter().map(|recorded| recorded.trace.run).collect::<Vec<_>>(), [1, 2]);
}
