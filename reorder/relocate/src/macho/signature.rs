//! The signature of the output: ad hoc, with a digest of each page, as linkers and `codesign -s -` make it.
//!
//! The identifier, entitlements and digests of files beside the image are kept. What only its owner can make is lost, with
//! a warning: a developer's certificate, the requirements that name it, the hardened runtime, notarization.
//! Source: `kern/cs_blobs.h` of xnu, and the signatures that ld64 and lld write.

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::warning::Warning;
use reorder_image::macho::file::{ImageKind, MachOFile};
use reorder_image::macho::signature::Signature;
use reorder_image::macho::signature::constants::{
    ADHOC, CODE_DIRECTORY, LINKER_SIGNED, RUNTIME, SLOT_CODE_DIRECTORY, SLOT_ENTITLEMENTS,
    SLOT_ENTITLEMENTS_DER, SLOT_REQUIREMENTS, SUPER_BLOB,
};

const VERSION: u32 = 0x20400;
const DIRECTORY_HEADER: usize = 88;
/// Logarithms of the pages that linkers sign, and of those that Apple's tools sign for arm64.
const PAGE_SHIFTS: [u8; 2] = [12, 14];
const HASH: usize = 32;
const SHA_256: u8 = 2;
const PROGRAM: u64 = 1;
/// A set of no requirements: magic, size, number.
const NO_REQUIREMENTS: [u8; 12] = [0xfa, 0xde, 0x0c, 0x01, 0, 0, 0, 12, 0, 0, 0, 0];
/// Where a signature starts, and what its size is rounded to.
pub(super) const ALIGNMENT: usize = 16;

/// A new signature without the digests of the pages.
pub(super) struct Signer<'data> {
    identifier: &'data [u8],
    flags: u32,
    /// Slot and bytes, by slot.
    blobs: Vec<(u32, &'data [u8])>,
    /// Digests of the slots from 1 on.
    special_hashes: Vec<[u8; HASH]>,
    /// File offset, size and flags of `__TEXT`.
    code_segment: (u64, u64, u64),
    /// The logarithm of the bytes that one digest covers.
    page_shift: u8,
}

impl<'data> Signer<'data> {
    /// Keeps the parts of the image's `old` signature that stay valid.
    pub(super) fn new(file: &MachOFile<'data>, old: &Signature<'data>) -> Self {
        let directory = &old.directory;
        let mut blobs = Vec::new();
        if old.blob(SLOT_REQUIREMENTS).is_some() {
            // Requirements of a certificate cannot be met without it, and their checks would reject the image.
            let kept = old.blob(SLOT_REQUIREMENTS).filter(|_| directory.flags & ADHOC != 0);
            blobs.push((SLOT_REQUIREMENTS, kept.unwrap_or(&NO_REQUIREMENTS)));
        }
        for slot in [SLOT_ENTITLEMENTS, SLOT_ENTITLEMENTS_DER] {
            blobs.extend(old.blob(slot).map(|blob| (slot, blob)));
        }
        let known = directory.special_hashes.iter().filter(|_| directory.hash_type == SHA_256);
        let mut special_hashes: Vec<[u8; HASH]> =
            known.map(|hash| (*hash).try_into().unwrap_or_default()).collect();
        for (index, hash) in special_hashes.iter_mut().enumerate() {
            let slot = index as u32 + 1;
            let is_beside = matches!(slot, 1 | 3 | 4 | 6);
            if !is_beside {
                *hash = [0; HASH];
            }
        }
        for (slot, blob) in &blobs {
            special_hashes.resize(special_hashes.len().max(*slot as usize), [0; HASH]);
            special_hashes[*slot as usize - 1] = digest(blob);
        }
        while special_hashes.last() == Some(&[0; HASH]) {
            special_hashes.pop();
        }
        let linker_signed = if special_hashes.is_empty() { directory.flags & LINKER_SIGNED } else { 0 };
        let text = file.segment(b"__TEXT").map_or((0, 0), |text| (text.offset as u64, text.file_size as u64));
        let default_flags = if file.kind == ImageKind::Program { PROGRAM } else { 0 };
        let segment_flags = directory.code_segment.map_or(default_flags, |(_, _, flags)| flags);
        Self {
            identifier: directory.identifier,
            flags: ADHOC | linker_signed,
            blobs,
            special_hashes,
            code_segment: (text.0, text.1, segment_flags),
            page_shift: match PAGE_SHIFTS.contains(&directory.page_shift) {
                true => directory.page_shift,
                false => PAGE_SHIFTS[0],
            },
        }
    }

    fn pages(&self, code_limit: usize) -> usize {
        code_limit.div_ceil(1 << self.page_shift)
    }

    /// Bytes of the signature of `code_limit` bytes, without padding.
    pub(super) fn size(&self, code_limit: usize) -> usize {
        let blobs: usize = self.blobs.iter().map(|(_, blob)| blob.len()).sum();
        12 + 8 * (self.blobs.len() + 1) + blobs + self.directory_size(code_limit)
    }

    fn hashes_start(&self) -> usize {
        DIRECTORY_HEADER + self.identifier.len() + 1 + HASH * self.special_hashes.len()
    }

    fn directory_size(&self, code_limit: usize) -> usize {
        self.hashes_start() + HASH * self.pages(code_limit)
    }

