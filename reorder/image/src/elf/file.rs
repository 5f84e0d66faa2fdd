//! An ELF image's headers, checked once so that later phases can rely on them.
//!
//! Takes the file's bytes; gives [`ElfFile`]. Guarantees: every section's and segment's bytes lie inside the
//! file, loaded sections lie where their segment says, and loaded sections do not overlap.
//! Source: System V ABI, chapters 4 and 5.

use std::ops::Range;

use object::LittleEndian;
use object::elf::{EM_AARCH64, EM_X86_64, FileHeader64, ProgramHeader64, SectionHeader64};
use object::pod;

use crate::elf::section::{Section, SectionIndex};
use crate::elf::segment::Segment;
use crate::macho::is_macho;
use reorder_base::address::{Address, FileOffset};
use reorder_base::error::{Error, Result};
use reorder_base::processor::Processor;
use reorder_base::refusal::{Refusal, RefusalCode};

/// How the image is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// ET_DYN: a position-independent program or a shared object.
    PositionIndependent,
    /// ET_EXEC: a program at a fixed address.
    FixedAddress,
}

/// A parsed ELF64 little-endian image.
#[derive(Clone, Debug)]
pub struct ElfFile<'data> {
    /// The whole file.
    pub bytes: &'data [u8],
    /// The processor; never [`Processor::Other`] unless the image was read for any.
    pub processor: Processor,
    /// Position-independent or not.
    pub linkage: Linkage,
    /// Entry point; zero when there is none.
    pub entry: Address,
    /// Program headers in file order.
    pub segments: Vec<Segment>,
    /// Where the table of program headers lies in the file.
    pub program_headers: Range<FileOffset>,
    /// Section headers in file order, the null section included.
    pub sections: Vec<Section<'data>>,
}

/// Position of `e_entry` in the ELF64 header.
pub const ENTRY_FIELD: FileOffset = FileOffset(24);

impl<'data> ElfFile<'data> {
    /// Reads and checks all headers.
    ///
    /// # Errors
    /// Refuses (R1, R4) what is not a program or shared object for x86-64 or AArch64 with section headers; reports malformed
    /// headers with their offset.
    pub fn parse(bytes: &'data [u8]) -> Result<Self> {
        let header = parse_header(bytes)?;
        if processor_of(header.e_machine.get(LittleEndian)) == Processor::Other {
            return Err(not_supported("this image is neither for x86-64 nor for AArch64", GIVE_PROGRAM));
        }
        Self::with_header(bytes, header)
    }

    /// The same for any processor, to read symbols and unwind entries. Code for [`Processor::Other`] must not be decoded or
    /// rewritten.
    ///
    /// # Errors
    /// As [`Self::parse`], but for the processor.
    pub fn parse_any_processor(bytes: &'data [u8]) -> Result<Self> {
        Self::with_header(bytes, parse_header(bytes)?)
    }

    fn with_header(bytes: &'data [u8], header: &FileHeader64<LittleEndian>) -> Result<Self> {
        let endian = LittleEndian;
        let linkage = match header.e_type.get(endian) {
            object::elf::ET_DYN => Linkage::PositionIndependent,
            object::elf::ET_EXEC => Linkage::FixedAddress,
            object::elf::ET_REL => {
                return Err(not_supported(
                    "this is an object file",
                    "link it first, then give the program or shared object",
                ));
            }
            object::elf::ET_CORE => {
                return Err(not_supported("this is a core dump", "give the program that dumped it"));
            }
            other => {
                return Err(not_supported(
                    &format!("unknown ELF type {:#x}", other.0),
                    "give a program or shared object",
                ));
            }
        };
        let section_offset = header.e_shoff.get(endian);
        let segment_offset = header.e_phoff.get(endian);
        let segments = parse_segments(bytes, segment_offset, header)?;
        if section_offset == 0 || header.e_shnum.get(endian) == 0 && header.e_shentsize.get(endian) == 0 {
            return Err(Refusal::new(
                RefusalCode::NoSectionHeaders,
                "the image has no section headers, so its functions cannot be found",
                "use the file as the linker wrote it, before a tool such as sstrip or a packer removed them",
            )
            .into());
        }
        let sections = parse_sections(bytes, section_offset, header)?;
        let tables = segments.len() as u64 * u64::from(header.e_phentsize.get(endian));
        let program_headers = FileOffset(segment_offset)..FileOffset(segment_offset).plus(tables);
        let entry = Address(header.e_entry.get(endian));
        let processor = processor_of(header.e_machine.get(endian));
        let file = Self { bytes, processor, linkage, entry, segments, program_headers, sections };
        file.check_loaded_sections()?;
        Ok(file)
    }

