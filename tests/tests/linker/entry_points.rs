//! Each documented way to make a build link through `reorder-ld`: we link the program, it is byte-identical without
//! traces, and with them the functions of a trace come first.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use end_to_end::linker_wrapper::Build;

/// Functions in link order, which is not the order in which startup needs two of them.
const WORK: &str = "\
__attribute__((noinline)) int cold_one(int n) { return n * 3 + 1; }
__attribute__((noinline)) int then_needed(int n) { return n * 13 + 5; }
__attribute__((noinline)) int cold_two(int n) { return n * 5 + 2; }
__attribute__((noinline)) int first_needed(int n) { return n * 11 + 4; }
__attribute__((noinline)) int cold_three(int n) { return n * 7 + 3; }
";

const MAIN: &str = "\
int printf(const char *, ...);
int cold_one(int), cold_two(int), cold_three(int), first_needed(int), then_needed(int);
int main(int count, char **arguments) {
  (void)arguments;
  int sum = first_needed(count) + then_needed(count);
  if (count > 1) sum += cold_one(count) + cold_two(count) + cold_three(count);
  printf(\"%d\\n\", sum);
  return 0;
}
";

const RUST: &str = "\
#[unsafe(no_mangle)] #[inline(never)] pub extern \"C\" fn cold_one(n: i32) -> i32 { n * 3 + 1 }
#[unsafe(no_mangle)] #[inline(never)] pub extern \"C\" fn then_needed(n: i32) -> i32 { n * 13 + 5 }
#[unsafe(no_mangle)] #[inline(never)] pub extern \"C\" fn cold_two(n: i32) -> i32 { n * 5 + 2 }
#[unsafe(no_mangle)] #[inline(never)] pub extern \"C\" fn first_needed(n: i32) -> i32 { n * 11 + 4 }
#[unsafe(no_mangle)] #[inline(never)] pub extern \"C\" fn cold_three(n: i32) -> i32 { n * 7 + 3 }
fn main() {
    let count = std::env::args().count() as i32;
    let mut sum = first_needed(count) + then_needed(count);
    if count > 1 { sum += cold_one(count) + cold_two(count) + cold_three(count) }
    println!(\"{sum}\");
}
";

const PRINTED: &str = "33\n";
const COMPILE: &str = "-O1 -ffunction-sections -c main.c work.c";

/// A folder with the program in C, compiled.
fn c() -> Build {
    let build = Build::new("build").unwrap();
    build.write("main.c", MAIN).unwrap();
    build.write("work.c", WORK).unwrap();
    build.must(&format!("gcc {COMPILE}"));
    build
}

/// A folder with the program in Rust.
fn rust() -> Build {
    let build = Build::new("build").unwrap();
    build.write("program.rs", RUST).unwrap();
    build
}

/// The functions that the program's startup needs, in that order.
const NEEDED: [&str; 2] = ["first_needed", "then_needed"];

/// The program's own functions in the order of their addresses.
fn order(build: &Build, program: &str) -> Vec<String> {
    let listing = build.must(&format!("llvm-nm$LLVM -n {program}")).stdout_text();
    let names = listing.lines().filter_map(|line| line.split_whitespace().last());
    let names = names.map(|name| name.trim_start_matches('_').to_owned());
    names.filter(|name| NEEDED.contains(&name.as_str()) || name.starts_with("cold_")).collect()
}

/// The needed functions are adjacent in their order: before the others, or after them where the linker puts ordered
/// functions at the end.
fn assert_ordered(build: &Build, program: &str, way: &str) {
    let order = order(build, program);
    assert_eq!(order.len(), 5, "{way}: {order:?}");
    assert!(order[..2] == NEEDED || order[3..] == NEEDED, "{way}: {order:?}");
}

/// `with` links `program` through us with the same result as `plain`; with a recorded trace its startup is in order.
fn prove(mut build: Build, plain: &str, with: &str, program: &str) {
    let run = format!("./{program}");
    build.must(plain);
    let expected = build.bytes(program);
    assert_eq!(build.must(&run).stdout_text(), PRINTED);
    build.must(&format!("reorder record -o start.trace -- {run}"));

    build.must(&format!("rm {program}"));
    build.must(with);
    assert!(build.bytes(program) == expected, "{with}: the program differs from that of {plain}");

    build.set("REORDER_TRACES", build.folder().join("start.trace"));
    build.set("REORDER_STRICT", "1");
    build.must(&format!("rm {program}"));
    build.must(with);
    assert_ordered(&build, program, with);
    assert_eq!(build.must(&run).stdout_text(), PRINTED);
    build.unset("REORDER_TRACES");
    build.unset("REORDER_STRICT");

    // Only we read this variable: the link fails because no linker has that name.
    build.set("REORDER_LINKER", "/nonexistent/ld");
    build.must(&format!("rm {program}"));
    let outcome = build.run(with).unwrap();
    assert!(!outcome.success(), "{with}\n{outcome}");
    let said = outcome.stdout_text() + &outcome.stderr_text();
    assert!(said.contains("/nonexistent/ld"), "{with}\n{outcome}");
    build.unset("REORDER_LINKER");
}

#[test]
fn clang_ld_path() {
    let line = "clang$LLVM main.o work.o -o program";
    prove(c(), line, &format!("{line} --ld-path=\"$(command -v reorder-ld)\""), "program");
}

#[test]
fn clang_fuse_ld_by_path() {
    let line = "clang$LLVM main.o work.o -o program";
    prove(c(), line, &format!("{line} -fuse-ld=\"$LD\""), "program");
}

#[test]
fn clang_links() {
    let line = "clang$LLVM -fuse-ld=lld main.o work.o -o program";
    prove(c(), line, &format!("{line} -B \"$(reorder-ld --reorder-links)\""), "program");
}

#[test]
fn gcc_links() {
    let line = "gcc main.o work.o -o program";
    prove(c(), line, &format!("{line} -B \"$(reorder-ld --reorder-links)\""), "program");
}

#[test]
fn gcc_links_for_each_linker() {
    for linker in ["bfd", "gold", "mold"] {
        let line = format!("gcc -fuse-ld={linker} main.o work.o -o program");
        prove(c(), &line, &format!("{line} -B \"$(reorder-ld --reorder-links)\""), "program");
    }
}

#[test]
fn gcc_links_with_lld_under_its_versioned_name() {
    let build = c();
    build.must("mkdir -p lld && ln -s \"$(command -v ld.lld$LLVM)\" lld/ld.lld");
    // Only the plain link needs the folder: gcc does not look for versions.
    let line = "gcc -fuse-ld=lld main.o work.o -o program";
    prove(
        build,
        &format!("{line} -Blld"),
        &format!("{line} -B \"$(reorder-ld --reorder-links)\""),
        "program",
    );
}

#[test]
fn rustc_linker() {
    let line = "rustc -Copt-level=1 program.rs -o program";
    prove(rust(), line, &format!("{line} -C linker=reorder-cc"), "program");
}

#[test]
fn rustc_linker_with_flavor() {
    let line = "rustc -Copt-level=1 program.rs -o program";
    prove(rust(), line, &format!("{line} -C linker=reorder-ld -C linker-flavor=gcc"), "program");
}

#[test]
fn rustc_with_another_compiler() {
    let line = "rustc -Copt-level=1 program.rs -o program";
    let with = format!("{line} -C linker=reorder-cc -C link-arg=--reorder-driver=clang$LLVM");
    // If the linker were called clang, rustc would not choose its own lld.
    let build = rust();
    build.must("mkdir bin && ln -s \"$(command -v clang$LLVM)\" bin/cc");
    prove(build, &format!("PATH=$PWD/bin:$PATH {line}"), &with, "program");
}

#[test]
fn rustc_links() {
    // Without the feature, rustc puts the folder of its own linker before ours.
    let line = "rustc -Copt-level=1 -C linker-features=-lld program.rs -o program";
    prove(rust(), line, &format!("{line} -C link-arg=-B\"$(reorder-ld --reorder-links)\""), "program");
}

#[test]
fn rustc_bare_linker() {
    let build = rust();
    let start = "-C link-arg=\"$(gcc -print-file-name=Scrt1.o)\" -C link-arg=\"$(gcc -print-file-name=crti.o)\" \
                 -C link-arg=\"$(gcc -print-file-name=crtn.o)\" -C link-arg=-dynamic-linker \
                 -C link-arg=/lib64/ld-linux-x86-64.so.2 -L \"$(dirname \"$(gcc -print-file-name=libgcc_s.so)\")\" \
                 -L \"$(dirname \"$(gcc -print-file-name=libc.so)\")\"";
    let line = format!("rustc -Copt-level=1 program.rs -o program -C linker-flavor=ld.lld {start}");
    prove(build, &format!("{line} -C linker=rust-lld"), &format!("{line} -C linker=reorder-ld"), "program");
}

#[test]
fn rustc_is_told_that_it_calls_a_bare_linker() {
    let outcome = rust().run("rustc program.rs -C linker=reorder-ld").unwrap();
    assert!(outcome.stderr_text().contains("call it -C linker=reorder-cc"), "{outcome}");
}

/// A package with a build script, a procedural macro and a dependency: the first two are linked and run in the build.
fn package() -> Build {
    let build = Build::new("build").unwrap();
    let manifest =
        |name: &str, more: &str| format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n{more}\n");
    let own = "[workspace]\n[dependencies]\nmade = { path = \"made\" }\nneeded = { path = \"needed\" }";
    build.write("Cargo.toml", manifest("program", own)).unwrap();
    build.write("build.rs", "fn main() { println!(\"cargo:rustc-env=BUILT=yes\"); }").unwrap();
    let main = RUST.replace(
        "fn main() {",
        "made::nothing!();\nfn main() { assert_eq!(env!(\"BUILT\"), \"yes\"); assert_eq!(needed::one(), 1);",
    );
    build.write("src/main.rs", main).unwrap();
    build.write("made/Cargo.toml", manifest("made", "[lib]\nproc-macro = true")).unwrap();
    let made = "#[proc_macro] pub fn nothing(_: proc_macro::TokenStream) -> proc_macro::TokenStream \
                { proc_macro::TokenStream::new() }";
    build.write("made/src/lib.rs", format!("extern crate proc_macro;\n{made}")).unwrap();
    build.write("needed/Cargo.toml", manifest("needed", "")).unwrap();
    build.write("needed/src/lib.rs", "#[inline(never)] pub fn one() -> u32 { 1 }").unwrap();
    build
}

const CARGO: &str = "rm -rf target && cargo build --offline --release --quiet && cp target/release/program .";

#[test]
fn cargo_configuration() {
    let build = package();
    build.write("with/config.toml", "[target.x86_64-unknown-linux-gnu]\nlinker = \"reorder-cc\"\n").unwrap();
    let with = CARGO.replace("--offline", "--offline --config with/config.toml");
    prove(build, CARGO, &with, "program");
}

#[test]
fn cargo_environment() {
    let with = format!("export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=reorder-cc; {CARGO}");
    prove(package(), CARGO, &with, "program");
}

/// A project with a target in C and one in C++.
fn cmake() -> Build {
    let build = Build::new("build").unwrap();
    build.write("main.c", MAIN).unwrap();
    build.write("work.c", WORK).unwrap();
    build.write("main.cpp", format!("extern \"C\" {{\n{WORK}}}\n#define main_c\n{}", MAIN.replace("int printf", "extern \"C\" int printf").replace("int cold_one(int), cold_two(int), cold_three(int), first_needed(int), then_needed(int);\n", ""))).unwrap();
    build
        .write(
            "CMakeLists.txt",
            "cmake_minimum_required(VERSION 3.20)\nproject(program C CXX)\n\
             add_compile_options(-O1 -ffunction-sections)\n\
             add_executable(program main.c work.c)\nadd_executable(program_cpp main.cpp)\n",
        )
        .unwrap();
    build
}

fn cmake_line(more: &str) -> String {
    format!(
        "rm -rf made && {{ cmake -S . -B made {more} && cmake --build made; }} >log 2>&1 || {{ cat log; exit 1; }}; \
         cp made/program made/program_cpp ."
    )
}

#[test]
fn cmake_with_make_and_gcc() {
    let with = cmake_line("-DCMAKE_EXE_LINKER_FLAGS=\"-B$(reorder-ld --reorder-links)\"");
    prove(cmake(), &cmake_line(""), &with, "program");
    prove(cmake(), &cmake_line(""), &with, "program_cpp");
}

#[test]
fn cmake_with_ninja_and_clang() {
    let compilers = "-G Ninja -DCMAKE_C_COMPILER=clang$LLVM -DCMAKE_CXX_COMPILER=clang++$LLVM";
    let with =
        cmake_line(&format!("{compilers} -DCMAKE_EXE_LINKER_FLAGS=--ld-path=\"$(command -v reorder-ld)\""));
    prove(cmake(), &cmake_line(compilers), &with, "program");
    prove(cmake(), &cmake_line(compilers), &with, "program_cpp");
}

#[test]
fn ninja_flags() {
    let build = c();
    let rules = "flags =\nrule link\n  command = gcc $flags $in -o $out\nbuild program: link main.o work.o\n";
    build.write("plain.ninja", rules).unwrap();
    let flags = format!("flags = -B{}", build.links().display());
    build.write("with.ninja", rules.replace("flags =", &flags)).unwrap();
    prove(build, "ninja -f plain.ninja", "ninja -f with.ninja", "program");
}

#[test]
fn configure_flags() {
    // How configure scripts and make's own rules use LDFLAGS.
    let build = c();
    build
        .write("Makefile", "program: main.o work.o\n\t$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LIBS) -o $@\n")
        .unwrap();
    prove(build, "make", "make LDFLAGS=\"-B$(reorder-ld --reorder-links)\"", "program");
}

#[test]
fn configure_linker() {
    // How configure scripts use LD: partial links, and for some programs the whole link.
    let build = c();
    let makefile = "place = $(shell gcc -print-file-name=$(1))\n\
         program: whole.o\n\t$(LD) -pie -dynamic-linker /lib64/ld-linux-x86-64.so.2 -o $@ $(call place,Scrt1.o) \
         $(call place,crti.o) $^ $(call place,libc.so) $(call place,crtn.o)\n\
         whole.o: main.o work.o\n\t$(LD) -r -o $@ $^\n";
    build.write("Makefile", makefile).unwrap();
    prove(build, "make LD=ld", "rm -f whole.o; make LD=reorder-ld", "program");
}

#[test]
fn response_files() {
    let build = c();
    build.write("inner", "-o 'program'").unwrap();
    build.write("outer", "main.o\nwork.o @inner \"-Wl,--build-id\" -Wl,-O1").unwrap();
    prove(build, "gcc @outer", "reorder-cc @outer", "program");
}

#[test]
fn response_files_of_a_linker() {
    let build = c();
    let line = "gcc main.o work.o -o program -Wl,@more";
    build.write("more", "--build-id -O1 -z now").unwrap();
    prove(build, line, &format!("{line} -B$LINKS"), "program");
}

#[test]
fn lines_too_long_for_the_system() {
    // rustc tries a command line first, and writes a response file when the system finds it too long.
    let build = rust();
    build.must("ar rc nothing.a");
    let archive = format!("-Clink-arg={}nothing.a\n", "./".repeat(50));
    build
        .write("words", format!("program.rs\n-oprogram\n-Copt-level=1\n{}", archive.repeat(25_000)))
        .unwrap();
    prove(build, "rustc @words", "rustc @words -Clinker=reorder-cc", "program");
}

#[test]
fn paths_of_any_bytes() {
    let name = OsString::from_vec(b"a folder \xff 'of' \"ours\"".to_vec());
    for with in ["reorder-cc main.o work.o -o program", "gcc -B\"$LINKS\" main.o work.o -o program"] {
        let build = Build::new(&name).unwrap();
        build.write("main.c", MAIN).unwrap();
        build.write("work.c", WORK).unwrap();
        build.must(&format!("gcc {COMPILE}"));
        let absolute = with.replace("main.o", "\"$PWD/main.o\"");
        prove(build, "gcc \"$PWD/main.o\" work.o -o program", &absolute, "program");
    }
    let build = Build::new(&name).unwrap();
    build.write("program.rs", RUST).unwrap();
    let line = "rustc -Copt-level=1 program.rs -o program";
    // A path in an argument of rustc must be Unicode; the working directory need not.
    let outcome = build.run(line).unwrap();
    assert!(outcome.success(), "{outcome}");
    prove(build, line, &format!("{line} -C linker=reorder-cc"), "program");
}

#[test]
fn links_in_a_folder_of_any_bytes() {
    let build = c();
    let folder = OsString::from_vec(b"links \xff ours".to_vec());
    let mut build = build;
    build.set("ODD", build.folder().join(folder));
    build.must("test \"$(reorder-ld --reorder-links=\"$ODD\")\" = \"$ODD\"");
    prove(build, "gcc main.o work.o -o program", "gcc -B\"$ODD\" main.o work.o -o program", "program");
}

#[test]
fn mach_o() {
    for way in ["-B\"$(reorder-ld --reorder-links)\"", "--ld-path=\"$(reorder-ld --reorder-links)/ld64.lld\""]
    {
        let mut build = Build::new("build").unwrap();
        build.write("main.c", MAIN).unwrap();
        build.write("work.c", WORK).unwrap();
        build.must(&format!("clang$LLVM --target=arm64-apple-macos11 {COMPILE}"));
        let line = "clang$LLVM --target=arm64-apple-macos11 -dynamiclib -nostdlib -Wl,-undefined,dynamic_lookup \
                    -fuse-ld=lld main.o work.o -o program.dylib";
        // By its path, clang does not know the linker's version and passes older options.
        let plain = if way.starts_with("--ld") {
            format!("{line} --ld-path=/usr/bin/ld64.lld$LLVM")
        } else {
            line.into()
        };
        build.must(&plain);
        let expected = build.bytes("program.dylib");
        build.must(&format!("{line} {way}"));
        assert!(build.bytes("program.dylib") == expected, "{way}");
        build.write("start.list", "_first_needed\n_then_needed\n").unwrap();
        build.set("REORDER_TRACES", "start.list");
        build.set("REORDER_STRICT", "1");
        build.must(&format!("{line} {way}"));
        assert_ordered(&build, "program.dylib", way);
        build.set("REORDER_LINKER", "/nonexistent/ld");
        assert!(!build.run(&format!("{line} {way}")).unwrap().success());
    }
}

#[test]
fn a_linker_that_clang_is_given_by_its_path_does_the_linking() {
    let line = "clang$LLVM --ld-path=/usr/bin/ld.gold main.o work.o -o program";
    prove(c(), line, &line.replace("clang$LLVM", "REORDER_DRIVER=clang$LLVM reorder-cc"), "program");
    let line = "clang$LLVM -fuse-ld=/usr/bin/ld.gold main.o work.o -o program";
    prove(c(), line, &line.replace("clang$LLVM", "reorder-cc --reorder-driver=clang$LLVM"), "program");
}

#[test]
fn own_options_reach_the_linker() {
    for way in [
        "gcc -B$LINKS main.o work.o -o program -Wl,--reorder-linker=ld.gold",
        "reorder-cc main.o work.o -o program -Wl,--reorder-linker=ld.gold",
        "reorder-cc main.o --reorder-linker=ld.gold work.o -o program",
        "reorder-cc main.o work.o -o program @own",
        "REORDER_OPTIONS=--reorder-linker=ld.gold reorder-cc main.o work.o -o program",
        "REORDER_LINKER=ld.gold reorder-cc main.o work.o -o program",
        "REORDER_LINKER=/usr/bin/ld.gold gcc -B$LINKS main.o work.o -o program",
    ] {
        let build = c();
        build.write("own", "--reorder-linker=ld.gold").unwrap();
        build.must("gcc -fuse-ld=gold main.o work.o -o expected");
        build.must(way);
        // gcc passes options of its own to linkers by name; the sections tell gold's work.
        let sections = |program: &str| {
            build.must(&format!("readelf -WS {program} | grep -c note.gnu.gold")).stdout_text()
        };
        assert_eq!(sections("program"), sections("expected"), "{way}");
    }
}
