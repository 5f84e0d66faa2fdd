//! `reorder apply`: moves the functions of a finished image, in place.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::cli::applied::{AppliedFile, LeftImage, status_of};
use crate::cli::apply_elf::{CloneChoice, ElfRequest, LayoutKind, apply_elf};
use crate::cli::apply_macho::{MachORequest, apply_file};
use crate::cli::apply_set;
use crate::cli::apply_wheel::apply_wheel;
use crate::cli::arrangement::ArrangementArguments;
use crate::cli::check_args::CheckArguments;
use crate::cli::context::Context;
use crate::cli::kept_inputs::KeptFiles;
use crate::cli::pins::{HEAVIEST, pins_text};
use crate::cli::relocate_args::{MachOArguments, RelocateArguments};
use crate::cli::trades;
use crate::exit_status::ExitStatus;
use crate::names::shown;
use crate::packages;
use crate::wheel::is_archive;
use reorder_base::error::{Error, Result};
use reorder_image::elf::analysis::obligations::COPIES;
use reorder_image::macho::is_macho;
use reorder_layout::Traded;
use reorder_relocate::apply::ApplySummary;
use reorder_relocate::apply::clones::CloneSummary;
use reorder_relocate::layout_map::LayoutMap;
use reorder_report::table::{Table, counted, grouped};
use reorder_report::{Report, Width};
use reorder_run::check::{CheckedRun, Trial, TrialFile};
use reorder_system::interruption::Interruption;
use reorder_system::mapped::map_image;
use reorder_system::write::{Pending, Place, ReplaceOptions, together};

const EXAMPLES: &str = "\
Examples:
  reorder apply ./program -t traces -o program.fast
  reorder apply ./program --order program.order -o program.fast --map program.map
  reorder apply program.fast --order program.map -o program.again    # back to the input, byte for byte, if it has no
                                                                     # debug information; else add --debug keep-stale to both
  reorder apply ./program -t traces -o program.fast --check '--version' --check 'sort \"my file\"'
  reorder apply ./program -t traces --set fast                  # with the libraries of `record --libraries`
  reorder apply ./program --strategy random --seed 7 -o program.shuffled
  reorder apply ./program -t traces --clone -o program.fast     # copies of what cannot move; the file grows
  reorder apply package.whl -t traces -o moved/package.whl      # a Python wheel, its digests updated
  reorder apply MyApp -t profiles -o MyApp.new                  # Mach-O: sign it again
  reorder apply MyApp -t profiles --arch arm64 -o MyApp.new     # of a universal file";

/// Move the functions of a finished image: same sections, same behaviour, proven
///
/// ELF files keep their size unless debug information is updated or --clone adds copies. Mach-O files may change slightly in
/// size, and get a new UUID and an ad-hoc signature.
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct ApplyArguments {
    /// The program, shared object, dylib, bundle or Python wheel; modified only with --in-place
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    #[command(flatten)]
    arrangement: ArrangementArguments,
    /// Write the result to this file
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["in_place", "set"])]
    output: Option<PathBuf>,
    /// Move the program and those libraries loaded at startup that have traces, and write them to this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "in_place", "map", "order", "previous", "architecture", "most_pinned", "allow_swift_pins"])]
    set: Option<PathBuf>,
    /// Replace IMAGE itself, atomically
    #[arg(long, conflicts_with = "output")]
    in_place: bool,
    #[command(flatten)]
    options: RelocateArguments,
    #[command(flatten)]
    macho: MachOArguments,
    /// What to lay out: functions, or copies of the code that recorded runs execute
    #[arg(long, value_enum, value_name = "WHAT", default_value_t, conflicts_with_all = ["clone", "architecture", "most_pinned", "allow_swift_pins"])]
    layout: LayoutKind,
    /// Copy functions used at startup into a new segment: those that cannot move, or all; the file grows
    #[arg(long, value_enum, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "stayed", conflicts_with_all = ["map", "architecture", "most_pinned", "allow_swift_pins"])]
    clone: Option<CloneArgument>,
    /// Also write the address map, which symbolizers can use; it restores the input unless debug information was rewritten
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    #[command(flatten)]
    check: CheckArguments,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CloneArgument {
    /// Functions that cannot move in place
    Stayed,
    /// All functions used at startup; no function moves in place
    All,
}

impl CloneArgument {
    fn choice(self) -> CloneChoice {
        match self {
            Self::Stayed => CloneChoice::Stayed,
            Self::All => CloneChoice::All,
        }
    }
}

