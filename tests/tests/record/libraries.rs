//! The recorder where libraries are unloaded, and where other code takes their place.

use std::fs;
use std::time::Duration;

use end_to_end::recorded_programs::{UNTIL_LET_GO, build, request, steps};
use reorder_run::record::{RecordOutcome, RecordRequest, record};
use reorder_system::stops::Ending;
use tempfile::TempDir;

const LIBRARY: &str = "
    void step_unused(void) {}
    __attribute__((constructor)) void step_load(void) {}";

/// Common to all programs. A macro, because a function would be recorded.
const BEGINNING: &str = r#"
    #include <dlfcn.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <sys/mman.h>
    #include <unistd.h>
    #define WRITE_RESULT(...) do { \
        FILE *file = fopen(words[2], "w"); \
        fprintf(file, __VA_ARGS__); \
        fclose(file); \
        rename(words[2], words[3]); \
    } while (0)
"#;

/// Records a program of `source` whose first argument is a library to open, and whose second and third are files: the
/// process that it leaves running writes into the one and renames it to the other.
fn with_library(source: &str) -> (RecordOutcome, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let library = build(directory.path(), "libstep.so", LIBRARY, &["-shared", "-fPIC"]);
    let program =
        build(directory.path(), "program", &format!("{UNTIL_LET_GO}{BEGINNING}{source}"), &["-ldl"]);
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let arguments = [path("libstep.so"), path("draft"), path("result")];
    let request = request(&program, &arguments.each_ref().map(String::as_str));
    (record(&RecordRequest { images: vec![library], ..request }).unwrap(), directory)
}

/// The output of the process that outlives the program.
fn result(directory: &TempDir) -> String {
    let read = || {
        std::thread::sleep(Duration::from_millis(50));
        fs::read_to_string(directory.path().join("result")).ok()
    };
    // Two minutes: far longer than any event takes that happens at all.
    (0..2400).find_map(|_| read()).unwrap_or_default()
}

#[test]
fn a_child_outlives_the_program_after_a_closed_library() {
    let (outcome, directory) = with_library(
        r#"
        int main(int count, char **words) {
            void *library = dlopen(words[1], RTLD_NOW);
            if (!library || dlclose(library) || dlopen(words[1], RTLD_NOW | RTLD_NOLOAD)) return 1;
            if (fork()) return 0;
            until_let_go();
            WRITE_RESULT("alive");
            return 0;
        }"#,
    );
    assert_eq!(outcome.ending, Ending::Exited(0));
    assert_eq!(steps(&outcome, 0), ["step_load"]);
    assert_eq!(result(&directory), "alive");
}

#[test]
fn code_in_place_of_a_closed_library_keeps_its_breakpoints() {
    let (outcome, directory) = with_library(
        r#"
        static volatile int trapped;
        void trap(int signal) { trapped++; }
        int main(int count, char **words) {
            void *library = dlopen(words[1], RTLD_NOW);
            unsigned char *code = library ? dlsym(library, "step_unused") : 0;
            if (!code || dlclose(library)) return 1;
            void *page = (void *)((uintptr_t)code & -4096l);
            int protection = PROT_READ | PROT_WRITE | PROT_EXEC;
            if (mmap(page, 4096, protection, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != page) return 2;
            /* A handler that is still unrecorded would be lost with its first call. */
            trap(0);
            trapped = 0;
            signal(SIGTRAP, trap);
            code[0] = 0xcc;
            code[1] = 0xc3;
            ((void (*)(void))code)();
            if (trapped != 1 || code[0] != 0xcc) return 3;
            if (fork()) return 0;
            until_let_go();
            ((void (*)(void))code)();
            WRITE_RESULT("trapped %d", trapped);
            return 0;
        }"#,
    );
    assert_eq!(outcome.ending, Ending::Exited(0));
    assert_eq!(steps(&outcome, 0), ["step_load"]);
    assert_eq!(result(&directory), "trapped 2");
}

#[test]
fn a_changed_or_removed_library_is_still_recorded() {
    let (outcome, directory) = with_library(
        r#"
        int main(int count, char **words) {
            void *library = dlopen(words[1], RTLD_NOW);
            unsigned char *code = library ? dlsym(library, "step_unused") : 0;
            if (!code || unlink(words[1])) return 1;
            /* The instruction after the first, for one that does the same. */
            void *page = (void *)((uintptr_t)code & -4096l);
            if (mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC)) return 2;
            static const unsigned char same[] = {0x48, 0x8b, 0xec};
            for (int byte = 0; byte < 3; byte++) code[1 + byte] = same[byte];
            if (!fork()) {
                until_let_go();
                ((void (*)(void))code)();
                WRITE_RESULT("alive");
                return 0;
            }
            if (count > 3) ((void (*)(void))code)();
            return 0;
        }"#,
    );
    assert_eq!(outcome.ending, Ending::Exited(0));
    assert_eq!(steps(&outcome, 0), ["step_load", "step_unused"]);
    assert_eq!(result(&directory), "alive");
}
