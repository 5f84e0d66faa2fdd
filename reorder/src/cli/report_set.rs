//! `reorder report --set`: one page for a program and the libraries that `reorder apply --set` moved with it.
//!
//! In: the program, the directory of the set, traces of all of them. Out: a page on which one image at a time is shown, and a
//! table of all.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::context::Context;
use crate::cli::report::{PAGE_NAME, ReportArguments};
use crate::exit_status::ExitStatus;
use crate::page::{PageRequest, Summary, pages};
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_layout::simulate::{Comparison, ImageNames};
use reorder_report::table::{Table, counted, grouped};
use reorder_report::{Report, Width};
use reorder_run::loaded_libraries::libraries_of_program;
use reorder_system::mapped::{MappedImage, map_image};
use reorder_system::write::whole;

/// The figures of all images.
#[derive(Debug, Serialize)]
struct SetSummary {
    /// Where the page is.
    page: String,
    /// The directory of the moved images.
    set: String,
    /// Each image that was moved and has traces; the program first.
    images: Vec<Summary>,
}

impl Report for SetSummary {
    const COMMAND: &'static str = "report_set";

    fn text(&self, width: Width) -> String {
        let mut text = format!("{}\n", self.page);
        let models = self.images.first().map(|image| image.models.as_slice()).unwrap_or_default();
        for (index, model) in models.iter().enumerate() {
            let title = format!("{}: {}", model.faults.model, model.title);
            let mut table = Table::new([title.as_str(), "bound", "before", "after"]);
            let mut totals = [0.0; 3];
            for image in &self.images {
                let Some(found) = image.models.get(index) else { continue };
                let faults = &found.faults;
                let row =
                    [faults.lower_bound_faults, faults.faults, faults.new_faults.unwrap_or(faults.faults)];
                totals.iter_mut().zip(row).for_each(|(total, value)| *total += value);
                table.row(std::iter::once(image.image.clone()).chain(row.map(shown)));
            }
            table.row(std::iter::once("all images".to_owned()).chain(totals.map(shown)));
            text.push_str(&format!("\n{}", table.render(width)));
        }
        text.push_str(&format!("\n{} of the set {}\n", counted(self.images.len() as u64, "image"), self.set));
        text.extend(self.images.first().map(|program| program.processes_text(width)));
        text
    }
}

fn shown(faults: f64) -> String {
    grouped(faults.round() as u64)
}

/// An image of the set, before and after.
struct Member {
    old: PathBuf,
    new: PathBuf,
    bytes: MappedImage,
}

/// Runs the command for the set in `directory`.
///
/// # Errors
/// A program that is not in the directory; as for one image; nothing is written then.
pub(super) fn run(arguments: &ReportArguments, directory: &Path, context: &Context) -> Result<ExitStatus> {
    let scenarios = &arguments.scenarios;
    let members = members(&arguments.image, directory)?;
    let processes = arguments
        .measured
        .processes(&arguments.image, members.first().map(|program| program.new.as_path()))?;
    let configured = scenarios.configured(&context.talk)?;
    let read = members.iter().flat_map(|member| [&member.old, &member.new]);
    let read = arguments.kept(read, &configured)?;
    read.writes("page", &arguments.output, PAGE_NAME)?;
    let opened: Vec<_> = members
        .iter()
        .map(|member| Ok((member, scenarios.open(&member.old, &member.bytes)?)))
        .collect::<Result<_>>()?;
    let mut images = Vec::new();
    for (member, image) in &opened {
        let functions = image.functions();
        let starts = match scenarios.resolve(&member.old, image, &functions, &configured, &context.talk) {
            Ok(starts) => starts,
            // The set may hold images of other runs.
            Err(error) if matches!(error.kind, ErrorKind::Usage) && !images.is_empty() => {
                context.talk.warning(&format!("{} is not shown: {error}", member.old.display()), None);
                continue;
            }
            Err(error) => return Err(error),
        };
        let new_image = scenarios.new_image(&member.old, &member.bytes, Some(member.new.as_path()))?;
        let models = scenarios.models(None, image, &configured)?;
        images.push((*member, image, functions, starts, new_image, models));
    }
    let groups: Vec<_> =
        images.iter().map(|(.., starts, _, _)| starts.sources.group(&starts.traces)).collect();
    let names: Vec<ImageNames> =
        images.iter().map(|(member, ..)| ImageNames::of(&member.old, Some(member.new.as_path()))).collect();
    let placements = images
        .iter()
        .map(|(_, image, _, _, new, _)| new.as_ref().map(|new| new.placement(image)).transpose())
        .collect::<Result<Vec<_>>>()?;
    let requests: Vec<PageRequest<'_>> = images
        .iter()
        .zip(groups.iter().zip(&names).zip(&placements))
        .map(|((member, image, functions, starts, _, models), ((scenarios, names), placement))| PageRequest {
            names,
            image,
            functions,
            scenarios,
            coverage: &starts.traces.coverage,
            comparison: placement.as_ref().map(Comparison::Image),
            models,
            processes: if member.old == arguments.image { &processes } else { &[] },
            sizes: None,
        })
        .collect();
    let (summaries, document) = pages(&requests)?;
    whole(&arguments.output, &document.0)?;
    context.print(&SetSummary {
        page: arguments.output.display().to_string(),
        set: directory.display().to_string(),
        images: summaries,
    })?;
    Ok(ExitStatus::Success)
}

/// The program and each library that it loads, as far as `directory` has them.
fn members(program: &Path, directory: &Path) -> Result<Vec<Member>> {
    let bytes = map_image(program)?;
    let libraries = libraries_of_program(program, &bytes)?;
    let moved = directory.join(program.file_name().unwrap_or_default());
    if !moved.is_file() {
        return Err(Error::usage("the set does not have this program").in_file(&moved).with_hint(format!(
            "make it: reorder apply {} -t TRACES --set {}",
            program.display(),
            directory.display()
        )));
    }
    let mut members = vec![Member { old: program.to_path_buf(), new: moved, bytes }];
    for library in libraries {
        let new = directory.join(&library.name);
        if library.name.contains('/') || !new.is_file() {
            continue;
        }
        let bytes = map_image(&library.path)?;
        members.push(Member { old: library.path, new, bytes });
    }
    Ok(members)
}
