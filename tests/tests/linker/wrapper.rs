//! `reorder-ld` beyond the order itself: its cache, its messages about traces that no longer match, links that it leaves
//! alone, and that a link that it does not order shows no trace of it.

use std::os::unix::fs::PermissionsExt;

use end_to_end::linker_wrapper::Build;
use end_to_end::process::{Ending, Outcome};
use end_to_end::workspace;
use reorder_base::tool_versions::llvm;

/// clang with the wrapper around lld.
const LINK: &str = "clang$LLVM --ld-path=$LD -Wl,--reorder-linker=/usr/bin/ld.lld$LLVM";

/// Number of functions of the program, and the distance between those that its startup calls.
const FUNCTIONS: usize = 300;
const APART: usize = 25;

/// A program that calls few of its functions, the last first; recorded.
fn recorded() -> Build {
    let build = Build::new("project").unwrap();
    build.write("program.c", source("step", &[])).unwrap();
    build.must("clang$LLVM -O1 -ffunction-sections -c program.c");
    build.must("mkdir plain && clang$LLVM --ld-path=/usr/bin/ld.lld$LLVM program.o -o plain/program");
    let reorder = workspace::reorder_path().display();
    build.must(&format!("{reorder} record --quiet -o traces -- plain/program"));
    build
}

/// The numbers of the functions that startup calls, in its order.
fn called() -> impl Iterator<Item = usize> {
    (0..FUNCTIONS).step_by(APART).rev()
}

/// Functions `name0`, `name1` and so on, and `main`; functions in `extra` come first in the file.
fn source(name: &str, extra: &[&str]) -> String {
    let function = |name: &str, number: usize| {
        format!(
            "__attribute__((noinline)) int {name}(int value) {{\n  volatile int rows[50];\n  for (int row = 0; row < 50; \
             row++) rows[row] = value * row + {number};\n  return rows[value % 50] % {};\n}}\n",
            number + 7
        )
    };
    let mut text = String::from("#include <stdio.h>\n");
    extra.iter().for_each(|extra| text.push_str(&function(extra, 99)));
    (0..FUNCTIONS).for_each(|number| text.push_str(&function(&format!("{name}{number}"), number)));
    let calls: String = called().map(|number| format!("  sum += {name}{number}(sum + count);\n")).collect();
    let unused: String = (0..FUNCTIONS).map(|number| format!("  sum += {name}{number}(sum);\n")).collect();
    let extra: String = extra.iter().map(|extra| format!("  sum += {extra}(sum);\n")).collect();
    text.push_str(&format!(
        "int main(int count, char **arguments) {{\n  (void)arguments;\n  int sum = 0;\n{calls}  if (count > 9) {{\n{unused}{extra}  \
         }}\n  printf(\"%d\\n\", sum);\n  return 0;\n}}\n"
    ));
    // Names that resemble no other.
    text.replace("step50", "compute_checksum").replace("step75", "release_buffers")
}

fn report(build: &Build) -> serde_json::Value {
    serde_json::from_slice(&build.bytes("report.json")).unwrap()
}

fn said(outcome: &Outcome, what: &str) {
    assert!(outcome.stderr_text().contains(what), "{what} is not in\n{outcome}");
}

fn silent(outcome: &Outcome) {
    assert!(!outcome.stderr_text().contains("reorder-ld"), "{outcome}");
}

/// The listed functions of the output, by address.
fn by_address(build: &Build, output: &str, names: &[String]) -> Vec<String> {
    let listing = build.must(&format!("nm -n {output}")).stdout_text();
    let symbols = listing.lines().filter_map(|line| line.split_whitespace().nth(2));
    symbols.filter(|symbol| names.iter().any(|name| name == symbol)).map(str::to_owned).collect()
}

#[test]
fn the_same_link_is_remembered_and_gives_the_same_bytes() {
    let build = recorded();
    let line =
        format!("{LINK} -Wl,--reorder-traces=traces -Wl,--reorder-report=report.json program.o -o program");
    said(&build.must(&line), "page faults of 1 run, simulated");
    let first = build.bytes("program");
    assert_eq!(report(&build)["is_remembered"], false);
    said(&build.must(&line), "as in the link before");
    assert_eq!(report(&build)["is_remembered"], true);
    assert!(build.bytes("program") == first);

    // Written again with the same contents: another time stamp, the same link.
    build.must("cp program.o copy && mv copy program.o");
    build.must(&line);
    assert_eq!(report(&build)["is_remembered"], true);
    // Without the cache, the same bytes.
    build.must(&line.replace("-Wl,--reorder-report", "-Wl,--reorder-cache=off -Wl,--reorder-report"));
    assert_eq!(report(&build)["is_remembered"], false);
    assert!(build.bytes("program") == first);

    for change in [
        "sed -i 's/% 50/% 49/' program.c && clang$LLVM -O1 -ffunction-sections -c program.c",
        "cp traces/*.trace traces/again.trace",
    ] {
        build.must(change);
        build.must(&line);
        assert_eq!(report(&build)["is_remembered"], false, "{change}");
    }
    build.must(&line.replace("program.o", "-Wl,--reorder-memory=16k program.o"));
    assert_eq!(report(&build)["is_remembered"], false);
}

