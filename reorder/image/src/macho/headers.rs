//! The header and the load commands of an image, read once for all later phases.
//!
//! Takes the bytes of one image; gives [`Headers`]. The commands lie inside the image; the places that they name need not.
//! The first that does not is recorded, not refused: an order file can be made for images that cannot be relocated, such as
//! files of debug information, whose sections have no contents.
//! Source: `mach-o/loader.h` of Apple's cctools.

use object::LittleEndian;
use object::macho::{self, LinkeditDataCommand, MachHeader64, SegmentCommand64, SymtabCommand};
use object::read::macho::{LoadCommandData, MachHeader as _, Section as _, Segment as _};

use super::load_command::{LinkEditPart, LinkEditRange, LoadCommand};
use super::section::{Section, Segment};
use reorder_base::address::Address;

/// The load commands of one image.
#[derive(Clone, Debug)]
pub(super) struct Headers<'data> {
    pub(super) bytes: &'data [u8],
    pub(super) header: &'data MachHeader64<LittleEndian>,
    /// In file order.
    pub(super) commands: Vec<LoadCommand>,
    /// In file order.
    pub(super) segments: Vec<Segment<'data>>,
    /// In file order; the section with number `n` is at `n - 1`.
    pub(super) sections: Vec<Section<'data>>,
    /// The parts of `__LINKEDIT`, in the order of their commands, up to the first wrong place.
    pub(super) link_edit: Vec<LinkEditRange>,
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) tables: Tables<'data>,
    /// The offset of the first header that names a wrong place, and what is wrong with it.
    pub(super) wrong_place: Option<(usize, String)>,
    /// The first load command that cannot be read, and why. Nothing after it was read.
    pub(super) unreadable: Option<(usize, object::read::Error)>,
}

/// The commands that say where functions and their names are: the last of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tables<'data> {
    pub(super) symbols: Option<&'data SymtabCommand<LittleEndian>>,
    pub(super) function_starts: Option<&'data LinkeditDataCommand<LittleEndian>>,
}

impl<'data> Headers<'data> {
    /// Reads the header and as many load commands as can be read.
    ///
    /// # Errors
    /// No header of a 64-bit little-endian image, or load commands that do not fit into the image.
    pub(super) fn read(bytes: &'data [u8]) -> object::read::Result<Self> {
        let header = MachHeader64::<LittleEndian>::parse(bytes, 0)?;
        let mut iterator = header.load_commands(LittleEndian, bytes, 0)?;
        let mut headers = Self {
            bytes,
            header,
            commands: Vec::new(),
            segments: Vec::new(),
            sections: Vec::new(),
            link_edit: Vec::new(),
            uuid: None,
            tables: Tables::default(),
            wrong_place: None,
            unreadable: None,
        };
        let mut offset = size_of::<MachHeader64<LittleEndian>>();
        loop {
            let result = match iterator.next() {
                Ok(None) => return Ok(headers),
                Ok(Some(command)) => {
                    headers.read_command(command, offset).map(|()| command.cmdsize() as usize)
                }
                Err(error) => Err(error),
            };
            match result {
                Ok(size) => offset += size,
                Err(error) => {
                    headers.unreadable = Some((offset, error));
                    return Ok(headers);
                }
            }
        }
    }

    fn read_command(
        &mut self,
        command: LoadCommandData<'data, LittleEndian>,
        offset: usize,
    ) -> object::read::Result<()> {
        let (kind, size) = (command.cmd(), command.cmdsize() as usize);
        self.commands.push(LoadCommand { kind: kind.0, offset, size });
        if let Some((segment, data)) = command.segment_64()? {
            return self.read_segment(segment, data, offset);
        }
        if let Some(uuid) = command.uuid()? {
            self.uuid = Some(uuid.uuid);
            return Ok(());
        }
        self.read_parts(kind, offset, size);
        if let Some(symbols) = command.symtab()? {
            self.tables.symbols = Some(symbols);
        } else if kind == macho::LC_FUNCTION_STARTS {
            self.tables.function_starts = Some(command.data()?);
        }
        Ok(())
    }

    /// Reads where the parts of `__LINKEDIT` are that a command of this `kind` names.
    fn read_parts(&mut self, kind: macho::LoadCommandType, offset: usize, size: usize) {
        let command = &self.bytes[offset..offset + size];
        for (part, field, entry) in parts_of(kind) {
            // Later parts are not used. This also bounds the list: no part with bytes is in it twice.
            if self.wrong_place.is_some() {
                return;
            }
            let number = |at: usize| {
                let field = command.get(at..at + 4)?.try_into().ok()?;
                Some(u32::from_le_bytes(field) as usize)
            };
            let (Some(start), Some(count)) = (number(*field), number(field + 4)) else {
                self.note_wrong(offset, "a load command is too short for its kind");
                return;
            };
            let size = count.saturating_mul(*entry);
            if size > 0 && start.checked_add(size).is_none_or(|end| end > self.bytes.len()) {
                self.note_wrong(offset, format!("{part:?} lies outside the image"));
            }
            if size > 0 && self.link_edit.iter().any(|range| range.size > 0 && range.part == *part) {
                self.note_wrong(offset, format!("the image has {part:?} twice"));
            }
            let (offset_field, size_field) = (offset + field, offset + field + 4);
            self.link_edit.push(LinkEditRange { part: *part, offset: start, size, offset_field, size_field });
        }
    }

    fn read_segment(
        &mut self,
        command: &'data SegmentCommand64<LittleEndian>,
        data: &'data [u8],
        offset: usize,
    ) -> object::read::Result<()> {
        let endian = LittleEndian;
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
        if file_end.is_none_or(|end| end > self.bytes.len()) || memory_end.is_none() {
            self.note_wrong(offset, "a segment lies outside the image");
        }
        if segment.file_size as u64 > segment.memory_size {
            self.note_wrong(offset, "a segment is larger in the file than in memory");
        }
        for (index, header) in command.sections(endian, data)?.iter().enumerate() {
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
            if let Err(what) = check_section(&section, &segment) {
                self.note_wrong(header_offset, what);
            }
            self.sections.push(section);
        }
        self.segments.push(segment);
        Ok(())
    }

    fn note_wrong(&mut self, offset: usize, what: impl Into<String>) {
        if self.wrong_place.is_none() {
            self.wrong_place = Some((offset, what.into()));
        }
    }
}

/// Checks the section's place in its segment, in memory and in the file.
fn check_section(section: &Section<'_>, segment: &Segment<'_>) -> std::result::Result<(), &'static str> {
    let distance = section.address.0.checked_sub(segment.address.0);
    let end = distance.and_then(|distance| distance.checked_add(section.size));
    let (Some(distance), Some(end)) = (distance, end) else {
        return Err("a section starts before its segment, or its end overflows");
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

/// The parts that a command names: the part, where in the command its offset is (followed by its size), and bytes in a
/// unit of the size.
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
