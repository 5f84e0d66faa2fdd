//! Every linker with every kind of program: the functions of a recorded run are in the computed order in the linked
//! image, and the program behaves as before.
//!
//! The cells are those of SUPPORT.md. In each the plain program is linked and recorded, then linked again through
//! `reorder-ld` with that recording. For Mach-O, which does not run here, a relink by hand with the same order must give the
//! same bytes.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::HashMap;
use std::process::ExitCode;

use end_to_end::linker_wrapper::Build;
use end_to_end::workspace;
use libtest_mimic::{Arguments, Trial};

/// A linker and the method by which the wrapper brings an order into its output.
#[derive(Clone, Copy, Debug)]
struct Linker {
    name: &'static str,
    /// As `--reorder-linker` takes it; a shell expands it.
    program: &'static str,
    /// Its name in `-fuse-ld` of GCC and clang.
    fuse: &'static str,
    route: &'static str,
}

const LINKERS: [Linker; 5] = [
    Linker { name: "ld.lld", program: "/usr/bin/ld.lld$LLVM", fuse: "lld", route: "order for lld" },
    Linker { name: "rust-lld", program: "$RUST_LLD", fuse: "lld", route: "order for lld" },
    Linker { name: "ld.gold", program: "ld.gold", fuse: "gold", route: "--section-ordering-file" },
    Linker { name: "ld.bfd", program: "ld.bfd", fuse: "bfd", route: "linker script" },
    Linker { name: "mold", program: "ld.mold", fuse: "mold", route: "moved in the finished image" },
];

/// The folder of the linker that comes with rustc.
const RUST_LLD: &str = "lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld/ld.lld";

/// Kinds of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    C,
    Cpp,
    Rust,
    LinkTime,
}

const PROGRAMS: [Program; 4] = [Program::C, Program::Cpp, Program::Rust, Program::LinkTime];

