//! `reorder measure --whole-process`: the program with its libraries.

use std::path::{Path, PathBuf};

use clap::Args;

use reorder_base::error::{Error, Result};
use reorder_run::loaded_libraries::{LoadedLibrary, libraries_of_program};
use reorder_run::measure::{LibraryPair, MeasureRequest};
use reorder_system::mapped::map_image;

/// Flags for the faults of the whole process.
#[derive(Args, Clone, Debug)]
pub(super) struct WholeProcessArguments {
    /// Also show where in the whole process page faults happen, by kind and by file. Cold starts are then cold for the
    /// program's libraries, too
    #[arg(long)]
    whole_process: bool,
    /// With --whole-process: NEW loads the libraries in this directory first
    #[arg(long, value_name = "DIR", requires = "whole_process", requires = "new")]
    new_libraries: Option<PathBuf>,
}

impl WholeProcessArguments {
    /// `request` with the libraries of its program.
    pub(super) fn requested(&self, request: MeasureRequest) -> Result<MeasureRequest> {
        if !self.whole_process {
            return Ok(request);
        }
        let directory = self.new_libraries.as_deref();
        if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
            return Err(Error::usage("this is not a directory")
                .in_file(directory)
                .with_hint("name the directory that `reorder optimize --libraries -o DIR` wrote"));
        }
        let program = &request.old;
        let libraries = libraries_of_program(program, &map_image(program)?)?;
        let named = libraries.into_iter().filter(|library| !library.name.contains('/'));
        let libraries: Vec<LibraryPair> = named.map(|library| pair(library, directory)).collect();
        if let Some(directory) = directory.filter(|_| libraries.iter().all(|pair| pair.old == pair.new)) {
            return Err(Error::usage("it has no library that the program loads")
                .in_file(directory)
                .with_hint("name the directory that `reorder optimize --libraries -o DIR` wrote"));
        }
        Ok(MeasureRequest { libraries, whole_process: true, ..request })
    }
}

/// The library as both programs load it.
fn pair(library: LoadedLibrary, new_directory: Option<&Path>) -> LibraryPair {
    let new = new_directory.map(|directory| directory.join(&library.name)).filter(|path| path.exists());
    let new = new.unwrap_or_else(|| library.path.clone());
    LibraryPair { name: library.name.into(), old: library.path, new }
}
