//! `reorder report`: an HTML page that shows which pages startup touches.

use std::path::PathBuf;

use clap::Args;

use crate::cli::context::Context;
use crate::cli::kept_inputs::KeptFiles;
use crate::cli::measured_input::MeasuredInput;
use crate::cli::report_set;
use crate::cli::scenarios_input::{Configured, ScenariosInput};
use crate::cli::second_image::SecondImage;
use crate::exit_status::ExitStatus;
use crate::page::{PageRequest, page};
use crate::sizes::{self, SizedImage, Sizes};
use reorder_base::error::Result;
use reorder_image::functions::FunctionTable;
use reorder_layout::opened::OpenedImage;
use reorder_layout::scenario::Scenario;
use reorder_layout::simulate::{Comparison, ImageNames};
use reorder_system::mapped::map_image;
use reorder_system::write::whole;

const EXAMPLES: &str = "\
Examples:
  reorder report ./program program.fast -t traces -o report.html
  reorder report ./program ./build/program -t traces -o report.html # two builds of one program
  reorder report ./program -t traces -o report.html                 # which pages startup touches now
  reorder report ./program --set fast -t traces -o report.html      # with the libraries of `reorder apply --set fast`
  reorder report ./program program.fast --model android-16k -o report.html --format json
  reorder report ./program --set fast -t traces --measured process.json -o report.html";

/// Write an HTML page that shows which pages startup touches
///
/// It has the page map of the text before and after, fault curves with their bounds, functions with their first touch, pins
/// with reasons, and the coverage of the traces. It needs no network and no other file. With NEW, both are compared: an
/// image that `reorder apply` made from IMAGE, or any other build of it, whose functions are found by their names and by their
/// code. The traces are those of IMAGE.
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct ReportArguments {
    /// The program or shared object that was traced
    #[arg(value_name = "IMAGE")]
    pub(super) image: PathBuf,
    /// IMAGE with its functions moved or copied, or another build of it
    #[arg(value_name = "NEW")]
    new: Option<PathBuf>,
    /// Show the program and its libraries that `reorder apply --set` wrote to this directory, each before and after
    #[arg(long, value_name = "DIR", conflicts_with_all = ["new", "architecture"])]
    set: Option<PathBuf>,
    /// Write the page to this file
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: PathBuf,
    /// Also print the compressed size of the file and of its code, by how likely it is that a startup needs the code, and with
    /// NEW the size of a delta to it; takes seconds for a large file
    #[arg(long, conflicts_with = "set")]
    sizes: bool,
    #[command(flatten)]
    pub(super) measured: MeasuredInput,
    #[command(flatten)]
    pub(super) scenarios: ScenariosInput,
}

impl ReportArguments {
    /// Everything that is read, which the page must not replace.
    pub(super) fn kept<'path>(
        &self,
        images: impl IntoIterator<Item = &'path PathBuf>,
        configured: &Configured,
    ) -> Result<KeptFiles> {
        let read =
            KeptFiles::default().reads("an image", images).reads("a measurement", &self.measured.measured);
        Ok(self.scenarios.files(configured)?.iter().fold(read, |read, (what, files)| read.reads(what, files)))
    }
}

impl ReportArguments {
    /// The sizes of the image, which has these functions and scenarios, and of NEW.
    fn sizes(
        &self,
        (image, bytes): (&OpenedImage<'_>, &[u8]),
        functions: &FunctionTable<'_>,
        scenarios: &[Scenario<'_>],
        comparison: Option<Comparison<'_>>,
    ) -> Result<Sizes> {
        let old = SizedImage { bytes, image, places: Some(sizes::own_places(functions)) };
        let new_bytes = self.new.as_deref().map(map_image).transpose()?;
        let new_image = self.new.as_deref().zip(new_bytes.as_ref());
        let new_image = new_image.map(|(path, bytes)| self.scenarios.open(path, bytes)).transpose()?;
        let new = comparison.zip(new_bytes.as_ref()).zip(new_image.as_ref());
        let new = new.map(|((comparison, bytes), image)| SizedImage {
            bytes,
            image,
            places: (!comparison.has_copies()).then(|| {
                functions.iter().map(|(index, function)| comparison.place(index, function)).collect()
            }),
        });
        let traces = scenarios.iter().flat_map(|scenario| scenario.traces.iter().copied());
        Sizes::of(functions, traces, &old, new.as_ref())
    }
}

/// The hint for a page that would replace another file.
pub(super) const PAGE_NAME: &str = "give the page another name, such as report.html";

/// Runs the command.
///
/// # Errors
/// Unreadable images, traces or measurements that do not fit, a NEW that is neither IMAGE with functions moved nor another
/// build, a page that cannot be written or would replace what is read; nothing is written then.
pub fn run(arguments: &ReportArguments, context: &Context) -> Result<ExitStatus> {
    if let Some(directory) = &arguments.set {
        return report_set::run(arguments, directory, context);
    }
    let path = &arguments.image;
    let bytes = map_image(path)?;
    let configured = arguments.scenarios.configured(&context.talk)?;
    let image = arguments.scenarios.open_traced(path, &bytes, &configured)?;
    let functions = image.functions();
    let read = arguments.kept(std::iter::once(path).chain(&arguments.new), &configured)?;
    read.writes("page", &arguments.output, PAGE_NAME)?;
    let processes = arguments.measured.processes(path, arguments.new.as_deref())?;
    let models = arguments.scenarios.models(None, &image, &configured)?;
    let starts = arguments.scenarios.resolve(path, &image, &functions, &configured, &context.talk)?;
    let new = arguments.new.as_deref();
    let second = SecondImage::open(&arguments.scenarios, (path, &bytes), &functions, &starts.traces, new)?;
    let placement = second.as_ref().map(|second| second.placement(&image)).transpose()?.flatten();
    let names = ImageNames::of(path, new);
    let scenarios = starts.sources.group(&starts.traces);
    let comparison = second.as_ref().and_then(|second| second.comparison(placement.as_ref()));
    let sizes = match arguments.sizes {
        true => Some(arguments.sizes((&image, &bytes), &functions, &scenarios, comparison)?),
        false => None,
    };
    let (mut summary, document) = page(PageRequest {
        names: &names,
        image: &image,
        functions: &functions,
        scenarios: &scenarios,
        coverage: &starts.traces.coverage,
        comparison,
        models: &models,
        processes: &processes,
        sizes: sizes.as_ref(),
    })?;
    whole(&arguments.output, &document.0)?;
    summary.page = arguments.output.display().to_string();
    context.print(&summary)?;
    Ok(ExitStatus::Success)
}
