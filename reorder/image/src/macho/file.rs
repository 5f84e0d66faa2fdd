//! The headers of a Mach-O image, checked once so that later phases can rely on them.
//!
//! Takes the bytes of one image (of a universal file: one slice); gives [`MachOFile`]. Guarantees: the bytes of every
//! segment, section, load command and part of `__LINKEDIT` lie inside the image; sections lie in their segments and
//! neither they nor the segments overlap; the first segment with contents is `__TEXT` and holds the headers.
//! Source: `mach-o/loader.h` of Apple's cctools, and what dyld checks.

use object::LittleEndian;
use object::macho::{self, MachHeader64};
use object::read::macho::MachHeader as _;

use super::code_names::CodeNames;
use super::headers::{Headers, Tables};
use super::load_command::{LinkEditPart, LinkEditRange, LoadCommand};
use super::section::{Section, Segment};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::processor::Processor;
use reorder_base::refusal::{Refusal, RefusalCode};

/// The largest number of a section that symbols can hold.
const MAX_SECTIONS: usize = 255;

/// The kind of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// `MH_EXECUTE`.
    Program,
    /// `MH_DYLIB`.
    Library,
    /// `MH_BUNDLE`.
    Bundle,
}

/// A parsed image.
#[derive(Clone, Debug)]
pub struct MachOFile<'data> {
    /// All bytes of the image.
    pub bytes: &'data [u8],
    /// Its processor, never [`Processor::Other`].
    pub processor: Processor,
    /// The processor's name for linkers: `arm64`, `x86_64`.
    pub architecture: &'static str,
    /// Program, library or bundle.
    pub kind: ImageKind,
    /// `flags` of the header.
    pub flags: u32,
    /// In file order.
    pub commands: Vec<LoadCommand>,
    /// In file order.
    pub segments: Vec<Segment<'data>>,
    /// In file order; the section with number `n` is at `n - 1`.
    pub sections: Vec<Section<'data>>,
    /// The parts of `__LINKEDIT` that are not empty, by offset.
    pub link_edit: Vec<LinkEditRange>,
    /// Parts without bytes that still have a place in `__LINKEDIT`, by offset.
    pub empty_link_edit: Vec<LinkEditRange>,
    /// `LC_UUID`.
    pub uuid: Option<[u8; 16]>,
    tables: Tables<'data>,
    text: usize,
    base: Address,
}

impl<'data> MachOFile<'data> {
    /// Reads and checks all headers.
    ///
    /// # Errors
    /// Refuses (M1, M2, M4) images other than programs, libraries and bundles for arm64 or x86-64 with one section of
    /// functions; reports malformed headers with their offset.
    pub fn parse(bytes: &'data [u8]) -> Result<Self> {
        Self::check(Headers::read(bytes).map_err(|error| malformed(0, &error))?)
    }

    /// Checks headers that were read.
    pub(super) fn check(headers: Headers<'data>) -> Result<Self> {
        let ((processor, architecture), kind) = (processor_of(headers.header)?, kind_of(headers.header)?);
        let Headers { bytes, header, commands, segments, sections, mut link_edit, uuid, tables, .. } =
            headers;
        // A wrong place was found before the first command that cannot be read.
        if let Some((offset, what)) = headers.wrong_place {
            return Err(Error::malformed(offset as u64, what));
        }
        if let Some((offset, error)) = headers.unreadable {
            return Err(malformed(offset, &error));
        }
        link_edit.sort_by_key(|range| (range.offset, range.part));
        let (mut empty_link_edit, link_edit): (Vec<_>, Vec<_>) =
            link_edit.into_iter().partition(|range| range.size == 0);
        let link_edit_segment = segments.iter().find(|segment| segment.name == b"__LINKEDIT");
        empty_link_edit.retain(|range| {
            link_edit_segment.is_some_and(|segment| {
                (segment.offset..=segment.offset + segment.file_size).contains(&range.offset)
            })
        });
        // Symbols have one byte for the number of their section; look-ups go through all of these.
        if sections.len() > MAX_SECTIONS || segments.len() > MAX_SECTIONS {
            return Err(Error::malformed(0, format!("the image has {} sections", sections.len()))
                .with_hint("no linker writes more than 255: give the image as it was linked"));
        }
        let text = sections.iter().position(|section| section.is(b"__TEXT", b"__text")).ok_or_else(|| {
            Refusal::new(
                RefusalCode::MachOText,
                "the image has no section __TEXT,__text",
                "give a program or library with code of its own",
            )
        })?;
        let file_header = segments.iter().find(|segment| segment.name == b"__TEXT" && segment.offset == 0);
        let base = file_header
            .map(|segment| segment.address)
            .ok_or_else(|| Error::malformed(0, "the segment __TEXT does not hold the headers"))?;
        let flags = header.flags(LittleEndian).0;
        let file = Self {
            bytes,
            processor,
            architecture,
            kind,
            flags,
            commands,
            segments,
            sections,
            link_edit,
            empty_link_edit,
            uuid,
            tables,
            text,
            base,
        };
        file.check_places()?;
        Ok(file)
    }

