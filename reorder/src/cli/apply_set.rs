//! `reorder apply --set`: a program with the libraries that it loads at startup.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::applied::{AppliedFile, LeftImage, status_of};
use crate::cli::apply_elf::{ElfRequest, apply_elf};
use crate::cli::check_args::CheckArguments;
use crate::cli::context::Context;
use crate::cli::kept_inputs::KeptFiles;
use crate::exit_status::ExitStatus;
use crate::packages;
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_image::elf::file::ElfFile;
use reorder_image::macho::is_macho;
use reorder_relocate::apply::ApplySummary;
use reorder_report::table::{Table, counted, grouped};
use reorder_report::{Report, Width};
use reorder_run::check::{CheckedRun, Trial, TrialFile};
use reorder_run::loaded_libraries::{
    LoadedLibrary, SEARCH_PATH, is_same, loaded_libraries, loaded_libraries_from,
};
use reorder_system::interruption::Interruption;
use reorder_system::mapped::{MappedImage, map_image};
use reorder_system::write::{Pending, ReplaceOptions, Warning, together_if};

#[derive(Serialize)]
struct SetImage {
    image: String,
    /// Where the moved image is; `None` for those that were left out.
    output: Option<String>,
    /// Why it was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
    #[serde(flatten)]
    summary: Option<ApplySummary>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct SetReport {
    directory: String,
    /// The command line that runs the program with the moved libraries.
    start: String,
    /// The runs in which the program behaved alike without and with the set.
    checks: Vec<CheckedRun>,
    images: Vec<SetImage>,
}

impl Report for SetReport {
    const COMMAND: &'static str = "apply_set";

