//! The linker plugin in ld.gold: the functions of the traces are in the requested order, and the program runs.

use end_to_end::plugin_links::Workshop;

/// Functions of three files, in an order that no linker would choose by itself.
const ORDER: [&str; 8] = ["step_7", "main", "step_1", "step_5", "step_0", "step_3", "step_6", "step_2"];

fn steps(numbers: std::ops::Range<u32>) -> String {
    let one = |n| format!("__attribute__((noinline)) int step_{n}(int x) {{ return x * {n} + 7; }}\n");
    numbers.map(one).collect()
}

/// `first.c`, `second.c`, `third.c` with ten functions and `main`, and the list `order.list`.
fn ten_steps() -> Workshop {
    let workshop = Workshop::new().unwrap();
    let declared: String = (0..10).map(|n| format!("int step_{n}(int);\n")).collect();
    let called: String = (0..10).map(|n| format!("x = step_{n}(x) % 1009;")).collect();
    workshop.write("first.c", &steps(0..3)).unwrap();
    workshop.write("second.c", &steps(3..7)).unwrap();
    let main = format!(
        "int main(int count, char **words) {{ int x = count; {called} printf(\"%d\\n\", x); return 0; }}"
    );
    let third = format!("#include <stdio.h>\n{declared}{}{main}", steps(7..10));
    workshop.write("third.c", &third).unwrap();
    workshop.write("order.list", &(ORDER.join("\n") + "\n")).unwrap();
    workshop
}

const OPTIONS: &str =
    "$PLUGIN -Wl,-plugin-opt,traces=order.list -Wl,-plugin-opt,strategy=first-seen -Wl,-plugin-opt,strict";

#[test]
fn programs_in_c() {
    let workshop = ten_steps();
    for flags in ["-pie -fPIE", "-no-pie -fno-pie", "-static", "-Wl,--gc-sections", "-Wl,--icf=safe", "-g"] {
        let compile = format!(
            "gcc -O1 -fno-ipa-icf -ffunction-sections -fuse-ld=gold {flags} first.c second.c third.c"
        );
        workshop.shell(&format!("{compile} -o plain"));
        let plain = workshop.shell("./plain");
        for segment in ["", "-Wl,-plugin-opt,unique-segment"] {
            let said = workshop.shell(&format!("rm -f ordered; {compile} -o ordered {OPTIONS} {segment}"));
            workshop.assert_order("ordered", &ORDER);
            assert_eq!(workshop.shell("./ordered"), plain, "{flags} {segment}");
            assert!(said.contains("8 of 8 events found"), "{said}");
            let sections = workshop.shell("readelf -SW ordered");
            assert_eq!(sections.contains(".text.ordered"), !segment.is_empty(), "{sections}");
        }
        assert_ne!(workshop.order_of("plain", &ORDER), ORDER);
    }
}

#[test]
fn shared_objects_and_archives() {
    let workshop = ten_steps();
    workshop.shell("gcc -O1 -fPIC -fno-ipa-icf -ffunction-sections -c first.c second.c third.c; ar rcs libsteps.a first.o second.o");
    workshop.shell(&format!("gcc -fuse-ld=gold third.o libsteps.a -o archived {OPTIONS}"));
    workshop.assert_order("archived", &ORDER);
    workshop.shell(&format!("gcc -shared -fuse-ld=gold first.o second.o -o libsteps.so {OPTIONS}"));
    let in_library: Vec<&str> = ORDER.into_iter().filter(|name| !["main", "step_7"].contains(name)).collect();
    workshop.assert_order("libsteps.so", &in_library);
    workshop
        .shell("gcc third.o -L. -lsteps -Wl,-rpath,$PWD -o shared; gcc first.o second.o third.o -o plain");
    let plain = workshop.shell("./plain");
    assert_eq!(workshop.shell("./archived"), plain);
    assert_eq!(workshop.shell("./shared"), plain);
}

