//! Writes the training traces of a program of `scripts/layout/corpus` as a text profile for lld and llvm-profdata.
//!
//! Arguments: the program's directory, the file to write.

#![allow(clippy::print_stderr, reason = "a script's errors go to its stderr")]

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use end_to_end::layout_corpus::Corpus;
use end_to_end::layout_profile::profile_text;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [directory, output] = &arguments[..] else {
        eprintln!("arguments: the program's directory, the file to write");
        return ExitCode::from(2);
    };
    let written = Corpus::read(Path::new(directory)).and_then(|corpus| {
        let text = profile_text(&corpus.names, &corpus.train.starts);
        fs::write(output, text).map_err(|error| format!("{output}: {error}"))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("layout_profile: {message}");
            ExitCode::from(2)
        }
    }
}
