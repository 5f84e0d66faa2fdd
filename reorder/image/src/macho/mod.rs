//! Mach-O images for arm64 and x86-64.
//!
//! Takes the bytes of a program or library, universal or not. `headers` reads the load commands once. [`MachOImage`] is
//! what order files need of any image: functions with their names, and its UUID. [`file::MachOFile`] is an image whose
//! headers are checked, which all other tables and relocation rely on.

pub mod analysis;
pub mod checks;
mod code_names;
pub mod data_in_code;
pub mod eh_frame;
pub mod entry;
pub mod export_trie;
pub mod file;
pub mod fixups;
pub mod function_starts;
mod headers;
pub mod init_offsets;
pub mod landing_pads;
#[cfg(any(test, feature = "test-support"))]
pub mod linked;
pub mod load_command;
pub mod method_lists;
pub mod reference;
pub mod section;
pub mod signature;
pub mod swift;
pub mod symbol_table;
mod symbols;
#[cfg(test)]
mod tests;
pub mod universal;
pub mod unwind_info;

use object::LittleEndian;
use object::macho::MH_OBJECT;
use object::read::macho::MachHeader as _;

use file::{MachOFile, unreadable_image};
use headers::Headers;
use reorder_base::error::{Error, Result};

pub use code_names::{CodeNames, CodeSymbol};
pub use universal::is_macho;

/// The name that linkers have for the processor of the one image in `bytes`.
///
/// # Errors
/// Files that are not Mach-O, have several images, or none for a known processor.
pub fn architecture(bytes: &[u8]) -> Result<&'static str> {
    Ok(universal::choose(bytes, None)?.0)
}

/// An image for any processor that linkers name, of any kind but object files: what order files need of it.
pub struct MachOImage<'data> {
    /// As linkers name it: `arm64`, `arm64e`, `x86_64`.
    pub architecture: &'static str,
    /// Tells builds apart.
    pub uuid: Option<[u8; 16]>,
    /// Its functions.
    pub names: CodeNames<'data>,
    headers: Headers<'data>,
}

impl<'data> MachOImage<'data> {
    /// Reads the image for `architecture`, or the only one.
    ///
    /// # Errors
    /// Files that are not Mach-O, object files, files without an image that fits, damaged headers and tables.
    pub fn parse(bytes: &'data [u8], architecture: Option<&str>) -> Result<Self> {
        let (architecture, range) = universal::choose(bytes, architecture)?;
        let start = range.start;
        let (headers, names) = Headers::read(&bytes[range])
            .and_then(|headers| match headers.unreadable {
                Some((_, error)) => Err(error),
                None => {
                    let Headers { bytes, segments, sections, tables, .. } = &headers;
                    let names = CodeNames::read(bytes, segments, sections, *tables)?;
                    Ok((headers, names))
                }
            })
            .map_err(|error| unreadable_image(architecture, start, &error))?;
        if headers.header.filetype(LittleEndian) == MH_OBJECT {
            return Err(Error::usage("this is an object file")
                .with_hint("link it first, then give the program or library"));
        }
        Ok(Self { architecture, uuid: headers.uuid, names, headers })
    }

    /// The same image with its headers checked, as relocating it demands.
    ///
    /// # Errors
    /// Those of [`MachOFile::parse`].
    pub fn checked(&self) -> Result<MachOFile<'data>> {
        MachOFile::check(self.headers.clone())
    }
}
