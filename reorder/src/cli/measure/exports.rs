//! The flags that name files to write measurements to.

use std::path::PathBuf;

use clap::Args;

use crate::cli::kept_inputs::KeptFiles;
use crate::error::Result;
use crate::measure::MeasureReport;
use crate::measure::export::ExportForm;
use crate::write;

/// Files beside what goes to stdout.
#[derive(Args, Clone, Debug)]
pub(super) struct ExportArguments {
    /// Also write FILE; its ending tells the form: .json, .md, .csv; repeatable
    #[arg(long = "export", value_name = "FILE")]
    by_ending: Vec<PathBuf>,
    /// Also write every figure and run as JSON
    #[arg(long = "export-json", value_name = "FILE")]
    json: Vec<PathBuf>,
    /// Also write tables as Markdown
    #[arg(long = "export-markdown", value_name = "FILE")]
    markdown: Vec<PathBuf>,
    /// Also write every run as CSV
    #[arg(long = "export-csv", value_name = "FILE")]
    csv: Vec<PathBuf>,
}

/// A file to write.
#[derive(Debug)]
pub(super) struct Export {
    path: PathBuf,
    form: ExportForm,
}

impl ExportArguments {
    /// All files, before anything is measured: a mistake should not cost the time of the runs. `inputs` may not be among
    /// them, and no file may be named twice.
    pub(super) fn checked(&self, inputs: &[PathBuf]) -> Result<Vec<Export>> {
        let mut exports = Vec::new();
        for path in &self.by_ending {
            exports.push(Export { path: path.clone(), form: ExportForm::of(path)? });
        }
        let named = [
            (&self.json, ExportForm::Json),
            (&self.markdown, ExportForm::Markdown),
            (&self.csv, ExportForm::Csv),
        ];
        for (paths, form) in named {
            exports.extend(paths.iter().map(|path| Export { path: path.clone(), form }));
        }
        let read = inputs.iter().fold(KeptFiles::default(), |read, path| read.reads(path.display(), [path]));
        exports.iter().try_fold(read, |known, Export { path, .. }| {
            write::writable(path)?;
            known.writes("export", path, "give each export a name of its own")
        })?;
        Ok(exports)
    }
}

impl Export {
    pub(super) fn write(&self, report: &MeasureReport) -> Result<()> {
        let text = self.form.render(report)?;
        write::whole(&self.path, text.as_bytes())
    }
}
