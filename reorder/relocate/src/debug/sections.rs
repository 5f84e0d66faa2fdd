//! The sections of debug information, as they are without compression.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::ZlibDecoder;
use gimli::{EndianSlice, LittleEndian, SectionId};

use crate::debug::policy::is_debug_name;
use reorder_base::address::{Address, FileOffset};
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;
use reorder_base::little_endian::u64_at;
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::section::{Section, SectionIndex};

/// What the units are read from.
pub type Slice<'data> = EndianSlice<'data, LittleEndian>;

/// How a section is stored in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Uncompressed.
    Plain,
    /// `SHF_COMPRESSED`: a header with type and alignment, then the stream.
    Header {
        /// `ch_type`: 1 zlib, 2 zstd.
        kind: u32,
        /// `ch_addralign`.
        alignment: u64,
    },
    /// `.zdebug_…`: "ZLIB", the size in eight bytes, big-endian, then the stream.
    OldZlib,
    /// `.gnu_debugdata`: an image in the format of xz.
    Xz,
}

/// One section's contents, decompressed.
#[derive(Clone, Debug)]
pub struct DebugSection<'data> {
    /// Its header.
    pub section: Section<'data>,
    /// Its name as if it were not compressed, such as `.debug_info`.
    pub name: String,
    /// How it was stored.
    pub packing: Packing,
    /// Its contents.
    pub bytes: Cow<'data, [u8]>,
}

impl<'data> DebugSection<'data> {
    /// Contents without a file around them, as the section with number 1.
    #[must_use]
    pub fn detached(name: &'static str, bytes: &'data [u8]) -> Self {
        let section = Section {
            index: SectionIndex(1),
            header_offset: FileOffset(0),
            name: name.as_bytes(),
            kind: object::elf::SHT_PROGBITS.0,
            flags: 0,
            address: Address(0),
            offset: FileOffset(0),
            size: bytes.len() as u64,
            link: 0,
            info: 0,
            alignment: 1,
            entry_size: 0,
        };
        Self { section, name: name.to_owned(), packing: Packing::Plain, bytes: Cow::Borrowed(bytes) }
    }
}

impl DebugSection<'_> {
    /// An error at `offset` of the section.
    pub fn damaged(&self, offset: usize, what: impl std::fmt::Display) -> Error {
        damaged(&self.section, &self.name, offset, what)
    }

    /// The same for what a reader found at `offset`; R10 for operations of expressions that it does not know, which a
    /// producer may have added.
    pub fn broken(&self, offset: usize, error: gimli::Error) -> Error {
        match error {
            gimli::Error::InvalidExpression(operation) => {
                let reason = format!(
                    "an expression of {} at {offset:#x} has the unknown operation {:#x}",
                    self.name, operation.0
                );
                cannot_update(reason).into()
            }
            error => self.damaged(offset, error),
        }
    }
}

/// Why a small file that would become a large one is refused.
pub(crate) const OVER_AND_OVER: &str = "it describes the same code over and over";

fn damaged(section: &Section<'_>, name: &str, offset: usize, what: impl std::fmt::Display) -> Error {
    let place = match section.flags & COMPRESSED {
        0 => section.offset.0.saturating_add(offset as u64),
        _ => section.offset.0,
    };
    Error::malformed(place, format!("{name} at {offset:#x}: {what}"))
        .with_hint(Hint::DropOrKeepDebugInformation)
}

/// All sections of debug information of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct DebugSections<'data> {
    sections: Vec<DebugSection<'data>>,
}

impl<'data> DebugSections<'data> {
    /// Finds and decompresses them.
    ///
    /// # Errors
    /// Broken compression; R10 for sections whose meaning is unknown.
    pub(crate) fn read(file: &ElfFile<'data>) -> Result<Self> {
        let unpacked = named(file)?.into_iter().map(|(section, name)| {
            let (packing, bytes) = unpack(file, section, &name)?;
            Ok(DebugSection { section: *section, name, packing, bytes })
        });
        Ok(Self { sections: unpacked.collect::<Result<_>>()? })
    }

    /// The section of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&DebugSection<'data>> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Its contents; empty when there is none.
    pub(crate) fn bytes(&self, name: &str) -> &[u8] {
        self.get(name).map_or(&[], |section| section.bytes.as_ref())
    }

