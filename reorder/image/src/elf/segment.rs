//! Program headers.

use object::LittleEndian;
use object::elf::ProgramHeader64;

use reorder_base::address::{Address, FileOffset};
use reorder_base::error::{Error, Result};

/// One program header whose file part lies inside the file.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// `p_type`.
    pub kind: u32,
    /// `p_flags`.
    pub flags: u32,
    /// Start in the file.
    pub offset: FileOffset,
    /// Start in memory.
    pub address: Address,
    /// Bytes in the file.
    pub file_size: u64,
    /// Bytes in memory.
    pub memory_size: u64,
    /// `p_align`.
    pub alignment: u64,
}

impl Segment {
    pub(super) fn parse(bytes: &[u8], entry: &ProgramHeader64<LittleEndian>) -> Result<Self> {
        let endian = LittleEndian;
        let segment = Self {
            kind: entry.p_type.get(endian).0,
            flags: entry.p_flags.get(endian).0,
            offset: FileOffset(entry.p_offset.get(endian)),
            address: Address(entry.p_vaddr.get(endian)),
            file_size: entry.p_filesz.get(endian),
            memory_size: entry.p_memsz.get(endian),
            alignment: entry.p_align.get(endian),
        };
        let end = segment.offset.0.checked_add(segment.file_size);
        if end.is_none_or(|end| end > bytes.len() as u64) {
            return Err(Error::malformed(segment.offset.0, "a segment runs past the end of the file"));
        }
        let memory_end = segment.address.0.checked_add(segment.memory_size.max(segment.file_size));
        if memory_end.is_none() {
            return Err(Error::malformed(segment.offset.0, "a segment runs past the address space"));
        }
        Ok(segment)
    }

    /// Mapped by the loader.
    pub fn is_load(&self) -> bool {
        self.kind == object::elf::PT_LOAD.0
    }

    /// Mapped executable.
    pub fn is_executable(&self) -> bool {
        self.flags & object::elf::PF_X.0 != 0
    }

    /// Mapped writable.
    pub fn is_writable(&self) -> bool {
        self.flags & object::elf::PF_W.0 != 0
    }
}
