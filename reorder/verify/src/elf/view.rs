//! The headers of one image, read through `goblin`.
//!
//! Takes the bytes of a 64-bit little-endian image for x86-64 or AArch64; gives its sections and segments with bounds that
//! were checked against the file. Addresses and file positions are plain numbers here, because old and new images are read
//! alike: the caller knows which image it reads and gives them the type of their address space.
//!
//! This module shares no code with `image::elf`: the same misunderstanding in both would stay undetected.

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{
    EI_CLASS, EI_DATA, ELFCLASS64, ELFDATA2LSB, EM_AARCH64, EM_X86_64, ET_DYN, ET_EXEC,
};
use goblin::elf::program_header::{PF_W, PT_LOAD};
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS, SHT_NOTE, SHT_NULL};
use goblin::elf::{Elf, Header, ProgramHeader, SectionHeader};

use std::ops::Range;

use super::data_in_code::data_in_code;
use crate::bytes::{range, u64_at};
use crate::processor::Processor;
use reorder_base::address::FileOffset;
use reorder_base::error::{Error, Result};

/// How `goblin` is told to read: 64-bit, little-endian.
fn context() -> Ctx {
    Ctx::new(Container::Big, Endian::Little)
}

/// Size of one section header in a 64-bit image.
pub(crate) const SECTION_HEADER_SIZE: u64 = 64;
/// Size of one program header in a 64-bit image.
pub(crate) const PROGRAM_HEADER_SIZE: u64 = 56;

/// One section, with its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionView<'data> {
    /// Name; empty when the name table is damaged.
    pub(crate) name: &'data [u8],
    /// `sh_type`.
    pub(crate) kind: u32,
    /// `sh_flags`.
    pub(crate) flags: u64,
    /// Stated address of the first byte.
    pub(crate) address: u64,
    /// Position of the first byte in the file.
    pub(crate) offset: u64,
    /// `sh_link`.
    pub(crate) link: u32,
    /// `sh_info`.
    pub(crate) info: u32,
    /// `sh_addralign`; 1 if that is not a power of two.
    pub(crate) alignment: u64,
    /// Contents; empty for sections without bytes in the file.
    pub(crate) bytes: &'data [u8],
}

impl SectionView<'_> {
    /// Whether the loader maps the section. Notes at address 0 were added by tools: where that address is mapped, the file header is
    /// there.
    pub(crate) fn is_loaded(&self) -> bool {
        self.flags & u64::from(SHF_ALLOC) != 0 && (self.address != 0 || self.kind != SHT_NOTE)
    }

    /// Whether the section holds mapped machine code that exists in the file.
    pub(crate) fn is_code(&self) -> bool {
        self.is_loaded() && self.flags & u64::from(SHF_EXECINSTR) != 0 && !self.bytes.is_empty()
    }

    /// First address after the bytes in the file.
    pub(crate) fn end(&self) -> u64 {
        self.address.wrapping_add(self.bytes.len() as u64)
    }

    /// Whether `[start, end)` lies inside the bytes of this section.
    pub(crate) fn holds(&self, start: u64, end: u64) -> bool {
        start >= self.address && start <= end && end <= self.end()
    }

    /// The `size` bytes that the section states at `address`.
    pub(crate) fn at(&self, address: u64, size: u64) -> Option<&[u8]> {
        range(self.bytes, address.checked_sub(self.address)?, size)
    }
}

/// One image's headers.
#[derive(Debug)]
pub(crate) struct ElfView<'data> {
    /// The whole file.
    pub(crate) bytes: &'data [u8],
    /// The ELF header.
    pub(crate) header: Header,
    /// The processor that executes it.
    pub(crate) processor: Processor,
    /// Program headers.
    pub(crate) segments: Vec<ProgramHeader>,
    /// Sections in header order, so that `sh_link` and `sh_info` are positions in it.
    pub(crate) sections: Vec<SectionView<'data>>,
    /// Loaded segments in address order.
    pub(crate) mapped: Vec<ProgramHeader>,
    /// Loaded sections with bytes, as (address, position in `sections`), sorted.
    loaded: Vec<(u64, usize)>,
    /// Data in code according to mapping symbols: ascending and disjoint.
    data: Vec<Range<u64>>,
}

