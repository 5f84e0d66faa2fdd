//! `reorder traces import`: writes profiles of any supported system as recorded traces.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::Files;
use crate::cli::context::Context;
use crate::cli::traces_input::tell_coverage;
use reorder_base::error::{Error, Result};
use reorder_layout::opened::OpenedImage;
use reorder_report::table::counted;
use reorder_report::{Report, Width};
use reorder_system::write;
use reorder_trace::{Coverage, Resolver, Trace, identity_of, text};

#[derive(Args, Debug)]
pub(super) struct ImportArguments {
    #[command(flatten)]
    files: Files,
    /// Directory for the traces; created if necessary
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Keep only functions found in this image, by address and size, so that no other file is needed later
    #[arg(long, value_name = "IMAGE")]
    image: Option<PathBuf>,
    /// Architecture to use from a universal Mach-O file, such as arm64
    #[arg(long = "arch", value_name = "NAME", requires = "image")]
    architecture: Option<String>,
}

#[derive(Serialize)]
struct ImportReport {
    output: String,
    traces: u64,
    events: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<Coverage>,
}

pub(super) fn run(arguments: &ImportArguments, context: &Context) -> Result<()> {
    let files = &arguments.files;
    let mut traces = files.companions.read(&files.paths, arguments.image.as_deref(), &context.talk)?;
    for trace in &mut traces {
        trace.identity = Some(identity_of(trace));
    }
    let (traces, coverage) = match &arguments.image {
        Some(image) => {
            let (traces, coverage) = in_image(image, arguments.architecture.as_deref(), &traces, context)?;
            (traces, Some(coverage))
        }
        None => (traces, None),
    };
    std::fs::create_dir_all(&arguments.output).map_err(|error| Error::io(&arguments.output, error))?;
    for (number, trace) in traces.iter().enumerate() {
        let path = arguments.output.join(format!("{}.{:04}.trace", stem(trace), number + 1));
        write::whole(&path, text::write(trace).as_bytes())?;
    }
    context.print(&ImportReport {
        output: arguments.output.display().to_string(),
        traces: traces.len() as u64,
        events: traces.iter().map(|trace| trace.events.len() as u64).sum(),
        coverage,
    })
}

/// The traces in terms of the functions of the image at `path`, of a universal file the one for `architecture`.
pub(super) fn in_image(
    path: &Path,
    architecture: Option<&str>,
    traces: &[Trace],
    context: &Context,
) -> Result<(Vec<Trace>, Coverage)> {
    let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    let image = OpenedImage::parse(&bytes, architecture).map_err(|error| error.in_file(path))?;
    let functions = image.functions();
    let identity = image.identity(path);
    let resolver = Resolver::new(&functions, &identity);
    let resolutions: Vec<_> = traces.iter().map(|trace| resolver.resolve(trace)).collect::<Result<_>>()?;
    let found = traces
        .iter()
        .zip(&resolutions)
        .map(|(trace, resolution)| Trace {
            image: identity.clone(),
            events: resolution.events(&functions),
            ..trace.clone()
        })
        .filter(|trace| !trace.events.is_empty())
        .collect();
    let resolved = resolver.collect(resolutions.into_iter().map(Ok))?;
    tell_coverage(&resolved, path, &context.talk);
    Ok((found, resolved.coverage))
}

/// The start of the file's name: the name of the image, or of the file that the trace came from.
fn stem(trace: &Trace) -> String {
    let named = trace.image.path.as_deref().or(trace.source.as_deref()).and_then(Path::file_name);
    named.unwrap_or(OsStr::new("trace")).to_string_lossy().into_owned()
}

impl Report for ImportReport {
    const COMMAND: &'static str = "traces import";

    fn text(&self, _: Width) -> String {
        format!("{}: {}, {}\n", self.output, counted(self.traces, "trace"), counted(self.events, "event"))
    }
}
