//! Section headers.

use std::borrow::Cow;

use object::LittleEndian;
use object::elf::SectionHeader64;

use reorder_base::address::{Address, FileOffset};
use reorder_base::error::{Error, Result};

/// Position in the section header table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SectionIndex(pub u32);

/// Names are cut here, so that a table without terminators cannot cost sections × file size.
const MAX_NAME_LENGTH: usize = 4096;

/// One section header whose contents lie inside the file.
#[derive(Clone, Copy, Debug)]
pub struct Section<'data> {
    /// Position in the table.
    pub index: SectionIndex,
    /// Where the header itself lies in the file.
    pub header_offset: FileOffset,
    /// Name without its terminator.
    pub name: &'data [u8],
    /// `sh_type`.
    pub kind: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// Start in memory; zero for sections that are not loaded.
    pub address: Address,
    /// Start in the file.
    pub offset: FileOffset,
    /// Size in bytes.
    pub size: u64,
    /// `sh_link`.
    pub link: u32,
    /// `sh_info`.
    pub info: u32,
    /// `sh_addralign`; 1 where the header has no power of two.
    pub alignment: u64,
    /// `sh_entsize`.
    pub entry_size: u64,
}

impl<'data> Section<'data> {
    pub(super) fn parse(
        bytes: &'data [u8],
        index: SectionIndex,
        header_offset: FileOffset,
        entry: &SectionHeader64<LittleEndian>,
        names: &'data [u8],
    ) -> Result<Self> {
        let endian = LittleEndian;
        let name_start = entry.sh_name.get(endian) as usize;
        let name = names
            .get(name_start..)
            .map(|rest| &rest[..rest.len().min(MAX_NAME_LENGTH)])
            .and_then(|rest| rest.split(|&byte| byte == 0).next())
            .ok_or_else(|| {
                Error::malformed(header_offset.0, "a section's name lies outside the name table")
            })?;
        let section = Self {
            index,
            header_offset,
            name,
            kind: entry.sh_type.get(endian).0,
            flags: entry.sh_flags.get(endian).0,
            address: Address(entry.sh_addr.get(endian)),
            offset: FileOffset(entry.sh_offset.get(endian)),
            size: entry.sh_size.get(endian),
            link: entry.sh_link.get(endian),
            info: entry.sh_info.get(endian),
            alignment: Some(entry.sh_addralign.get(endian))
                .filter(|value| value.is_power_of_two())
                .unwrap_or(1),
            entry_size: entry.sh_entsize.get(endian),
        };
        let end = section.offset.0.checked_add(section.size);
        if section.has_bytes() && end.is_none_or(|end| end > bytes.len() as u64) {
            return Err(Error::malformed(
                header_offset.0,
                format!("section {} runs past the end of the file", section.display_name()),
            ));
        }
        Ok(section)
    }

    /// Has contents in the file.
    pub fn has_bytes(&self) -> bool {
        self.kind != object::elf::SHT_NOBITS.0 && self.kind != object::elf::SHT_NULL.0
    }

    /// Present in memory. Sections that are not have address 0 (System V gABI, `sh_addr`), but tools that add notes to a finished
    /// program set SHF_ALLOC all the same.
    pub fn is_loaded(&self) -> bool {
        let is_added_note = self.kind == object::elf::SHT_NOTE.0 && self.address == Address(0);
        self.flags & object::elf::SHF_ALLOC.0 != 0 && !is_added_note
    }

    /// Holds code.
    pub fn is_executable(&self) -> bool {
        self.flags & object::elf::SHF_EXECINSTR.0 != 0
    }

    /// Writable at run time.
    pub fn is_writable(&self) -> bool {
        self.flags & object::elf::SHF_WRITE.0 != 0
    }

    /// A template of thread-local storage.
    pub fn is_thread_local(&self) -> bool {
        self.flags & object::elf::SHF_TLS.0 != 0
    }

    /// First address after the section.
    pub fn end(&self) -> Address {
        self.address.plus(self.size)
    }

    /// Whether `address` lies in the section's memory.
    pub fn contains(&self, address: Address) -> bool {
        address >= self.address && address.distance_from(self.address) < self.size
    }

    /// The name for messages.
    pub fn display_name(&self) -> Cow<'data, str> {
        String::from_utf8_lossy(self.name)
    }
}
