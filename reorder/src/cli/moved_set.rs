//! A program and the libraries that it loads, with their functions moved: made, and written whole or not at all.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::cli::applied::{AppliedFile, LeftImage};
use crate::cli::apply_elf::{ElfRequest, apply_elf};
use crate::cli::context::Context;
use crate::cli::kept_inputs::KeptFiles;
use crate::optimize_set_report::KeptLibrary;
use crate::packages;
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_image::elf::file::ElfFile;
use reorder_relocate::apply::elf::prove;
use reorder_relocate::elf::names::{bytes_of_names, looked_up_names, place_names};
use reorder_report::table::counted;
use reorder_run::check::{Trial, TrialFile};
use reorder_run::loaded_libraries::{
    LoadedLibrary, SEARCH_PATH, is_same, libraries_of_program, loaded_libraries_from,
};
use reorder_system::mapped::{MappedImage, map_image};
use reorder_system::write::{Pending, ReplaceOptions, Warning, together_if};

/// What one read brings in by default: shorter tables of names are read at once, wherever names are.
const READ_AHEAD: u64 = 128 << 10;

/// An image that was moved.
pub(super) struct MovedImage {
    /// Where it is.
    pub(super) path: PathBuf,
    /// Where the result goes.
    pub(super) output: PathBuf,
    /// The original.
    pub(super) original: MappedImage,
    /// The result, proven.
    pub(super) applied: AppliedFile,
    /// Whether no function moved, because no run executes any; only names were placed.
    pub(super) has_only_names: bool,
}

/// A library that stays as it is.
pub(super) struct LeftLibrary {
    /// Where it is.
    pub(super) path: PathBuf,
    /// The name that the program asks for; none if it asks for a path.
    pub(super) name: Option<String>,
    /// Why.
    pub(super) reason: String,
    /// Whether it was refused; otherwise no run executes it, or it cannot be loaded from elsewhere.
    is_refused: bool,
}

/// The program, first, and its libraries.
pub(super) struct MovedSet<'run> {
    /// The program.
    program: &'run Path,
    /// Where the set goes.
    directory: &'run Path,
    /// What the program loads without the set.
    libraries: Vec<LoadedLibrary>,
    /// The program and the libraries that were moved.
    pub(super) moved: Vec<MovedImage>,
    /// The other libraries, in the order of loading.
    pub(super) left: Vec<LeftLibrary>,
    /// Those that could not be moved, with their refusals.
    pub(super) rejected: Vec<LeftImage>,
}