#[test]
fn a_finished_image_is_remembered_too() {
    let build = recorded();
    let line = format!(
        "{LINK} -Wl,--reorder-mode=post-link -Wl,--reorder-traces=traces -Wl,--reorder-report=report.json program.o -o program"
    );
    build.must(&format!("umask 027; {line}"));
    let first = build.bytes("program");
    let plain = build.bytes("plain/program");
    assert!(first != plain && first.len() == plain.len());
    build.must("rm program");
    build.must(&format!("umask 027; {line}"));
    assert_eq!(report(&build)["is_remembered"], true);
    assert!(build.bytes("program") == first);
    let mode = build.folder().join("program").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o750);
    assert_eq!(build.must("./program").stdout, build.must("plain/program").stdout);
}

#[test]
fn traces_of_an_older_version_still_order() {
    let build = recorded();
    let text = source("step", &["introduced", "added"])
        .replace("compute_checksum", "compute_checksum_fast")
        .replace("release_buffers", "zap");
    build.write("program.c", text).unwrap();
    build.must("clang$LLVM -O1 -ffunction-sections -c program.c");
    let outcome = build.must(&format!(
        "{LINK} -Wl,--reorder-traces=traces -Wl,--reorder-report=report.json -Wl,--reorder-verbose program.o -o program"
    ));
    said(&outcome, "2 of 14 functions of the traces are not found");
    said(&outcome, "compute_checksum (now compute_checksum_fast?)");
    let report = report(&build);
    assert_eq!((&report["names"]["lost"], &report["names"]["found"]), (&2.into(), &12.into()), "{report:#}");
    let is_there = |number: &usize| ![50, 75].contains(number);
    let order: Vec<String> = called().filter(is_there).map(|number| format!("step{number}")).collect();
    assert_eq!(by_address(&build, "program", &order), order);
    let faults = &report["faults"];
    assert!(faults["after"].as_u64() < faults["before"].as_u64(), "{report:#}");
}

#[test]
fn too_few_names_warn_or_fail_the_link() {
    let build = recorded();
    build.write("program.c", source("other", &[])).unwrap();
    build.must("clang$LLVM -O1 -ffunction-sections -c program.c");
    build.must("clang$LLVM --ld-path=/usr/bin/ld.lld$LLVM program.o -o expected");
    let line = format!("{LINK} -Wl,--reorder-traces=traces program.o -o program");
    said(&build.must(&line), "warning: ");
    build.must("rm program");
    let failed = build.run(&line.replace("program.o", "-Wl,--reorder-fail-below=90 program.o")).unwrap();
    assert_ne!(failed.ending, Ending::Exited(0));
    said(&failed, "less than the 90 % of fail-below");
    said(&failed, "hint: record the program again");
    assert!(!build.folder().join("program").exists());
}

#[test]
fn without_an_order_the_link_is_the_linkers_own() {
    let build = recorded();
    let plain = build.bytes("plain/program");
    let line = |options: &str| format!("{LINK} {options} program.o -o program");
    // No traces; traces of another program; switched off; programs that are not selected.
    silent(&build.must(&line("")));
    assert!(build.bytes("program") == plain);
    silent(&build.must(&line("-Wl,--reorder-traces=traces -Wl,--reorder-mode=off")));
    silent(&build.must(&line("-Wl,--reorder-traces=traces -Wl,--reorder-program=server")));
    silent(&build.must(
        &line("-Wl,--reorder-traces=traces").replace("-o program", "-o another && mv another program"),
    ));
    assert!(build.bytes("program") == plain);
    // Missing traces give a warning, or fail the link.
    said(
        &build.must(&line("-Wl,--reorder-traces=missing")),
        "program is linked without an order: missing: No such file",
    );
    assert!(build.bytes("program") == plain);
    let strict = build.run(&line("-Wl,--reorder-traces=missing -Wl,--reorder-strict")).unwrap();
    assert_ne!(strict.ending, Ending::Exited(0));
    said(&strict, "error: missing: No such file");
    let mistaken = build.run(&line("-Wl,--reorder-tarces=traces")).unwrap();
    said(&mistaken, "--reorder-tarces");
    said(&mistaken, "--reorder-traces");
    assert_ne!(mistaken.ending, Ending::Exited(0));
    // An order of the user's own.
    build.write("own.order", "step7\nstep3\n").unwrap();
    silent(&build.must(&line("-Wl,--reorder-traces=traces -Wl,--symbol-ordering-file=own.order")));
    let own = ["step7", "step3"].map(str::to_owned);
    assert_eq!(by_address(&build, "program", &own), own);
    // No file is left next to the output.
    let left: Vec<_> =
        std::fs::read_dir(build.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("reorder-")), "{left:?}");
}