/// Architectures of Mach-O.
const ARCHITECTURES: [&str; 2] = ["arm64", "x86_64"];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for linker in LINKERS {
        for program in PROGRAMS {
            trials.push(Trial::test(format!("{} {program:?}", linker.name), move || {
                elf_cell(linker, program);
                Ok(())
            }));
        }
    }
    for architecture in ARCHITECTURES {
        for program in [Program::C, Program::Cpp, Program::LinkTime] {
            trials.push(Trial::test(format!("ld64.lld {architecture} {program:?}"), move || {
                mach_o_cell(architecture, program);
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The sources of `program` in the build.
fn with_sources(program: Program) -> Build {
    let build = Build::new("linked").unwrap();
    let folder = match program {
        Program::C | Program::LinkTime => "c",
        Program::Cpp => "cpp",
        Program::Rust => "rust",
    };
    for entry in std::fs::read_dir(workspace::root().join("tests/linking").join(folder)).unwrap() {
        let entry = entry.unwrap();
        build.write(entry.file_name(), std::fs::read(entry.path()).unwrap()).unwrap();
    }
    build
}

/// The command that links, up to the options of the linker; `through` is empty or selects the wrapper.
fn link_line(linker: Linker, program: Program, through: &str, output: &str) -> String {
    let Linker { fuse, .. } = linker;
    // clang's link-time optimisation needs lld, GCC's any linker that takes its plugin.
    let is_lld = fuse == "lld";
    match program {
        Program::C if is_lld => format!("clang$LLVM -fuse-ld=lld {through} *.o -o {output}"),
        Program::LinkTime if is_lld => format!("clang$LLVM -flto -O1 -fuse-ld=lld {through} *.o -o {output}"),
        Program::Cpp if is_lld => format!("clang++$LLVM -fuse-ld=lld {through} *.o -o {output}"),
        Program::C => format!("gcc -fuse-ld={fuse} {through} *.o -o {output}"),
        Program::LinkTime => {
            format!("gcc -flto -O1 -ffunction-sections -fuse-ld={fuse} {through} *.o -o {output}")
        }
        Program::Cpp => format!("g++ -fuse-ld={fuse} {through} *.o -o {output}"),
        Program::Rust => {
            let arguments: String =
                through.split_whitespace().map(|word| format!(" -Clink-arg={word}")).collect();
            // rustc puts a folder of its own before ours; its linker, as a compiler, is found before that.
            let driver = if through.contains("--reorder-") { "reorder-cc" } else { "cc" };
            format!("rustc -O -Clinker={driver} -Clink-arg=-fuse-ld={fuse}{arguments} main.rs -o {output}")
        }
    }
}

fn compile(build: &Build, linker: Linker, program: Program) {
    let is_lld = linker.fuse == "lld";
    match program {
        Program::C => {
            drop(build.must(&format!(
                "{} -O1 -ffunction-sections -c *.c",
                if is_lld { "clang$LLVM" } else { "gcc" }
            )))
        }
        Program::LinkTime => {
            let compiler = if is_lld { "clang$LLVM" } else { "gcc" };
            build.must(&format!("{compiler} -O1 -flto -ffunction-sections -c *.c"));
        }
        Program::Cpp => {
            let compiler = if is_lld { "clang++$LLVM" } else { "g++" };
            build.must(&format!("{compiler} -O1 -ffunction-sections -c *.cpp"));
        }
        Program::Rust => {}
    }
}

fn elf_cell(linker: Linker, program: Program) {
    let mut build = with_sources(program);
    let root = build.must("rustc --print sysroot").stdout_text();
    build.set("RUST_LLD", format!("{}/{RUST_LLD}", root.trim_end()));
    compile(&build, linker, program);
    // Recorded under the name that the ordered program has, in a folder of its own.
    build.must("mkdir plain ordered");
    build.must(&link_line(linker, program, "-Wl,--build-id=none", "plain/program"));
    let reorder = workspace::reorder_path().display();
    build.must(&format!("{reorder} record --quiet -o traces -- plain/program"));
    let order = build.must(&format!("{reorder} order plain/program -t traces --strategy first-seen --quiet"));
    let through = "-B $LINKS -Wl,--build-id=none -Wl,--reorder-traces=traces -Wl,--reorder-strategy=first-seen \
                   -Wl,--reorder-report=report.json -Wl,--reorder-strict -Wl,--reorder-debug=drop";
    let chosen = format!("{through} -Wl,--reorder-linker={}", linker.program);
    build.must(&link_line(linker, program, &chosen, "ordered/program"));

    let report: serde_json::Value = serde_json::from_slice(&build.bytes("report.json")).unwrap();
    assert_eq!(report["route"], linker.route, "{report:#}");
    assert_eq!(report["names"]["lost"], 0, "{report:#}");
    let (plain, ordered) = (build.must("plain/program"), build.must("ordered/program"));
    assert_eq!(plain.stdout_text(), ordered.stdout_text());

    let order = order.stdout_text();
    let order: Vec<&str> = order.lines().filter(|line| !line.starts_with('#')).collect();
    let places = places(&build.must("nm ordered/program").stdout_text());
    let plain_places = self::places(&build.must("nm plain/program").stdout_text());
    let unique: Vec<&str> =
        order.into_iter().filter(|name| places.get(*name).is_some_and(|all| all.len() == 1)).collect();
    assert!(unique.len() >= 4, "{unique:?}");
    let inversions = |places: &HashMap<String, Vec<u64>>| {
        unique.windows(2).filter(|pair| places[pair[0]][0] >= places[pair[1]][0]).count()
    };
    assert!(inversions(&plain_places) > 0, "the linker's own order shows nothing");
    if linker.name == "mold" {
        // Pinned functions stay, and functions that do not fit into a gap are placed after it: the order is that of `apply`.
        let options = "-t traces --strategy first-seen --debug drop --quiet -o applied";
        build.must(&format!("{reorder} apply plain/program {options}"));
        assert!(
            build.bytes("applied") == build.bytes("ordered/program"),
            "not what `apply` makes of the plain program"
        );
    } else {
        assert_eq!(inversions(&places), 0, "{}", listing(&unique, &places));
    }
    let faults = &report["faults"];
    assert!(faults["after"].as_u64().unwrap() <= faults["before"].as_u64().unwrap(), "{report:#}");
}

fn listing(names: &[&str], places: &HashMap<String, Vec<u64>>) -> String {
    names.iter().map(|name| format!("{:#x} {name}\n", places[*name][0])).collect()
}

/// Addresses of the symbols that `nm` lists.
fn places(listing: &str) -> HashMap<String, Vec<u64>> {
    let mut places: HashMap<String, Vec<u64>> = HashMap::new();
    for line in listing.lines() {
        let mut words = line.split_whitespace();
        let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if let (Ok(address), "t" | "T" | "w" | "W") = (u64::from_str_radix(address, 16), kind) {
            places.entry(name.to_owned()).or_default().push(address);
        }
    }
    places
}

/// A list of functions in the order in which startup would execute them.
const MACH_O_C: [&str; 5] = ["_main", "_second_two", "_first_two", "_second_one", "_first_one"];
const MACH_O_CPP: [&str; 4] = ["_main", "__Z6surveyi", "__Z7measureRK5Shapei", "__Z6scaledILi4EEii"];

fn mach_o_cell(architecture: &str, program: Program) {
    let build = with_sources(program);
    let target = format!("--target={architecture}-apple-macos12");
    let names: &[&str] = if program == Program::Cpp { &MACH_O_CPP } else { &MACH_O_C };
    match program {
        // The system's headers are not available: the sources do not need them.
        Program::Cpp => {
            let text = std::fs::read_to_string(build.folder().join("shared.hpp")).unwrap();
            let text = text.replace("#include <stdexcept>\n#include <string>\n", "");
            build.write("shared.hpp", text).unwrap();
            build.write("measure.cpp", MEASURE_WITHOUT_LIBRARY).unwrap();
            build.write("main.cpp", MAIN_WITHOUT_LIBRARY).unwrap();
            build.must(&format!("clang++$LLVM {target} -O1 -c *.cpp"));
        }
        _ => {
            let text = std::fs::read_to_string(build.folder().join("main.c")).unwrap();
            let text = text.replace("#include <stdio.h>", "int printf(const char *, ...);");
            build.write("main.c", text).unwrap();
            let link_time = if program == Program::LinkTime { "-flto" } else { "" };
            build.must(&format!("clang$LLVM {target} -O1 {link_time} -c *.c"));
        }
    }
    let link = "-arch ARCH -platform_version macos 12 12 -undefined dynamic_lookup *.o -o"
        .replace("ARCH", architecture);
    build.must("mkdir plain ordered by-hand");
    build.must(&format!("ld64.lld$LLVM {link} plain/program"));
    // As a profile spells them: without the underscore of the symbols.
    let list: String = names.iter().map(|name| format!("{}\n", &name[1..])).collect();
    build.write("start.txt", list).unwrap();
    build.must(&format!(
        "$LD --reorder-linker=/usr/bin/ld64.lld$LLVM --reorder-traces=start.txt --reorder-strategy=first-seen \
         --reorder-report=report.json --reorder-strict {link} ordered/program"
    ));
    let report: serde_json::Value = serde_json::from_slice(&build.bytes("report.json")).unwrap();
    assert_eq!(report["route"], "-order_file", "{report:#}");
    let places = places(&build.must("llvm-nm$LLVM ordered/program").stdout_text());
    let plain_places = self::places(&build.must("llvm-nm$LLVM plain/program").stdout_text());
    let is_in_order = |places: &HashMap<String, Vec<u64>>| {
        names.windows(2).all(|pair| places[pair[0]][0] < places[pair[1]][0])
    };
    assert!(!is_in_order(&plain_places), "the linker's own order shows nothing");
    assert!(is_in_order(&places), "{}", listing(names, &places));

    let by_hand: String = names.iter().map(|name| format!("{name}\n")).collect();
    build.write("by-hand.txt", by_hand).unwrap();
    build.must(&format!("ld64.lld$LLVM -order_file by-hand.txt {link} by-hand/program"));
    assert!(
        build.bytes("ordered/program") == build.bytes("by-hand/program"),
        "not what the same order gives by hand"
    );
}

const MEASURE_WITHOUT_LIBRARY: &str = r#"
#include "shared.hpp"
KEPT int never(int value) { return scaled<90>(value); }
KEPT static void refuse(int area) { throw area; }
KEPT int measure(const Shape &shape, int limit) {
    int area = shape.area();
    if (area > limit) refuse(area);
    return scaled<3>(area) + scaled<4>(area);
}
"#;

const MAIN_WITHOUT_LIBRARY: &str = r#"
#include "shared.hpp"
struct Square final : Shape {
    explicit Square(int side) : side(side) {}
    KEPT int area() const override { return side * side; }
    int side;
};
KEPT int survey(int value) {
    try { return measure(Square(value), 20) + scaled<4>(value); } catch (int area) { return scaled<3>(area); }
}
int main(int count, char **) { return survey(count + 6) + survey(count); }
"#;
