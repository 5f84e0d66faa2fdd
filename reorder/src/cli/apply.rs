//! `reorder apply`: relocates the functions of a finished image, in place.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::apply::{Applied, ApplySummary, PinnedFunction, apply, layout_map};
use crate::cli::arrangement::ArrangementArguments;
use crate::cli::context::Context;
use crate::error::{Error, Result};
use crate::exit_status::ExitStatus;
use crate::image::analysis::Analysis;
use crate::image::elf::file::ElfFile;
use crate::image::functions::FunctionTable;
use crate::image::mapped::map_image;
use crate::relocate::RelocateOptions;
use crate::relocate::debug::DebugPolicy;
use crate::relocate::layout_map::LayoutMap;
use crate::report::Report;
use crate::report::table::{Table, grouped};
use crate::write::{ReplaceOptions, replace, whole};

const EXAMPLES: &str = "\
Examples:
  reorder apply ./program -t traces -o program.fast
  reorder apply ./program --order program.order -o program.fast --map program.map
  reorder apply program.fast --order program.map -o program.again    # back to the input, byte for byte
  reorder apply ./program --strategy random --seed 7 -o program.shuffled";

/// Relocate functions inside the finished image: same size, same sections, proven
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct ApplyArguments {
    /// The program or shared object; never modified unless --in-place
    image: PathBuf,
    #[command(flatten)]
    arrangement: ArrangementArguments,
    /// Where the result goes
    #[arg(short, long, required_unless_present = "in_place")]
    output: Option<PathBuf>,
    /// Replace IMAGE itself, atomically
    #[arg(long, conflicts_with = "output")]
    in_place: bool,
    #[command(flatten)]
    options: RelocateArguments,
    /// Also write the address map, which symbolizers can use and which leads back to the input
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
}

/// How an image is rewritten.
#[derive(Args, Clone, Debug)]
pub struct RelocateArguments {
    /// What happens to debug information, which a move makes wrong
    #[arg(long, value_enum)]
    debug: Option<DebugArgument>,
    /// Keep the build-id although the layout differs
    #[arg(long)]
    keep_build_id: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DebugArgument {
    /// Empty the debug sections; the file keeps its size until it is stripped
    Drop,
    /// Leave them: debuggers will show wrong lines and variables
    KeepStale,
}

impl RelocateArguments {
    /// The library's options.
    pub fn options(&self) -> RelocateOptions {
        RelocateOptions {
            debug: self.debug.map(|choice| match choice {
                DebugArgument::Drop => DebugPolicy::Drop,
                DebugArgument::KeepStale => DebugPolicy::KeepStale,
            }),
            keep_build_id: self.keep_build_id,
        }
    }
}

#[derive(Serialize)]
struct ApplyReport<'run> {
    output: String,
    file_bytes: usize,
    is_unchanged: bool,
    #[serde(flatten)]
    summary: &'run ApplySummary,
}

impl Report for ApplyReport<'_> {
    const COMMAND: &'static str = "apply";

    fn text(&self) -> String {
        let summary = self.summary;
        let mut text = format!(
            "{}: {} of {} functions moved, {} pinned; {} bytes as before; verified\n",
            self.output,
            grouped(summary.functions_moved as u64),
            grouped(summary.functions as u64),
            grouped(summary.pinned.len() as u64),
            grouped(self.file_bytes as u64),
        );
        if self.is_unchanged {
            text.push_str("nothing moved: the output equals the input\n");
        }
        text.push_str(&pins_text(&summary.pinned, SHOWN_PINS));
        text
    }
}

/// The largest pinned functions, with their reasons.
pub fn pins_text(pinned: &[PinnedFunction], shown: usize) -> String {
    if pinned.is_empty() {
        return String::new();
    }
    let mut largest: Vec<&PinnedFunction> = pinned.iter().collect();
    largest.sort_by_key(|function| (std::cmp::Reverse(function.size_bytes), function.address));
    let mut table = Table::new(["pinned", "address", "bytes", "because", "evidence"]);
    for function in largest.iter().take(shown) {
        table.row([
            function.name.clone(),
            function.address.to_string(),
            grouped(function.size_bytes),
            function.reason.to_string(),
            function.evidence.to_string(),
        ]);
    }
    let mut text = format!("\n{}", table.render());
    if pinned.len() > shown {
        text.push_str(&format!("… and {} more (all of them with --format json)\n", pinned.len() - shown));
    }
    text
}

const SHOWN_PINS: usize = 10;

/// Applies an order and writes the proven result.
///
/// # Errors
/// Refusals, unreadable inputs, an output that cannot be written; nothing is written then.
pub fn run(arguments: &ApplyArguments, context: &Context) -> Result<ExitStatus> {
    let mapped = map_image(&arguments.image)?;
    let applied =
        apply_mapped(arguments, context, &mapped).map_err(|error| error.in_file(&arguments.image))?;
    let (applied, map) = applied;
    let output = arguments.output.as_ref().unwrap_or(&arguments.image);
    let options = ReplaceOptions { in_place: arguments.in_place };
    // The map first: with --in-place it is the only way back.
    if let (Some(path), Some(map)) = (&arguments.map, map) {
        refuse_same_file(path, [&arguments.image, output])?;
        whole(path, map.write().as_bytes())?;
    }
    let warnings = replace(output, &arguments.image, &applied.bytes, options)?;
    warnings.iter().for_each(|warning| context.talk.warning(&warning.to_string(), None));
    context.print(&ApplyReport {
        output: output.display().to_string(),
        file_bytes: applied.bytes.len(),
        is_unchanged: applied.map.is_identity(),
        summary: &applied.summary,
    })?;
    Ok(ExitStatus::Success)
}

/// The map must not take the place of an image.
fn refuse_same_file(map: &Path, images: [&PathBuf; 2]) -> Result<()> {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let is_same = images
        .into_iter()
        .any(|image| image == map || identity(map).is_some() && identity(map) == identity(image));
    match is_same {
        true => Err(Error::usage("the map would replace an image")
            .in_file(map)
            .with_hint("give another --map FILE")),
        false => Ok(()),
    }
}

fn apply_mapped(
    arguments: &ApplyArguments,
    context: &Context,
    bytes: &[u8],
) -> Result<(Applied, Option<LayoutMap>)> {
    let file = ElfFile::parse(bytes)?;
    let functions = FunctionTable::collect(&file)?;
    let analysis = {
        let _phase = tracing::info_span!("analyse").entered();
        Analysis::new(&file, &functions)?
    };
    let wanted =
        arguments.arrangement.wanted(&arguments.image, &file, &functions, &analysis, &context.talk)?;
    let applied = apply(&file, &functions, &analysis, wanted.arrangement(), arguments.options.options())?;
    let map = match arguments.map {
        Some(_) => Some(layout_map(&file, &functions, &applied, arguments.options.options())?),
        None => None,
    };
    Ok((applied, map))
}
