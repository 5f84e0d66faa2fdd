//! `record --blocks`: the recorded basic blocks are those that the program executes, as an emulator sees them, and the
//! program is not affected.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use end_to_end::recorded_programs::{Program, compile, request};
use end_to_end::workspace::reorder;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_run::record::{RecordOutcome, RecordRequest, record};
use reorder_system::stops::Ending;
use reorder_trace::{BlockAccount, Event, ImageIdentity, executed_blocks, resolve, text};

/// Switches, loops, cold paths that the compiler splits off, and parts that never run.
const SOURCE: &str = r#"
    #include <stdlib.h>
    #include <string.h>
    __attribute__((noinline, cold)) void step_failure(int x) { if (x > 1000) abort(); }
    __attribute__((noinline)) int step_switch(int x, int y) {
        switch (x) {
        case 0: return y + 1;
        case 1: y *= 3; /* fall through */
        case 2: y -= 7; break;
        case 3: return y / 5;
        case 4: y ^= 21; break;
        case 5: return y << 3;
        case 6: y += y >> 2; break;
        case 7: return y % 11;
        case 8: y |= 64; break;
        default: step_failure(x); return -y;
        }
        return y * 2;
    }
    __attribute__((noinline)) int step_loop(const char *text, int wanted) {
        int count = 0;
        for (; *text; text++) {
            if (*text == wanted) { count++; continue; }
            if (__builtin_expect(*text == '!', 0)) { step_failure(count); count = step_switch(count & 15, 3); }
            if (*text == '?') break;
        }
        return count;
    }
    __attribute__((noinline)) int step_recursion(int depth) {
        if (depth <= 0) return 1;
        int x = step_recursion(depth - 1);
        return depth & 1 ? x * 3 : x + depth;
    }
    int main(int count, char **words) {
        int sum = 0;
        for (int i = 1; i < count; i++) {
            sum += step_switch(atoi(words[i]), i);
            sum += step_loop(words[i], 'a');
            sum += step_recursion(strlen(words[i]));
        }
        return sum & 63;
    }"#;

fn built() -> Program {
    compile(SOURCE, &["-O2", "-static", "-no-pie"])
}

fn with_blocks(program: &Program, arguments: &[&str]) -> RecordOutcome {
    record(&RecordRequest { blocks: true, ..request(&program.path, arguments) }).unwrap()
}

/// The recorded functions of the source, those that were split off included.
fn own(outcome: &RecordOutcome) -> Vec<&Event> {
    let events = outcome.traces[0].trace.events.iter();
    let is_own =
        |event: &&Event| event.symbol().is_some_and(|name| name == b"main" || name.starts_with(b"step_"));
    events.filter(is_own).collect()
}

fn start(event: &Event) -> u64 {
    match event.location {
        reorder_trace::Location::Image(address) => address.0,
        _ => panic!("{event:?}"),
    }
}

/// Where the instructions of `range` begin that the emulator translated: it translates up to the next branch what it is
/// about to execute.
fn emulated(program: &Program, arguments: &[&str], ranges: &[(u64, u64)]) -> BTreeSet<u64> {
    let log = program.directory.path().join("log");
    let mut emulator = Command::new("qemu-x86_64");
    emulator.args(["-d", "in_asm,nochain", "-D"]).arg(&log).arg(&program.path).args(arguments);
    assert!(emulator.status().unwrap().code().is_some());
    let text = fs::read_to_string(log).unwrap();
    let address = |line: &str| {
        // Long instructions go on in a second line, which has no mnemonic.
        let (address, rest) = line.strip_prefix("0x")?.split_once(':')?;
        let is_first =
            rest.split_whitespace().any(|word| word.len() > 2 || u8::from_str_radix(word, 16).is_err());
        is_first.then(|| u64::from_str_radix(address, 16).ok())?
    };
    let is_own = |address: &u64| ranges.iter().any(|(start, end)| (start..end).contains(&address));
    text.lines().filter_map(address).filter(is_own).collect()
}

#[test]
fn recorded_blocks_are_what_an_emulator_executes() {
    let program = built();
    for arguments in
        [&["0"][..], &["1", "aab?a"], &["2", "3", "x!"], &["44", "7"], &["8aaaaa", "6", "5", "4"]]
    {
        let outcome = with_blocks(&program, arguments);
        let events = own(&outcome);
        let ranges: Vec<(u64, u64)> =
            events.iter().map(|event| (start(event), start(event) + event.size.unwrap())).collect();
        let expected = emulated(&program, arguments, &ranges);
        let mut begun = BTreeSet::new();
        let mut held = Vec::new();
        for event in &events {
            let recorded = event.blocks.as_ref().unwrap_or_else(|| panic!("{event:?} has no blocks"));
            for block in &recorded.blocks {
                let first = start(event) + u64::from(block.offset);
                assert!(begun.insert(first), "{first:#x} twice");
                held.push(first..first + u64::from(block.size));
            }
            assert!(recorded.blocks.iter().map(|block| block.nanoseconds).is_sorted());
            assert_eq!(event.nanoseconds, Some(recorded.blocks[0].nanoseconds));
        }
        assert!(begun.is_subset(&expected), "{arguments:?}: {:x?}", begun.difference(&expected));
        let is_held = |address: &&u64| held.iter().any(|block| block.contains(address));
        let missed: Vec<_> = expected.iter().filter(|address| !is_held(address)).collect();
        assert!(missed.is_empty(), "{arguments:?}: {missed:x?}");
        assert!(events.len() >= 4 && begun.len() > events.len());
    }
}

