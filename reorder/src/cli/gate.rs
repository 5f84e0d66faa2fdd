//! `reorder gate`: fails when an image is worse than the team allows.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::context::Context;
use crate::cli::gate_copies::{WithoutCopies, remark as remark_on_copies, traced};
use crate::cli::gate_files::FileRole;
use crate::cli::gate_growth::remark_on_growth;
use crate::cli::gate_measured::GateMeasured;
use crate::cli::gate_outputs::GateOutputs;
use crate::cli::gate_remarks::{remark, remark_on_limits, whole_functions};
use crate::cli::scenarios_input::{Configured, ScenariosInput};
use crate::exit_status::ExitStatus;
use crate::gate::place::{self, Source};
use crate::gate::{
    Baseline, Check, Comparison, Compression, Figure, GateReport, Key, Limits, Metric, OtherTools, Outcome,
    Remark, Startup, Subject, figures, given_up, judge, judged_alone, tools, unjudged,
};
use crate::hints;
use crate::sizes;
use reorder_base::error::{Error, Result};
use reorder_image::functions::{Function, FunctionTable};
use reorder_layout::opened::{OpenedImage, Stays};
use reorder_layout::order_file;
use reorder_layout::simulate::Placement;
use reorder_report::table::counted;
use reorder_system::mapped::map_image;
use reorder_system::write;

const EXAMPLES: &str = "\
Examples:
  reorder gate ./program -t traces --update-baseline      # once, and when a change is meant
  reorder gate ./program -t traces                        # in CI
  reorder gate --github                                   # annotations and the summary of the job
  reorder gate --export json=gate.json --export sarif=gate.sarif --export junit=gate.xml

Limits are in reorder.toml:
  [gate.limits]
  faults = \"+2 %\"                # against the baseline
  file-bytes = 5000000           # or absolute
  [scenario.startup.limits]
  faults.linux-4k = 120

Exit status: 0 within all limits, 1 a finding, 2 could not run.";

/// Fail if startup touches more pages, or the image grows or compresses worse, than the baseline allows
///
/// Everything is computed from the files, so the verdict is the same on every system. Without limits in reorder.toml, page
/// faults may grow by 1 %, sizes by 1 % or 256 bytes, and the coverage of the traces may fall by 2 percentage points. For an image with copies, give the traces of the image without them: faults are then counted in copies and originals, as
/// the recorded runs execute them.
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct GateArguments {
    /// The program or shared object [default: image in [gate] of reorder.toml]
    #[arg(value_name = "IMAGE")]
    image: Option<PathBuf>,
    #[command(flatten)]
    scenarios: ScenariosInput,
    /// Baseline to compare the image with; `off` for absolute limits only [default: from reorder.toml, otherwise
    /// reorder-baseline.json beside it]
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the baseline from this image instead of judging it
    #[arg(long)]
    update_baseline: bool,
    /// List all checks instead of only the findings
    #[arg(long)]
    all: bool,
    /// Report findings with exit status 0
    #[arg(long, conflicts_with = "update_baseline")]
    warn_only: bool,
    /// Another build of the image, such as the one before the change. The gate also reports the size of a delta from it and, if
    /// a size is a finding, lists the functions whose size changed since then
    #[arg(long, value_name = "OLD")]
    against: Option<PathBuf>,
    /// Order file whose lines must name functions of the image
    #[arg(long, value_name = "FILE")]
    order: Option<PathBuf>,
    #[command(flatten)]
    measured: GateMeasured,
    #[command(flatten)]
    outputs: GateOutputs,
}

