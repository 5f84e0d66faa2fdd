//! An image of any kind that traces can belong to.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use crate::memory::{self, Memory, MemoryModel};
use reorder_base::address::Address;
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_base::hint::Hint;
use reorder_base::processor::Processor;
use reorder_base::refusal::Refusal;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::FunctionTable;
use reorder_image::macho::analysis::MachOAnalysis;
use reorder_image::macho::{MachOImage, is_macho};
use reorder_image::pins::Pin;
use reorder_trace::{ExecutedBlocks, ImageIdentity, ResolvedTrace, executed_blocks};

/// The analysis of an image whose functions can be moved.
pub enum OpenedAnalysis<'image> {
    /// Of an ELF image, which comes with it.
    Elf {
        /// The image.
        file: &'image ElfFile<'image>,
        /// Its functions.
        functions: &'image ElfFunctions<'image>,
        /// Its analysis.
        analysis: Box<Analysis<'image>>,
    },
    /// Of a Mach-O image.
    MachO(Box<MachOAnalysis>),
}

impl OpenedAnalysis<'_> {
    /// Why the function at `address` stays; `None` for those that can be moved.
    #[must_use]
    pub fn pin_at(&self, address: Address) -> Option<Pin> {
        match self {
            Self::Elf { analysis, .. } => analysis.pin_at(address),
            Self::MachO(analysis) => analysis.pin_at(address),
        }
    }
}

/// Why no function of an image can be moved.
#[derive(Debug)]
pub enum Stays {
    /// Images of this kind are not relocated, only ordered by the linker.
    UnknownKind,
    /// A global obligation failed.
    Refused(Box<Refusal>),
}

/// An ELF image for any processor, or one architecture of a Mach-O image.
pub enum OpenedImage<'data> {
    /// Linux, Android; with its functions.
    Elf(ElfFile<'data>, Box<ElfFunctions<'data>>),
    /// iOS, macOS.
    MachO(Box<MachOImage<'data>>),
}

/// Refuses the choice of an architecture in files that are not Mach-O.
///
/// # Errors
/// When an architecture is asked for.
pub fn refuse_architecture(architecture: Option<&str>) -> Result<()> {
    match architecture {
        None => Ok(()),
        Some(_) => Err(Error::usage("an ELF file has one image, so no architecture can be chosen")
            .with_hint(Hint::LeaveOutArchitecture)),
    }
}

impl<'data> OpenedImage<'data> {
    /// Reads the image; of a universal file the one for `architecture`.
    ///
    /// # Errors
    /// Damaged files, those of other kinds, and an architecture of a file that is not Mach-O.
    pub fn parse(bytes: &'data [u8], architecture: Option<&str>) -> Result<Self> {
        if is_macho(bytes) {
            return MachOImage::parse(bytes, architecture).map(Box::new).map(Self::MachO);
        }
        refuse_architecture(architecture)?;
        let file = ElfFile::parse_any_processor(bytes)?;
        let functions = ElfFunctions::collect(&file)?;
        Ok(Self::Elf(file, Box::new(functions)))
    }

    /// Adds those of the `learned` functions that fit; see [`ElfFunctions::with_learned`].
    ///
    /// # Errors
    /// Damaged tables.
    pub fn with_learned(self, learned: impl IntoIterator<Item = Range<Address>>) -> Result<Self> {
        match self {
            Self::Elf(file, functions) => {
                let functions = functions.with_learned(&file, learned)?;
                Ok(Self::Elf(file, Box::new(functions)))
            }
            Self::MachO(image) => Ok(Self::MachO(image)),
        }
    }

    /// Whether most of its code is in no described function, so that traces can add functions.
    #[must_use]
    pub fn is_little_described(&self) -> bool {
        matches!(self, Self::Elf(_, functions) if !functions.found.is_empty())
    }

    /// Its functions.
    #[must_use]
    pub fn functions(&self) -> Cow<'_, FunctionTable<'_>> {
        match self {
            Self::Elf(_, functions) => Cow::Borrowed(&functions.table),
            Self::MachO(image) => Cow::Owned(image.names.functions()),
        }
    }

    /// The executed basic blocks of `traces`, where one of them has any.
    #[must_use]
    pub fn executed(
        &self,
        traces: &[ResolvedTrace],
        functions: &FunctionTable<'_>,
    ) -> Option<ExecutedBlocks> {
        let has_blocks = traces.iter().any(|trace| !trace.blocks.is_empty());
        match self {
            Self::Elf(file, _) if has_blocks => Some(executed_blocks(traces, file, functions)),
            Self::Elf(..) | Self::MachO(_) => None,
        }
    }

    /// How traces identify the image at `path`.
    #[must_use]
    pub fn identity(&self, path: &Path) -> ImageIdentity {
        match self {
            Self::Elf(file, _) => ImageIdentity::of(path, file.build_id()),
            Self::MachO(image) => ImageIdentity::of(path, image.uuid),
        }
    }

    /// Where the code is, in address order: executable segments, of Mach-O sections of instructions.
    #[must_use]
    pub fn text(&self) -> Vec<Range<Address>> {
        let mut text: Vec<Range<Address>> = match self {
            Self::Elf(file, _) => {
                let segments =
                    file.segments.iter().filter(|segment| segment.is_load() && segment.is_executable());
                segments.map(|segment| segment.address..segment.address.plus(segment.file_size)).collect()
            }
            Self::MachO(image) => image.names.code.iter().map(|&(start, end)| start..end).collect(),
        };
        text.sort_unstable_by_key(|range| range.start);
        text
    }

    /// The analysis that decides where functions may go, or why there is none.
    ///
    /// # Errors
    /// Damaged tables.
    pub fn analysis(&self) -> Result<std::result::Result<OpenedAnalysis<'_>, Stays>> {
        let analysis = match self {
            Self::Elf(file, _) if file.processor == Processor::Other => return Ok(Err(Stays::UnknownKind)),
            Self::Elf(file, functions) => Analysis::new(file, functions)
                .map(|analysis| OpenedAnalysis::Elf { file, functions, analysis: Box::new(analysis) }),
            Self::MachO(image) => image
                .checked()
                .and_then(|file| MachOAnalysis::new(&file))
                .map(|analysis| OpenedAnalysis::MachO(Box::new(analysis))),
        };
        match analysis {
            Ok(analysis) => Ok(Ok(analysis)),
            Err(Error { kind: ErrorKind::Refused(refusal), .. }) => Ok(Err(Stays::Refused(refusal))),
            Err(error) => Err(error),
        }
    }

    /// The image if it is one of ELF for x86-64.
    #[must_use]
    pub fn elf_for_x86_64(&self) -> Option<&ElfFile<'data>> {
        match self {
            Self::Elf(file, _) if file.processor == Processor::X86_64 => Some(file),
            _ => None,
        }
    }

    /// The default memory that its layouts are made for.
    #[must_use]
    pub fn default_memory(&self) -> Memory {
        match self {
            Self::Elf(..) => Memory::default(),
            Self::MachO(image) => Memory::of_macho(image.architecture),
        }
    }

    /// The default memory models for its simulation.
    #[must_use]
    pub fn default_models(&self) -> Vec<MemoryModel> {
        match self {
            Self::Elf(..) => memory::default_for_elf(),
            Self::MachO(image) => memory::default_for_macho(image.architecture),
        }
    }
}
