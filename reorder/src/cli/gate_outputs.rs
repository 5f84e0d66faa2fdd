//! Where the reports of `reorder gate` go: stdout, files, and the summary of a job.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::context::Context;
use crate::cli::export_argument::{Export, export_parser};
use crate::cli::gate_files::{FileRole, refuse_overwriting};
use crate::gate::GateReport;
use crate::gate::render::ExportFormat;
use reorder_base::error::{Error, Result};
use reorder_base::hexadecimal::encode;
use reorder_report::Format;
use reorder_system::write;

/// The outputs besides the text.
#[derive(Args, Clone, Debug)]
pub(crate) struct GateOutputs {
    /// Also write the report in this form to this file; `-` is stdout, and replaces the text there; repeatable. Forms: text,
    /// json, markdown, github, sarif, junit
    #[arg(long = "export", value_name = "FORM=FILE", value_parser = export_parser::<ExportFormat>())]
    exports: Vec<Export<ExportFormat>>,
    /// In GitHub Actions: print annotations after the text, and append Markdown to the summary of the job
    /// (GITHUB_STEP_SUMMARY)
    #[arg(long)]
    github: bool,
}

impl GateOutputs {
    /// Called before anything expensive: refuses outputs that would destroy one of `files` or each other, outputs that
    /// cannot be created, and two forms on stdout.
    ///
    /// # Errors
    /// Usage, with what to write instead; directories that do not exist or take no file.
    pub(crate) fn check(&self, files: &[(FileRole, PathBuf)], format: Format) -> Result<()> {
        let stdout = self.exports.iter().filter(|export| is_stdout(export)).count();
        if stdout > 1 {
            return Err(Error::usage("two forms of the report would go to stdout")
                .with_hint("give all but one a file: --export FORM=FILE"));
        }
        if format == Format::Json && (self.github || stdout > 0) {
            let other = if self.github { "--github" } else { "--export FORM=-" };
            return Err(Error::usage(format!("--format json and {other} both write to stdout"))
                .with_hint("write the JSON to a file: --export json=FILE"));
        }
        let exports = self.exports.iter().filter(|export| !is_stdout(export));
        let exports = exports.map(|export| (FileRole::Export, export.file.clone()));
        let summary = summary_path().filter(|_| self.github).map(|path| (FileRole::Summary, path));
        let all: Vec<(FileRole, PathBuf)> = files.iter().cloned().chain(exports).chain(summary).collect();
        refuse_overwriting(&all)?;
        let replaced = |(role, _): &&(FileRole, PathBuf)| role.is_replaced();
        all.iter().filter(replaced).try_for_each(|(_, path)| write::writable(path))
    }

    /// Writes `report` to all outputs. A summary that cannot be written is only a warning, because the verdict matters more.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub(crate) fn write(&self, report: &GateReport, context: &Context) -> Result<()> {
        let (shown, files): (Vec<_>, Vec<_>) = self.exports.iter().partition(|export| is_stdout(export));
        for Export { form, file } in files {
            write::whole(file, form.render(report)?.as_bytes())?;
        }
        let shown = shown.first().map(|export| export.form);
        if !self.github {
            return match shown {
                Some(format) => context.print_bytes(format.render(report)?.as_bytes()),
                None => context.print(report),
            };
        }
        append_summary(report, context)?;
        let shown = shown.unwrap_or(ExportFormat::Text);
        if shown != ExportFormat::Github {
            context.print_bytes(inert(&shown.render(report)?).as_bytes())?;
        }
        context.print_bytes(ExportFormat::Github.render(report)?.as_bytes())
    }
}

fn is_stdout(export: &Export<ExportFormat>) -> bool {
    export.file == Path::new("-")
}

/// `text` between the commands that stop the runner from interpreting its lines as commands. The word that ends it is a
/// digest of the text, so a text cannot contain its own.
fn inert(text: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let word = encode(&Sha256::digest(text));
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("::stop-commands::{word}\n{text}{end}::{word}::\n")
}

/// The variable in which the runner names the summary file.
const VARIABLE: &str = "GITHUB_STEP_SUMMARY";

fn summary_path() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Adds the report to the summary; warns if that fails.
fn append_summary(report: &GateReport, context: &Context) -> Result<()> {
    let Some(path) = summary_path() else {
        context.talk.warning(
            &format!("{VARIABLE} is not set, so there is no summary"),
            Some("outside of GitHub Actions: --export markdown=FILE"),
        );
        return Ok(());
    };
    if let Err(error) = append(&path, ExportFormat::Markdown.render(report)?) {
        let cause = format!("the summary was not written: {}: {error}", path.display());
        context.talk.warning(&cause, Some("--export markdown=FILE writes it to a file"));
    }
    Ok(())
}

/// Appends a text that begins with a heading, in one write.
fn append(path: &Path, mut text: String) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().read(true).append(true).create(true).open(path)?;
    let length = file.seek(SeekFrom::End(0))?;
    if length > 0 {
        let mut last = [0];
        file.seek(SeekFrom::Start(length - 1))?;
        file.read_exact(&mut last)?;
        // A heading needs a line of its own.
        text.insert_str(0, if last == *b"\n" { "\n" } else { "\n\n" });
    }
    file.write_all(text.as_bytes())
}
