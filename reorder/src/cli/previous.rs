//! `--previous`: the layout of the last release, and how close a new one is to it.

use std::path::PathBuf;

use clap::Args;

use reorder_base::error::{Error, Result};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_image::macho::{MachOImage, is_macho};
use reorder_layout::previous::{favour, of_build, of_order};
use reorder_layout::{Layout, LayoutRequest, Room};
use reorder_relocate::layout_map::LayoutMap;
use reorder_trace::ResolvedTrace;

/// The first bytes of an ELF file.
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// The layout to stay close to.
#[derive(Args, Clone, Debug, Default)]
pub struct PreviousArguments {
    /// Stay close to the layout of the last release, so that updates are small, as far as recorded startups then need at most
    /// 1 % more pages: its image, or its order file
    #[arg(long, value_name = "FILE", conflicts_with = "compress")]
    previous: Option<PathBuf>,
}

/// What a new layout is made for.
#[derive(Clone, Copy)]
pub struct NewLayout<'a> {
    /// The image's functions.
    pub functions: &'a FunctionTable<'a>,
    /// The startups.
    pub traces: &'a [ResolvedTrace],
    /// Where functions can be placed.
    pub room: Room<'a>,
    /// How it was made.
    pub request: &'a LayoutRequest,
    /// The architecture to use from a universal file.
    pub architecture: Option<&'a str>,
}

impl PreviousArguments {
    /// Refuses a last release where no function moves.
    ///
    /// # Errors
    /// When one is named.
    pub fn refuse_without_moves(&self) -> Result<()> {
        match &self.previous {
            None => Ok(()),
            Some(_) => Err(Error::usage(
                "--previous places functions; --layout blocks moves none, and --layout auto may move none",
            )
            .with_hint("leave out --previous, or use --layout functions")),
        }
    }

    /// Whether the file can be read, before anything that takes long.
    ///
    /// # Errors
    /// An unreadable file.
    pub fn check(&self) -> Result<()> {
        let Some(path) = &self.previous else { return Ok(()) };
        std::fs::File::open(path).map(drop).map_err(|error| Error::io(path, error))
    }

    /// The file, for messages about files that are read.
    pub fn file(&self) -> Option<PathBuf> {
        self.previous.clone()
    }

    /// `layout`, close to the last release's if one is named, and what that costs.
    ///
    /// # Errors
    /// An unreadable file, one without a function of the image, a map.
    pub fn favour(&self, layout: Layout, new: NewLayout<'_>) -> Result<Layout> {
        let Some(previous) = self.read(new)? else { return Ok(layout) };
        if !new.request.strategy.needs_traces() {
            return Err(Error::usage(
                "--previous weighs pages of recorded startups, and this strategy reads no traces",
            )
            .with_hint("leave out --strategy, and give traces with -t"));
        }
        favour(layout, &previous, new.functions, new.traces, new.room, new.request)
    }

    fn read(&self, new: NewLayout<'_>) -> Result<Option<Vec<FunctionIndex>>> {
        let Some(path) = &self.previous else { return Ok(None) };
        let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
        if LayoutMap::is_map(&bytes) {
            return Err(Error::usage("a map has addresses of one build, which say nothing about another")
                .in_file(path)
                .with_hint("name the image that was written with the map: --previous IMAGE"));
        }
        let functions = new.functions;
        let previous = if is_macho(&bytes) {
            MachOImage::parse(&bytes, new.architecture)
                .map(|image| of_build(functions, &image.names.functions()))
        } else if bytes.starts_with(ELF_MAGIC) {
            ElfFile::parse_any_processor(&bytes)
                .and_then(|file| Ok(of_build(functions, &ElfFunctions::collect(&file)?.table)))
        } else {
            Ok(of_order(&bytes, functions))
        }
        .map_err(|error| error.in_file(path))?;
        if previous.is_empty() {
            return Err(Error::usage("the last release has no function of this image")
                .in_file(path)
                .with_hint("name an image or order file of the same program, with symbols"));
        }
        Ok(Some(previous))
    }
}
