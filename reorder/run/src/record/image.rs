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
use crate::processor;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::hint::RunPurpose;
use reorder_image::basic_blocks::{LoadedBytes, functions_apart};
use reorder_image::elf::file::{ElfFile, Linkage};
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::{Function, FunctionTable};
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
    /// Sorted by address, each address once.
    pub(super) starts: Vec<FunctionStart>,
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

/// The place of one breakpoint.
#[derive(Debug)]
pub(super) struct FunctionStart {
    /// In the image.
    pub(super) address: Address,
    /// The function's size in bytes.
    pub(super) size: u64,
    /// It shares no byte with another function.
    pub(super) is_apart: bool,
    /// The function's name, if it has one.
    pub(super) name: Option<Box<[u8]>>,
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
        let functions = ElfFunctions::collect(&file).map_err(in_file)?.table;
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
        let starts = function_starts(&file, &functions);
        let is_library = file.linkage == Linkage::PositionIndependent && !is_marked_program(&file);
        Ok(Self {
            path: identity.path.clone().unwrap_or_else(|| path.to_path_buf()),
            identity,
            device_and_inode: (metadata.dev(), metadata.ino()),
            segments,
            starts,
            is_library,
            unknown_percent: unknown_percent(&file, &functions),
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
        let holds = |segment: &CodeSegment| {
            let distance = range.start.0.checked_sub(segment.address.0);
            distance.is_some_and(|distance| distance + arch::BREAKPOINT.len() as u64 <= segment.size)
        };
        let segment = self.segments.iter().position(holds)?;
        self.code(segment, &range).try_into().ok()
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

fn function_starts(file: &ElfFile<'_>, functions: &FunctionTable<'_>) -> Vec<FunctionStart> {
    let mut starts: Vec<FunctionStart> = Vec::with_capacity(functions.len());
    let is_apart = functions_apart(functions);
    // The farthest end of all functions so far, and of those among them that the unwind entries vouch for.
    let (mut end, mut unwind_end) = (Address(0), Address(0));
    for (index, function) in functions.iter() {
        let is_new = starts.last().is_none_or(|last| last.address != function.start);
        if is_new && is_certain(function, end, unwind_end) {
            // A start that is a breakpoint already could not be distinguished from ours.
            if arch::is_aligned(function.start.0)
                && let Some(code) = file.bytes_at(function.start, arch::BREAKPOINT.len() as u64)
                && let Ok(original) = arch::Instruction::try_from(code)
                && !arch::is_breakpoint(original)
            {
                starts.push(FunctionStart {
                    address: function.start,
                    size: function.size(),
                    is_apart: is_apart[index.0 as usize],
                    name: functions.names_at(function.start).next().map(Box::from),
                });
            }
        }
        end = end.max(function.end);
        if function.has_unwind_entry {
            unwind_end = unwind_end.max(function.end);
        }
    }
    starts
}

/// Whether the start of `function` is certainly an instruction: outside all functions before it, or known from an
/// unwind entry and inside a symbol's range only, because sizes of hand-written symbols are often wrong.
fn is_certain(function: &Function, end: Address, unwind_end: Address) -> bool {
    function.start >= end || function.has_unwind_entry && function.start >= unwind_end
}

fn is_marked_program(file: &ElfFile<'_>) -> bool {
    let Some(section) = file.section(b".dynamic") else { return false };
    let (words, _) = file.section_bytes(section).as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    pairs.iter().any(|&[tag, value]| {
        u64::from_le_bytes(tag) == DYNAMIC_FLAGS_1 && u64::from_le_bytes(value) & FLAG_PROGRAM != 0
    })
}