impl<'run> MovedSet<'run> {
    /// Moves the functions of the program and of each loaded library that has traces.
    ///
    /// # Errors
    /// As for the program alone; a library that has the program's name.
    pub(super) fn make(
        (program, mapped): (&'run Path, MappedImage),
        directory: &'run Path,
        request: &ElfRequest<'_>,
        context: &Context,
    ) -> Result<Self> {
        let in_program = |error: Error| error.in_file(program);
        let libraries = libraries_of_program(program, &mapped)?;
        let name = program.file_name().unwrap_or(OsStr::new("program"));
        if let Some(library) = libraries.iter().find(|library| OsStr::new(&library.name) == name) {
            return Err(Error::usage(format!(
                "the library {} and the program would have the same name in the directory",
                library.path.display()
            ))
            .in_file(program)
            .with_hint("move them one by one, with -o FILE"));
        }
        let applied = mapped.explaining(apply_elf(program, request, context, &mapped)).map_err(in_program)?;
        let output = directory.join(name);
        let first = MovedImage {
            path: program.to_path_buf(),
            output,
            original: mapped,
            applied,
            has_only_names: false,
        };
        let mut set = Self {
            program,
            directory,
            libraries: Vec::new(),
            moved: vec![first],
            left: Vec::new(),
            rejected: Vec::new(),
        };
        let phase = context.talk.phase("apply", libraries.len() as u64);
        for library in &libraries {
            set.add(library, request, context)?;
            phase.step();
        }
        phase.finish(&format!("{} of {}", set.moved.len(), counted(libraries.len() as u64 + 1, "image")));
        for image in &mut set.moved {
            image.applied.warnings.extend(packages::warning(&image.output));
        }
        Ok(Self { libraries, ..set })
    }

    fn add(&mut self, library: &LoadedLibrary, request: &ElfRequest<'_>, context: &Context) -> Result<()> {
        let path = library.path.clone();
        if library.name.contains('/') {
            let reason = "the program asks for it by a path, not by a name".to_owned();
            self.left.push(LeftLibrary { path, name: None, reason, is_refused: false });
            return Ok(());
        }
        let read = map_image(&path).and_then(|original| {
            let applied = apply_elf(&path, request, context, &original)?;
            Ok((original, applied))
        });
        match read {
            Ok((original, applied)) => {
                let output = self.directory.join(&library.name);
                self.moved.push(MovedImage { path, output, original, applied, has_only_names: false });
            }
            // It has no traces, or it cannot be moved: the loader finds the original.
            Err(error)
                if matches!(error.kind, ErrorKind::Usage | ErrorKind::Refused(_) | ErrorKind::Malformed) =>
            {
                self.rejected.push(LeftImage::new(&library.name, &error));
                let is_refused = !matches!(error.kind, ErrorKind::Usage);
                let name = Some(library.name.clone());
                self.left.push(LeftLibrary { path, name, reason: error.to_string(), is_refused });
            }
            Err(error) => return Err(error.in_file(&path)),
        }
        Ok(())
    }

    /// The libraries that stay, each with the reason where it was refused.
    pub(super) fn left(&self) -> Vec<KeptLibrary> {
        let kept = |library: &LeftLibrary| KeptLibrary {
            library: library.path.display().to_string(),
            refusal: library.is_refused.then(|| library.reason.clone()),
        };
        self.left.iter().map(kept).collect()
    }

    /// Places the names that the loader reads next to each other, in all images that moved and in large libraries that stayed
    /// only because no run executes them. Each result is proven; an image whose result is not proven keeps its names and is told.
    ///
    /// # Errors
    /// Libraries that cannot be read any more.
    pub(super) fn place_names(&mut self, context: &Context) -> Result<()> {
        let staying: Vec<MappedImage> =
            self.left.iter().map(|library| map_image(&library.path)).collect::<Result<_>>()?;
        let originals =
            self.moved.iter().map(|image| &*image.original).chain(staying.iter().map(|image| &**image));
        // An image with broken tables looks nothing up that is known.
        let names: HashSet<Vec<u8>> =
            originals.flat_map(|image| looked_up_names(image).unwrap_or_default()).collect();
        let phase = context.talk.phase("names", (self.moved.len() + self.left.len()) as u64);
        for image in &mut self.moved {
            let placed = proven(&image.original, &image.applied.bytes, &names);
            phase.step();
            match placed {
                Ok(Some(bytes)) => (image.applied.bytes, image.applied.is_unchanged) = (bytes, false),
                Ok(None) => {}
                Err(error) => {
                    let warning =
                        format!("the names in {} stay where they are: {error}", image.path.display());
                    image.applied.warnings.push(warning);
                    self.rejected.push(LeftImage::new(image.path.display().to_string(), &error));
                }
            }
        }
        let mut left = Vec::new();
        for (library, original) in std::mem::take(&mut self.left).into_iter().zip(staying) {
            phase.step();
            let gains =
                !library.is_refused && bytes_of_names(&original).is_ok_and(|bytes| bytes > READ_AHEAD);
            let name = library.name.as_ref().filter(|_| gains);
            match name.map(|name| (name, proven(&original, &original, &names))) {
                Some((name, Ok(Some(bytes)))) => {
                    let output = self.directory.join(name);
                    let mut applied = AppliedFile::with_names(bytes);
                    applied.warnings.extend(packages::warning(&output));
                    let path = library.path;
                    self.moved.push(MovedImage { path, output, original, applied, has_only_names: true });
                }
                Some((name, Err(error))) => {
                    self.rejected.push(LeftImage::new(name, &error));
                    left.push(LeftLibrary { reason: error.to_string(), is_refused: true, ..library });
                }
                Some((_, Ok(None))) | None => left.push(library),
            }
        }
        self.left = left;
        phase.finish(&counted(self.moved.len() as u64, "image"));
        Ok(())
    }

    /// Both versions side by side in a directory of their own, where they can be run.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub(super) fn trial(&self) -> Result<Trial<'_>> {
        let files = self.moved.iter().map(|image| {
            let name = image.output.file_name().unwrap_or_default().to_os_string();
            (name, TrialFile { original: &image.original, result: &image.applied.bytes })
        });
        let environment = |directory: &Path| Ok(vec![(SEARCH_PATH.into(), search_path(directory)?)]);
        Trial::of_set(self.directory, files, environment)
    }

