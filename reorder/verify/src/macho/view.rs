//! The headers of one Mach-O image, read through `goblin`.
//!
//! Takes the bytes of a 64-bit little-endian image for arm64 or x86-64; gives its commands, segments, sections and the
//! parts of `__LINKEDIT` with bounds that were checked against the file. Addresses are plain numbers here: the same
//! reader serves the old and the new image, and only a pair gives them a type.
//!
//! Nothing is shared with `reorder_image::macho`, so that a mistake there is not repeated here.

use std::ops::Range;

use goblin::container::{Container, Ctx, Endian};
use goblin::mach::constants::cputype::{CPU_TYPE_ARM64, CPU_TYPE_X86_64};
use goblin::mach::header::MH_MAGIC_64;
use goblin::mach::load_command::{CommandVariant, LoadCommand};
use goblin::mach::segment::{Section, Segment};

use super::super::bytes::{range, u32_at};
use super::super::processor::Processor;
use super::entries::entries;
pub(super) use super::parts::{Part, PartView};
use super::parts::{least_size, parts_of};
use super::tables::data_in_code;
use reorder_base::error::{Error, Result};

/// One load command, whose bytes lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommandView {
    pub(super) kind: u32,
    pub(super) offset: usize,
    pub(super) size: usize,
}

/// One segment.
#[derive(Clone, Debug)]
pub(super) struct SegmentView {
    pub(super) name: [u8; 16],
    pub(super) address: u64,
    pub(super) memory_size: u64,
    pub(super) offset: u64,
    pub(super) file_size: u64,
    /// Where its load command lies.
    pub(super) command: usize,
}

/// One section, with its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SectionView<'data> {
    pub(super) segment: [u8; 16],
    pub(super) name: [u8; 16],
    pub(super) address: u64,
    pub(super) size: u64,
    /// Position of the first byte in the file.
    pub(super) offset: u64,
    pub(super) flags: u32,
    /// The alignment's logarithm of base 2.
    pub(super) alignment: u32,
    /// Where its header lies.
    pub(super) header: usize,
    /// Contents; empty for sections that the file does not hold.
    pub(super) bytes: &'data [u8],
}

/// How `goblin` is told to read: 64-bit, little-endian.
const CONTEXT: Ctx = Ctx { container: Container::Big, le: Endian::Little };

/// One image's headers.
#[derive(Debug)]
pub(super) struct MachView<'data> {
    /// The whole image.
    pub(super) bytes: &'data [u8],
    pub(super) processor: Processor,
    pub(super) commands: Vec<CommandView>,
    pub(super) segments: Vec<SegmentView>,
    /// The section with number `n` is at `n - 1`.
    pub(super) sections: Vec<SectionView<'data>>,
    /// In the order of the commands, including empty ones.
    pub(super) parts: Vec<PartView>,
    /// Ranges that `LC_DATA_IN_CODE` lists, ascending.
    data: Vec<Range<u64>>,
    /// Places that control reaches although no instruction names them, ascending; x86-64 only.
    entries: Vec<u64>,
    text: usize,
    base: u64,
}

/// A name of at most 16 bytes, padded with zeros.
pub(super) fn padded(name: &[u8]) -> [u8; 16] {
    let mut padded = [0; 16];
    let length = name.len().min(16);
    padded[..length].copy_from_slice(&name[..length]);
    padded
}

impl SectionView<'_> {
    /// The type of section: the lowest byte of the flags.
    pub(super) fn kind(&self) -> u32 {
        self.flags & 0xff
    }

    /// Whether it holds instructions.
    pub(super) fn is_code(&self) -> bool {
        const ANY_INSTRUCTIONS: u32 = 0x8000_0400;
        self.flags & ANY_INSTRUCTIONS != 0 && !self.bytes.is_empty()
    }

    /// Its addresses.
    pub(super) fn range(&self) -> Range<u64> {
        self.address..self.address.wrapping_add(self.size)
    }

    /// Whether it is called `name` in `segment`.
    pub(super) fn is(&self, segment: &[u8], name: &[u8]) -> bool {
        self.segment == padded(segment) && self.name == padded(name)
    }

    /// Its name, for people.
    pub(super) fn title(&self) -> String {
        let text = |name: &[u8; 16]| {
            String::from_utf8_lossy(name.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
        };
        format!("{},{}", text(&self.segment), text(&self.name))
    }
}

