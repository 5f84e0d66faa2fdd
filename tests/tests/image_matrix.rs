//! Every linker with every kind of image, for both processors: permuted three times, the program prints the same.
//!
//! A cell is one line of `scripts/bulk/matrix`, which has all compilers and programs; here there is one of each.

use std::process::{Command, ExitCode};
use std::time::Duration;

use end_to_end::{process, workspace};
use libtest_mimic::{Arguments, Failed, Trial};

const LIMIT: Duration = Duration::from_secs(300);

/// A processor and the compiler that every linker takes objects of: GCC for AArch64 does not find mold.
const MACHINES: [(&str, &str); 2] = [("x86_64", "gcc"), ("aarch64", "clang")];
const LINKERS: [&str; 4] = ["bfd", "gold", "lld", "mold"];
const KINDS: [&str; 5] = ["non-pie", "static", "static-pie", "pie", "shared"];

/// gold does not know static position-independent programs.
fn can_be_linked(linker: &str, kind: &str) -> bool {
    (linker, kind) != ("gold", "static-pie")
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (machine, compiler) in MACHINES {
        for linker in LINKERS {
            for kind in KINDS.into_iter().filter(|kind| can_be_linked(linker, kind)) {
                trials.push(Trial::test(format!("{machine} {kind} {linker}"), move || {
                    check_cell(machine, compiler, linker, kind)
                }));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

// case: fixed address with kept relocations, every linker
fn check_cell(machine: &str, compiler: &str, linker: &str, kind: &str) -> Result<(), Failed> {
    let mut command = Command::new(workspace::root().join("scripts/bulk/matrix"));
    let settings = [("MACHINES", machine), ("COMPILERS", compiler), ("LINKERS", linker), ("KINDS", kind)];
    command.envs(settings).envs([("SECTIONS", "whole"), ("PROGRAMS", "c"), ("PEER", "no")]);
    let outcome = process::run(command.env("REORDER", workspace::reorder_path()), LIMIT)?;
    let printed = outcome.stdout_text();
    let name = format!("{machine}\t{kind}\t{linker}\t");
    let line = printed.lines().find(|line| line.starts_with(&name)).ok_or_else(|| outcome.to_string())?;
    let columns: Vec<&str> = line.split('\t').collect();
    let moved = columns.get(7).and_then(|share| share.split_once('%')?.0.parse::<u32>().ok());
    match (columns.get(6), moved) {
        (Some(&"same"), Some(1..)) if outcome.success() => Ok(()),
        _ => Err(line.into()),
    }
}