impl<'data> ElfView<'data> {
    /// Reads the headers of `bytes`.
    ///
    /// # Errors
    /// Not a 64-bit little-endian program or library for a known processor, no section headers, or headers and sections that
    /// lie outside the file.
    pub(crate) fn parse(bytes: &'data [u8]) -> Result<Self> {
        let broken = |offset: u64, what: &str| Error::malformed(offset, what.to_owned());
        if !bytes.starts_with(b"\x7fELF") {
            return Err(broken(0, "this is neither an ELF nor a Mach-O file").with_hint(
                "give a program or library: ELF for x86-64 or AArch64, or Mach-O for arm64 or x86-64",
            ));
        }
        let header =
            Elf::parse_header(bytes).map_err(|error| broken(0, &format!("the ELF header: {error}")))?;
        let is_supported = header.e_ident[EI_CLASS] == ELFCLASS64
            && header.e_ident[EI_DATA] == ELFDATA2LSB
            && matches!(header.e_type, ET_DYN | ET_EXEC);
        let processor = match header.e_machine {
            EM_AARCH64 if is_supported => Processor::Aarch64,
            EM_X86_64 if is_supported => Processor::X86_64,
            _ => {
                let what = "not a 64-bit little-endian program or shared library for x86-64 or AArch64";
                return Err(broken(0, what));
            }
        };
        if header.e_shoff == 0 || u64::from(header.e_shentsize) != SECTION_HEADER_SIZE {
            return Err(broken(0x28, "no section headers: the verifier finds code and tables through them"));
        }
        if header.e_phnum > 0 && u64::from(header.e_phentsize) != PROGRAM_HEADER_SIZE {
            return Err(broken(0x36, "program headers of an unknown size"));
        }
        let position =
            |offset: u64| usize::try_from(offset).map_err(|_| broken(0x20, "an offset beyond the file"));
        let segments =
            ProgramHeader::parse(bytes, position(header.e_phoff)?, usize::from(header.e_phnum), context())
                .map_err(|error| broken(header.e_phoff, &format!("the program headers: {error}")))?;
        let headers =
            SectionHeader::parse(bytes, position(header.e_shoff)?, usize::from(header.e_shnum), context())
                .map_err(|error| broken(header.e_shoff, &format!("the section headers: {error}")))?;
        let sections = read_sections(bytes, &header, &headers)?;
        let mut loaded: Vec<(u64, usize)> = sections
            .iter()
            .enumerate()
            .filter(|(_, section)| section.is_loaded() && !section.bytes.is_empty())
            .map(|(index, section)| (section.address, index))
            .collect();
        loaded.sort_unstable();
        let mut mapped: Vec<ProgramHeader> =
            segments.iter().filter(|segment| segment.p_type == PT_LOAD).cloned().collect();
        mapped.sort_by_key(|segment| segment.p_vaddr);
        let data = match processor {
            Processor::Aarch64 => data_in_code(&sections),
            Processor::X86_64 => Vec::new(),
        };
        Ok(Self { bytes, header, processor, segments, sections, mapped, loaded, data })
    }