    /// Length of the ELF header, and of the program headers if they follow it directly.
    pub fn header_bytes(&self) -> u64 {
        const ELF_HEADER: FileOffset = FileOffset(64);
        if self.program_headers.start == ELF_HEADER { self.program_headers.end.0 } else { ELF_HEADER.0 }
    }

    /// The first section called `name`.
    pub fn section(&self, name: &[u8]) -> Option<&Section<'data>> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// The section with this index.
    pub fn section_at(&self, index: SectionIndex) -> Option<&Section<'data>> {
        self.sections.get(index.0 as usize)
    }

    /// File bytes of `section`; empty for sections without file contents.
    pub fn section_bytes(&self, section: &Section<'_>) -> &'data [u8] {
        if !section.has_bytes() {
            return &[];
        }
        let start = section.offset.0 as usize;
        &self.bytes[start..start + section.size as usize]
    }

    /// Where the `length` bytes at `address` lie in the file, if one segment holds them all.
    pub fn offset_of(&self, address: Address, length: u64) -> Option<FileOffset> {
        self.segments.iter().filter(|segment| segment.is_load()).find_map(|segment| {
            let distance = address.0.checked_sub(segment.address.0)?;
            let end = distance.checked_add(length)?;
            (end <= segment.file_size).then(|| segment.offset.plus(distance))
        })
    }

    /// The `length` bytes at `address`, if one segment's file part holds them all.
    pub fn bytes_at(&self, address: Address, length: u64) -> Option<&'data [u8]> {
        let start = self.offset_of(address, length)?.0 as usize;
        self.bytes.get(start..start.checked_add(length as usize)?)
    }

    /// Contents of the note with this owner and type in any loaded note section.
    pub fn build_id_range(&self) -> Option<Range<usize>> {
        super::note::build_id_range(self)
    }

    /// The GNU build-id's bytes.
    pub fn build_id(&self) -> Option<&'data [u8]> {
        self.build_id_range().and_then(|range| self.bytes.get(range))
    }

    fn check_loaded_sections(&self) -> Result<()> {
        let mut loaded: Vec<&Section<'_>> =
            self.sections.iter().filter(|section| section.is_loaded() && section.size > 0).collect();
        for section in &loaded {
            if section.address.0.checked_add(section.size).is_none() {
                return Err(Error::malformed(
                    section.header_offset.0,
                    "a section runs past the address space",
                ));
            }
            if section.has_bytes() && self.offset_of(section.address, section.size) != Some(section.offset) {
                return Err(Error::malformed(
                    section.header_offset.0,
                    format!("section {} does not lie where its segment maps it", section.display_name()),
                ));
            }
        }
        let mut stored: Vec<(u64, u64)> = loaded
            .iter()
            .filter(|section| section.has_bytes())
            .map(|section| (section.offset.0, section.offset.0 + section.size))
            .collect();
        stored.sort_unstable();
        if let Some(pair) = stored.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            return Err(Error::malformed(pair[1].0, "two loaded sections share bytes of the file"));
        }
        // TLS templates without contents take no addresses: what follows them may start where they do.
        loaded.retain(|section| !section.is_thread_local() || section.has_bytes());
        loaded.sort_by_key(|section| section.address);
        for pair in loaded.windows(2) {
            if pair[0].address.0 + pair[0].size > pair[1].address.0 {
                return Err(Error::malformed(
                    pair[1].header_offset.0,
                    format!("sections {} and {} overlap", pair[0].display_name(), pair[1].display_name()),
                ));
            }
        }
        Ok(())
    }
}

fn not_supported(what: &str, cure: &str) -> Error {
    Refusal::new(RefusalCode::UnsupportedFile, what, cure).into()
}