/// Judges the image, writes the requested outputs, and returns the verdict as exit status.
///
/// # Errors
/// Unreadable images, traces, baselines and configurations, and outputs that cannot be written.
pub fn run(arguments: &GateArguments, context: &Context) -> Result<ExitStatus> {
    let configured = arguments.scenarios.configured(&context.talk)?;
    let path = arguments.image(&configured)?;
    let place = arguments.baseline_place(&configured);
    // Before anything expensive: a missing baseline is the most common mistake.
    let (then, then_text) = arguments.read_baseline(place.as_deref(), &path, context)?.unzip();
    let [wanted, wanted_models] = arguments.scenarios.names();
    if arguments.update_baseline && (!wanted.is_empty() || !wanted_models.is_empty()) {
        return Err(Error::usage("a baseline of some scenarios or models would forget the others")
            .with_hint(
                "leave out --scenario and --model; [gate] of reorder.toml says which models there are",
            ));
    }
    let then = then.map(|then| then.restricted(wanted, wanted_models));
    arguments.outputs.check(&arguments.files(&path, place.as_deref(), &configured)?, context.format)?;
    let limits = Limits::of(&configured.document).map_err(|error| error.in_file(&configured.file.path))?;
    let bytes = map_image(&path)?;
    let mut remarks = Vec::new();
    let without = WithoutCopies::of(&path, &bytes, arguments.update_baseline, &mut remarks)?;
    let open = |bytes| arguments.scenarios.open_traced(&path, bytes, &configured);
    let judged = open(&bytes)?;
    let restored = without.as_ref().map(|without| open(&without.bytes)).transpose()?;
    let gate = &configured.document.gate;
    let models = arguments.scenarios.models(gate.models.as_deref(), &judged, &configured)?;
    let (image, starts) = traced(&judged, restored.as_ref(), |image| {
        arguments.scenarios.resolve(&path, image, &image.functions(), &configured, &context.talk)
    })?;
    let functions = image.functions();
    let is_traced_without = !std::ptr::eq(image, &judged);
    remarks.extend(without.as_ref().map(|without| remark_on_copies(without, is_traced_without, &starts)));
    let placement = without.as_ref().filter(|_| is_traced_without);
    let placement =
        placement.map(|without| Placement::of_image(image, &bytes, &without.moves)).transpose()?;
    let scenarios = starts.sources.group(&starts.traces);
    let order = arguments.read_order(&configured, &functions)?;
    let phase = context.talk.phase("figures", 0);
    let figures = figures(&Subject {
        bytes: &bytes,
        text: &judged.text(),
        image,
        placement: placement.as_ref(),
        functions: &functions,
        scenarios: &scenarios,
        coverage: &starts.traces.coverage,
        order: order.as_ref().map(|order| &order.coverage),
        pinned: pinned(image, &functions, &mut remarks)?,
        models: &models,
        compressions: &compressions(&configured)?,
    })?;
    phase.finish(&format!("{} figures of {}", figures.len(), counted(scenarios.len() as u64, "scenario")));
    let now = Baseline {
        reorder: env!("CARGO_PKG_VERSION").to_owned(),
        image: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        tools: tools(image),
        models: models.iter().map(|model| (model.name.clone(), model.numbers())).collect(),
        figures,
        startup: Startup::of(&functions, &scenarios),
    }
    .restricted(wanted, wanted_models);
    let (mut checks, explanations) =
        judge(&Comparison { now: &now, then: then.as_ref(), limits: &limits, models: &models })?;
    if arguments.update_baseline {
        remarks.extend(given_up(&checks));
    }
    let (measured, mut weaknesses) =
        arguments.measured.checks(&path, &configured, wanted, &limits, context)?;
    checks.extend(measured);
    let compared = arguments.old().filter(|_| !arguments.update_baseline);
    checks.extend(compared.map(|old| delta_check(old, &bytes, &limits)).transpose()?);
    if arguments.update_baseline {
        unjudged(&mut checks);
    }
    remarks.append(&mut weaknesses);
    let configuration = Source { path: &configured.file.path, text: &configured.file.text };
    let baseline = place.as_deref().zip(then_text.as_deref()).map(|(path, text)| Source { path, text });
    place::locate(&mut checks, Some(configuration), baseline);
    remark(&mut remarks, then.as_ref(), &now, &starts);
    remarks.extend(whole_functions(&explanations, &starts));
    if let Some(old) = arguments.old() {
        remarks.extend(remark_on_growth(old, &functions, &checks, &arguments.scenarios)?);
    }
    if !arguments.update_baseline {
        remark_on_limits(&mut remarks, &limits, &checks, wanted.is_empty() && wanted_models.is_empty());
    }
    let findings = checks.iter().filter(|check| check.verdict.is_finding()).count() as u64;
    let outcome = arguments.outcome(findings);
    // Written before the reports, because they say that it was written.
    if let (true, Some(place)) = (arguments.update_baseline, &place) {
        write::whole(place, now.write().as_bytes())?;
        context.talk.note(&format!("{} was written", place.display()));
    }
    let shown = |path: &Path| shown(path, &configured.file.path);
    let report = GateReport {
        reorder: env!("CARGO_PKG_VERSION"),
        image: shown(&path),
        baseline: place.as_deref().map(shown),
        configuration: (!configured.file.path.as_os_str().is_empty()).then(|| shown(&configured.file.path)),
        outcome,
        findings,
        checks,
        explanations,
        other_tools: then.as_ref().and_then(|then| OtherTools::between(&then.tools, &now.tools)),
        remarks,
        shows_all: arguments.all,
    };
    arguments.outputs.write(&report, context)?;
    Ok(if outcome == Outcome::Fail { ExitStatus::Finding } else { ExitStatus::Success })
}

