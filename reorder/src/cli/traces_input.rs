//! The flag that names traces, and their way to functions of one image.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::talk::Talk;
use crate::error::{Error, Result};
use crate::image::elf::file::ElfFile;
use crate::image::functions::FunctionTable;
use crate::trace::{ImageIdentity, ResolvedTraces, read_files, resolve};

/// Where the traces are.
#[derive(Args, Clone, Debug)]
pub struct TracesInput {
    /// Trace files, or directories of *.trace files
    #[arg(short = 't', long = "traces", value_name = "TRACES", num_args = 1..)]
    pub paths: Vec<PathBuf>,
}

impl TracesInput {
    /// The traces in terms of the functions of the image at `path`; says what was not found.
    ///
    /// # Errors
    /// No traces, unreadable ones, and traces of other images.
    pub fn resolve(
        &self,
        path: &Path,
        file: &ElfFile<'_>,
        functions: &FunctionTable<'_>,
        talk: &Talk,
    ) -> Result<ResolvedTraces> {
        if self.paths.is_empty() {
            return Err(Error::usage("no traces are given").with_hint(format!(
                "add -t TRACES; record them first: reorder record -o traces -- {} ARGUMENTS",
                path.display()
            )));
        }
        let resolved = resolve(&read_files(&self.paths)?, functions, &ImageIdentity::of(path, file))?;
        let coverage = &resolved.coverage;
        let missing = coverage.events - coverage.resolved();
        if missing > 0 {
            let cause = format!(
                "{missing} of {} events name no function of {}: {}",
                coverage.events,
                path.display(),
                coverage.examples.join(", ")
            );
            talk.warning(&cause, Some("record this build, so that addresses decide"));
        }
        for other in &coverage.other_images {
            talk.detail(&format!("{other} is a trace of another image; left out"));
        }
        Ok(resolved)
    }
}