    fn text(&self, width: Width) -> String {
        let mut table = Table::new(["image", "functions", "moved", "pinned", "output"]).with_texts([4]);
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
        let moved = self.images.iter().filter(|image| image.output.is_some()).count();
        let checks: String = self.checks.iter().map(CheckedRun::text).collect();
        format!(
            "{}\n{checks}{moved} of {} moved and verified, and the loader finds them; run the program with:\n  {}\n",
            table.render(width),
            counted(self.images.len() as u64, "image"),
            self.start
        )
    }
}

/// Moves the functions of the program and of each loaded library that has traces; writes all files or none.
///
/// # Errors
/// As for the program alone; a directory that holds one of the inputs.
pub(super) fn run(
    program: &Path,
    directory: &Path,
    request: &ElfRequest<'_>,
    check: &CheckArguments,
    context: &Context,
) -> Result<ExitStatus> {
    let kept = request.arrangement.files()?;
    let kept = kept.iter().fold(KeptFiles::default(), |kept, (what, files)| kept.reads(what, files));
    let kept = kept.reads("the input of checked runs", check.input());
    let mapped = map_image(program)?;
    if is_macho(&mapped) {
        return Err(Error::usage("--set applies only to ELF programs")
            .in_file(program)
            .with_hint("leave out --set"));
    }
    check.refuse_unless_runnable(program, &mapped)?;
    let in_program = |error: Error| error.in_file(program);
    let libraries = ElfFile::parse(&mapped).and_then(|file| loaded_libraries(program, &file));
    let libraries = libraries.map_err(in_program)?;
    let name = program.file_name().map_or_else(|| "program".into(), |name| name.to_os_string());
    if let Some(library) = libraries.iter().find(|library| OsStr::new(&library.name) == name) {
        return Err(Error::usage(format!(
            "the library {} and the program would have the same name in the directory",
            library.path.display()
        ))
        .in_file(program)
        .with_hint("move them one by one, with -o FILE"));
    }
    let (mut images, mut rejected) = (Vec::new(), Vec::new());
    let mut moved: Vec<(PathBuf, PathBuf, AppliedFile)> = Vec::new();
    let mut inputs: Vec<MappedImage> = Vec::new();
    let applied = mapped.explaining(apply_elf(program, request, context, &mapped)).map_err(in_program)?;
    moved.push((program.to_path_buf(), directory.join(&name), applied));
    images.push((program.to_path_buf(), None));
    let phase = context.talk.phase("apply", libraries.len() as u64);
    for library in &libraries {
        if library.name.contains('/') {
            let reason = "the program asks for it by a path, not by a name";
            images.push((library.path.clone(), Some(reason.to_owned())));
            continue;
        }
        let read = map_image(&library.path).and_then(|bytes| {
            let applied = apply_elf(&library.path, request, context, &bytes)?;
            Ok((applied, bytes))
        });
        let left_out = match read {
            Ok((applied, bytes)) => {
                moved.push((library.path.clone(), directory.join(&library.name), applied));
                inputs.push(bytes);
                None
            }
            // It has no traces, or it cannot be moved: the loader finds the original.
            Err(error)
                if matches!(error.kind, ErrorKind::Usage | ErrorKind::Refused(_) | ErrorKind::Malformed) =>
            {
                rejected.push(LeftImage::new(&library.name, &error));
                Some(error.to_string())
            }
            Err(error) => return Err(error.in_file(&library.path)),
        };
        images.push((library.path.clone(), left_out));
        phase.step();
    }
    phase.finish(&format!("{} of {}", moved.len(), counted(images.len() as u64, "image")));
    for (_, output, applied) in &mut moved {
        applied.warnings.extend(packages::warning(output));
    }
    let set = StagedSet { program, directory, name: &name, libraries: &libraries };
    let originals: Vec<&MappedImage> = std::iter::once(&mapped).chain(&inputs).collect();
    // Dropped after the files: a signal that ended this process earlier would leave them beside their destinations.
    let _interruption = Interruption::note();
    let checks = checked(&set, check, &originals, &moved, context)?;
    originals.into_iter().try_for_each(MappedImage::unchanged)?;
    let warnings = write_all(&set, kept, &moved)?;
    warnings.iter().for_each(|warning| context.talk.warning(&warning.to_string(), None));
    let lacks = moved.iter().flat_map(|(.., applied)| &applied.warnings);
    lacks.for_each(|warning| context.talk.warning(warning, None));
    let rows = images.into_iter().map(|(image, left_out)| {
        let found = moved.iter().find(|(path, ..)| *path == image);
        SetImage {
            image: image.display().to_string(),
            output: found.map(|(_, output, _)| output.display().to_string()),
            left_out,
            summary: found.map(|(.., applied)| applied.summary.clone()),
            warnings: found.map(|(.., applied)| applied.warnings.clone()).unwrap_or_default(),
        }
    });
    context.print(&SetReport {
        directory: directory.display().to_string(),
        start: set.start()?,
        checks,
        images: rows.collect(),
    })?;
    Ok(status_of(&rejected))
}

/// Runs the program without and with the set side by side, if checks are requested.
fn checked(
    set: &StagedSet<'_>,
    check: &CheckArguments,
    originals: &[&MappedImage],
    moved: &[(PathBuf, PathBuf, AppliedFile)],
    context: &Context,
) -> Result<Vec<CheckedRun>> {
    if !check.is_asked_for() {
        return Ok(Vec::new());
    }
    let files = moved.iter().zip(originals).map(|((_, output, applied), original)| {
        let name = output.file_name().unwrap_or_default().to_os_string();
        (name, TrialFile { original, result: &applied.bytes })
    });
    let environment = |directory: &Path| {
        let search_path = StagedSet { directory, ..*set }.search_path()?;
        Ok(vec![(SEARCH_PATH.into(), search_path)])
    };
    let trial = Trial::of_set(set.directory, files, environment)?;
    check.run(set.program, &trial, context)
}

/// A set in its directory.
#[derive(Clone, Copy)]
struct StagedSet<'run> {
    program: &'run Path,
    directory: &'run Path,
    /// The program's name in the directory.
    name: &'run OsStr,
    /// What the program loads without the set.
    libraries: &'run [LoadedLibrary],
}

