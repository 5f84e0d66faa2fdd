//! A sample of Debian's own programs: every movable function permuted, answers compared.
//!
//! The whole distribution is run by `scripts/bulk/distribution`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use end_to_end::distribution::{Permutation, Permuted, Verdict, examine};
use end_to_end::workspace;
use libtest_mimic::{Arguments, Failed, Trial};
use reorder_base::tool_versions::llvm_directory;

/// With fewer programs the sample would be meaningless.
const AT_LEAST: usize = 40;

/// From small to large, by many maintainers: shells, editors of text, archives, package tools, compilers, linkers,
/// debuggers. All come with Debian's base or with the tools that the tests install.
const PROGRAMS: [&str; 47] = [
    "/usr/bin/bash",
    "/usr/bin/dash",
    "/usr/bin/ls",
    "/usr/bin/cp",
    "/usr/bin/sort",
    "/usr/bin/date",
    "/usr/bin/stat",
    "/usr/bin/od",
    "/usr/bin/tr",
    "/usr/bin/expr",
    "/usr/bin/factor",
    "/usr/bin/sha256sum",
    "/usr/bin/tar",
    "/usr/bin/gzip",
    "/usr/bin/sed",
    "/usr/bin/grep",
    "/usr/bin/find",
    "/usr/bin/xargs",
    "/usr/bin/mawk",
    "/usr/bin/perl",
    "/usr/bin/git",
    "/usr/bin/diff",
    "/usr/bin/cmp",
    "/usr/bin/dpkg",
    "/usr/bin/dpkg-deb",
    "/usr/bin/dpkg-query",
    "/usr/bin/apt-get",
    "/usr/bin/apt-cache",
    "/usr/bin/gpgv",
    "/usr/bin/findmnt",
    "/usr/bin/lsblk",
    "/usr/bin/column",
    "/usr/bin/hexdump",
    "/usr/bin/x86_64-linux-gnu-as",
    "/usr/bin/x86_64-linux-gnu-ld.bfd",
    "/usr/bin/x86_64-linux-gnu-ld.gold",
    "/usr/bin/x86_64-linux-gnu-objdump",
    "/usr/bin/x86_64-linux-gnu-readelf",
    "/usr/bin/x86_64-linux-gnu-nm",
    "/usr/bin/x86_64-linux-gnu-strip",
    "/usr/bin/gdb",
    "/usr/bin/sqlite3",
    "/usr/bin/patchelf",
    "/usr/bin/file",
    "/usr/bin/eu-readelf",
    "/usr/bin/getfacl",
    "/usr/bin/setfattr",
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if !arguments.list {
        workspace::reorder_path();
    }
    let readobj = Path::new(&llvm_directory()).join("llvm-readobj");
    let programs = PROGRAMS.iter().map(PathBuf::from).chain([readobj]);
    let present: Vec<PathBuf> = programs.filter(|program| program.exists()).collect();
    let enough = present.len() >= AT_LEAST;
    let mut trials: Vec<Trial> = present
        .into_iter()
        .map(|program| Trial::test(program.display().to_string(), move || check(&program)))
        .collect();
    trials.push(Trial::test("enough programs are installed", move || {
        if enough { Ok(()) } else { Err("run scripts/install-tools".into()) }
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

// case: programs of a distribution
fn check(program: &Path) -> Result<(), Failed> {
    let examination = examine(program, Permutation { what: Permuted::Functions, seed: 1 }, None)?;
    match examination.verdict {
        Verdict::Same | Verdict::Varies(_) if examination.moved == 0 => Err("no function moved".into()),
        Verdict::Same | Verdict::Varies(_) => Ok(()),
        verdict => Err(format!("{verdict:?}").into()),
    }
}