/// What an update from the image at `old` to `bytes` costs.
fn delta_check(old: &Path, bytes: &[u8], limits: &Limits) -> Result<Check> {
    let delta = sizes::delta(&map_image(old)?, bytes)?;
    Ok(judged_alone(&Figure::new(Key::of_image(Metric::DeltaBytes, ""), delta as f64), limits))
}

impl GateArguments {
    fn outcome(&self, findings: u64) -> Outcome {
        match (self.update_baseline, findings, self.warn_only) {
            (true, ..) => Outcome::Updated,
            (_, 0, _) => Outcome::Pass,
            (_, _, true) => Outcome::Warn,
            _ => Outcome::Fail,
        }
    }

    fn image(&self, configured: &Configured) -> Result<PathBuf> {
        let in_file = configured.document.gate.image.as_ref().map(|image| configured.file.located(image));
        self.image.clone().or(in_file).ok_or_else(|| {
            Error::usage("no image is given").with_hint(
                "name the program: reorder gate ./program -t traces; or write image = \"…\" below [gate] in reorder.toml",
            )
        })
    }

    /// Where the baseline is or will be written; `None` for `off`.
    fn baseline_place(&self, configured: &Configured) -> Option<PathBuf> {
        const DEFAULT_NAME: &str = "reorder-baseline.json";
        let in_file = configured.document.gate.baseline.as_deref().unwrap_or(Path::new(DEFAULT_NAME));
        let off = Path::new("off");
        match &self.baseline {
            Some(place) => (place != off).then(|| place.clone()),
            None => (in_file != off).then(|| configured.file.located(in_file)),
        }
    }

    /// The build that sizes are compared with, function by function.
    fn old(&self) -> Option<&Path> {
        self.against.as_deref().or(self.measured.old())
    }

    /// All files except those of the reports.
    fn files(
        &self,
        image: &Path,
        baseline: Option<&Path>,
        configured: &Configured,
    ) -> Result<Vec<(FileRole, PathBuf)>> {
        let role = if self.update_baseline { FileRole::UpdatedBaseline } else { FileRole::Baseline };
        let configuration = Some(&configured.file.path).filter(|path| !path.as_os_str().is_empty());
        let order = self.order_path(configured);
        let single = [
            (role, baseline),
            (FileRole::Image, Some(image)),
            (FileRole::Configuration, configuration.map(PathBuf::as_path)),
            (FileRole::Order, order.as_deref()),
            (FileRole::Old, self.measured.old()),
            (FileRole::Old, self.against.as_deref()),
        ];
        let single = single.into_iter().filter_map(|(role, path)| Some((role, path?.to_path_buf())));
        let traces = self.scenarios.trace_files(configured)?;
        Ok(single.chain(traces.into_iter().map(|path| (FileRole::Trace, path))).collect())
    }