#[test]
fn a_stripped_program_is_ordered_all_the_same() {
    let build = recorded();
    let line = format!(
        "{LINK} -s -Wl,--reorder-traces=traces -Wl,--reorder-report=report.json program.o -o program"
    );
    build.must(&line);
    let report = report(&build);
    assert!(report["faults"]["after"].as_u64() < report["faults"]["before"].as_u64(), "{report:#}");
    said(&build.run("nm program").unwrap(), "no symbols");
    assert_eq!(build.must("./program").stdout, build.must("plain/program").stdout);
}

#[test]
fn files_about_the_output_name_it_as_the_user_does() {
    let build = recorded();
    let options = "-Wl,-Map=program.map -Wl,--dependency-file=program.d";
    build.must(&format!("{LINK} -Wl,--reorder-traces=traces {options} program.o -o program"));
    let dependencies = String::from_utf8(build.bytes("program.d")).unwrap();
    assert!(dependencies.starts_with("program:"), "{dependencies}");
    let map = String::from_utf8(build.bytes("program.map")).unwrap();
    assert!(map.contains(".text.step30") && !map.contains("reorder-"), "{map:.500}");
    build.must(&format!(
        "{LINK} -Wl,--reorder-traces=traces -Wl,--reorder-linker=ld.bfd {options} program.o -o program"
    ));
    let map = String::from_utf8(build.bytes("program.map")).unwrap();
    assert!(map.contains("OUTPUT(program "), "the output's name is not in the map");
}

#[test]
fn a_repository_keeps_its_options_in_a_file() {
    let build = recorded();
    let linker = llvm("/usr/bin/ld.lld");
    let text = format!(
        "[link]\nreport = 'report.json'\nlinker = '{linker}'\n[program.program]\ntraces = 'traces'\n"
    );
    build.write("reorder.toml", text).unwrap();
    build.must("mkdir -p below");
    build.must("cd below && clang$LLVM --ld-path=$LD ../program.o -o program");
    assert_eq!(report(&build)["route"], "order for lld");
    build.must("rm report.json; cd below && clang$LLVM --ld-path=$LD ../program.o -o other");
    assert!(!build.folder().join("report.json").exists());
    // The environment and the command line win over it.
    build.must("REORDER_MODE=post-link clang$LLVM --ld-path=$LD program.o -o program");
    assert_eq!(report(&build)["route"], "moved in the finished image");
    build.must(
        "REORDER_MODE=post-link clang$LLVM --ld-path=$LD -Wl,--reorder-mode=order program.o -o program",
    );
    assert_eq!(report(&build)["route"], "order for lld");
    build.write("reorder.toml", "[link]\ntarces = 't'\n").unwrap();
    let mistaken = build.run("clang$LLVM --ld-path=$LD program.o -o program").unwrap();
    said(&mistaken, "tarces");
    assert_ne!(mistaken.ending, Ending::Exited(0));
}

#[test]
fn libraries_and_scripts_of_the_user() {
    let build = recorded();
    // With the user's script, GNU ld cannot be given another one: the finished image is changed.
    build.must("ld.bfd --verbose | sed '1,/^====/d;/^====/,$d' > own.ld");
    let line = "gcc -fuse-ld=bfd -B $LINKS -no-pie -Wl,-T,own.ld -Wl,--reorder-traces=traces -Wl,--reorder-report=report.json";
    build.must("gcc -O1 -ffunction-sections -fno-pie -c program.c -o fixed.o");
    build.must(&format!("{line} fixed.o -o program"));
    assert_eq!(report(&build)["route"], "moved in the finished image");
    assert_eq!(build.must("./program").stdout, build.must("plain/program").stdout);
    // A shared library, ordered by a list.
    build.must("clang$LLVM -O1 -fPIC -ffunction-sections -c program.c -o library.o");
    build.write("list.txt", "step9\nstep2\nstep5\n").unwrap();
    build.must(&format!("{LINK} -shared -Wl,--reorder-traces=list.txt -Wl,--reorder-strategy=first-seen library.o -o libsteps.so"));
    let order = ["step9", "step2", "step5"].map(str::to_owned);
    assert_eq!(by_address(&build, "libsteps.so", &order), order);
}

