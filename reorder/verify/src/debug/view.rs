//! The debug sections of one image, decompressed, and its units through `gimli`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read as _;

use gimli::{EndianSlice, LittleEndian};
use object::read::{CompressedData, CompressionFormat};

use super::layout::is_debug;
use crate::bytes::{u32_at, u64_at};
use crate::elf::view::{ElfView, SectionView};
use reorder_base::error::{Error, Result};

/// What units are read from.
pub(super) type Slice<'data> = EndianSlice<'data, LittleEndian>;

/// The debug sections by name; compressed ones under their uncompressed name.
pub(super) struct DebugView<'data> {
    sections: BTreeMap<String, Cow<'data, [u8]>>,
}

impl<'data> DebugView<'data> {
    /// Reads all debug sections.
    ///
    /// # Errors
    /// Broken compression.
    pub(super) fn read(image: &ElfView<'data>) -> Result<Self> {
        let mut sections = BTreeMap::new();
        for section in image.sections.iter().filter(|section| is_debug(section) && !section.bytes.is_empty())
        {
            let name = String::from_utf8_lossy(section.name).replacen(".zdebug_", ".debug_", 1);
            if sections.insert(name.clone(), contents(section)?).is_some() {
                return Err(Error::malformed(section.offset, format!("there are two sections {name}")));
            }
        }
        Ok(Self { sections })
    }

    /// Names of all sections.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.sections.keys()
    }

    /// Contents of all sections.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.sections.values().map(AsRef::as_ref)
    }

    /// Contents of a section; empty when there is none.
    pub(super) fn bytes(&self, name: &str) -> &[u8] {
        self.sections.get(name).map_or(&[], AsRef::as_ref)
    }

    /// The reader of units.
    pub(super) fn dwarf(&self) -> gimli::Dwarf<Slice<'_>> {
        let load = |id: gimli::SectionId| Ok::<_, ()>(Slice::new(self.bytes(id.name()), LittleEndian));
        let mut dwarf = gimli::Dwarf::load(load).unwrap_or_default();
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        dwarf
    }
}

fn contents<'data>(section: &SectionView<'data>) -> Result<Cow<'data, [u8]>> {
    const SHF_COMPRESSED: u64 = 0x800;
    let broken =
        || Error::malformed(section.offset, format!("{} is damaged", String::from_utf8_lossy(section.name)));
    let bytes = section.bytes;
    if section.name == b".gnu_debugdata" {
        let mut contents = Vec::new();
        // Symbols and their names do not shrink more than this.
        let most = bytes.len() as u64 * 256;
        let image = liblzma::bufread::XzDecoder::new(bytes).take(most).read_to_end(&mut contents);
        return image.map(|_| Cow::Owned(contents)).map_err(|_| broken());
    }
    let (format, header, size) = if section.flags & SHF_COMPRESSED != 0 {
        let format = match u32_at(bytes, 0).ok_or_else(broken)? {
            1 => CompressionFormat::Zlib,
            2 => CompressionFormat::Zstandard,
            _ => return Err(broken()),
        };
        (format, 24, u64_at(bytes, 8).ok_or_else(broken)?)
    } else if section.name.starts_with(b".zdebug_") && bytes.starts_with(b"ZLIB") {
        (CompressionFormat::Zlib, 12, u64_at(bytes, 4).ok_or_else(broken)?.swap_bytes())
    } else {
        return Ok(Cow::Borrowed(bytes));
    };
    let data = bytes.get(header..).ok_or_else(broken)?;
    // No stream expands by a larger factor; a larger size must not be allocated.
    if size / 2048 > data.len() as u64 {
        return Err(broken());
    }
    CompressedData { format, data, uncompressed_size: size }.decompress().map_err(|_| broken())
}
