//! The bytes that the loader maps, in either format.

use crate::elf::file::ElfFile;
use crate::macho::file::MachOFile;
use reorder_base::address::Address;

/// The bytes that the loader maps, in either format.
pub trait MappedBytes: Sync {
    /// The `length` bytes at `address`, if the file holds them all.
    fn bytes_at(&self, address: Address, length: u64) -> Option<&[u8]>;
}

impl MappedBytes for ElfFile<'_> {
    fn bytes_at(&self, address: Address, length: u64) -> Option<&[u8]> {
        self.bytes_at(address, length)
    }
}

impl MappedBytes for MachOFile<'_> {
    fn bytes_at(&self, address: Address, length: u64) -> Option<&[u8]> {
        self.bytes_at(address, length)
    }
}
