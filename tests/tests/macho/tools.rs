//! Third-party programs on a relocated Mach-O image: each reads it without a complaint, and an independent
//! computation gives the same signature.

use std::path::Path;
use std::process::Command;

use end_to_end::macho_fixtures::{CHAINED, OPCODES, build, program, rust, zig};
use end_to_end::macho_tools::{published, run, script};
use end_to_end::workspace;
use object::Object;
use reorder_base::tool_versions::llvm;

/// Everything except code that llvm-objdump prints of an image.
const OBJDUMP: [&str; 8] = [
    "--all-headers",
    "--chained-fixups",
    "--exports-trie",
    "--function-starts",
    "--unwind-info",
    "--objc-meta-data",
    "--rebase",
    "--bind",
];

/// Relocates `image`; every reader must accept the result.
fn accepted(image: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let relocated = directory.path().join("relocated");
    let outcome = run(workspace::reorder()
        .arg("apply")
        .arg(image)
        .args(["--strategy", "random", "--seed", "5", "--most-pinned", "100", "-o"])
        .arg(&relocated));
    assert!(outcome.success(), "{outcome}");

    for flag in OBJDUMP {
        let said = |path: &Path| run(Command::new(llvm("llvm-objdump")).args(["--macho", flag]).arg(path));
        let (before, after) = (said(image), said(&relocated));
        assert!(after.success() || !before.success(), "{flag}: {after}");
        assert_eq!(after.stderr.is_empty(), before.stderr.is_empty(), "{flag}: {after}");
    }
    let outcome = run(Command::new(llvm("llvm-otool")).args(["-l", "-h", "-L"]).arg(&relocated));
    assert!(outcome.success() && outcome.stderr.is_empty(), "{outcome}");
    // LIEF reports errors in some images of ld64.lld: the relocated image may have the same ones.
    let faults = |path: &Path| run(script("checker/signature.py").arg(path)).stdout_text();
    let known = faults(image);
    for fault in faults(&relocated).lines() {
        assert!(known.lines().any(|line| line == fault), "{}: {fault}", image.display());
    }

    let bytes = std::fs::read(&relocated).unwrap();
    let before = std::fs::read(image).unwrap();
    let (before, file) = (object::File::parse(&*before).unwrap(), object::File::parse(&*bytes).unwrap());
    assert_eq!(file.exports().unwrap().count(), before.exports().unwrap().count());
    assert_eq!(file.symbols().count(), before.symbols().count());
    assert_ne!(file.mach_uuid().unwrap(), before.mach_uuid().unwrap());
    let goblin = goblin::mach::MachO::parse(&bytes, 0).unwrap();
    assert_eq!(goblin.exports().unwrap().len(), file.exports().unwrap().count());
}

#[test]
fn small_programs() {
    accepted(&program(CHAINED).image);
    accepted(&program(OPCODES.compiled("-O1 -g")).image);
    accepted(&build(&[("exceptions.cpp", "")], OPCODES).image);
    accepted(&build(&[("methods.m", "")], CHAINED.linked("-bundle -undefined dynamic_lookup")).image);
    accepted(&build(&[("library.c", "")], CHAINED.linked("-dylib -install_name @rpath/library.dylib")).image);
    accepted(&rust(CHAINED.linked("-dead_strip")).image);
    let directory = tempfile::tempdir().unwrap();
    accepted(&zig(directory.path()));
}

#[test]
fn published_images() {
    for name in ["ninja", "rg", "capstone", "pyobjc"] {
        accepted(&published(name));
    }
}

/// The same order gives the same bytes, and an image's own order changes only what names the layout.
#[test]
fn orders_that_change_little() {
    let fixture = program(CHAINED);
    let directory = &fixture.linked.directory;
    let apply = |image: &Path, order: &Path, output: &str| {
        let output = directory.join(output);
        let outcome = run(workspace::reorder()
            .arg("apply")
            .arg(image)
            .arg("--order")
            .arg(order)
            .arg("-o")
            .arg(&output));
        assert!(outcome.success(), "{outcome}");
        output
    };
    let order = fixture.linked.shuffled_link(3);
    let (one, other) = (apply(&fixture.image, &order, "one"), apply(&fixture.image, &order, "other"));
    assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&other).unwrap());

    // By the addresses of the result: back in the order of the first link, and in the order that it has.
    let addresses = |order: &Path, name: &str| {
        let outcome = run(script("checker/order.py").args([order, &one]));
        assert!(outcome.success(), "{outcome}");
        let list = directory.join(name);
        std::fs::write(&list, &outcome.stdout).unwrap();
        list
    };
    let again = apply(&one, &addresses(&one, "same"), "again");
    assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&again).unwrap());
    let restored = apply(&one, &addresses(&fixture.image, "back"), "restored");
    let outcome = run(script("checker/same.py").args([&fixture.image, &restored]));
    assert!(outcome.success(), "{outcome}");
}