impl StagedSet<'_> {
    fn absolute(&self) -> Result<PathBuf> {
        std::path::absolute(self.directory).map_err(|error| Error::io(self.directory, error))
    }

    /// The directory, followed by those where the environment tells the loader to look.
    fn search_path(&self) -> Result<OsString> {
        let mut path = self.absolute()?.into_os_string();
        if path.as_bytes().iter().any(|byte| b":;".contains(byte)) {
            return Err(Error::usage("the loader cannot search directories with : or ; in their path")
                .in_file(self.directory)
                .with_hint("give another directory to --set"));
        }
        if let Some(rest) = std::env::var_os(SEARCH_PATH).filter(|rest| !rest.is_empty()) {
            path.push(":");
            path.push(rest);
        }
        Ok(path)
    }

    /// The command line, quoted for a shell.
    fn start(&self) -> Result<String> {
        let quoted = |text: &OsStr| {
            let quoted = shlex::bytes::try_quote(text.as_bytes()).map(|quoted| quoted.into_owned());
            String::from_utf8_lossy(&quoted.unwrap_or_default()).into_owned()
        };
        let program = self.absolute()?.join(self.name);
        Ok(format!("{SEARCH_PATH}={} {}", quoted(&self.search_path()?), quoted(program.as_os_str())))
    }

    /// Asks the loader what the program would load: it must be the moved libraries, and otherwise what it loaded before.
    fn check(&self, moved: &[(PathBuf, PathBuf, AppliedFile)]) -> Result<()> {
        let Some((_, program, applied)) = moved.first() else { return Ok(()) };
        let file = ElfFile::parse(&applied.bytes)?;
        let with_advice = |error: Error| {
            let advice = format!(
                "nothing was written; if the program looks for libraries beside itself ($ORIGIN), give --set a directory \
                 beside {}",
                self.program
                    .parent()
                    .filter(|parent| *parent != Path::new(""))
                    .unwrap_or(Path::new("."))
                    .display()
            );
            Error::usage(format!("the moved program would not start: {error}")).with_hint(advice)
        };
        let found = loaded_libraries_from(program, &file, Some(&self.search_path()?)).map_err(with_advice)?;
        for library in self.libraries {
            let output = moved.iter().skip(1).find(|(image, ..)| *image == library.path);
            let expected = output.map_or(&library.path, |(_, output, _)| output);
            let path = found.iter().find(|found| found.name == library.name).map(|found| &found.path);
            if !path.is_some_and(|path| is_same(path, expected)) {
                let instead = path.map_or_else(|| "nothing".to_owned(), |path| path.display().to_string());
                let cause = format!(
                    "the moved program would load {instead} for {}, not {}",
                    library.name,
                    expected.display()
                );
                let hint = "nothing was written; DT_RPATH and paths in DT_NEEDED go before LD_LIBRARY_PATH: link with \
                            -Wl,--enable-new-dtags, or move the images one by one; empty the directory if it has old files";
                return Err(Error::usage(cause).in_file(program).with_hint(hint));
            }
        }
        match found.iter().find(|found| self.libraries.iter().all(|library| library.name != found.name)) {
            None => Ok(()),
            Some(new) => Err(Error::usage(format!(
                "the moved program would also load {}, which the original does not",
                new.path.display()
            ))
            .in_file(program)
            .with_hint("nothing was written; give --set a directory without other files")),
        }
    }
}

/// Writes all outputs or none; none of them replaces an input, and the loader finds them.
fn write_all(
    set: &StagedSet<'_>,
    kept: KeptFiles,
    moved: &[(PathBuf, PathBuf, AppliedFile)],
) -> Result<Vec<Warning>> {
    let directory = set.directory;
    let is_new = !directory.exists();
    std::fs::create_dir_all(directory).map_err(|error| Error::io(directory, error))?;
    let write = || {
        let kept = kept.reads("an image that is read", set.libraries.iter().map(|library| &library.path));
        let kept = kept.reads("an image that is read", [set.program]);
        moved.iter().try_fold(kept, |kept, (_, output, _)| {
            kept.writes("output", output, "give another directory to --set")
        })?;
        let files = moved.iter().map(|(image, output, applied)| {
            Pending::replacing(output, image, &applied.bytes, ReplaceOptions::default())
        });
        together_if(files.collect::<Result<_>>()?, || set.check(moved))
    };
    let written = write();
    if written.is_err() && is_new {
        // Fails if another process has put files there, which then stay.
        let _ = std::fs::remove_dir(directory);
    }
    written
}