#[test]
fn programs_in_cpp_with_shared_templates_and_exceptions() {
    let workshop = Workshop::new().unwrap();
    let header = "#include <stdexcept>\n#include <cstdio>\n\
        template <int N> struct Stage { __attribute__((noinline)) static int run(int x) {\n\
          if (x > 1000 * N) throw std::runtime_error(\"too large\"); return x * N + 1; } };\n\
        int far(int x);\n";
    workshop.write("stages.h", header).unwrap();
    workshop.write("far.cpp", "#include \"stages.h\"\n int far(int x) { return Stage<3>::run(x) + Stage<1>::run(x) + Stage<2>::run(x); }").unwrap();
    let main = "#include \"stages.h\"\nint main() { int x = Stage<1>::run(5) + Stage<2>::run(6) + Stage<3>::run(7);\n\
        try { x += far(x * 1000); } catch (const std::exception &error) { std::printf(\"%s \", error.what()); }\n\
        std::printf(\"%d\\n\", x + far(2)); }";
    workshop.write("main.cpp", main).unwrap();
    let order =
        ["_ZN5StageILi2EE3runEi", "_Z3fari", "_ZN5StageILi3EE3runEi", "main", "_ZN5StageILi1EE3runEi"];
    workshop.write("order.list", &(order.join("\n") + "\n")).unwrap();
    workshop.shell("g++ -O2 -ffunction-sections -c main.cpp far.cpp");
    for objects in ["main.o far.o", "far.o main.o"] {
        workshop.shell(&format!("g++ -fuse-ld=gold {objects} -o ordered {OPTIONS}"));
        workshop.assert_order("ordered", &order);
        assert_eq!(workshop.shell("./ordered"), "too large 56\n");
    }
}

#[test]
fn rust_by_a_recording_of_the_plain_build() {
    let workshop = Workshop::new().unwrap();
    let source = "mod inner { #[inline(never)] pub fn doubled(x: u64) -> u64 { std::hint::black_box(x) * 2 } \
          #[inline(never)] pub fn never(x: u64) -> u64 { std::hint::black_box(x) * 3 } }\n\
        #[inline(never)] fn first(x: u64) -> u64 { std::hint::black_box(x) + 1 }\n\
        #[inline(never)] fn failing(x: u64) -> u64 { if std::hint::black_box(x) > 3 { panic!(\"large\") } x }\n\
        fn main() { std::panic::set_hook(Box::new(|_| ())); let x = first(inner::doubled(4));\n\
          println!(\"{} {}\", x, std::panic::catch_unwind(|| failing(x)).is_err());\n\
          if x == 0 { println!(\"{}\", inner::never(x)); } }";
    workshop.write("demo.rs", source).unwrap();
    // The manglings differ from compiler to compiler, so the names come from the program itself.
    let build = "rustc -O -C codegen-units=3 -C link-arg=-fuse-ld=gold demo.rs -o";
    workshop.shell(&format!("mkdir a b; {build} a/demo; $REORDER record -o traces -- ./a/demo"));
    let options = "-C link-arg=-Wl,-plugin,$PLUGIN_PATH -C link-arg=-Wl,-plugin-opt,traces=traces \
                   -C link-arg=-Wl,-plugin-opt,strategy=first-seen -C link-arg=-Wl,-plugin-opt,strict";
    workshop.shell(&format!("{build} b/demo {options}"));
    assert_eq!(workshop.shell("./b/demo"), "9 true\n");
    assert_eq!(workshop.shell("./a/demo"), "9 true\n");
    let recorded = workshop.shell("grep -h demo traces/*demo* | grep -v '^#' | cut -f 4 | grep demo");
    let recorded: Vec<&str> = recorded.lines().collect();
    assert!(recorded.len() >= 4, "{recorded:?}");
    assert_eq!(workshop.order_of("b/demo", &recorded), recorded);
    assert_ne!(workshop.order_of("a/demo", &recorded), recorded);
}

#[test]
fn functions_made_by_link_time_optimisation() {
    let workshop = ten_steps();
    // Partitions are objects of their own; one of each kind of program.
    let gcc = "gcc -O1 -flto -fno-ipa-icf -fno-ipa-cp -ffunction-sections";
    let clang = "clang$LLVM -O1 -flto -ffunction-sections";
    for (compile, extra) in [
        (gcc, "-flto-partition=one"),
        (gcc, "-flto-partition=max"),
        (gcc, "-ffat-lto-objects -flto-partition=1to1"),
        (clang, ""),
        ("clang$LLVM -O1 -flto=thin -ffunction-sections", ""),
    ] {
        workshop.shell(&format!("rm -f *.o; {compile} {extra} -c first.c second.c third.c"));
        let link = format!("{compile} {extra} -fuse-ld=gold first.o second.o third.o");
        workshop.shell(&format!("{link} -o plain"));
        let there = workshop.order_of("plain", &ORDER);
        let expected: Vec<&str> =
            ORDER.into_iter().filter(|name| there.iter().any(|other| other == name)).collect();
        assert!(expected.len() >= 6, "{there:?}");
        for segment in ["", "-Wl,-plugin-opt,unique-segment"] {
            let said = workshop.shell(&format!("{link} -o ordered {OPTIONS} {segment}"));
            assert_eq!(said.matches("events found").count(), 1, "{said}");
            workshop.assert_order("ordered", &expected);
            assert_eq!(workshop.shell("./ordered"), workshop.shell("./plain"), "{compile} {extra}");
        }
    }
}