impl<'data> MachView<'data> {
    /// Reads the headers of `bytes`.
    ///
    /// # Errors
    /// Other formats and processors, no section `__TEXT,__text`, and headers, sections or parts outside of the file.
    pub(super) fn parse(bytes: &'data [u8]) -> Result<Self> {
        let broken = |offset: usize, what: &str| Error::malformed(offset as u64, what.to_owned());
        if u32_at(bytes, 0) != Some(MH_MAGIC_64) {
            return Err(broken(0, "not a 64-bit little-endian Mach-O image"));
        }
        let processor = match u32_at(bytes, CPU_TYPE_FIELD) {
            Some(CPU_TYPE_ARM64) => Processor::Aarch64,
            Some(CPU_TYPE_X86_64) => Processor::X86_64,
            _ => return Err(broken(4, "an image for another processor than arm64 or x86_64")),
        };
        let commands = load_commands(bytes)?;
        let mut view = Self {
            bytes,
            processor,
            commands: Vec::new(),
            segments: Vec::new(),
            sections: Vec::new(),
            parts: Vec::new(),
            data: Vec::new(),
            entries: Vec::new(),
            text: 0,
            base: 0,
        };
        for command in &commands {
            let (offset, size) = (command.offset, command.command.cmdsize());
            if range(bytes, offset as u64, size as u64).is_none() {
                return Err(broken(offset, "a load command runs past the end of the file"));
            }
            if size < least_size(&command.command) {
                return Err(broken(offset, "a load command that is too short for its kind"));
            }
            view.commands.push(CommandView { kind: command.command.cmd(), offset, size });
            view.read_parts(&command.command, offset)?;
        }
        for command in &commands {
            let CommandVariant::Segment64(segment) = &command.command else { continue };
            let command = command.offset;
            let segment = Segment::from_64(bytes, segment, command, CONTEXT)
                .map_err(|error| broken(command, &format!("a segment: {error}")))?;
            let is_inside = range(bytes, segment.fileoff, segment.filesize).is_some()
                && segment.vmaddr.checked_add(segment.vmsize).is_some()
                && segment.filesize <= segment.vmsize;
            if !is_inside {
                return Err(broken(command, "a segment that is not in the file or not in the address space"));
            }
            view.segments.push(SegmentView {
                name: segment.segname,
                address: segment.vmaddr,
                memory_size: segment.vmsize,
                offset: segment.fileoff,
                file_size: segment.filesize,
                command,
            });
            let sections =
                segment.sections().map_err(|error| broken(command, &format!("section headers: {error}")))?;
            for (index, (section, _)) in sections.iter().enumerate() {
                let header = command + 72 + index * 80;
                let home = &view.segments[view.segments.len() - 1];
                let section = read_section(bytes, section, home, header)
                    .ok_or_else(|| broken(header, "a section that is not where its segment is"))?;
                view.sections.push(section);
            }
        }
        view.find_text()?;
        let mut data: Vec<Range<u64>> = data_in_code(&view)
            .into_iter()
            .map(|(start, length, _)| start..start.saturating_add(u64::from(length)))
            .collect();
        data.sort_unstable_by_key(|range| range.start);
        view.data = data;
        view.entries = entries(&view);
        Ok(view)
    }