#[derive(Serialize)]
struct ApplyReport<'run> {
    output: String,
    file_bytes: usize,
    bytes_before: usize,
    is_unchanged: bool,
    /// The runs in which original and result behaved alike.
    checks: &'run [CheckedRun],
    /// Images of the file that were left unchanged.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    left: &'run [LeftImage],
    #[serde(flatten)]
    summary: &'run ApplySummary,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'run [String],
    #[serde(flatten)]
    traded: &'run Traded,
}

impl Report for ApplyReport<'_> {
    const COMMAND: &'static str = "apply";

    fn text(&self, width: Width) -> String {
        let summary = self.summary;
        let mut text = pins_text(&summary.pinned, HEAVIEST, width);
        if let Some(clones) = &summary.clones {
            text.push_str(&clones_text(clones, width));
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&trades::text(self.traded));
        text.extend(self.checks.iter().map(CheckedRun::text));
        for image in self.left {
            text.push_str(&format!("{} stays as it was: {}\n", image.image, image.reason));
        }
        if summary.clones.is_none() && self.is_unchanged {
            text.push_str("no function moved: the output equals the input\n");
        }
        text.push_str(&format!(
            "{}: {} of {} moved, {} pinned; {}; verified\n",
            self.output,
            grouped(summary.functions_moved as u64),
            counted(summary.functions as u64, "function"),
            grouped(summary.pinned.len() as u64),
            match self.file_bytes == self.bytes_before {
                true => format!("{} bytes as before", grouped(self.file_bytes as u64)),
                false => format!(
                    "{} bytes, {} before",
                    grouped(self.file_bytes as u64),
                    grouped(self.bytes_before as u64)
                ),
            },
        ));
        text
    }
}

/// What was copied, and what could not be copied.
fn clones_text(clones: &CloneSummary, width: Width) -> String {
    let mut text = String::new();
    if !clones.skipped.is_empty() {
        let titles = ["not copied", "address", "because", "evidence"];
        let mut table = Table::new(titles).with_texts([2]);
        for function in clones.skipped.iter().take(HEAVIEST) {
            table.row([
                shown(function.name.as_bytes()),
                function.address.to_string(),
                function.obstacle.to_string(),
                function.evidence.to_string(),
            ]);
        }
        text.push_str(&format!("\n{}\n", table.render(width)));
    }
    text.push_str(&format!(
        "{} copied in {} ({}) into {COPIES}; {} that startup uses stay\n",
        counted(clones.functions as u64, "function"),
        counted(clones.fragments as u64, "fragment"),
        counted(clones.bytes, "byte"),
        grouped(clones.skipped.len() as u64),
    ));
    if clones.functions_saving_no_page > 0 {
        text.push_str(&format!(
            "{} not copied: other code needs all of their pages anyway\n",
            counted(clones.functions_saving_no_page as u64, "function")
        ));
    }
    text
}

/// Applies an order and writes the proven result.
///
/// # Errors
/// Refusals, unreadable inputs, an output that cannot be written; nothing is written then.
pub fn run(arguments: &ApplyArguments, context: &Context) -> Result<ExitStatus> {
    let request = ElfRequest {
        arrangement: &arguments.arrangement,
        options: arguments.options.options(),
        with_map: arguments.map.is_some(),
        clones: arguments.clone.map(CloneArgument::choice),
        layout: arguments.layout,
    };
    arguments.options.check_map(arguments.map.is_some())?;
    if let Some(directory) = &arguments.set {
        return apply_set::run(&arguments.image, directory, &request, &arguments.check, context);
    }
    let output = arguments.output.as_ref().unwrap_or(&arguments.image);
    let kept = kept_files(arguments, output)?;
    let mapped = map_image(&arguments.image)?;
    arguments.check.refuse_unless_runnable(&arguments.image, &mapped)?;
    let applied = match is_macho(&mapped) {
        true => apply_macho(arguments, context, &mapped),
        false if is_archive(&mapped) => apply_to_wheel(arguments, &request, context, &mapped),
        false => {
            let refused = arguments.macho.refuse_for_elf();
            refused.and_then(|()| apply_elf(&arguments.image, &request, context, &mapped))
        }
    };
    let applied = mapped.explaining(applied);
    let mut applied = applied.map_err(|error| error.in_file(&arguments.image))?;
    let options = ReplaceOptions { in_place: arguments.in_place };
    let one_way = is_one_way(arguments, &applied.maps)?;
    applied.warnings.extend(one_way.map(str::to_owned));
    applied.warnings.extend(packages::warning(output));
    let maps = arguments.map.as_deref().map(|path| map_files(path, &applied.maps)).unwrap_or_default();
    maps.iter().try_fold(kept, |kept, (path, _)| kept.writes("map", path, "give another --map FILE"))?;
    // Dropped after the files: a signal that ended this process earlier would leave them beside their destinations.
    let _interruption = Interruption::note();
    // The image last: with --in-place the map is the only way back.
    let mut files = maps
        .iter()
        .map(|(path, map)| Pending::whole(path, map.write().as_bytes()))
        .collect::<Result<Vec<_>>>()?;
    files.push(Pending::replacing(output, &arguments.image, &applied.bytes, options)?);
    let checks = checked(arguments, output, &mapped, &applied.bytes, context)?;
    mapped.unchanged()?;
    let warnings = together(files)?;
    warnings.iter().for_each(|warning| context.talk.warning(&warning.to_string(), None));
    applied.warnings.iter().for_each(|warning| context.talk.warning(warning, None));
    context.print(&ApplyReport {
        output: output.display().to_string(),
        file_bytes: applied.bytes.len(),
        bytes_before: mapped.len(),
        is_unchanged: applied.is_unchanged,
        checks: &checks,
        left: &applied.left,
        summary: &applied.summary,
        warnings: &applied.warnings,
        traded: &applied.traded,
    })?;
    Ok(status_of(&applied.left))
}