    /// The command line that runs the program with the moved libraries, quoted for a shell.
    ///
    /// # Errors
    /// A directory that the loader cannot search.
    pub(super) fn start(&self) -> Result<String> {
        let quoted = |text: &OsStr| {
            let quoted = shlex::bytes::try_quote(text.as_bytes()).map(|quoted| quoted.into_owned());
            String::from_utf8_lossy(&quoted.unwrap_or_default()).into_owned()
        };
        let program = absolute(self.directory)?.join(self.program.file_name().unwrap_or_default());
        let path = search_path(self.directory)?;
        Ok(format!("{SEARCH_PATH}={} {}", quoted(&path), quoted(program.as_os_str())))
    }

    /// Writes all outputs or none; none of them replaces an input, and the loader finds them.
    ///
    /// # Errors
    /// Inputs that changed meanwhile, a directory that holds one of them or cannot be written, and a loader that would load
    /// something else.
    pub(super) fn write(&self, kept: KeptFiles) -> Result<Vec<Warning>> {
        self.moved.iter().try_for_each(|image| image.original.unchanged())?;
        let directory = self.directory;
        let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        // The innermost first.
        let new: Vec<&Path> = directory.ancestors().take_while(is_missing).collect();
        let made = std::fs::create_dir_all(directory).map_err(|error| Error::io(directory, error));
        let written = made.and_then(|()| self.write_into_directory(kept));
        if written.is_err() {
            for folder in new {
                // Fails for one that was not made, and if another process has put files there, which then stay.
                let _ = std::fs::remove_dir(folder);
            }
        }
        written
    }

    fn write_into_directory(&self, kept: KeptFiles) -> Result<Vec<Warning>> {
        let kept = kept.reads("an image that is read", self.libraries.iter().map(|library| &library.path));
        let kept = kept.reads("an image that is read", [self.program]);
        self.moved
            .iter()
            .try_fold(kept, |kept, image| kept.writes("output", &image.output, "give another directory"))?;
        let files = self.moved.iter().map(|image| {
            Pending::replacing(&image.output, &image.path, &image.applied.bytes, ReplaceOptions::default())
        });
        together_if(files.collect::<Result<_>>()?, || self.check())
    }

    /// Asks the loader what the program would load: it must be the moved libraries, and otherwise what it loaded before.
    fn check(&self) -> Result<()> {
        let Some(MovedImage { output: program, applied, .. }) = self.moved.first() else { return Ok(()) };
        let file = ElfFile::parse(&applied.bytes)?;
        let with_advice = |error: Error| {
            let beside = self.program.parent().filter(|parent| *parent != Path::new(""));
            let advice = format!(
                "nothing was written; if the program looks for libraries beside itself ($ORIGIN), give a directory beside {}",
                beside.unwrap_or(Path::new(".")).display()
            );
            Error::usage(format!("the moved program would not start: {error}")).with_hint(advice)
        };
        let found = loaded_libraries_from(program, &file, Some(&search_path(self.directory)?))
            .map_err(with_advice)?;
        for library in &self.libraries {
            let output = self.moved.iter().skip(1).find(|image| image.path == library.path);
            let expected = output.map_or(&library.path, |image| &image.output);
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
            .with_hint("nothing was written; give a directory without other files")),
        }
    }
}

/// `image` with the names that are looked up next to each other, proven to be `original` otherwise.
fn proven(original: &[u8], image: &[u8], names: &HashSet<Vec<u8>>) -> Result<Option<Vec<u8>>> {
    let Some(bytes) = place_names(image, names)? else { return Ok(None) };
    prove(original, &bytes)?;
    Ok(Some(bytes))
}

fn absolute(directory: &Path) -> Result<PathBuf> {
    std::path::absolute(directory).map_err(|error| Error::io(directory, error))
}

/// The directory, followed by those where the environment tells the loader to look.
fn search_path(directory: &Path) -> Result<OsString> {
    let mut path = absolute(directory)?.into_os_string();
    if path.as_bytes().iter().any(|byte| b":;".contains(byte)) {
        return Err(Error::usage("the loader cannot search directories with : or ; in their path")
            .in_file(directory)
            .with_hint("give another directory"));
    }
    if let Some(rest) = std::env::var_os(SEARCH_PATH).filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    Ok(path)
}