    /// The functions and names of all code, read anew with each call.
    ///
    /// # Errors
    /// Damaged tables of symbols and function starts.
    pub fn code_names(&self) -> Result<CodeNames<'data>> {
        CodeNames::read(self.bytes, &self.segments, &self.sections, self.tables)
            .map_err(|error| unreadable_image(self.architecture, 0, &error))
    }

    /// `__TEXT,__text`: the functions.
    #[must_use]
    pub fn text(&self) -> &Section<'data> {
        &self.sections[self.text]
    }

    /// The address of the headers, from which image offsets count.
    #[must_use]
    pub fn base(&self) -> Address {
        self.base
    }

    /// The address of an image offset.
    #[must_use]
    pub fn address_of(&self, image_offset: u64) -> Address {
        self.base.plus(image_offset)
    }

    /// The section called `name` in `segment`.
    #[must_use]
    pub fn section(&self, segment: &[u8], name: &[u8]) -> Option<&Section<'data>> {
        self.sections.iter().find(|section| section.is(segment, name))
    }

    /// The section that holds `address`.
    #[must_use]
    pub fn section_at(&self, address: Address) -> Option<&Section<'data>> {
        self.sections.iter().find(|section| section.range().contains(&address))
    }

    /// The segment called `name`.
    #[must_use]
    pub fn segment(&self, name: &[u8]) -> Option<&Segment<'data>> {
        self.segments.iter().find(|segment| segment.name == name)
    }

    /// Bytes of `section`; empty for those that the file does not hold.
    #[must_use]
    pub fn section_bytes(&self, section: &Section<'_>) -> &'data [u8] {
        // The offset of an empty section may be any number.
        match section.has_bytes() && section.size > 0 {
            true => &self.bytes[section.offset..section.offset + section.size as usize],
            false => &[],
        }
    }

    /// Where the `length` bytes at `address` lie in the image, if the contents of one segment hold them all.
    #[must_use]
    pub fn offset_of(&self, address: Address, length: u64) -> Option<usize> {
        self.segments.iter().find_map(|segment| {
            let distance = address.0.checked_sub(segment.address.0)?;
            let end = distance.checked_add(length)?;
            (end <= segment.file_size as u64).then(|| segment.offset + distance as usize)
        })
    }

    /// The `length` bytes at `address`, if the contents of one segment hold them all.
    #[must_use]
    pub fn bytes_at(&self, address: Address, length: u64) -> Option<&'data [u8]> {
        let start = self.offset_of(address, length)?;
        self.bytes.get(start..start + length as usize)
    }

    /// The four bytes at `address` as a number.
    #[must_use]
    pub fn word_at(&self, address: Address) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes_at(address, 4)?.try_into().ok()?))
    }

    /// The eight bytes at `address` as a number.
    #[must_use]
    pub fn long_at(&self, address: Address) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes_at(address, 8)?.try_into().ok()?))
    }

    /// The first load command with this number.
    #[must_use]
    pub fn command(&self, kind: u32) -> Option<&LoadCommand> {
        self.commands.iter().find(|command| command.kind == kind)
    }

    /// Bytes of a load command, its header included.
    #[must_use]
    pub fn command_bytes(&self, command: &LoadCommand) -> &'data [u8] {
        &self.bytes[command.offset..command.offset + command.size]
    }

    /// A part of `__LINKEDIT`, if the image has it.
    #[must_use]
    pub fn link_edit_range(&self, part: LinkEditPart) -> Option<&LinkEditRange> {
        self.link_edit.iter().find(|range| range.part == part)
    }

    /// Bytes of a part of `__LINKEDIT`; empty if the image does not have it.
    #[must_use]
    pub fn link_edit_bytes(&self, part: LinkEditPart) -> &'data [u8] {
        self.link_edit_range(part).map_or(&[], |range| &self.bytes[range.offset..range.offset + range.size])
    }

    fn check_places(&self) -> Result<()> {
        let text_sections = self.sections.iter().filter(|section| section.is(b"__TEXT", b"__text")).count();
        if text_sections != 1 {
            return Err(Refusal::new(
                RefusalCode::MachOText,
                format!("the image has {text_sections} sections __TEXT,__text"),
                "link it with a linker that writes one",
            )
            .into());
        }
        if !self.text().has_bytes() {
            return Err(Error::malformed(
                self.text().header_offset as u64,
                "the file does not hold the section __TEXT,__text",
            ));
        }
        let places = |in_file: bool| {
            let mut ranges: Vec<(u64, u64, usize)> = self
                .segments
                .iter()
                .map(|segment| match in_file {
                    true => (segment.offset as u64, segment.file_size as u64, segment.command_offset),
                    false => (segment.address.0, segment.memory_size, segment.command_offset),
                })
                .filter(|(_, size, _)| *size > 0)
                .collect();
            ranges.sort_unstable();
            ranges
        };
        for ranges in [places(false), places(true)] {
            if let Some(pair) = ranges.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
                return Err(Error::malformed(pair[1].2 as u64, "two segments overlap"));
            }
        }
        let mut sections: Vec<&Section<'_>> =
            self.sections.iter().filter(|section| section.size > 0 && section.has_bytes()).collect();
        sections.sort_by_key(|section| section.address);
        match sections.windows(2).find(|pair| pair[0].end() > pair[1].address) {
            Some(pair) => Err(Error::malformed(pair[1].header_offset as u64, "two sections overlap")),
            None => Ok(()),
        }
    }
}