const GIVE_PROGRAM: &str = "give a Linux program or shared object for x86-64 or AArch64";

fn parse_header(bytes: &[u8]) -> Result<&FileHeader64<LittleEndian>> {
    if bytes.len() < 20 || bytes[..4] != *b"\x7fELF" {
        return Err(match is_macho(bytes) {
            true => not_supported("this is a Mach-O file, and only ELF serves here", GIVE_PROGRAM),
            false => not_supported(
                "this is neither an ELF nor a Mach-O file",
                "give a program or library: ELF for x86-64 or AArch64, or Mach-O for arm64 or x86-64",
            ),
        });
    }
    if bytes[4] != 2 || bytes[5] != 1 {
        return Err(not_supported("this is not a 64-bit little-endian ELF file", GIVE_PROGRAM));
    }
    let (header, _) = pod::from_bytes::<FileHeader64<LittleEndian>>(bytes)
        .map_err(|()| Error::malformed(0, "the file ends inside its ELF header"))?;
    Ok(header)
}

fn table<'data, T: pod::Pod>(
    bytes: &'data [u8],
    offset: u64,
    count: usize,
    entry_size: u16,
    what: &str,
) -> Result<&'data [T]> {
    if usize::from(entry_size) != size_of::<T>() {
        return Err(Error::malformed(offset, format!("{what} entries of {entry_size} bytes")));
    }
    usize::try_from(offset)
        .ok()
        .and_then(|start| bytes.get(start..))
        .and_then(|rest| pod::slice_from_bytes::<T>(rest, count).ok())
        .map(|(entries, _)| entries)
        .ok_or_else(|| Error::malformed(offset, format!("the {what} table runs past the end of the file")))
}

fn parse_segments(bytes: &[u8], offset: u64, header: &FileHeader64<LittleEndian>) -> Result<Vec<Segment>> {
    let endian = LittleEndian;
    let count = usize::from(header.e_phnum.get(endian));
    if count == 0 {
        return Err(not_supported(
            "the image has no program headers",
            "give a linked program or shared object",
        ));
    }
    let entries: &[ProgramHeader64<LittleEndian>] =
        table(bytes, offset, count, header.e_phentsize.get(endian), "program header")?;
    entries.iter().map(|entry| Segment::parse(bytes, entry)).collect()
}

fn parse_sections<'data>(
    bytes: &'data [u8],
    offset: u64,
    header: &FileHeader64<LittleEndian>,
) -> Result<Vec<Section<'data>>> {
    let endian = LittleEndian;
    let entry_size = header.e_shentsize.get(endian);
    let first: &[SectionHeader64<LittleEndian>] = table(bytes, offset, 1, entry_size, "section header")?;
    // Large counts overflow into the null section's fields.
    let count = match header.e_shnum.get(endian) {
        0 => usize::try_from(first[0].sh_size.get(endian)).unwrap_or(usize::MAX),
        count => usize::from(count),
    };
    let entries: &[SectionHeader64<LittleEndian>] =
        table(bytes, offset, count, entry_size, "section header")?;
    let names_index = match header.e_shstrndx.get(endian) {
        object::elf::SHN_XINDEX => first[0].sh_link.get(endian) as usize,
        index => usize::from(index.0),
    };
    let names = entries.get(names_index).and_then(|entry| {
        let start = usize::try_from(entry.sh_offset.get(endian)).ok()?;
        let size = usize::try_from(entry.sh_size.get(endian)).ok()?;
        bytes.get(start..start.checked_add(size)?)
    });
    let names =
        names.ok_or_else(|| Error::malformed(offset, "the section name table lies outside the file"))?;
    entries
        .iter()
        .enumerate()
        .map(|(index, entry)| {
            let place = offset + (index * usize::from(entry_size)) as u64;
            Section::parse(bytes, SectionIndex(index as u32), FileOffset(place), entry, names)
        })
        .collect()
}

/// The processor that a header names.
fn processor_of(machine: object::elf::Machine) -> Processor {
    match machine {
        EM_X86_64 => Processor::X86_64,
        EM_AARCH64 => Processor::Aarch64,
        _ => Processor::Other,
    }
}
