//! A Mach-O image's headers, checked once so that later phases can rely on them.
//!
//! Takes the bytes of one image (of a universal file: one slice); gives [`MachOFile`]. Guarantees: the bytes of every
//! segment, section, load command and part of `__LINKEDIT` lie inside the image; sections lie in their segments and
//! neither they nor the segments overlap; the first segment with contents is `__TEXT` and holds the headers.
//! Source: `mach-o/loader.h` of Apple's cctools, and what dyld checks.

use object::LittleEndian;
use object::macho::{self, MachHeader64, SegmentCommand64};
use object::read::macho::{LoadCommandData, MachHeader as _, Section as _, Segment as _};

use super::load_command::{LinkEditPart, LinkEditRange, LoadCommand};
use super::section::{Section, Segment};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::refusal::{Refusal, RefusalCode};

/// What symbols can number.
const MAX_SECTIONS: usize = 255;

/// The processors whose code can be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit ARM without pointer authentication.
    Arm64,
    /// 64-bit x86.
    X86_64,
}

/// What an image is for.
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
    /// All of it.
    pub bytes: &'data [u8],
    /// Its processor.
    pub architecture: Architecture,
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
    /// Parts without bytes that have a place in `__LINKEDIT` all the same, by offset.
    pub empty_link_edit: Vec<LinkEditRange>,
    /// `LC_UUID`.
    pub uuid: Option<[u8; 16]>,
    text: usize,
    base: Address,
}