#[test]
fn functions_and_order_are_the_same_with_and_without_blocks() {
    let program = built();
    let arguments = ["1", "x!aa", "5"];
    let plain = record(&request(&program.path, &arguments)).unwrap();
    let blocks = with_blocks(&program, &arguments);
    let of = |outcome: &RecordOutcome| -> Vec<_> { own(outcome).iter().map(|event| start(event)).collect() };
    // Without blocks nothing shows that a part was entered which the compiler has split off.
    let common: Vec<u64> = of(&blocks).into_iter().filter(|start| of(&plain).contains(start)).collect();
    assert_eq!(common, of(&plain));
    assert_eq!(plain.ending, blocks.ending);
    assert_eq!(plain.statistics.first_blocks, 0);
    let recorded = blocks.traces[0].trace.block_count();
    assert_eq!(blocks.statistics.first_blocks, recorded);
    assert!(recorded > blocks.traces[0].trace.events.len() as u64);
}

#[test]
fn recorded_blocks_serve_functions_that_another_build_shares() {
    let program = built();
    let trace = with_blocks(&program, &["1", "3"]).traces.remove(0).trace;
    let trace = text::read(text::write(&trace).as_bytes()).unwrap().traces.remove(0);
    let account = |program: &Program| -> (BlockAccount, usize) {
        let bytes = fs::read(&program.path).unwrap();
        let file = ElfFile::parse(&bytes).unwrap();
        let functions = ElfFunctions::collect(&file).unwrap().table;
        let identity = ImageIdentity::of(&program.path, file.build_id());
        let resolved = resolve(std::slice::from_ref(&trace), &functions, &identity).unwrap();
        let executed = executed_blocks(&resolved.traces, &file, &functions);
        (executed.account, executed.traces[0].len())
    };
    let (same, blocks) = account(&program);
    assert_eq!(same.blocks + same.whole_functions(), blocks as u64);
    assert_eq!(same.blocks, trace.block_count());
    assert!(same.block_bytes * 10 < same.function_bytes * 9, "{same:?}");
    let changed = SOURCE
        .replace("y ^= 21", "y ^= 22")
        .replace("int main", "int added(int x) { return x * 7; } int main");
    let other = compile(&changed, &["-O2", "-static", "-no-pie"]);
    let (other, _) = account(&other);
    let differing = other.whole.values().sum::<u64>() - same.whole_functions();
    assert!((1..=3).contains(&differing), "{other:?}");
    assert!(other.by_block > 20 && other.by_block < same.by_block, "{other:?}");
}

#[test]
fn threads_and_forks_record_blocks_and_are_not_affected() {
    let program = compile(
        r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        __attribute__((noinline)) int step_work(int x) {
            int sum = 0;
            for (int i = 0; i < 200; i++) {
                if (x == 3) sum += i; else if (x == 5) sum ^= i; else sum -= i & x;
                if (i == x * 7) sum *= 3;
            }
            return sum;
        }
        static void *work(void *number) { return (void *)(long)step_work((long)number); }
        int main(void) {
            pthread_t threads[8];
            long sum = 0;
            for (long i = 0; i < 8; i++) pthread_create(&threads[i], 0, work, (void *)i);
            for (int i = 0; i < 8; i++) { void *part; pthread_join(threads[i], &part); sum += (long)part; }
            for (int i = 0; i < 3; i++) {
                int status;
                if (fork() == 0) _exit(step_work(i + 4) & 15);
                wait(&status);
                sum += WEXITSTATUS(status);
            }
            return sum & 63;
        }"#,
        &["-O2", "-pthread"],
    );
    let expected = Command::new(&program.path).status().unwrap().code().unwrap();
    for _ in 0..10 {
        let outcome = with_blocks(&program, &[]);
        assert_eq!(outcome.ending, Ending::Exited(expected));
        let events = own(&outcome);
        let work = events.iter().find(|event| event.symbol() == Some(b"step_work")).unwrap();
        assert!(work.blocks.as_ref().unwrap().blocks.len() > 3, "{work:?}");
    }
}

#[test]
fn the_command_says_what_it_recorded() {
    let program = built();
    let traces = program.directory.path().join("traces");
    let run = |arguments: &[&str]| {
        let output = reorder().args(arguments).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (path, directory) = (program.path.to_str().unwrap(), traces.to_str().unwrap());
    let (_, said) = run(&["record", "--blocks", "-o", directory, "--", path, "1"]);
    assert!(said.contains("first executions of functions and "), "{said}");
    let (shown, _) = run(&["traces", "show", directory]);
    assert!(shown.lines().next().unwrap().contains(" basic blocks in "), "{shown}");
    assert!(shown.contains("    +0x0, "), "{shown}");
    let (figures, _) = run(&["traces", "stats", "--format", "json", directory]);
    assert!(figures.contains("\"basic_blocks\""), "{figures}");
    let merged = program.directory.path().join("merged.trace");
    run(&["traces", "merge", "-o", merged.to_str().unwrap(), directory]);
    let count = |text: &str| text.lines().filter(|line| line.starts_with("#+ ")).count();
    let file = fs::read_dir(&traces).unwrap().next().unwrap().unwrap().path();
    let (before, after) = (fs::read_to_string(file).unwrap(), fs::read_to_string(merged).unwrap());
    assert!(count(&before) > 4 && count(&before) == count(&after), "{after}");
}