    /// The signature of `code`, which is everything before it.
    pub(super) fn sign(&self, code: &[u8]) -> Vec<u8> {
        let directory = self.directory(code);
        let mut offset = 12 + 8 * (self.blobs.len() + 1);
        let parts =
            || [(SLOT_CODE_DIRECTORY, directory.as_slice())].into_iter().chain(self.blobs.iter().copied());
        let mut bytes = Vec::with_capacity(self.size(code.len()));
        let length = offset + parts().map(|(_, part)| part.len()).sum::<usize>();
        words(&mut bytes, &[SUPER_BLOB, length as u32, self.blobs.len() as u32 + 1]);
        for (slot, part) in parts() {
            words(&mut bytes, &[slot, offset as u32]);
            offset += part.len();
        }
        parts().for_each(|(_, part)| bytes.extend_from_slice(part));
        bytes
    }

    fn directory(&self, code: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.directory_size(code.len()));
        let pages = self.pages(code.len());
        let (special, hashes) = (self.special_hashes.len(), self.hashes_start());
        // A limit that does not fit into 32 bits has a wider field further on.
        let limit = u32::try_from(code.len()).unwrap_or(u32::MAX);
        let wide_limit = if code.len() as u64 > u64::from(limit) { code.len() as u64 } else { 0 };
        words(&mut bytes, &[CODE_DIRECTORY, self.directory_size(code.len()) as u32, VERSION, self.flags]);
        words(&mut bytes, &[hashes as u32, DIRECTORY_HEADER as u32, special as u32, pages as u32, limit]);
        bytes.extend([HASH as u8, SHA_256, 0, self.page_shift]);
        // Reserved, scatter list, team, reserved.
        words(&mut bytes, &[0; 4]);
        let (base, size, flags) = self.code_segment;
        for number in [wide_limit, base, size, flags] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend_from_slice(self.identifier);
        bytes.push(0);
        self.special_hashes.iter().rev().for_each(|hash| bytes.extend_from_slice(hash));
        let digests: Vec<[u8; HASH]> = code.par_chunks(1 << self.page_shift).map(digest).collect();
        bytes.extend(digests.iter().flatten());
        bytes
    }
}

fn digest(bytes: &[u8]) -> [u8; HASH] {
    Sha256::digest(bytes).into()
}

fn words(bytes: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| bytes.extend(word.to_be_bytes()));
}

/// The parts of the `old` signature that the output lacks.
pub(super) fn losses(old: &Signature<'_>) -> Vec<Warning> {
    let directory = &old.directory;
    let mut losses = Vec::new();
    if directory.flags & ADHOC == 0 {
        let team = directory.team.map(|team| String::from_utf8_lossy(team).into_owned());
        losses.push(Warning::DeveloperSignatureLost { team });
    }
    if directory.flags & RUNTIME != 0 {
        losses.push(Warning::HardenedRuntimeOff);
    }
    let is_kept = |slot: u32| {
        matches!(slot, SLOT_CODE_DIRECTORY | SLOT_REQUIREMENTS | SLOT_ENTITLEMENTS | SLOT_ENTITLEMENTS_DER)
    };
    // Alternate directories repeat the first, and a certificate's signature is reported above.
    let lost = old.blobs.iter().map(|(slot, _)| *slot).filter(|slot| !is_kept(*slot) && *slot < 0x1000);
    losses.extend(lost.map(Warning::SignatureSlotLost));
    losses
}

#[cfg(test)]
mod tests {
    use super::{ADHOC, HASH, LINKER_SIGNED, NO_REQUIREMENTS, Signer, digest};
    use reorder_image::macho::signature::Signature;

    fn signer(slots: &[u32], page_shift: u8) -> Signer<'static> {
        let last = slots.last().map_or(0, |slot| *slot as usize);
        let mut special_hashes = vec![[0; HASH]; last];
        for slot in slots {
            special_hashes[*slot as usize - 1] = digest(&NO_REQUIREMENTS);
        }
        Signer {
            identifier: b"some.program",
            flags: ADHOC | LINKER_SIGNED,
            blobs: slots.iter().map(|slot| (*slot, NO_REQUIREMENTS.as_slice())).collect(),
            special_hashes,
            code_segment: (0, 0x4000, 1),
            page_shift,
        }
    }

    #[test]
    fn what_was_signed_can_be_checked_page_by_page() {
        for slots in [&[][..], &[2], &[2, 5], &[2, 5, 7], &[7]] {
            for (size, shift) in
                [1, 4095, 4096, 4097, 50_000usize].into_iter().flat_map(|size| [(size, 12), (size, 14)])
            {
                let code: Vec<u8> = (0..size).map(|at| (at / 7) as u8).collect();
                let signer = signer(slots, shift);
                let bytes = signer.sign(&code);
                assert_eq!(bytes.len(), signer.size(size));
                let read = Signature::parse(&bytes).expect("what was written can be read");
                let directory = &read.directory;
                assert_eq!(directory.identifier, b"some.program");
                assert_eq!((directory.flags, directory.code_limit), (ADHOC | LINKER_SIGNED, size as u64));
                assert_eq!((directory.code_segment, directory.page_shift), (Some((0, 0x4000, 1)), shift));
                let pages: Vec<_> = code.chunks(1 << shift).map(digest).collect();
                assert_eq!(directory.page_hashes, pages.iter().map(|page| &page[..]).collect::<Vec<_>>());
                for slot in slots {
                    let blob = read.blob(*slot).expect("the slot is kept");
                    assert_eq!(directory.special_hashes[*slot as usize - 1], digest(blob));
                }
                assert_eq!(read.blobs.len(), slots.len() + 1);
            }
        }
    }
}
