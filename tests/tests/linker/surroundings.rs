//! How `reorder-ld` handles its environment: files that other programs leave, names it is called by, inputs that can be
//! read once, and paths with unusual characters.

use std::os::unix::fs::{PermissionsExt, symlink};

use end_to_end::linker_wrapper::{Build, folder};

/// A program of a few functions, with an order for it.
fn program(name: &str) -> Build {
    let build = Build::new(name).unwrap();
    let functions: String =
        (0..9).map(|number| format!("int f{number}(void) {{ return {number}; }}\n")).collect();
    build.write("m.c", format!("{functions}void _start(void) {{}}\n")).unwrap();
    build.write("list.txt", "f7\nf3\n").unwrap();
    build.must("clang$LLVM -O1 -ffunction-sections -c m.c");
    build
}

const ORDER: &str = "--reorder-traces=list.txt --reorder-strategy=first-seen --reorder-strict";

#[test]
fn dependency_files_name_nothing_of_ours() {
    let build = program("a b#c$d");
    for linker in ["ld.lld$LLVM", "ld.bfd", "ld.gold"] {
        build.must(&format!(
            "$LD --reorder-linker=/usr/bin/{linker} {ORDER} --dependency-file=ours.d \"$PWD/m.o\" -o \"$PWD/out put\""
        ));
        build.must(&format!("{linker} --dependency-file=plain.d \"$PWD/m.o\" -o \"$PWD/out put\""));
        let read = |name: &str| String::from_utf8(build.bytes(name)).unwrap();
        let (ours, plain) = (read("ours.d"), read("plain.d"));
        // The folder's own name is the business of whoever runs the test.
        let names = ours.replace(&*build.folder().parent().unwrap().to_string_lossy(), "");
        assert!(!names.contains("reorder"), "{linker}: {ours}");
        let first = |text: &str| text.lines().next().unwrap().to_owned();
        assert_eq!(first(&ours), first(&plain), "{linker}");
    }
}

#[test]
fn inputs_that_can_be_read_once_are_read_once() {
    let build = program("project");
    build.write("versions", "V1 { global: f1; local: *; };\n").unwrap();
    let line = format!(
        "bash -c '$LD --reorder-linker=/usr/bin/ld.lld$LLVM {ORDER} -shared --version-script=<(cat versions) m.o -o out'"
    );
    build.must(&line);
    assert!(build.must("nm -D --with-symbol-versions out").stdout_text().contains("f1@@V1"));
    // A response file, too.
    build.must("bash -c '$LD --reorder-linker=/usr/bin/ld.lld$LLVM @<(echo m.o -o listed)'");
    assert!(!build.bytes("listed").is_empty());
}

#[test]
fn files_of_everybody_are_not_used() {
    let build = program("project");
    build.write("reorder.toml", "[link]\nlinker = '/nowhere/ld'\n").unwrap();
    let file = build.folder().join("reorder.toml");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    build.must("$LD m.o -o out");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(!build.run("$LD m.o -o out").unwrap().success());
}

#[test]
fn a_linkers_own_name_is_for_linking() {
    let build = program("project");
    build.write("script.mri", "* a comment\n").unwrap();
    symlink(folder().join("reorder-ld"), build.folder().join("ld")).unwrap();
    build.must("./ld -c script.mri -r m.o -o out.o");
    assert!(!build.bytes("out.o").is_empty());
    build.must("REORDER_LINKS=$LINKS ./ld m.o -o linked");
    assert!(!build.bytes("linked").is_empty());
}