fn malformed(offset: usize, error: &object::read::Error) -> Error {
    Error::malformed(offset as u64, format!("the Mach-O headers are damaged: {error}"))
        .with_hint("give a program or library for arm64 or x86_64")
}

/// An image, at `offset` in its file, with tables that cannot be read.
pub(super) fn unreadable_image(architecture: &str, offset: usize, error: &object::read::Error) -> Error {
    Error::malformed(offset as u64, format!("the image for {architecture}: {error}"))
}

/// The processor, and its name for linkers.
fn processor_of(header: &MachHeader64<LittleEndian>) -> Result<(Processor, &'static str)> {
    let name = super::universal::name_of(header.cputype(LittleEndian), header.cpusubtype(LittleEndian));
    let unsupported = |what: &str, cure: &str| {
        Err(Refusal::new(RefusalCode::MachOProcessor, format!("the image is for {what}"), cure).into())
    };
    match name {
        Some(name @ "arm64") => Ok((Processor::Aarch64, name)),
        Some(name @ "x86_64") => Ok((Processor::X86_64, name)),
        Some(name) => unsupported(name, "build it for arm64, or use an order file when it is linked"),
        None => unsupported("another processor than arm64 or x86_64", "give an image for one of these"),
    }
}

fn kind_of(header: &MachHeader64<LittleEndian>) -> Result<ImageKind> {
    let refused = |what: &str, cure: &str| Err(Refusal::new(RefusalCode::MachOKind, what, cure).into());
    match header.filetype(LittleEndian) {
        macho::MH_EXECUTE => Ok(ImageKind::Program),
        macho::MH_DYLIB => Ok(ImageKind::Library),
        macho::MH_BUNDLE => Ok(ImageKind::Bundle),
        macho::MH_OBJECT => {
            refused("this is an object file", "link it first, then give the program or library")
        }
        macho::MH_DSYM => {
            refused("this is a file of debug information", "give the program or library that belongs to it")
        }
        _ => refused("this is neither a program, a library nor a bundle", "give one of these"),
    }
}
