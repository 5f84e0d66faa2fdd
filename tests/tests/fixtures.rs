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
    let trials: Vec<Trial> = variants
        .into_iter()
        .map(|variant| {
            Trial::test(variant.name.clone(), move || fixture_run::check(&variant).map_err(Failed::from))
        })
        .collect();
    Ok(libtest_mimic::run(&arguments, trials).exit_code())
}