    /// What the reader of units takes.
    pub(crate) fn dwarf(&self) -> gimli::Dwarf<Slice<'_>> {
        let load = |id: SectionId| Ok::<_, ()>(Slice::new(self.bytes(id.name()), LittleEndian));
        gimli::Dwarf::load(load).unwrap_or_default()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &DebugSection<'data>> {
        self.sections.iter()
    }
}

/// Refuses (R10) sections that are known to be unsupported before any is read.
///
/// # Errors
/// The refusal.
pub fn check(file: &ElfFile<'_>) -> Result<()> {
    named(file).map(|_| ())
}

fn named<'file, 'data>(file: &'file ElfFile<'data>) -> Result<Vec<(&'file Section<'data>, String)>> {
    let mut sections: Vec<(&Section<'_>, String)> = Vec::new();
    for section in &file.sections {
        if section.is_loaded() || !section.has_bytes() || section.size == 0 {
            continue;
        }
        let Some(name) = plain_name(section.name) else { continue };
        if let Some(reason) = unknown(&name) {
            return Err(cannot_update(format!("section {} {reason}", section.display_name())).into());
        }
        if sections.iter().any(|(_, known)| *known == name) {
            return Err(cannot_update(format!("there are two sections {name}")).into());
        }
        sections.push((section, name));
    }
    Ok(sections)
}

/// The refusal for debug information that cannot be brought up to date, with the user's choices.
pub(crate) fn cannot_update(reason: impl Into<String>) -> Refusal {
    Refusal::new(
        RefusalCode::DebugInformation,
        format!("the debug information cannot be brought up to date: {}", reason.into()),
        Hint::DropOrDistrustDebugInformation,
    )
}

/// Name without compression, for sections of debug information.
fn plain_name(name: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(name).ok().filter(|_| is_debug_name(name))?;
    Some(match text.strip_prefix(".zdebug_") {
        Some(rest) => format!(".debug_{rest}"),
        None => text.to_owned(),
    })
}

/// Why a section cannot be brought up to date, if its meaning is not known.
fn unknown(name: &str) -> Option<&'static str> {
    const KNOWN: [&str; 27] = [
        ".debug_abbrev",
        ".debug_addr",
        ".debug_aranges",
        ".debug_frame",
        ".debug_gdb_scripts",
        ".debug_gnu_pubnames",
        ".debug_gnu_pubtypes",
        ".debug_info",
        ".debug_line",
        ".debug_line_str",
        ".debug_loc",
        ".debug_loclists",
        ".debug_macinfo",
        ".debug_macro",
        ".debug_names",
        ".debug_pubnames",
        ".debug_pubtypes",
        ".debug_ranges",
        ".debug_rnglists",
        ".debug_str",
        ".debug_str_offsets",
        ".debug_sup",
        ".debug_types",
        ".gdb_index",
        ".gnu_debugdata",
        ".debug_cu_index",
        ".debug_tu_index",
    ];
    match name {
        ".stab" | ".stabstr" => Some("is in the format of stabs"),
        _ if KNOWN.contains(&name) => None,
        _ => Some("has an unknown meaning"),
    }
}

const COMPRESSED: u64 = object::elf::SHF_COMPRESSED.0;
const ZLIB: u32 = object::elf::ELFCOMPRESS_ZLIB.0;
const ZSTD: u32 = object::elf::ELFCOMPRESS_ZSTD.0;
/// Bytes of `Elf64_Chdr`.
const HEADER_BYTES: usize = 24;
/// "ZLIB" and the size.
const OLD_HEADER_BYTES: usize = 12;
/// No stream of zlib expands more than 1032 times, and streams of zstd that do are refused.
const MAX_EXPANSION: u64 = 1032;

