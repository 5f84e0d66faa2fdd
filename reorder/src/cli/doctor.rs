//! `reorder doctor`: what this system lets the other commands do, found out by trying it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use toml::Value;

use crate::cli::context::Context;
use crate::cli::doctor_image::{Check, image_checks};
use crate::exit_status::ExitStatus;
use reorder_base::error::Result;
use reorder_layout::configuration::ConfigurationFile;
use reorder_report::table::Table;
use reorder_report::{Report, Width};
use reorder_run::measure::{self, Abilities};

const EXAMPLES: &str = "\
Examples:
  reorder doctor
  reorder doctor /usr/bin/git
  reorder doctor --show-config";

/// Check whether this system can record and measure, and whether an image has what is needed
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct DoctorArguments {
    /// Also check this program or shared object: what it lacks, and the flag for its linker and your build system
    image: Option<PathBuf>,
    /// Also print the configuration that applies here, and where each value comes from
    #[arg(long)]
    show_config: bool,
}

#[derive(Debug, Serialize)]
struct DoctorReport {
    checks: Vec<Check>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    configuration: Vec<Setting>,
}

/// A value that applies unless a flag overrides it.
#[derive(Debug, Serialize)]
struct Setting {
    name: String,
    value: String,
    /// A file or the environment.
    origin: String,
}

/// Runs all checks; a failed one is a finding.
///
/// # Errors
/// When the image or our own executable cannot be read.
pub fn run(arguments: &DoctorArguments, context: &Context) -> Result<ExitStatus> {
    let mut checks = machine_checks()?;
    if let Some(image) = &arguments.image {
        checks.extend(image_checks(image));
    }
    let passed = checks.iter().all(|check| check.passed);
    let mut configuration = Vec::new();
    if arguments.show_config {
        let file = ConfigurationFile::find(None, Path::new("."), "--config")?;
        if let Some(note) = &file.note {
            context.talk.warning(note, None);
        }
        configuration = settings(&file, std::env::vars_os());
    }
    context.print(&DoctorReport { checks, configuration })?;
    Ok(if passed { ExitStatus::Success } else { ExitStatus::Finding })
}

fn machine_checks() -> Result<Vec<Check>> {
    if !Path::new("/proc/self").exists() {
        // All others look there.
        let name = "read /proc (record, measure)";
        return Ok(vec![Check::failed(name, "it is not there").hint("mount -t proc proc /proc")]);
    }
    let abilities = measure::abilities("--version")?;
    Ok(vec![tracing(abilities), touched_pages(abilities), page_cache(), sampling()])
}

fn tracing(abilities: Abilities) -> Check {
    let name = "trace programs (record, measure)";
    if abilities.trace {
        return Check::fine(name, "permitted");
    }
    Check::failed(name, "forbidden").hint(match yama_scope() {
        Some(3) => "the kernel forbids ptrace until it is started with another kernel.yama.ptrace_scope",
        _ => "in a container, start it with --cap-add=SYS_PTRACE or --security-opt seccomp=unconfined",
    })
}

fn touched_pages(abilities: Abilities) -> Check {
    let name = "count touched pages (measure)";
    match abilities.count_touched_pages {
        true => Check::fine(name, "possible"),
        false => Check::failed(name, "not possible")
            .hint("needs ptrace, and a kernel with page monitoring (CONFIG_PROC_PAGE_MONITOR)"),
    }
}

fn page_cache() -> Check {
    let name = "cold starts in this directory (measure)";
    match measure::can_start_cold(Path::new(".")).unwrap_or(false) {
        true => Check::fine(name, "the page cache can be emptied"),
        false => Check::failed(name, "the page cache cannot be emptied")
            .hint("write the output to a directory of a disk, not of a file system in memory"),
    }
}

/// Whether `perf record` may sample programs of this user. Never a failure: profiles recorded elsewhere can be read anyway.
fn sampling() -> Check {
    const OWN_PROGRAMS: i32 = 2;
    let name = "sample with perf (profiles of perf.data)";
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let level: Option<i32> = level.ok().and_then(|text| text.trim().parse().ok());
    match level {
        Some(level) if level <= OWN_PROGRAMS || nix::unistd::geteuid().is_root() => {
            Check::fine(name, "permitted")
        }
        Some(level) => Check::fine(
            name,
            format!("forbidden (kernel.perf_event_paranoid is {level}); record does not need it"),
        ),
        None => Check::fine(name, "the kernel has no perf events; record does not need them"),
    }
}

fn yama_scope() -> Option<u8> {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// What the configuration file and the environment say.
fn settings(file: &ConfigurationFile, variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<Setting> {
    let mut settings = Vec::new();
    let origin = file.path.display().to_string();
    for (name, value) in &file.table {
        flatten(name, value, &origin, &mut settings);
    }
    let ours = variables.filter(|(name, _)| name.as_encoded_bytes().starts_with(b"REORDER_"));
    let mut ours: Vec<_> = ours.collect();
    ours.sort();
    settings.extend(ours.into_iter().map(|(name, value)| Setting {
        name: name.to_string_lossy().into_owned(),
        value: value.to_string_lossy().into_owned(),
        origin: "environment".to_owned(),
    }));
    settings
}

fn flatten(name: &str, value: &Value, origin: &str, settings: &mut Vec<Setting>) {
    match value {
        Value::Table(table) => {
            table.iter().for_each(|(key, value)| flatten(&format!("{name}.{key}"), value, origin, settings));
        }
        value => settings.push(Setting {
            name: name.to_owned(),
            value: value.to_string(),
            origin: origin.to_owned(),
        }),
    }
}

impl Report for DoctorReport {
    const COMMAND: &'static str = "doctor";

    fn text(&self, width: Width) -> String {
        let mut text = String::new();
        for check in &self.checks {
            let verdict = if check.passed { "ok    " } else { "failed" };
            let found = format!("{}: {}", check.name, check.found);
            text.push_str(&format!("{}\n", width.hanging(&format!("{verdict} "), &found)));
            for hint in &check.hints {
                text.push_str(&format!("       hint: {hint}\n"));
            }
        }
        if !self.configuration.is_empty() {
            let mut table = Table::new(["configured", "value", "from"]).with_labels(3);
            self.configuration.iter().for_each(|setting| {
                table.row([&setting.name, &setting.value, &setting.origin].map(String::clone))
            });
            text.push_str(&format!("\n{}", table.render(width)));
        }
        text
    }
}