#[test]
fn functions_that_share_a_section_are_told() {
    let build = recorded();
    build.must("clang$LLVM -O1 -fno-function-sections -c program.c");
    let outcome = build.must(&format!("{LINK} -Wl,--reorder-traces=traces program.o -o program"));
    said(&outcome, "share a section with others");
    said(&outcome, "hint: compile with -ffunction-sections");
}

#[test]
fn programs_for_other_processors_are_ordered_by_lld() {
    let build = recorded();
    let text = source("step", &[])
        .replace("#include <stdio.h>", "int printf(const char *, ...);")
        .replace("int main(", "int start(");
    build.write("program.c", text).unwrap();
    build.write("entry.c", "int printf(const char *text, ...) { return text[0]; }\nint start(int, char **);\nvoid _start(void) { \
        start(1, 0); register long number __asm__(\"x8\") = 93; register long status __asm__(\"x0\") = 7; \
        __asm__ volatile(\"svc 0\" : : \"r\"(number), \"r\"(status)); }\n").unwrap();
    build.must(
        "clang$LLVM --target=aarch64-linux-gnu -O1 -ffunction-sections -ffreestanding -c program.c entry.c",
    );
    build.write("list.txt", "step250\nstep25\nstart\nstep150\n").unwrap();
    build.must("$LD --reorder-linker=/usr/bin/ld.lld$LLVM --reorder-traces=list.txt --reorder-strategy=first-seen --reorder-strict \
                --reorder-report=report.json entry.o program.o -o program");
    let order = ["step250", "step25", "start", "step150"].map(str::to_owned);
    assert_eq!(by_address(&build, "program", &order), order);
    assert_eq!(build.run("qemu-aarch64 ./program").unwrap().ending, Ending::Exited(7));
}

#[test]
fn data_is_ordered_where_it_is_asked_for() {
    let build = recorded();
    // Two kinds of tables in turn: by content, those of one kind are adjacent.
    let table = |number: usize| {
        let value = |row: usize| {
            if number.is_multiple_of(2) { row * 37 % 251 } else { row * 91 % 241 + number / 100 }
        };
        let rows: Vec<String> = (0..200).map(|row| value(row).to_string()).collect();
        format!("unsigned char table{number}[200] = {{{}}};\n", rows.join(","))
    };
    let tables: String = (0..20).map(table).collect();
    let sum: String = (0..20).map(|number| format!(" + table{number}[row]")).collect();
    build.write("tables.c", format!("{tables}int tables(int row) {{ return 0{sum}; }}\n")).unwrap();
    build.must("clang$LLVM -O1 -ffunction-sections -fdata-sections -c tables.c");
    let line = format!("{LINK} -Wl,--reorder-traces=traces -Wl,-u,tables program.o tables.o -o program");
    let kinds = |build: &Build| -> String {
        let names: Vec<String> = (0..20).map(|number| format!("table{number}")).collect();
        let kind =
            |name: &String| if name[5..].parse::<usize>().unwrap().is_multiple_of(2) { 'e' } else { 'o' };
        by_address(build, "program", &names).iter().map(kind).collect()
    };
    build.must(&line);
    assert_eq!(kinds(&build), "eo".repeat(10));
    build.must(&line.replace("-Wl,-u", "-Wl,--reorder-data -Wl,-u"));
    let changes = kinds(&build).as_bytes().windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes <= 3, "{}", kinds(&build));
    assert_eq!(build.must("./program").stdout, build.must("plain/program").stdout);
    // Where it is not possible, a message says so.
    let through_bfd =
        "gcc -fuse-ld=bfd -B $LINKS -Wl,--reorder-data -Wl,--reorder-traces=traces program.o -o program";
    said(&build.must(through_bfd), "data is not ordered");
}