    fn find_text(&mut self) -> Result<()> {
        let mut texts =
            (0..self.sections.len()).filter(|&index| self.sections[index].is(b"__TEXT", b"__text"));
        match (texts.next(), texts.next()) {
            (Some(text), None) if !self.sections[text].bytes.is_empty() => self.text = text,
            _ => return Err(Error::malformed(0, "not one section __TEXT,__text with code")),
        }
        let first =
            self.segments.iter().find(|segment| segment.name == padded(b"__TEXT") && segment.offset == 0);
        self.base = first.ok_or_else(|| Error::malformed(0, "no segment __TEXT with the headers"))?.address;
        let mut places: Vec<(u64, u64)> = self
            .sections
            .iter()
            .filter(|section| !section.bytes.is_empty())
            .map(|section| (section.offset, section.offset + section.bytes.len() as u64))
            .collect();
        places.sort_unstable();
        // Checks walk each section once; if sections shared bytes, that work would be unbounded.
        match places.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            true => Err(Error::malformed(0, "sections overlap each other in the file")),
            false => Ok(()),
        }
    }

    fn read_parts(&mut self, command: &CommandVariant, at: usize) -> Result<()> {
        for part in parts_of(command, at)? {
            if part.size > 0 && range(self.bytes, part.offset as u64, part.size as u64).is_none() {
                let message = format!("{:?} lies outside of the file", part.part);
                return Err(Error::malformed(at as u64, message));
            }
            if self.parts.iter().any(|known| known.part == part.part) {
                return Err(Error::malformed(at as u64, format!("{:?} is there twice", part.part)));
            }
            self.parts.push(part);
        }
        Ok(())
    }

    /// `__TEXT,__text`: the functions.
    pub(super) fn text(&self) -> &SectionView<'data> {
        &self.sections[self.text]
    }

    /// The section number of `__text` in symbols.
    pub(super) fn text_number(&self) -> usize {
        self.text + 1
    }

    /// The address of the headers, from which image offsets count.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The section called `name` in `segment`.
    pub(super) fn section(&self, segment: &[u8], name: &[u8]) -> Option<&SectionView<'data>> {
        self.sections.iter().find(|section| section.is(segment, name))
    }

    /// The section with bytes that holds `address`.
    pub(super) fn section_at(&self, address: u64) -> Option<&SectionView<'data>> {
        self.sections.iter().find(|section| !section.bytes.is_empty() && section.range().contains(&address))
    }

    /// The segment called `name`.
    pub(super) fn segment(&self, name: &[u8]) -> Option<&SegmentView> {
        self.segments.iter().find(|segment| segment.name == padded(name))
    }

    /// The file position of `size` bytes that a segment maps at `address`.
    pub(super) fn offset_of(&self, address: u64, size: u64) -> Option<usize> {
        self.segments.iter().find_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            let is_inside = within.checked_add(size)? <= segment.file_size;
            is_inside.then_some((segment.offset + within) as usize)
        })
    }

    /// Position and bytes of a part of `__LINKEDIT`; empty when the image does not have it.
    pub(super) fn part(&self, part: Part) -> (usize, &'data [u8]) {
        let found = self.parts.iter().find(|known| known.part == part && known.size > 0);
        found.map_or((0, &[]), |found| (found.offset, &self.bytes[found.offset..found.offset + found.size]))
    }

    /// The ranges of data in code that reach into `[start, end)`, provided that they do not overlap.
    pub(super) fn data_between(&self, start: u64, end: u64) -> &[Range<u64>] {
        let from = self.data.partition_point(|range| range.end <= start);
        let to = self.data.partition_point(|range| range.start < end);
        self.data.get(from..to).unwrap_or_default()
    }

    /// Places in `[start, end)` that control reaches although no instruction names them.
    pub(super) fn entries_between(&self, start: u64, end: u64) -> &[u64] {
        let from = self.entries.partition_point(|&entry| entry < start);
        let to = self.entries.partition_point(|&entry| entry < end);
        self.entries.get(from..to).unwrap_or_default()
    }

    /// The first load command of this kind.
    pub(super) fn command(&self, kind: u32) -> Option<(usize, &'data [u8])> {
        let command = self.commands.iter().find(|command| command.kind == kind)?;
        Some((command.offset, &self.bytes[command.offset..command.offset + command.size]))
    }
}

/// Of the header: "OS X ABI Mach-O File Format Reference", `mach_header_64`.
const CPU_TYPE_FIELD: usize = 4;
const COUNT_FIELD: usize = 16;
const SIZE_FIELD: usize = 20;
const HEADER_SIZE: usize = 32;
/// Kind and size.
const MIN_COMMAND: usize = 8;

/// Parses them one by one, because `goblin` adds addresses of a whole image without overflow checks.
fn load_commands(bytes: &[u8]) -> Result<Vec<LoadCommand>> {
    let broken = |offset: usize, what: &str| Error::malformed(offset as u64, what.to_owned());
    let field = |at| u32_at(bytes, at).and_then(|value| usize::try_from(value).ok());
    let (Some(count), Some(size)) = (field(COUNT_FIELD), field(SIZE_FIELD)) else {
        return Err(broken(0, "the header of the Mach-O image is cut off"));
    };
    let end = size.saturating_add(HEADER_SIZE);
    if end > bytes.len() || count > size / MIN_COMMAND {
        return Err(broken(COUNT_FIELD, "the load commands run past the end of the file"));
    }
    let mut commands = Vec::with_capacity(count);
    let mut offset = HEADER_SIZE;
    for _ in 0..count {
        let start = offset;
        let command = LoadCommand::parse(bytes, &mut offset, CONTEXT.le)
            .map_err(|error| broken(start, &format!("a load command: {error}")))?;
        if offset > end {
            return Err(broken(start, "a load command runs past the others"));
        }
        commands.push(command);
    }
    Ok(commands)
}

fn read_section<'data>(
    bytes: &'data [u8],
    section: &Section,
    home: &SegmentView,
    header: usize,
) -> Option<SectionView<'data>> {
    const ZERO_FILL: [u32; 3] = [0x1, 0xc, 0x12];
    let within = section.addr.checked_sub(home.address)?;
    let end = within.checked_add(section.size)?;
    if end > home.memory_size {
        return None;
    }
    let has_bytes = !ZERO_FILL.contains(&(section.flags & 0xff)) && section.size > 0;
    if has_bytes && (end > home.file_size || u64::from(section.offset) != home.offset.checked_add(within)?) {
        return None;
    }
    let contents = match has_bytes {
        true => range(bytes, u64::from(section.offset), section.size)?,
        false => &[],
    };
    Some(SectionView {
        segment: section.segname,
        name: section.sectname,
        address: section.addr,
        size: section.size,
        offset: u64::from(section.offset),
        flags: section.flags,
        alignment: section.align,
        header,
        bytes: contents,
    })
}
