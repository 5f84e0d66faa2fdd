//! Sections of a Mach-O image.

use std::ops::Range;

use reorder_base::address::Address;

/// One section whose contents, if it has any, lie inside the image.
#[derive(Clone, Copy, Debug)]
pub struct Section<'data> {
    /// Number as in symbols: from 1, through all segments.
    pub number: u32,
    /// Name of its segment, without padding.
    pub segment: &'data [u8],
    /// Its name, without padding.
    pub name: &'data [u8],
    /// First address.
    pub address: Address,
    /// Bytes in memory.
    pub size: u64,
    /// Start in the image; meaningless without contents.
    pub offset: usize,
    /// The alignment's logarithm of base 2.
    pub alignment: u32,
    /// Type and attributes.
    pub flags: u32,
    /// Where the header lies in the image.
    pub header_offset: usize,
}

/// Types of sections: the lowest byte of the flags.
pub mod kind {
    /// Zeros that the file does not hold.
    pub const ZERO_FILL: u32 = 1;
    /// The linker's stubs.
    pub(crate) const STUBS: u32 = 8;
    /// Zeros, large.
    pub(crate) const LARGE_ZERO_FILL: u32 = 0xc;
    /// DTrace probes.
    pub(crate) const DTRACE_OBJECT: u32 = 0xf;
    /// Zeros of thread-local variables.
    pub(crate) const THREAD_LOCAL_ZERO_FILL: u32 = 0x12;
    /// Offsets, from the start of the image, of functions that run before `main`.
    pub(crate) const INITIALIZER_OFFSETS: u32 = 0x16;
}

impl<'data> Section<'data> {
    /// One of [`kind`].
    #[must_use]
    pub fn kind(&self) -> u32 {
        self.flags & 0xff
    }

    /// One past the last address.
    #[must_use]
    pub fn end(&self) -> Address {
        self.address.plus(self.size)
    }

    /// Its addresses.
    #[must_use]
    pub fn range(&self) -> Range<Address> {
        self.address..self.end()
    }

    /// Whether the file holds its bytes.
    #[must_use]
    pub fn has_bytes(&self) -> bool {
        !matches!(self.kind(), kind::ZERO_FILL | kind::LARGE_ZERO_FILL | kind::THREAD_LOCAL_ZERO_FILL)
    }

    /// Whether it holds instructions, the linker's stubs included.
    #[must_use]
    pub fn is_code(&self) -> bool {
        const ANY_INSTRUCTIONS: u32 = 0x8000_0400;
        self.flags & ANY_INSTRUCTIONS != 0
    }

    /// Whether it is called `name` in `segment`.
    #[must_use]
    pub fn is(&self, segment: &[u8], name: &[u8]) -> bool {
        self.segment == segment && self.name == name
    }
}

/// One segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'data> {
    /// Its name, without padding.
    pub name: &'data [u8],
    /// First address.
    pub address: Address,
    /// Bytes in memory.
    pub memory_size: u64,
    /// Start in the image.
    pub offset: usize,
    /// Bytes in the image.
    pub file_size: usize,
    /// Initial protection: 1 read, 2 write, 4 execute.
    pub protection: u32,
    /// Where its command lies in the image.
    pub command_offset: usize,
}

impl Segment<'_> {
    /// Its addresses.
    #[must_use]
    pub fn range(&self) -> Range<Address> {
        self.address..self.address.plus(self.memory_size)
    }
}
