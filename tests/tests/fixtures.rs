//! Every fixture with every toolchain: build, run, relocate, run again, compare.
//!
//! One test per variant, named `case/build-compiler+linker`; `cargo test -p end-to-end --test fixtures -- exceptions`
//! runs the variants of one case. The directives are explained in `end_to_end::fixture`.

use std::process::ExitCode;

use end_to_end::{fixture, fixture_run, workspace};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> std::io::Result<ExitCode> {
    let arguments = Arguments::from_args();
    let root = workspace::root().join("tests/fixtures");
    let variants = fixture::variants(&root)?;
    if !arguments.list {
        workspace::reorder_path();
    }
    let mut trials: Vec<Trial> = variants
        .into_iter()
        .map(|variant| {
            Trial::test(variant.name.clone(), move || fixture_run::check(&variant).map_err(Failed::from))
        })
        .collect();
    trials
        .push(Trial::test("the table of cases lists every fixture", move || every_fixture_is_listed(&root)));
    Ok(libtest_mimic::run(&arguments, trials).exit_code())
}

/// `README.md` lists the case of each fixture; an unlisted fixture cannot be found.
fn every_fixture_is_listed(root: &std::path::Path) -> Result<(), Failed> {
    let table = std::fs::read_to_string(root.join("README.md"))?;
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() && !table.contains(&format!("`{name}`")) {
            return Err(format!("{name} is missing in the table").into());
        }
    }
    let listed = table.lines().filter_map(|line| line.strip_suffix("` |")?.rsplit_once('`'));
    for (_, name) in listed {
        if !root.join(name).is_dir() {
            return Err(format!("{name} is listed but has no directory").into());
        }
    }
    Ok(())
}
