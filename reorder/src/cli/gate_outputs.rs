//! Where the reports of `reorder gate` go: stdout, files, and the summary of a job.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::cli::context::Context;
use crate::error::{Error, Result};
use crate::gate::GateReport;
use crate::gate::render::ExportFormat;
use crate::write;

/// The outputs beside the text.
#[derive(Args, Clone, Debug)]
pub struct GateOutputs {
    /// Write the report also in this form to this file, `-` for stdout instead of the text; repeatable. Forms: text, json,
    /// markdown, github, sarif, junit
    #[arg(long = "export", value_name = "FORM=FILE", value_parser = parse_export)]
    exports: Vec<Export>,
    /// In GitHub Actions: print annotations behind the text, and append Markdown to the summary of the job
    /// (GITHUB_STEP_SUMMARY)
    #[arg(long)]
    github: bool,
}

/// One more output.
#[derive(Clone, Debug)]
struct Export {
    format: ExportFormat,
    file: PathBuf,
}

fn parse_export(text: &str) -> std::result::Result<Export, String> {
    let known = || {
        let forms = ExportFormat::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        forms.map(|form| form.get_name().to_owned()).collect::<Vec<_>>().join(", ")
    };
    let (form, file) =
        text.split_once('=').ok_or_else(|| format!("write FORM=FILE; the forms are {}", known()))?;
    let format = ExportFormat::from_str(form, false)
        .map_err(|_| format!("no form is called {form}; there are {}", known()))?;
    if file.is_empty() {
        return Err("the file's name is missing".to_owned());
    }
    Ok(Export { format, file: PathBuf::from(file) })
}

impl GateOutputs {
    /// Writes `report` wherever it shall go.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn write(&self, report: &GateReport, context: &Context) -> Result<()> {
        let (shown, files): (Vec<&Export>, Vec<&Export>) =
            self.exports.iter().partition(|export| export.file == Path::new("-"));
        for Export { format, file } in files {
            write::whole(file, format.render(report)?.as_bytes())?;
        }
        for Export { format, .. } in &shown {
            context.print_bytes(format.render(report)?.as_bytes())?;
        }
        match (self.github, shown.is_empty()) {
            (true, is_free) => {
                append_summary(report, context)?;
                if is_free {
                    context.print_bytes(inert(&ExportFormat::Text.render(report)?).as_bytes())?;
                }
                context.print_bytes(ExportFormat::Github.render(report)?.as_bytes())
            }
            (false, true) => context.print(report),
            (false, false) => Ok(()),
        }
    }
}

/// `text` between the commands that keep the runner from taking its lines for commands. The word that ends it is a digest
/// of the text, so no text can hold its own.
fn inert(text: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let word: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("::stop-commands::{word}\n{text}::{word}::\n")
}

/// Adds the report to the summary behind what is there, in one write.
fn append_summary(report: &GateReport, context: &Context) -> Result<()> {
    const VARIABLE: &str = "GITHUB_STEP_SUMMARY";
    let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from) else {
        context.talk.warning(
            &format!("{VARIABLE} is not set, so there is no summary"),
            Some("outside of GitHub Actions: --export markdown=FILE"),
        );
        return Ok(());
    };
    let failed = |error| Error::io(&path, error);
    let mut file =
        std::fs::OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(failed)?;
    let mut text = ExportFormat::Markdown.render(report)?;
    let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
    if length > 0 {
        let mut last = [0];
        file.seek(SeekFrom::Start(length - 1)).and_then(|_| file.read_exact(&mut last)).map_err(failed)?;
        // A heading needs a line of its own.
        text.insert_str(0, if last == *b"\n" { "\n" } else { "\n\n" });
    }
    file.write_all(text.as_bytes()).map_err(failed)
}