    /// The baseline with its text.
    fn read_baseline(
        &self,
        place: Option<&Path>,
        image: &Path,
        context: &Context,
    ) -> Result<Option<(Baseline, String)>> {
        let Some(place) = place else {
            if self.update_baseline {
                return Err(Error::usage("--update-baseline cannot write a baseline that is off")
                    .with_hint("name the file: --baseline reorder-baseline.json"));
            }
            return Ok(None);
        };
        match std::fs::read(place) {
            Ok(bytes) => match Baseline::parse(&bytes) {
                Ok(baseline) => Ok(Some((baseline, String::from_utf8_lossy(&bytes).into_owned()))),
                // An update would accept what either side of the merge has made worse, without naming it.
                Err(error) if Baseline::conflict(&bytes).is_some() => Err(error.in_file(place)),
                Err(error) if self.update_baseline && Baseline::is_replaceable(&bytes) => {
                    if !bytes.is_empty() {
                        let cause =
                            format!("the old baseline cannot be compared with: {}", error.in_file(place));
                        context.talk.warning(&cause, None);
                    }
                    Ok(None)
                }
                Err(_) if self.update_baseline => {
                    Err(Error::usage("this file is not a baseline, so it is not overwritten")
                        .in_file(place)
                        .with_hint("name another file: --baseline reorder-baseline.json"))
                }
                Err(error) => Err(error.in_file(place)),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => match self.update_baseline {
                true => Ok(None),
                false => Err(Error::usage("there is no baseline yet").in_file(place).with_hint(format!(
                    "write it from an image that is good: reorder gate {} -t TRACES --update-baseline",
                    image.display()
                ))),
            },
            Err(error) => Err(Error::io(place, error)),
        }
    }

    fn order_path(&self, configured: &Configured) -> Option<PathBuf> {
        let in_file = configured.document.gate.order.as_ref().map(|order| configured.file.located(order));
        self.order.clone().or(in_file)
    }

    fn read_order(
        &self,
        configured: &Configured,
        functions: &FunctionTable<'_>,
    ) -> Result<Option<order_file::read::ListedOrder>> {
        let Some(path) = self.order_path(configured) else { return Ok(None) };
        let bytes = std::fs::read(&path).map_err(|error| Error::io(&path, error))?;
        Ok(Some(order_file::read::read(&bytes, functions)))
    }
}

fn compressions(configured: &Configured) -> Result<Vec<Compression>> {
    let Some(names) = &configured.document.gate.compressors else { return Ok(Compression::default_set()) };
    let compressions = names.iter().map(|name| Compression::from_name(name)).collect::<Result<_>>();
    compressions.map_err(|error| error.in_file(&configured.file.path))
}

/// A path as reports show it, so that they do not depend on where the checkout is: relative to the current directory if both
/// are below the folder of the configuration, otherwise as it was given.
fn shown(path: &Path, configuration: &Path) -> String {
    let current = std::env::current_dir().unwrap_or_default();
    relative(path, &current, configuration.parent().unwrap_or(Path::new(""))).display().to_string()
}

fn relative(path: &Path, current: &Path, root: &Path) -> PathBuf {
    if let Ok(below) = path.strip_prefix(current) {
        return below.to_path_buf();
    }
    match (path.starts_with(root), current.strip_prefix(root)) {
        (true, Ok(depth)) if root.is_absolute() => {
            let shared = current.ancestors().zip(0..).find_map(|(ancestor, up)| {
                path.strip_prefix(ancestor)
                    .ok()
                    .filter(|_| up <= depth.components().count())
                    .map(|rest| (up, rest))
            });
            shared.map_or_else(
                || path.to_path_buf(),
                |(up, rest)| std::iter::repeat_n("..", up).collect::<PathBuf>().join(rest),
            )
        }
        _ => path.to_path_buf(),
    }
}

/// Number of functions that cannot be moved; `None` where that is unknown.
fn pinned(
    image: &OpenedImage<'_>,
    functions: &FunctionTable<'_>,
    remarks: &mut Vec<Remark>,
) -> Result<Option<usize>> {
    match image.analysis()? {
        Ok(analysis) => {
            let is_pinned = |(_, function): &(_, &Function)| analysis.pin_at(function.start).is_some();
            Ok(Some(functions.iter().filter(is_pinned).count()))
        }
        Err(Stays::UnknownKind) => Ok(None),
        Err(Stays::Refused(refusal)) => {
            remarks.push(Remark {
                cause: format!("pinned functions are not counted: {refusal}"),
                next: Some(hints::text(&refusal.cure)),
            });
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_show_paths_from_the_current_directory() {
        for (path, current, root, shown) in [
            ("/r/build/p", "/r", "/r", "build/p"),
            ("/r/build/p", "/r/a/b", "/r", "../../build/p"),
            ("/r/a/c", "/r/a/b", "/r", "../c"),
            ("/r/a/b/p", "/r/a/b", "", "p"),
            ("/tmp/p", "/r/a", "/r", "/tmp/p"),
            ("build/p", "/r/a", "/r", "build/p"),
            ("/r/p", "/r/a", "", "/r/p"),
        ] {
            assert_eq!(relative(Path::new(path), Path::new(current), Path::new(root)), Path::new(shown));
        }
    }
}