impl<'data> MachOFile<'data> {
    /// Reads and checks all headers.
    ///
    /// # Errors
    /// Refuses (M1, M2, M4) what is not a program, library or bundle for arm64 or x86-64 with one section of functions;
    /// reports malformed headers with their offset.
    pub fn parse(bytes: &'data [u8]) -> Result<Self> {
        let (header, mut iterator) = MachHeader64::<LittleEndian>::parse(bytes, 0)
            .and_then(|header| Ok((header, header.load_commands(LittleEndian, bytes, 0)?)))
            .map_err(|error| malformed(0, &error))?;
        let (architecture, kind) = (architecture_of(header)?, kind_of(header)?);
        let mut headers = Headers::default();
        let mut offset = size_of::<MachHeader64<LittleEndian>>();
        while let Some(command) = iterator.next().map_err(|error| malformed(offset, &error))? {
            headers.read(bytes, command, offset)?;
            offset += command.cmdsize() as usize;
        }
        let Headers { commands, segments, sections, mut link_edit, uuid } = headers;
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
            architecture,
            kind,
            flags,
            commands,
            segments,
            sections,
            link_edit,
            empty_link_edit,
            uuid,
            text,
            base,
        };
        file.check_places()?;
        Ok(file)
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
        // What is empty may claim to lie anywhere.
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

fn architecture_of(header: &MachHeader64<LittleEndian>) -> Result<Architecture> {
    let name = super::slices::name_of(header.cputype(LittleEndian), header.cpusubtype(LittleEndian));
    let unsupported = |what: &str, cure: &str| {
        Err(Refusal::new(RefusalCode::MachOProcessor, format!("the image is for {what}"), cure).into())
    };
    match name {
        Some("arm64") => Ok(Architecture::Arm64),
        Some("x86_64") => Ok(Architecture::X86_64),
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

#[derive(Default)]
struct Headers<'data> {
    commands: Vec<LoadCommand>,
    segments: Vec<Segment<'data>>,
    sections: Vec<Section<'data>>,
    link_edit: Vec<LinkEditRange>,
    uuid: Option<[u8; 16]>,
}

impl<'data> Headers<'data> {
    fn read(
        &mut self,
        bytes: &'data [u8],
        command: LoadCommandData<'data, LittleEndian>,
        offset: usize,
    ) -> Result<()> {
        let failed = |error: object::read::Error| malformed(offset, &error);
        let (kind, size) = (command.cmd().0, command.cmdsize() as usize);
        self.commands.push(LoadCommand { kind, offset, size });
        if let Some((segment, data)) = command.segment_64().map_err(failed)? {
            return self.read_segment(bytes, segment, data, offset);
        }
        if let Some(uuid) = command.uuid().map_err(failed)? {
            self.uuid = Some(uuid.uuid);
            return Ok(());
        }
        for (part, field, entry) in parts_of(command.cmd()) {
            let number = |at: usize| {
                let field =
                    bytes[offset..offset + size].get(at..at + 4).and_then(|field| field.try_into().ok());
                field.map(|field| u32::from_le_bytes(field) as usize).ok_or_else(|| {
                    Error::malformed(offset as u64, "a load command is shorter than its kind demands")
                })
            };
            let (start, size) = (number(*field)?, number(field + 4)?.saturating_mul(*entry));
            if size > 0 && start.checked_add(size).is_none_or(|end| end > bytes.len()) {
                return Err(Error::malformed(offset as u64, format!("{part:?} lies outside of the image")));
            }
            if size > 0 && self.link_edit.iter().any(|range| range.size > 0 && range.part == *part) {
                return Err(Error::malformed(offset as u64, format!("{part:?} is there twice")));
            }
            let (offset_field, size_field) = (offset + field, offset + field + 4);
            self.link_edit.push(LinkEditRange { part: *part, offset: start, size, offset_field, size_field });
        }
        Ok(())
    }

    fn read_segment(
        &mut self,
        bytes: &'data [u8],
        command: &'data SegmentCommand64<LittleEndian>,
        data: &'data [u8],
        offset: usize,
    ) -> Result<()> {
        let endian = LittleEndian;
        let wrong = |place: usize, what: &str| Error::malformed(place as u64, what.to_owned());
        let segment = Segment {
            name: command.name(),
            address: Address(command.vmaddr.get(endian)),
            memory_size: command.vmsize.get(endian),
            offset: command.fileoff.get(endian) as usize,
            file_size: command.filesize.get(endian) as usize,
            protection: command.initprot.get(endian).0,
            command_offset: offset,
        };
        let file_end = segment.offset.checked_add(segment.file_size);
        let memory_end = segment.address.0.checked_add(segment.memory_size);
        if file_end.is_none_or(|end| end > bytes.len()) || memory_end.is_none() {
            return Err(wrong(offset, "a segment lies outside of the image"));
        }
        if segment.file_size as u64 > segment.memory_size {
            return Err(wrong(offset, "a segment has more contents than room in memory"));
        }
        let headers = command.sections(endian, data).map_err(|error| malformed(offset, &error))?;
        for (index, header) in headers.iter().enumerate() {
            let header_offset =
                offset + size_of::<SegmentCommand64<LittleEndian>>() + index * size_of_val(header);
            let section = Section {
                number: self.sections.len() as u32 + 1,
                segment: segment.name,
                name: header.name(),
                address: Address(header.addr.get(endian)),
                size: header.size.get(endian),
                offset: header.offset.get(endian) as usize,
                alignment: header.align.get(endian),
                flags: header.flags.get(endian).0,
                header_offset,
            };
            check_section(&section, &segment).map_err(|what| wrong(header_offset, what))?;
            self.sections.push(section);
        }
        self.segments.push(segment);
        Ok(())
    }
}

/// A section's place in its segment, in memory and in the file.
fn check_section(section: &Section<'_>, segment: &Segment<'_>) -> std::result::Result<(), &'static str> {
    let distance = section.address.0.checked_sub(segment.address.0);
    let end = distance.and_then(|distance| distance.checked_add(section.size));
    let (Some(distance), Some(end)) = (distance, end) else {
        return Err("a section starts in front of its segment or ends nowhere");
    };
    if end > segment.memory_size {
        return Err("a section is longer than its segment");
    }
    let is_placed =
        end <= segment.file_size as u64 && section.offset as u64 == segment.offset as u64 + distance;
    match section.has_bytes() && section.size > 0 && !is_placed {
        true => Err("a section's contents are not where its address says"),
        false => Ok(()),
    }
}

/// The parts that a command names: which, where in the command its offset stands (its size behind), and bytes in a unit
/// of the size.
fn parts_of(command: macho::LoadCommandType) -> &'static [(LinkEditPart, usize, usize)] {
    match command {
        macho::LC_DYLD_INFO | macho::LC_DYLD_INFO_ONLY => &[
            (LinkEditPart::Rebase, 8, 1),
            (LinkEditPart::Bind, 16, 1),
            (LinkEditPart::WeakBind, 24, 1),
            (LinkEditPart::LazyBind, 32, 1),
            (LinkEditPart::Exports, 40, 1),
        ],
        macho::LC_DYLD_EXPORTS_TRIE => &[(LinkEditPart::Exports, 8, 1)],
        macho::LC_DYLD_CHAINED_FIXUPS => &[(LinkEditPart::ChainedFixups, 8, 1)],
        macho::LC_FUNCTION_STARTS => &[(LinkEditPart::FunctionStarts, 8, 1)],
        macho::LC_DATA_IN_CODE => &[(LinkEditPart::DataInCode, 8, 1)],
        macho::LC_SEGMENT_SPLIT_INFO => &[(LinkEditPart::SplitInfo, 8, 1)],
        macho::LC_SYMTAB => &[(LinkEditPart::Symbols, 8, 16), (LinkEditPart::Strings, 16, 1)],
        macho::LC_DYSYMTAB => &[(LinkEditPart::IndirectSymbols, 56, 4)],
        macho::LC_CODE_SIGNATURE => &[(LinkEditPart::Signature, 8, 1)],
        _ => &[],
    }
}