#[test]
fn a_temporal_profile_of_clang() {
    let workshop = ten_steps();
    let compile = "clang$LLVM -O1 -ffunction-sections first.c second.c third.c -fuse-ld=gold";
    workshop.shell(&format!(
        "{compile} -fprofile-generate=raw -mllvm -pgo-temporal-instrumentation -o instrumented"
    ));
    workshop.shell("./instrumented; llvm-profdata$LLVM merge raw/*.profraw -o merged.profdata");
    let expected = [
        "main", "step_0", "step_1", "step_2", "step_3", "step_4", "step_5", "step_6", "step_7", "step_8",
        "step_9",
    ];
    workshop.shell(&format!("{compile} -o plain"));
    assert_ne!(workshop.order_of("plain", &expected), expected);
    for traces in ["raw", "merged.profdata"] {
        workshop.shell(&format!(
            "{compile} -o ordered $PLUGIN -Wl,-plugin-opt,traces={traces} -Wl,-plugin-opt,strategy=first-seen"
        ));
        workshop.assert_order("ordered", &expected);
    }
}

#[test]
fn local_functions_of_one_name_are_told_apart() {
    let workshop = Workshop::new().unwrap();
    let local = "__attribute__((noinline)) static int helper";
    workshop
        .write(
            "one.c",
            &format!("{local}(int x) {{ return x + 1; }}\nint one(int x) {{ return helper(x) * 3; }}"),
        )
        .unwrap();
    workshop
        .write(
            "two.c",
            &format!(
                "{local}(int x) {{ return x * x - 1000 / x; }}\nint two(int x) {{ return helper(x) * 5; }}"
            ),
        )
        .unwrap();
    workshop
        .write(
            "main.c",
            "int one(int); int two(int); int main(int c, char **v) { return (two(c) + one(c)) & 127; }",
        )
        .unwrap();
    workshop.shell(
        "gcc -O1 -ffunction-sections -c one.c two.c main.c; gcc -fuse-ld=gold one.o two.o main.o -o plain",
    );
    let status = |program: &str| workshop.attempt(program).unwrap().ending;
    let order = |traces: &str| {
        workshop.shell(&format!(
            "gcc -fuse-ld=gold one.o two.o main.o -o ordered $PLUGIN -Wl,-plugin-opt,traces={traces} \
             -Wl,-plugin-opt,strategy=first-seen -Wl,-plugin-opt,program=plain"
        ));
        assert_eq!(status("./ordered"), status("./plain"));
        let listing = workshop.shell("nm -nS ordered");
        let line = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let &[_, size, _, name] = words.as_slice() else { return None };
            let size = u64::from_str_radix(size, 16).unwrap();
            ["helper", "one", "two", "main"]
                .contains(&name)
                .then(|| format!("{name}{}", if name == "helper" && size < 8 { " of one" } else { "" }))
        };
        listing.lines().filter_map(line).collect::<Vec<_>>()
    };
    workshop.write("files.list", "two.c;helper\nmain\nsrc/one.c;helper\ntwo\none\n").unwrap();
    assert_eq!(order("files.list"), ["helper", "main", "helper of one", "two", "one"]);
    // A recording has no files, but sizes.
    workshop.shell("$REORDER record -o traces -- ./plain || true");
    assert_eq!(order("traces"), ["main", "two", "helper", "one", "helper of one"]);
    // The bare name may mean either: both keep their positions.
    workshop.write("bare.list", "two\nhelper\none\nmain\n").unwrap();
    assert_eq!(order("bare.list"), ["helper of one", "helper", "two", "one", "main"]);
}

#[test]
fn an_order_file_decides_without_traces() {
    let workshop = ten_steps();
    workshop.shell("gcc -O1 -fno-ipa-icf -ffunction-sections -c first.c second.c third.c; gcc -fuse-ld=gold first.o second.o third.o -o plain");
    workshop.shell("$REORDER order plain --strategy random --seed 3 -o program.order");
    let said = workshop.shell("gcc -fuse-ld=gold first.o second.o third.o -o ordered $PLUGIN -Wl,-plugin-opt,order=program.order -Wl,-plugin-opt,strict");
    let listed = workshop.shell("grep -E '^(step_|main$)' program.order");
    let listed: Vec<&str> = listed.lines().collect();
    assert_eq!(listed.len(), 11);
    assert_eq!(workshop.order_of("ordered", &listed), listed);
    assert!(said.contains("lines found"), "{said}");
    // The same link gives the same bytes.
    workshop.shell("gcc -fuse-ld=gold first.o second.o third.o -o again $PLUGIN -Wl,-plugin-opt,order=program.order; cmp ordered again");
}
