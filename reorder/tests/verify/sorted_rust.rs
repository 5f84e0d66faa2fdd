//! A Rust program with the whole standard library, linked twice: in the default order and with all functions
//! sorted by name. The linker is the oracle for thousands of moves. The pair is stripped, because the linker orders
//! some symbols by address; unwind entries keep their order. Code that is no function comes first in both.

use std::path::Path;
use std::process::Command;

use crate::proof::{assert_proven, count};
use crate::relinked::run;
use reorder_verify::Check;

const PROGRAM: &str = r#"
use std::collections::HashMap;
fn main() {
    let words: HashMap<String, usize> = std::env::args().map(|word| (word.clone(), word.len())).collect();
    let worker = std::thread::spawn(move || words.values().sum::<usize>() as f64 / 3.0);
    println!("{:?} {:e}", std::panic::catch_unwind(|| "x".parse::<i32>().unwrap()).is_err(), worker.join().unwrap());
}
"#;

#[test]
fn a_program_sorted_by_the_linker_is_proven() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let old = link(directory.path(), "old", "*(.text) *(.text.*)");
    let new = link(directory.path(), "new", "*(.text) *(SORT_BY_NAME(.text.*))");
    let report = assert_proven(&old, &new);
    assert!(report.moved > 500, "only {} of {} functions moved", report.moved, report.functions);
    assert!(count(&report, Check::JumpTables) > 300, "{:?}", report.checks);
    assert_proven(&new, &old);
}

/// Links the program with `order` at the beginning of its code.
fn link(directory: &Path, name: &str, order: &str) -> Vec<u8> {
    let default = run(Command::new("ld.bfd").args(["-pie", "--verbose"]));
    let script =
        default.split("==================================================").nth(1).expect("a script");
    let first = script.find("*(.text.unlikely").expect("the script orders code");
    let end = first + script[first..].find('}').expect("the end of the code");
    // Both orders end at the same address, so that only functions move.
    let script = format!(
        "{}{order}\n    {}\n    . = ALIGN(4096);\n  {}",
        // Without it unaligned functions whose address is taken move from even to odd addresses.
        script[..first].replacen(".text           :", ".text : SUBALIGN(16)", 1),
        &script[first..end],
        &script[end..]
    );
    let (script_file, source, program) =
        (directory.join(format!("{name}.ld")), directory.join("program.rs"), directory.join(name));
    std::fs::write(&script_file, script).expect("the script is written");
    std::fs::write(&source, PROGRAM).expect("the source is written");
    run(Command::new("rustc")
        .args(["--edition", "2024", "-O", "-C", "codegen-units=1", "-C", "strip=symbols"])
        .args(["-C", "link-arg=-fuse-ld=bfd", "-C"])
        .arg(format!("link-arg=-Wl,-T,{}", script_file.display()))
        .arg(&source)
        .arg("-o")
        .arg(&program));
    std::fs::read(&program).expect("the program is there")
}
