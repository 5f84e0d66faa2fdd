//! Writes the training traces of a program of `scripts/layout/corpus` as text profiles for lld and llvm-profdata.
//!
//! Arguments: the program's directory, a directory for `train.proftext` with the names of the image's symbols, and for
//! `exact.proftext` with those of `exact.s`, a program of sections of the same sizes that all have names of their own.

#![allow(clippy::print_stderr, reason = "a script's errors go to its stderr")]

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use end_to_end::layout_corpus::Corpus;
use end_to_end::layout_profile::{empty_sections, profile_text, section_names};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [program, output] = &arguments[..] else {
        eprintln!("arguments: the program's directory, the directory to write to");
        return ExitCode::from(2);
    };
    match write(Path::new(program), Path::new(output)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("layout_profile: {message}");
            ExitCode::from(2)
        }
    }
}

fn write(program: &Path, output: &Path) -> Result<(), String> {
    let corpus = Corpus::read(program)?;
    let names: Vec<_> = corpus.names.iter().cloned().map(Some).collect();
    let files = [
        ("train.proftext", profile_text(&names, &corpus.train.starts)),
        ("exact.proftext", profile_text(&section_names(&corpus), &corpus.train.starts)),
        ("exact.s", empty_sections(&corpus)),
    ];
    for (name, text) in files {
        fs::write(output.join(name), text)
            .map_err(|error| format!("{}: {error}", output.join(name).display()))?;
    }
    Ok(())
}
