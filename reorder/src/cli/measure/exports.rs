//! The flag that names files to write measurements to.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::export_argument::{Export, export_parser};
use crate::cli::kept_inputs::KeptFiles;
use reorder_base::error::{Error, Result};
use reorder_run::measure::MeasureReport;
use reorder_run::measure::export::ExportForm;
use reorder_system::write;

/// Files besides the report on stdout.
#[derive(Args, Clone, Debug)]
pub(super) struct ExportArguments {
    /// Also write the figures in this form to this file; repeatable. Forms: json and csv with every run, markdown
    #[arg(long = "export", value_name = "FORM=FILE", value_parser = export_parser::<ExportForm>())]
    exports: Vec<Export<ExportForm>>,
}

impl ExportArguments {
    /// Called before anything is measured, so that a mistake does not cost the time of the runs: refuses files that cannot
    /// be written, `inputs`, and files that are named twice.
    pub(super) fn check(&self, inputs: &[PathBuf]) -> Result<()> {
        let read = inputs.iter().fold(KeptFiles::default(), |read, path| read.reads(path.display(), [path]));
        self.exports.iter().try_fold(read, |known, Export { file, .. }| {
            if file == Path::new("-") {
                return Err(
                    Error::usage("exports go to files").with_hint("for JSON on stdout: --format json")
                );
            }
            write::writable(file)?;
            known.writes("export", file, "give each export a name of its own")
        })?;
        Ok(())
    }

    pub(super) fn write(&self, report: &MeasureReport) -> Result<()> {
        self.exports
            .iter()
            .try_for_each(|export| write::whole(&export.file, export.form.render(report)?.as_bytes()))
    }
}
