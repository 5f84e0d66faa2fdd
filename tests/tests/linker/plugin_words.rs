//! The linker plugin where it cannot order: the link succeeds with a message, or fails with a better one.

use end_to_end::plugin_links::Workshop;

const TRACES: &str = "-Wl,-plugin-opt,traces=order.list";
const STRICT: &str = "-Wl,-plugin-opt,strict";

fn program() -> Workshop {
    let workshop = Workshop::new().unwrap();
    workshop.write("program.c", "#include <stdio.h>\nvoid hello(void) { puts(\"hello\"); }\nint main(void) { hello(); return 0; }").unwrap();
    workshop.write("order.list", "main\nhello\n").unwrap();
    workshop.shell("gcc -O1 -ffunction-sections -c program.c");
    workshop
}

/// The link must fail; gives its output.
fn refused(workshop: &Workshop, line: &str) -> String {
    let outcome = workshop.attempt(line).unwrap();
    assert!(!outcome.success(), "{line}\n{outcome}");
    outcome.stdout_text() + &outcome.stderr_text()
}

#[test]
fn gnu_ld_links_and_says_why_nothing_is_ordered() {
    let workshop = program();
    let said = workshop.shell(&format!("gcc -fuse-ld=bfd program.o -o linked $PLUGIN {TRACES}; ./linked"));
    for words in [
        "hello",
        "warning",
        "GNU ld 2.",
        "does not let plugins order sections",
        "reorder-ld",
        "reorder apply",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let said = workshop
        .shell(&format!("gcc -fuse-ld=bfd program.o -o linked $PLUGIN {TRACES} -Wl,-plugin-opt,quiet"));
    assert_eq!(said, "");
    let said = refused(&workshop, &format!("gcc -fuse-ld=bfd program.o -o linked $PLUGIN {TRACES} {STRICT}"));
    assert!(said.contains("does not let plugins order sections"), "{said}");
}

#[test]
fn gnu_ld_still_optimises_at_link_time() {
    let workshop = program();
    let said =
        workshop.shell(&format!("gcc -O1 -flto program.c -fuse-ld=bfd -o linked $PLUGIN {TRACES}; ./linked"));
    assert!(said.contains("hello") && said.contains("reorder-ld"), "{said}");
}

#[test]
fn mold_pretends_and_is_found_out() {
    let workshop = program();
    // It loads plugins only for objects of link-time optimisation; without them it prints no message.
    let said = workshop.shell(&format!("gcc -fuse-ld=mold program.o -o linked $PLUGIN {TRACES}; ./linked"));
    assert_eq!(said, "hello\n");
    // With them it loads the last plugin only, which cannot be the compiler's.
    let said =
        refused(&workshop, &format!("gcc -O1 -flto program.c -fuse-ld=mold -o linked $PLUGIN {TRACES}"));
    for words in ["does nothing about it", "leave it out", "reorder-ld", "not claimed by the LTO plugin"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn lld_ignores_the_plugin_and_refuses_its_options() {
    let workshop = program();
    let said = workshop.shell("clang$LLVM -fuse-ld=lld$LLVM program.o -o linked $PLUGIN; ./linked");
    assert_eq!(said, "hello\n");
    let said =
        refused(&workshop, &format!("clang$LLVM -fuse-ld=lld$LLVM program.o -o linked $PLUGIN {TRACES}"));
    assert!(said.contains("unknown plugin option"), "{said}");
}

#[test]
fn what_cannot_be_meant_is_an_error() {
    let workshop = program();
    let link = "gcc -fuse-ld=gold program.o -o linked $PLUGIN";
    for (options, words) in [
        ("-Wl,-plugin-opt,traces=missing.trace", "missing.trace: No such file"),
        ("-Wl,-plugin-opt,order=missing.order", "missing.order: No such file"),
        ("-Wl,-plugin-opt,trace=x", "\"trace=x\" is not understood; known are traces=PATH, companion=FILE"),
        ("-Wl,-plugin-opt,strategy=best", "known are auto"),
        ("", "no traces are given; add -plugin-opt traces=PATH"),
        ("-Wl,-plugin-opt,traces=program.o", "program.o"),
    ] {
        let said = refused(&workshop, &format!("{link} {options}"));
        assert!(said.contains("reorder: ") && said.contains(words), "{options}: {said}");
    }
}

#[test]
fn traces_that_do_not_fit_leave_the_link_alone() {
    let workshop = program();
    let link = "gcc -fuse-ld=gold program.o -o linked $PLUGIN";
    workshop.shell("gcc -O1 program.c -o other; gcc -fuse-ld=gold program.o -o plain; $REORDER record -o traces -- ./other");
    let other = "-Wl,-plugin-opt,traces=traces";
    let said = workshop.shell(&format!("{link} {other}; ./linked; cmp linked plain"));
    for words in ["hello", "other", "program=NAME", "functions keep their order"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    refused(&workshop, &format!("{link} {other} {STRICT}"));
    let said = workshop.shell(&format!("{link} {other} -Wl,-plugin-opt,program=other; ./linked"));
    assert!(said.contains("3 of 3 events found"), "{said}");
    // Names that no longer exist are reported with possible new names.
    workshop.write("stale.list", "main\nhallo\ngone\naway\n").unwrap();
    let said = workshop.shell(&format!("{link} -Wl,-plugin-opt,traces=stale.list"));
    for words in ["only 1 of 4 events", "hallo (now hello?)", "-ffunction-sections"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn damaged_objects_fail_as_without_the_plugin() {
    let workshop = program();
    // The section header table, its size, and the start of the file.
    for (offset, name) in [(0x28, "table"), (0x3c, "count"), (0x4, "class"), (0x3e, "names")] {
        workshop.shell(&format!(
            "cp program.o {name}.o; printf '\\377\\377' | dd of={name}.o bs=1 seek={offset} conv=notrunc status=none"
        ));
        let plain = refused(&workshop, &format!("gcc -fuse-ld=gold {name}.o -o linked"));
        let said = refused(&workshop, &format!("gcc -fuse-ld=gold {name}.o -o linked $PLUGIN {TRACES}"));
        let first = |said: &str| said.lines().find(|line| line.contains(".o:")).map(str::to_owned);
        assert_eq!(first(&said), first(&plain), "{said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    workshop.shell("head -c 700 program.o > cut.o");
    let said = refused(&workshop, &format!("gcc -fuse-ld=gold cut.o -o linked $PLUGIN {TRACES}"));
    assert!(!said.contains("panicked"), "{said}");
}
