//! `reorder apply --set`: a program with the libraries that it loads at its start.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::apply::ApplySummary;
use crate::cli::apply_elf::{ElfRequest, apply_elf};
use crate::cli::apply_macho::AppliedFile;
use crate::cli::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::exit_status::ExitStatus;
use crate::image::elf::file::ElfFile;
use crate::image::macho::is_macho;
use crate::image::mapped::map_image;
use crate::loaded_libraries::loaded_libraries;
use crate::report::Report;
use crate::report::table::{Table, grouped};
use crate::write::{Pending, Place, ReplaceOptions, together};

/// One image of the set.
#[derive(Serialize)]
struct SetImage {
    image: String,
    /// Where the moved image is; nothing for those that were left out.
    output: Option<String>,
    /// Why it was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
    #[serde(flatten)]
    summary: Option<ApplySummary>,
}

#[derive(Serialize)]
struct SetReport {
    directory: String,
    /// The line that starts the program with the moved libraries.
    start: String,
    images: Vec<SetImage>,
}

impl Report for SetReport {
    const COMMAND: &'static str = "apply_set";

    fn text(&self) -> String {
        let mut table = Table::new(["image", "functions", "moved", "pinned", "output"]);
        for image in &self.images {
            let count = |number: Option<usize>| {
                number.map_or_else(|| "-".to_owned(), |number| grouped(number as u64))
            };
            let summary = image.summary.as_ref();
            table.row([
                image.image.clone(),
                count(summary.map(|summary| summary.functions)),
                count(summary.map(|summary| summary.functions_moved)),
                count(summary.map(|summary| summary.pinned.len())),
                match (&image.output, &image.left_out) {
                    (Some(output), _) => output.clone(),
                    (None, reason) => format!("left out: {}", reason.as_deref().unwrap_or_default()),
                },
            ]);
        }
        format!("{}all of them verified; start it so:\n  {}\n", table.render(), self.start)
    }
}

/// Moves the functions of the program and of each library that it loads and that the traces know; writes all or nothing.
///
/// # Errors
/// As for the program alone; a directory that holds one of the inputs.
pub(super) fn run(
    program: &Path,
    directory: &Path,
    request: &ElfRequest<'_>,
    context: &Context,
) -> Result<ExitStatus> {
    let mapped = map_image(program)?;
    if is_macho(&mapped) {
        return Err(Error::usage("--set is for ELF programs").in_file(program).with_hint("leave out --set"));
    }
    let in_program = |error: Error| error.in_file(program);
    let libraries = ElfFile::parse(&mapped).and_then(|file| loaded_libraries(program, &file));
    let libraries = libraries.map_err(in_program)?;
    let name = program.file_name().map_or_else(|| "program".into(), |name| name.to_os_string());
    let mut images = Vec::new();
    let mut moved: Vec<(PathBuf, PathBuf, AppliedFile)> = Vec::new();
    let applied = apply_elf(program, request, context, &mapped).map_err(in_program)?;
    moved.push((program.to_path_buf(), directory.join(&name), applied));
    images.push((program.to_path_buf(), None));
    let phase = context.talk.phase("apply", libraries.len() as u64);
    for library in &libraries {
        if library.name.contains('/') {
            let reason = "the program asks for it by a path, not by a name";
            images.push((library.path.clone(), Some(reason.to_owned())));
            continue;
        }
        let left_out = match map_image(&library.path)
            .and_then(|bytes| apply_elf(&library.path, request, context, &bytes))
        {
            Ok(applied) => {
                moved.push((library.path.clone(), directory.join(&library.name), applied));
                None
            }
            // No trace is of it, or it cannot be moved: the system's own serves.
            Err(error) if matches!(error.kind, ErrorKind::Usage | ErrorKind::Refused(_)) => {
                Some(error.to_string())
            }
            Err(error) => return Err(error.in_file(&library.path)),
        };
        images.push((library.path.clone(), left_out));
        phase.step();
    }
    phase.finish(&format!("{} of {} images", moved.len(), images.len()));
    write_all(directory, &moved, context)?;
    let outputs: Vec<(PathBuf, PathBuf, ApplySummary)> =
        moved.into_iter().map(|(image, output, applied)| (image, output, applied.summary)).collect();
    let rows = images.into_iter().map(|(image, left_out)| {
        let found = outputs.iter().find(|(path, ..)| *path == image);
        SetImage {
            image: image.display().to_string(),
            output: found.map(|(_, output, _)| output.display().to_string()),
            left_out,
            summary: found.map(|(_, _, summary)| summary.clone()),
        }
    });
    let start = format!("LD_LIBRARY_PATH={0} {0}/{1}", directory.display(), Path::new(&name).display());
    context.print(&SetReport {
        directory: directory.display().to_string(),
        start,
        images: rows.collect(),
    })?;
    Ok(ExitStatus::Success)
}

/// All outputs or none; none of them takes the place of an input.
fn write_all(directory: &Path, moved: &[(PathBuf, PathBuf, AppliedFile)], context: &Context) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(|error| Error::io(directory, error))?;
    let read: Vec<Place> = moved
        .iter()
        .filter_map(|(image, ..)| std::fs::metadata(image).ok())
        .map(|file| Place::of_file(&file))
        .collect();
    let mut files = Vec::new();
    for (image, output, applied) in moved {
        if Place::of(output)?.is_some_and(|place| read.contains(&place)) {
            return Err(Error::usage("the output would replace an image that is read")
                .in_file(output)
                .with_hint("give another directory to --set"));
        }
        files.push(Pending::replacing(output, image, &applied.bytes, ReplaceOptions::default())?);
    }
    let warnings = together(files)?;
    warnings.iter().for_each(|warning| context.talk.warning(&warning.to_string(), None));
    let summaries = moved.iter().flat_map(|(.., applied)| &applied.summary.warnings);
    summaries.for_each(|warning| context.talk.warning(warning, None));
    Ok(())
}
