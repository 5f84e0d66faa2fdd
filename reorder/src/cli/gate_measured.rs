//! The flags of `reorder gate` that run programs, and the checks that result.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::context::Context;
use crate::cli::measure::{parse_confidence, request_of};
use crate::cli::scenarios_input::Configured;
use crate::gate::{Check, Limits, Remark, has_measured_limit, measured_checks};
use crate::hints;
use reorder_base::error::{Error, Result};
use reorder_report::table::counted;
use reorder_run::measure::{self, MeasureRequest, StartKind, sign_test};

/// Measured figures, off by default.
#[derive(Args, Debug)]
pub(crate) struct GateMeasured {
    /// Also run OLD and the image in turn, for each scenario of reorder.toml: time and faults are shown, and can fail the
    /// gate if they have limits
    #[arg(long, value_name = "OLD", help_heading = "Measured figures")]
    measure: Option<PathBuf>,
    /// Runs of each program [default: from reorder.toml, otherwise 11]
    #[arg(long, value_name = "N", requires = "measure", help_heading = "Measured figures")]
    runs: Option<usize>,
    /// Confidence level that a measured finding must have, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = parse_confidence, requires = "measure", help_heading = "Measured figures")]
    confidence: f64,
    /// Start with the program's file in memory instead of on disk
    #[arg(long, requires = "measure", help_heading = "Measured figures")]
    warm: bool,
}

impl GateMeasured {
    /// The program that is run for comparison.
    pub(super) fn old(&self) -> Option<&Path> {
        self.measure.as_deref()
    }

    /// The measured checks of the scenarios called `wanted`, or of all.
    ///
    /// # Errors
    /// See [`measure::measure`]; no scenario that could be run.
    pub(super) fn checks(
        &self,
        image: &Path,
        configured: &Configured,
        wanted: &[String],
        limits: &Limits,
        context: &Context,
    ) -> Result<(Vec<Check>, Vec<Remark>)> {
        let Some(old) = &self.measure else { return Ok((Vec::new(), Vec::new())) };
        let base = MeasureRequest {
            old: old.clone(),
            new: Some(image.to_path_buf()),
            start: if self.warm { StartKind::Warm } else { StartKind::Cold },
            confidence: self.confidence / 100.0,
            wording: hints::text,
            ..MeasureRequest::default()
        };
        let scenarios: Vec<_> = configured
            .document
            .scenario
            .iter()
            .filter(|(name, _)| wanted.is_empty() || wanted.contains(*name))
            .collect();
        if scenarios.is_empty() {
            return Err(Error::usage("reorder.toml has no scenario to measure")
                .with_hint("write [scenario.NAME] with arguments = [\"…\"]; or leave out --measure"));
        }
        let requests: Vec<MeasureRequest> = scenarios
            .iter()
            .map(|(name, table)| request_of(name, table, configured, self.runs, &base))
            .collect::<Result<_>>()?;
        let needed = sign_test::values_needed(base.confidence);
        for request in &requests {
            // Otherwise no result could exceed the limit.
            if request.rounds < needed && has_measured_limit(&request.scenario, limits) {
                let cause = format!(
                    "{}: {} runs cannot show anything with {} % confidence, and measured figures have a limit",
                    request.scenario, request.rounds, self.confidence
                );
                return Err(Error::usage(cause).with_hint(format!("measure with --runs {needed} or more")));
            }
        }
        let rounds: usize = requests.iter().map(|request| request.rounds).sum();
        let phase = context.talk.phase("measure", rounds as u64);
        let measured = requests.iter().map(|request| measure::measure(request, &|| phase.step()));
        let measured = measured.collect::<Result<Vec<_>>>()?;
        phase.finish(&format!("{} of each program", counted(rounds as u64, "run")));
        Ok(measured_checks(&measured, limits))
    }
}
