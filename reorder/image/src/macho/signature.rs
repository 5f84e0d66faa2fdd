//! The code signature: blobs in slots, one of which, the code directory, has a digest of each page.
//!
//! Source: `kern/cs_blobs.h` of xnu; all numbers are big-endian.

use super::file::MachOFile;
use super::load_command::LinkEditPart;
use reorder_base::error::{Error, Result};

/// Magic numbers and slots.
pub mod constants {
    /// All blobs together.
    pub const SUPER_BLOB: u32 = 0xfade_0cc0;
    /// A code directory.
    pub const CODE_DIRECTORY: u32 = 0xfade_0c02;
    /// Slot of the code directory.
    pub const SLOT_CODE_DIRECTORY: u32 = 0;
    /// Slot of the requirements.
    pub const SLOT_REQUIREMENTS: u32 = 2;
    /// Slot of the entitlements as a property list.
    pub const SLOT_ENTITLEMENTS: u32 = 5;
    /// Slot of the entitlements as DER.
    pub const SLOT_ENTITLEMENTS_DER: u32 = 7;
    /// Signed without a certificate.
    pub const ADHOC: u32 = 2;
    /// Signed by the linker.
    pub const LINKER_SIGNED: u32 = 0x2_0000;
    /// Hardened runtime.
    pub const RUNTIME: u32 = 0x1_0000;
}

/// About twenty slots are defined.
const MAX_BLOBS: usize = 64;

/// A signature as it is in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature<'data> {
    /// Slot and bytes, head included, in file order.
    pub blobs: Vec<(u32, &'data [u8])>,
    /// The directory in slot 0.
    pub directory: CodeDirectory<'data>,
}

/// Fields of a code directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeDirectory<'data> {
    /// The version, which decides which fields there are.
    pub version: u32,
    /// See [`constants`].
    pub flags: u32,
    /// Number of bytes that digests cover.
    pub code_limit: u64,
    /// Bytes of a digest.
    pub hash_size: u8,
    /// 1 SHA-1, 2 SHA-256, 3 SHA-256 cut to 20 bytes, 4 SHA-384.
    pub hash_type: u8,
    /// The logarithm of the bytes that one digest covers; 0 for one digest of everything.
    pub page_shift: u8,
    /// The identifier of the program.
    pub identifier: &'data [u8],
    /// The team of a developer's signature.
    pub team: Option<&'data [u8]>,
    /// File offset, size and flags of the segment with the code; from version 0x20400 on.
    pub code_segment: Option<(u64, u64, u64)>,
    /// The version of the hardened runtime; from version 0x20500 on.
    pub runtime: Option<u32>,
    /// Digests of the slots from 1 on; all zero for missing slots.
    pub special_hashes: Vec<&'data [u8]>,
    /// Digests of the pages.
    pub page_hashes: Vec<&'data [u8]>,
}

impl<'data> Signature<'data> {
    /// The image's signature, if it is signed.
    ///
    /// # Errors
    /// Blobs and fields that lie outside the signature.
    pub fn read(file: &MachOFile<'data>) -> Result<Option<Self>> {
        let Some(range) = file.link_edit_range(LinkEditPart::Signature) else { return Ok(None) };
        let bytes = file.link_edit_bytes(LinkEditPart::Signature);
        Self::parse(bytes).map(Some).map_err(|what| Error::malformed(range.offset as u64, what))
    }

    /// The signature in `bytes`, or what is wrong with it.
    ///
    /// # Errors
    /// As for [`Signature::read`].
    pub fn parse(bytes: &'data [u8]) -> std::result::Result<Self, String> {
        let short = || "the code signature ends too early".to_owned();
        if word(bytes, 0) != Some(constants::SUPER_BLOB) {
            return Err("the code signature has no head".into());
        }
        let count = word(bytes, 8).ok_or_else(short)? as usize;
        if count > MAX_BLOBS {
            return Err(format!("the code signature has {count} parts"));
        }
        let mut blobs = Vec::new();
        for index in 0..count {
            let slot = word(bytes, 12 + index * 8).ok_or_else(short)?;
            let offset = word(bytes, 16 + index * 8).ok_or_else(short)? as usize;
            let size = word(bytes, offset.saturating_add(4)).ok_or_else(short)? as usize;
            let blob = offset.checked_add(size).and_then(|end| bytes.get(offset..end)).ok_or_else(short)?;
            if size < 8 || blobs.iter().any(|(known, _)| *known == slot) {
                return Err(format!(
                    "the code signature has the slot {slot:#x} twice, or with nothing in it"
                ));
            }
            blobs.push((slot, blob));
        }
        let directory = blobs.iter().find(|(slot, _)| *slot == constants::SLOT_CODE_DIRECTORY);
        let (_, directory) = directory.ok_or("the code signature has no code directory")?;
        let directory = CodeDirectory::parse(directory).ok_or("the code directory is damaged")?;
        Ok(Self { blobs, directory })
    }

    /// The bytes in `slot`, head included.
    #[must_use]
    pub fn blob(&self, slot: u32) -> Option<&'data [u8]> {
        self.blobs.iter().find(|(known, _)| *known == slot).map(|(_, blob)| *blob)
    }
}

impl<'data> CodeDirectory<'data> {
    /// A blob, head included.
    #[must_use]
    pub fn parse(blob: &'data [u8]) -> Option<Self> {
        let string = |offset: u32| {
            let rest = blob.get(offset as usize..)?;
            Some(&rest[..rest.iter().position(|byte| *byte == 0)?])
        };
        if word(blob, 0)? != constants::CODE_DIRECTORY {
            return None;
        }
        let version = word(blob, 8)?;
        let (hashes, special, pages) = (word(blob, 16)? as usize, word(blob, 24)? as usize, word(blob, 28)?);
        let &[hash_size, hash_type, _platform, page_shift] = blob.get(36..40)?.first_chunk()?;
        let hash = usize::from(hash_size);
        let first = hashes.checked_sub(special.checked_mul(hash)?)?;
        let end = hashes.checked_add((pages as usize).checked_mul(hash)?)?;
        let digests: Vec<&[u8]> = match hash {
            0 => return None,
            _ => blob.get(first..end)?.chunks_exact(hash).collect(),
        };
        let (special_hashes, page_hashes) = digests.split_at(special);
        let wide_limit = if version >= 0x20300 { long(blob, 56)? } else { 0 };
        let team = if version >= 0x20200 { word(blob, 48)? } else { 0 };
        Some(Self {
            version,
            flags: word(blob, 12)?,
            code_limit: if wide_limit != 0 { wide_limit } else { word(blob, 32)?.into() },
            hash_size,
            hash_type,
            page_shift,
            identifier: string(word(blob, 20)?)?,
            team: if team != 0 { Some(string(team)?) } else { None },
            code_segment: match version >= 0x20400 {
                true => Some((long(blob, 64)?, long(blob, 72)?, long(blob, 80)?)),
                false => None,
            },
            runtime: if version >= 0x20500 { Some(word(blob, 88)?) } else { None },
            // The last of the special slots is first.
            special_hashes: special_hashes.iter().rev().copied().collect(),
            page_hashes: page_hashes.to_vec(),
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|long| u64::from_be_bytes(*long))
}