fn unpack<'data>(
    file: &ElfFile<'data>,
    section: &Section<'data>,
    name: &str,
) -> Result<(Packing, Cow<'data, [u8]>)> {
    let bytes = file.section_bytes(section);
    let broken = |what: &str| damaged(section, name, 0, what);
    let word = |at: usize| u64_at(bytes, at);
    if name == ".gnu_debugdata" {
        return Ok((Packing::Xz, Cow::Owned(from_xz(bytes).map_err(|error| broken(&error.to_string()))?)));
    }
    let (packing, size, stream) = if section.flags & COMPRESSED != 0 {
        let (Some(kind), Some(size), Some(alignment)) = (word(0), word(8), word(16)) else {
            return Err(broken("the header of the compressed section is cut off"));
        };
        (Packing::Header { kind: kind as u32, alignment }, size, &bytes[HEADER_BYTES..])
    } else if section.name.starts_with(b".zdebug_") && bytes.starts_with(b"ZLIB") {
        let Some(size) = word(4) else {
            return Err(broken("the header of the compressed section is cut off"));
        };
        (Packing::OldZlib, size.swap_bytes(), &bytes[OLD_HEADER_BYTES..])
    } else {
        return Ok((Packing::Plain, Cow::Borrowed(bytes)));
    };
    if size / MAX_EXPANSION > stream.len() as u64 {
        return Err(broken("the compressed section claims more bytes than it can hold"));
    }
    let size = usize::try_from(size).map_err(|_| broken("the compressed section is too large"))?;
    let mut contents = Vec::new();
    match packing {
        Packing::Header { kind: ZSTD, .. } => {
            contents.resize(size, 0);
            let length = zstd_safe::decompress(contents.as_mut_slice(), stream)
                .map_err(|code| broken(zstd_safe::get_error_name(code)))?;
            contents.truncate(length);
        }
        Packing::Header { kind: ZLIB, .. } | Packing::OldZlib => {
            ZlibDecoder::new(stream)
                .take(size as u64 + 1)
                .read_to_end(&mut contents)
                .map_err(|error| broken(&error.to_string()))?;
        }
        Packing::Header { .. } | Packing::Plain | Packing::Xz => {
            return Err(cannot_update(format!("{name} is compressed in an unknown way")).into());
        }
    }
    match contents.len() == size {
        true => Ok((packing, Cow::Owned(contents))),
        false => Err(broken("the compressed section has another size than it claims")),
    }
}

/// The settings of `xz` and of the tools that make such images.
const XZ_LEVEL: u32 = 6;

/// The largest factor by which symbols and their names shrink.
const MAX_XZ_EXPANSION: u64 = 256;

fn from_xz(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let most = bytes.len() as u64 * MAX_XZ_EXPANSION;
    let mut contents = Vec::new();
    liblzma::read::XzDecoder::new(bytes).take(most + 1).read_to_end(&mut contents)?;
    match contents.len() as u64 > most {
        true => Err(std::io::Error::other("the compressed section expands too much")),
        false => Ok(contents),
    }
}

/// Contents as they are stored.
///
/// # Errors
/// When the compressor fails.
pub fn pack(packing: Packing, contents: Vec<u8>) -> Result<Vec<u8>> {
    let failed = |what: String| Error::usage(format!("compressing debug information failed: {what}"));
    let zlib = |mut bytes: Vec<u8>| {
        let mut encoder = flate2::read::ZlibEncoder::new(contents.as_slice(), flate2::Compression::default());
        encoder.read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
        Ok(bytes)
    };
    match packing {
        Packing::Plain => Ok(contents),
        Packing::Xz => {
            let mut bytes = Vec::new();
            liblzma::read::XzEncoder::new(contents.as_slice(), XZ_LEVEL)
                .read_to_end(&mut bytes)
                .map_err(|error| failed(error.to_string()))?;
            Ok(bytes)
        }
        Packing::OldZlib => {
            let mut header = b"ZLIB".to_vec();
            header.extend_from_slice(&(contents.len() as u64).to_be_bytes());
            zlib(header)
        }
        Packing::Header { kind, alignment } => {
            let mut header = u64::from(kind).to_le_bytes().to_vec();
            header.extend_from_slice(&(contents.len() as u64).to_le_bytes());
            header.extend_from_slice(&alignment.to_le_bytes());
            if kind == ZLIB {
                return zlib(header);
            }
            let mut stream = vec![0; zstd_safe::compress_bound(contents.len())];
            let length = zstd_safe::compress(stream.as_mut_slice(), &contents, zstd_safe::CLEVEL_DEFAULT)
                .map_err(|code| failed(zstd_safe::get_error_name(code).to_owned()))?;
            header.extend_from_slice(stream.get(..length).unwrap_or_default());
            Ok(header)
        }
    }
}

/// The contents of a section by position in the file's table, and sections that the file did not have.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    /// New contents, as stored.
    pub contents: Vec<(SectionIndex, Vec<u8>)>,
    /// Name and contents.
    pub added: Vec<(&'static str, Vec<u8>)>,
}
