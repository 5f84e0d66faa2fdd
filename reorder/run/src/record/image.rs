//! An image to be traced: its identity and where breakpoints may be placed.
//!
//! Takes a file; gives the proven function starts. Guarantee: each start is the first byte of an instruction that
//! belongs to a function, in a section of code, and is not itself a breakpoint.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::code::CodeOfFunctions;
use super::known_code::unknown_percent;
use super::starts::FunctionStarts;
use super::unknown_code::UnknownCode;
use crate::processor;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::hint::RunPurpose;
use reorder_image::basic_blocks::LoadedBytes;
use reorder_image::elf::file::{ElfFile, Linkage};
use reorder_image::elf::functions::ElfFunctions;
use reorder_system::arch;
use reorder_system::mapped::{MappedImage, map_image};
use reorder_trace::ImageIdentity;

/// An image and its function starts.
#[derive(Debug)]
pub(super) struct TracedImage {
    /// Absolute path and build-id.
    pub(super) identity: ImageIdentity,
    path: PathBuf,
    device_and_inode: (u64, u64),
    bytes: MappedImage,
    /// Where these bytes are in memory.
    pub(super) loaded: LoadedBytes,
    /// The functions that were read.
    pub(super) functions: CodeOfFunctions,
    /// The executable segments.
    pub(super) segments: Vec<CodeSegment>,
    /// Where functions begin.
    pub(super) starts: FunctionStarts,
    /// Where more functions may be learned, if the image describes little of its code.
    pub(super) unknown: Option<UnknownCode>,
    /// The share of its code that is in no known function, in percent.
    pub(super) unknown_percent: u64,
    /// Mapped by the loader as a library, as opposed to executed as a program.
    pub(super) is_library: bool,
}

/// An executable segment's file part.
#[derive(Debug)]
pub(super) struct CodeSegment {
    /// First byte in the file.
    pub(super) offset: u64,
    /// First address in the image.
    pub(super) address: Address,
    /// Bytes in the file; these lie inside it.
    pub(super) size: u64,
}

/// `DT_FLAGS_1` and its bit for position-independent programs.
const DYNAMIC_FLAGS_1: u64 = 0x6fff_fffb;
const FLAG_PROGRAM: u64 = 0x0800_0000;

impl TracedImage {
    /// Reads the image at `path`.
    ///
    /// # Errors
    /// Unreadable or malformed files, and files that are no images for this processor with section headers.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let in_file = |error: Error| error.in_file(path);
        let bytes = map_image(path)?;
        let metadata = fs::metadata(path).map_err(|error| Error::io(path, error))?;
        let file = ElfFile::parse(&bytes).map_err(in_file)?;
        processor::check(file.processor, RunPurpose::Record).map_err(in_file)?;
        let functions = ElfFunctions::collect(&file).map_err(in_file)?;
        let identity = ImageIdentity::of(path, file.build_id());
        let segments = file
            .segments
            .iter()
            .filter(|segment| segment.is_load() && segment.is_executable())
            .map(|segment| CodeSegment {
                offset: segment.offset.0,
                address: segment.address,
                size: segment.file_size,
            })
            .collect();
        let starts = FunctionStarts::of(&file, &functions.table);
        let is_library = file.linkage == Linkage::PositionIndependent && !is_marked_program(&file);
        Ok(Self {
            path: identity.path.clone().unwrap_or_else(|| path.to_path_buf()),
            identity,
            device_and_inode: (metadata.dev(), metadata.ino()),
            segments,
            starts,
            unknown: UnknownCode::of(&file, &functions),
            is_library,
            unknown_percent: unknown_percent(&file, &functions.table),
            loaded: LoadedBytes::new(&file),
            functions: CodeOfFunctions::default(),
            bytes,
        })
    }

    /// Whether `path` leads to this file; `spelled` is the same path as this process must open it.
    pub(super) fn is_file(&self, path: &Path, spelled: &Path) -> bool {
        self.path == path
            || fs::metadata(spelled)
                .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.device_and_inode)
    }

    /// The file's bytes for `range`, which lies in executable segment number `segment`.
    pub(super) fn code(&self, segment: usize, range: &Range<Address>) -> &[u8] {
        let segment = &self.segments[segment];
        let offset = |address: Address| (segment.offset + address.distance_from(segment.address)) as usize;
        &self.bytes[offset(range.start)..offset(range.end)]
    }

    /// The whole file.
    pub(super) fn file(&self) -> &[u8] {
        &self.bytes
    }

    /// What a breakpoint at `address` replaces; `None` where no executable segment holds it.
    pub(super) fn instruction_at(&self, address: Address) -> Option<arch::Instruction> {
        let range = address..Address(address.0.checked_add(arch::BREAKPOINT.len() as u64)?);
        self.code_at(&range)?.try_into().ok()
    }

    /// The file's bytes for `range`; `None` where no executable segment holds it.
    pub(super) fn code_at(&self, range: &Range<Address>) -> Option<&[u8]> {
        let holds = |segment: &CodeSegment| {
            let distance = range.end.0.checked_sub(segment.address.0);
            segment.address <= range.start && distance.is_some_and(|distance| distance <= segment.size)
        };
        let segment = self.segments.iter().position(holds)?;
        Some(self.code(segment, range))
    }

    /// Where it was read from.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Name for files made from this image.
    pub(super) fn file_name(&self) -> String {
        self.path.file_name().map_or_else(|| "image".to_owned(), |name| name.to_string_lossy().into_owned())
    }
}

fn is_marked_program(file: &ElfFile<'_>) -> bool {
    let Some(section) = file.section(b".dynamic") else { return false };
    let (words, _) = file.section_bytes(section).as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    pairs.iter().any(|&[tag, value]| {
        u64::from_le_bytes(tag) == DYNAMIC_FLAGS_1 && u64::from_le_bytes(value) & FLAG_PROGRAM != 0
    })
}