    /// The first section of this name.
    pub(crate) fn section(&self, name: &[u8]) -> Option<&SectionView<'data>> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// The loaded section whose bytes in the file hold the byte at `address`.
    pub(crate) fn section_at(&self, address: u64) -> Option<&SectionView<'data>> {
        let after = self.loaded.partition_point(|&(start, _)| start <= address);
        let section = self.sections.get(self.loaded.get(after.checked_sub(1)?)?.1)?;
        (address < section.end()).then_some(section)
    }

    /// The code section that holds all of `[start, end)`.
    pub(crate) fn code_at(&self, start: u64, end: u64) -> Option<&SectionView<'data>> {
        self.section_at(start).filter(|section| section.is_code() && section.holds(start, end))
    }

    /// All code sections, in address order.
    pub(crate) fn code_sections(&self) -> impl Iterator<Item = &SectionView<'data>> {
        self.loaded
            .iter()
            .filter_map(|&(_, index)| self.sections.get(index))
            .filter(|section| section.is_code())
    }

    /// The ranges of data in code that overlap `[start, end)`.
    pub(crate) fn data_between(&self, start: u64, end: u64) -> &[Range<u64>] {
        let from = self.data.partition_point(|range| range.end <= start);
        let to = self.data.partition_point(|range| range.start < end);
        self.data.get(from..to).unwrap_or_default()
    }

    /// The file position of the byte at `address`, for a place inside a loaded section.
    pub(crate) fn offset_of(&self, address: u64) -> Option<FileOffset> {
        let section = self.section_at(address)?;
        Some(FileOffset(section.offset + (address - section.address)))
    }

    /// The file position of `size` bytes that the loader maps at `address`.
    pub(crate) fn mapped_offset(&self, address: u64, size: u64) -> Option<FileOffset> {
        let after = self.mapped.partition_point(|segment| segment.p_vaddr <= address);
        let segment = self.mapped.get(after.checked_sub(1)?)?;
        let within = address - segment.p_vaddr;
        let fits = within.checked_add(size)? <= segment.p_filesz;
        let offset = segment.p_offset.checked_add(within)?;
        (fits && range(self.bytes, offset, size).is_some()).then_some(FileOffset(offset))
    }

    /// Whether a segment that the program may write to contains `address`.
    pub(crate) fn is_writable(&self, address: u64) -> bool {
        self.mapped.iter().any(|segment| {
            let end = segment.p_vaddr.saturating_add(segment.p_memsz);
            segment.p_flags & PF_W != 0 && (segment.p_vaddr..end).contains(&address)
        })
    }

    /// The eight bytes that the loader maps at `address`, as a number.
    pub(crate) fn word_at(&self, address: u64) -> Option<u64> {
        u64_at(self.bytes, usize::try_from(self.mapped_offset(address, 8)?.0).ok()?)
    }

    /// The first segment of type `kind`, as (file position, bytes).
    pub(crate) fn segment(&self, kind: u32) -> Option<(u64, &'data [u8])> {
        let segment = self.segments.iter().find(|segment| segment.p_type == kind)?;
        Some((segment.p_offset, range(self.bytes, segment.p_offset, segment.p_filesz)?))
    }
}

/// Resolves names and contents; section 0 carries the counts that do not fit the ELF header.
fn read_sections<'data>(
    bytes: &'data [u8],
    header: &Header,
    headers: &[SectionHeader],
) -> Result<Vec<SectionView<'data>>> {
    let name_table = match header.e_shstrndx {
        0xffff => headers.first().map_or(0, |first| first.sh_link as usize),
        index => usize::from(index),
    };
    let names = headers
        .get(name_table)
        .and_then(|section| range(bytes, section.sh_offset, section.sh_size))
        .unwrap_or_default();
    let mut sections = Vec::with_capacity(headers.len());
    let mut total = 0u64;
    for (index, section) in headers.iter().enumerate() {
        let has_bytes = !matches!(section.sh_type, SHT_NOBITS | SHT_NULL);
        let contents = if has_bytes {
            range(bytes, section.sh_offset, section.sh_size).ok_or_else(|| {
                Error::malformed(
                    header.e_shoff.saturating_add(index as u64 * SECTION_HEADER_SIZE),
                    format!("section {index} runs past the end of the file"),
                )
            })?
        } else {
            &[]
        };
        if section.sh_addr.checked_add(section.sh_size).is_none() {
            return Err(Error::malformed(
                header.e_shoff.saturating_add(index as u64 * SECTION_HEADER_SIZE),
                format!("section {index} runs past the address space"),
            ));
        }
        // Checks walk each section once; sections that share bytes repeatedly would make that work unbounded.
        total = total.saturating_add(contents.len() as u64);
        if total > 2 * bytes.len() as u64 {
            return Err(Error::malformed(header.e_shoff, "sections overlap each other in the file"));
        }
        let name = names.get(section.sh_name..).unwrap_or_default();
        let name_end = name.iter().position(|&byte| byte == 0).unwrap_or(0);
        sections.push(SectionView {
            name: &name[..name_end],
            kind: section.sh_type,
            flags: section.sh_flags,
            address: section.sh_addr,
            offset: section.sh_offset,
            link: section.sh_link,
            info: section.sh_info,
            alignment: if section.sh_addralign.is_power_of_two() { section.sh_addralign } else { 1 },
            bytes: contents,
        });
    }
    Ok(sections)
}