/// Runs original and result side by side, if checks are requested.
fn checked(
    arguments: &ApplyArguments,
    output: &Path,
    original: &[u8],
    result: &[u8],
    context: &Context,
) -> Result<Vec<CheckedRun>> {
    if !arguments.check.is_asked_for() {
        return Ok(Vec::new());
    }
    let trial = Trial::beside(output, TrialFile { original, result })?;
    arguments.check.run(&arguments.image, &trial, context)
}

/// Where each map goes: a single one to the given name, several with the processor's name appended.
fn map_files<'maps>(
    path: &Path,
    maps: &'maps [(&'static str, LayoutMap)],
) -> Vec<(PathBuf, &'maps LayoutMap)> {
    if let [(_, map)] = maps {
        return vec![(path.to_path_buf(), map)];
    }
    let with_name = |name: &str| {
        let mut path = path.as_os_str().to_owned();
        path.push(format!(".{name}"));
        PathBuf::from(path)
    };
    maps.iter().map(|(name, map)| (with_name(name), map)).collect()
}

/// Everything that is read, which a map must not replace, and the output, which may replace only the image.
fn kept_files(arguments: &ApplyArguments, output: &Path) -> Result<KeptFiles> {
    let read = arguments.arrangement.files()?;
    let read = read.iter().fold(KeptFiles::default(), |kept, (what, files)| kept.reads(what, files));
    let read = read.reads("the input of checked runs", arguments.check.input());
    let kept = read.writes("output", output, "give another -o FILE")?;
    Place::of(output)?;
    Ok(kept.reads("an image", [&arguments.image]))
}

/// The warning for a map that cannot restore the input.
///
/// # Errors
/// The map could not restore an image that is about to be replaced.
fn is_one_way(
    arguments: &ApplyArguments,
    maps: &[(&'static str, LayoutMap)],
) -> Result<Option<&'static str>> {
    match (maps.iter().any(|(_, map)| map.is_one_way), arguments.in_place) {
        (false, _) => Ok(None),
        (true, false) => Ok(Some(
            "the map cannot restore the input, because debug information was rewritten: keep the input, or use --debug keep-stale",
        )),
        (true, true) => Err(Error::usage(
            "the map could not restore the image that is replaced, because its debug information is rewritten",
        )
        .with_hint("add --debug keep-stale or --debug map, whose maps restore the image; or write to -o FILE and keep the image")),
    }
}

fn apply_macho(arguments: &ApplyArguments, context: &Context, bytes: &[u8]) -> Result<AppliedFile> {
    if arguments.clone.is_some() {
        return Err(Error::usage("--clone applies only to ELF images").with_hint("leave out --clone"));
    }
    arguments.options.refuse_for_macho()?;
    apply_file(&macho_request(arguments), bytes, context)
}

fn macho_request(arguments: &ApplyArguments) -> MachORequest<'_> {
    MachORequest {
        path: &arguments.image,
        arrangement: &arguments.arrangement,
        architecture: arguments.macho.architecture.as_deref(),
        options: arguments.macho.options(),
        with_maps: arguments.map.is_some(),
    }
}

fn apply_to_wheel(
    arguments: &ApplyArguments,
    request: &ElfRequest<'_>,
    context: &Context,
    bytes: &[u8],
) -> Result<AppliedFile> {
    if arguments.map.is_some() {
        return Err(Error::usage("a map describes one image, and a wheel may hold many")
            .with_hint("leave out --map, or unpack the wheel and give its images one by one"));
    }
    apply_wheel(request, &macho_request(arguments), bytes, context)
}
