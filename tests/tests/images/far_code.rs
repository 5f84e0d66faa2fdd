//! AArch64 code of more than 128 MiB, the reach of a branch: calls over larger distances use the linker's stubs, which
//! move like functions or stay, and an order that takes a branch out of its reach is refused.

use std::fs;
use std::path::Path;
use std::time::Duration;

use end_to_end::process::{self, Ending, Outcome, shell};
use end_to_end::workspace::reorder;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(300);

/// Five functions of 32 MiB, and two after them that call all.
const LIBRARY: &str = r#"
#define FAR(n)                                                                                            \
    asm(".text\n.p2align 4\n.globl far_" #n "\n.type far_" #n ",%function\nfar_" #n ": .cfi_startproc\n"  \
        "add w0, w0, " #n "\nret\n.fill 8388608 - 3, 4, 0xd503201f\nret\n.cfi_endproc\n"                  \
        ".size far_" #n ", . - far_" #n "\n");                                                            \
    int far_##n(int);
FAR(1) FAR(2) FAR(3) FAR(4) FAR(5)
__attribute__((noinline)) int both_ends(int n) { return far_1(n) + far_5(n); }
int run(int n) { return far_1(n) + far_5(both_ends(n)) + far_2(0) + far_3(0) + far_4(0); }
"#;
const HOST: &str =
    "#include <stdio.h>\nint run(int);\nint main(void) { return printf(\"%d\\n\", run(1)) < 0; }\n";

/// All functions that `run` calls directly are within its reach.
const WITHIN_REACH: &str = "far_1\nfar_2\nfar_3\nfar_5\nfar_4\nboth_ends\nrun\n";
/// `run` calls `far_3` directly, which would be 160 MiB before it.
const OUT_OF_REACH: &str = "far_3\nfar_1\nfar_2\nfar_4\nfar_5\nboth_ends\nrun\n";

// case: code beyond the reach of branches
#[test]
fn an_order_within_the_reach_of_branches_is_applied() {
    let scratch = build("-B/usr/lib/llvm$LLVM/bin -fuse-ld=lld");
    let directory = scratch.path();
    let (old, new) = (directory.join("old/libfar.so"), directory.join("new/libfar.so"));
    let moved = apply(directory, WITHIN_REACH);
    assert!(moved.success(), "{moved}");
    assert_eq!(run(directory, "new"), "24\n");
    assert!(fs::read(&old).unwrap() != fs::read(&new).unwrap(), "nothing moved");
    assert_eq!(stubs(&old), stubs(&new));
}

// case: code beyond the reach of branches
#[test]
fn an_order_that_takes_a_branch_out_of_its_reach_is_refused() {
    let scratch = build("");
    let refused = apply(scratch.path(), OUT_OF_REACH);
    assert_eq!(refused.ending, Ending::Exited(2), "{refused}");
    assert!(refused.stderr_text().contains("(R12)"), "{refused}");
    assert!(!scratch.path().join("new/libfar.so").exists());
}

/// The library and its host; `link` chooses the linker.
fn build(link: &str) -> TempDir {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    fs::write(directory.join("library.c"), LIBRARY).unwrap();
    fs::write(directory.join("host.c"), HOST).unwrap();
    let line = format!(
        "cd '{}' && mkdir old new && aarch64-linux-gnu-gcc -O1 -fPIC -shared -nostartfiles -Wl,-Bsymbolic {link} \
         library.c -o old/libfar.so && aarch64-linux-gnu-gcc host.c old/libfar.so -o host",
        directory.display()
    );
    shell(&line, LIMIT).unwrap();
    let stubs = stubs(&directory.join("old/libfar.so"));
    assert!(stubs.len() >= 2, "{stubs:?}");
    assert_eq!(run(directory, "old"), "24\n");
    scratch
}

fn apply(directory: &Path, order: &str) -> Outcome {
    fs::write(directory.join("order"), order).unwrap();
    let mut command = reorder();
    command.current_dir(directory).args([
        "apply",
        "old/libfar.so",
        "--order",
        "order",
        "-o",
        "new/libfar.so",
    ]);
    process::run(&mut command, LIMIT).unwrap()
}

/// Output of the host with the library of this folder.
fn run(directory: &Path, folder: &str) -> String {
    let line = format!(
        "cd '{}' && qemu-aarch64-static -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH={folder} ./host",
        directory.display()
    );
    shell(&line, LIMIT).unwrap()
}

/// The names of the linker's stubs.
fn stubs(library: &Path) -> Vec<String> {
    let line = format!("nm '{}' | cut -d' ' -f3 | grep -iE 'thunk|veneer' || true", library.display());
    shell(&line, LIMIT).unwrap().lines().map(str::to_owned).collect()
}
