//! `reorder doctor`: what this machine lets the other commands do, found out by doing it.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::cli::context::Context;
use crate::error::{Error, Result};
use crate::exit_status::ExitStatus;
use crate::image::elf::file::ElfFile;
use crate::image::functions::FunctionTable;
use crate::measure::{self, Abilities};
use crate::report::Report;

const EXAMPLES: &str = "\
Examples:
  reorder doctor
  reorder doctor /usr/bin/git";

/// Check whether this machine can record and measure, and whether an image has what is needed
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct DoctorArguments {
    /// A program or shared object to look at as well
    image: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    passed: bool,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Debug, Serialize)]
struct DoctorReport {
    checks: Vec<Check>,
}

/// Runs all checks; a failed one is a finding.
///
/// # Errors
/// When the image or the own program cannot be read.
pub fn run(arguments: &DoctorArguments, context: &Context) -> Result<ExitStatus> {
    let mut checks = machine_checks()?;
    if let Some(image) = &arguments.image {
        checks.extend(image_checks(image));
    }
    let passed = checks.iter().all(|check| check.passed);
    context.print(&DoctorReport { checks })?;
    Ok(if passed { ExitStatus::Success } else { ExitStatus::Finding })
}

fn machine_checks() -> Result<Vec<Check>> {
    let abilities = measure::abilities()?;
    Ok(vec![tracing(abilities), touched_pages(abilities), page_cache()])
}

fn tracing(abilities: Abilities) -> Check {
    Check {
        name: "trace programs (record, measure)",
        passed: abilities.trace,
        found: if abilities.trace { "permitted" } else { "forbidden" }.to_owned(),
        hint: (!abilities.trace).then(|| match yama_scope() {
            Some(3) => "the kernel forbids ptrace until it is started with another kernel.yama.ptrace_scope"
                .to_owned(),
            _ => "in a container, start it with --cap-add=SYS_PTRACE or --security-opt seccomp=unconfined"
                .to_owned(),
        }),
    }
}

fn touched_pages(abilities: Abilities) -> Check {
    Check {
        name: "count touched pages (measure)",
        passed: abilities.count_touched_pages,
        found: if abilities.count_touched_pages { "possible" } else { "not possible" }.to_owned(),
        hint: (!abilities.count_touched_pages)
            .then(|| "needs ptrace, and a kernel with page monitoring (CONFIG_PROC_PAGE_MONITOR)".to_owned()),
    }
}

fn page_cache() -> Check {
    let here = Path::new(".");
    let emptied = measure::can_start_cold(here).unwrap_or(false);
    Check {
        name: "cold starts in this directory (measure)",
        passed: emptied,
        found: if emptied { "the page cache can be emptied" } else { "the page cache cannot be emptied" }
            .to_owned(),
        hint: (!emptied)
            .then(|| "write the output to a directory of a disk, not of a file system in memory".to_owned()),
    }
}

fn yama_scope() -> Option<u8> {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

fn image_checks(path: &Path) -> Vec<Check> {
    let name = "read the image";
    match look_at(path) {
        Ok(found) => vec![Check { name, passed: true, found, hint: None }],
        Err(error) => vec![Check { name, passed: false, found: error.to_string(), hint: error.hint }],
    }
}

fn look_at(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    let image = ElfFile::parse(&bytes).map_err(|error| error.in_file(path))?;
    let functions = FunctionTable::collect(&image).map_err(|error| error.in_file(path))?;
    Ok(format!("{} functions; reorder inspect {} tells which can move", functions.len(), path.display()))
}

impl Report for DoctorReport {
    const COMMAND: &'static str = "doctor";

    fn text(&self) -> String {
        let mut text = String::new();
        for check in &self.checks {
            let verdict = if check.passed { "ok    " } else { "failed" };
            text.push_str(&format!("{verdict} {}: {}\n", check.name, check.found));
            if let Some(hint) = &check.hint {
                text.push_str(&format!("       hint: {hint}\n"));
            }
        }
        text
    }
}