#[test]
fn a_remembered_image_is_of_the_link_that_was_just_done() {
    let build = recorded();
    let library = |value: u32| {
        build.write("extra.c", format!("int extra(void) {{ return {value}; }}\n")).unwrap();
        build.must("gcc -fPIC -c extra.c && rm -f libextra.a && ar rc libextra.a extra.o && gcc -shared extra.o -o libextra.so");
    };
    let text = source("step", &[]).replace("printf(\"%d\\n\", sum)", "printf(\"%d\\n\", extra())");
    build.write("program.c", text.replace("int main(", "int extra(void);\nint main(")).unwrap();
    build.must("gcc -O1 -ffunction-sections -c program.c");
    let line = "gcc -static -fuse-ld=mold -B $LINKS -Wl,--reorder-traces=traces -Wl,--reorder-debug=drop program.o -L. -lextra -o program";
    for value in [1, 2, 1] {
        library(value);
        build.must(line);
        assert_eq!(build.must("./program").stdout_text(), format!("{value}\n"));
    }
    for folder in ["/tmp/one", "/tmp/two"] {
        build.must(&format!("{} -Wl,-rpath,{folder}", line.replace("-static ", "")));
        assert!(build.must("readelf -d program").stdout_text().contains(folder));
    }
}

#[test]
fn what_the_linker_says_is_what_it_says_without_us() {
    let build = recorded();
    let both = |linker: &str, options: &str| {
        let plain = build.must(&format!("gcc -fuse-ld={linker} {options} program.o -o program"));
        let through = "-B $LINKS -Wl,--reorder-quiet -Wl,--reorder-traces=traces -Wl,--reorder-strict";
        (plain, build.must(&format!("gcc -fuse-ld={linker} {through} {options} program.o -o program")))
    };
    // A warning that names the output.
    build.write("bare.c", "void alpha(void) { for (;;) ; }\nvoid _start(void) { alpha(); }\n").unwrap();
    build.write("list.txt", "alpha\n").unwrap();
    build.must("gcc -O1 -ffunction-sections -c bare.c");
    let bare = "gcc -fuse-ld=bfd -nostdlib -static -Wl,-N bare.o -o bare";
    let plain = build.must(bare);
    assert!(plain.stderr_text().contains("bare has"), "nothing is said: {plain}");
    let through = "-B $LINKS -Wl,--reorder-quiet -Wl,--reorder-traces=list.txt -Wl,--reorder-strict bare.o";
    assert_eq!(plain.stderr_text(), build.must(&bare.replace("bare.o", through)).stderr_text());
    for linker in ["bfd", "gold"] {
        let (plain, through) = both(linker, "-Wl,-M");
        let sections = |outcome: &Outcome| outcome.stdout_text().matches(".text.step").count();
        assert!(sections(&plain) >= FUNCTIONS - 2, "{plain:.400}");
        assert!(sections(&through) >= sections(&plain), "{linker}: the map is not printed");
    }
    // The trial link must understand options whose values are separate arguments.
    both("bfd", "-Wl,--compress-debug-sections,zlib");
}

#[test]
fn post_link_failures_are_those_of_the_linker() {
    let build = recorded();
    build.write("program.c", "int missing(void);\nint main(void) { return missing(); }\n").unwrap();
    build.must("gcc -c program.c");
    let run = |options: &str| {
        build.write("program", "older").unwrap();
        let outcome = build.run(&format!("gcc -fuse-ld=bfd {options} program.o -o program")).unwrap();
        (outcome, build.folder().join("program").exists())
    };
    let plain = run("");
    let through = run("-B $LINKS -Wl,--reorder-mode=post-link -Wl,--reorder-traces=traces");
    assert_ne!(plain.0.ending, Ending::Exited(0));
    assert_eq!(plain, through);
}

#[test]
fn traces_of_unknown_images_leave_other_links_alone() {
    let build = recorded();
    build.write("list.txt", "server_main\nserver_accept\nserver_answer\n").unwrap();
    for options in ["", "-Wl,--reorder-strict", "-Wl,--reorder-mode=post-link"] {
        let line = format!("{LINK} -Wl,--reorder-traces=list.txt {options} program.o -o program");
        silent(&build.must(&line));
        assert!(build.bytes("program") == build.bytes("plain/program"), "{options}");
        silent(&build.must(&line));
    }
    // A warning for a program that is selected.
    let meant =
        format!("{LINK} -Wl,--reorder-traces=list.txt -Wl,--reorder-program=program program.o -o program");
    said(&build.must(&meant), "program is linked without an order");
}

#[test]
fn a_report_that_cannot_be_written_costs_a_word() {
    let build = recorded();
    let line = format!(
        "{LINK} -Wl,--reorder-traces=traces -Wl,--reorder-strict -Wl,--reorder-report=missing/r.json program.o -o program"
    );
    let outcome = build.must(&line);
    said(&outcome, "the report is not written");
    let order: Vec<String> =
        called().filter(|number| ![50, 75].contains(number)).map(|number| format!("step{number}")).collect();
    assert_eq!(by_address(&build, "program", &order), order);
}
