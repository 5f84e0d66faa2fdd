//! The code signature: the hash of every page of the new image is signed, and other properties are kept.
//!
//! Source: `cs_blobs.h` of Apple's XNU. A signature with a certificate cannot be kept; its replacement is ad hoc.

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::super::bytes::big_endian_u32_at;
use super::super::report::{Check, Difference};
use super::pair::{Ledger, MachPair};
use super::view::{MachView, Part, padded};

const SUPER_BLOB: u32 = 0xfade_0cc0;
const DIRECTORY: u32 = 0xfade_0c02;
const HASH: usize = 32;
const REQUIREMENTS: u32 = 2;
const ENTITLEMENTS: u32 = 5;
const ENTITLEMENTS_DER: u32 = 7;

/// A parsed signature.
struct Signature<'data> {
    /// As many bytes as its length field states.
    bytes: &'data [u8],
    /// Where each blob lies in it.
    places: Vec<(usize, usize)>,
    /// Slot and blob.
    blobs: Vec<(u32, &'data [u8])>,
}

impl<'data> Signature<'data> {
    fn read(bytes: &'data [u8]) -> Option<Self> {
        let length = big_endian_u32_at(bytes, 4)? as usize;
        let bytes = bytes.get(..length)?;
        if big_endian_u32_at(bytes, 0)? != SUPER_BLOB {
            return None;
        }
        let count = big_endian_u32_at(bytes, 8)? as usize;
        if count > length / 8 {
            return None;
        }
        let mut blobs = Vec::with_capacity(count);
        let mut places = Vec::with_capacity(count);
        for index in 0..count {
            let (slot, offset) = (
                big_endian_u32_at(bytes, 12 + index * 8)?,
                big_endian_u32_at(bytes, 16 + index * 8)? as usize,
            );
            let blob = bytes.get(offset..)?;
            let blob = blob.get(..big_endian_u32_at(blob, 4)? as usize)?;
            blobs.push((slot, blob));
            places.push((offset, offset + blob.len()));
        }
        Some(Self { bytes, blobs, places })
    }

    /// Whether it consists of one blob for each slot that the relocator writes, and zeros between them.
    fn is_plain(&self) -> bool {
        let mut slots: Vec<u32> = self.blobs.iter().map(|(slot, _)| *slot).collect();
        slots.sort_unstable();
        let is_known = |slot: &u32| matches!(*slot, 0 | REQUIREMENTS | ENTITLEMENTS | ENTITLEMENTS_DER);
        let is_unique = slots.windows(2).all(|pair| pair[0] != pair[1]);
        let mut places = self.places.clone();
        places.sort_unstable();
        let mut end = 12 + 8 * self.blobs.len();
        for (start, next) in places {
            if !is_zero(self.bytes, end, start) {
                return false;
            }
            end = next;
        }
        slots.iter().all(is_known) && is_unique && end == self.bytes.len()
    }

    fn blob(&self, slot: u32) -> Option<&'data [u8]> {
        self.blobs.iter().find(|(known, _)| *known == slot).map(|(_, blob)| *blob)
    }
}

/// Whether `bytes` has the range from `start` to `end`, all of zeros.
fn is_zero(bytes: &[u8], start: usize, end: usize) -> bool {
    bytes.get(start..end).is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0))
}

/// The first directory of hashes.
struct Directory<'data> {
    bytes: &'data [u8],
    hashes: usize,
    special: usize,
    pages: usize,
    limit: usize,
    page_shift: u32,
}

impl<'data> Directory<'data> {
    fn read(bytes: &'data [u8]) -> Option<Self> {
        let directory = Self {
            bytes,
            hashes: big_endian_u32_at(bytes, 16)? as usize,
            special: big_endian_u32_at(bytes, 24)? as usize,
            pages: big_endian_u32_at(bytes, 28)? as usize,
            limit: big_endian_u32_at(bytes, 32)? as usize,
            page_shift: u32::from(*bytes.get(39)?),
        };
        let is_sha256 = *bytes.get(36)? == HASH as u8 && *bytes.get(37)? == 2;
        let room = directory.pages.checked_mul(HASH)?.checked_add(directory.hashes)?;
        let is_whole = room <= bytes.len() && directory.special.checked_mul(HASH)? <= directory.hashes;
        let is_sound = big_endian_u32_at(bytes, 0)? == DIRECTORY
            && is_sha256
            && (12..=16).contains(&directory.page_shift);
        (is_whole && is_sound).then_some(directory)
    }

    fn identifier(&self) -> Option<&'data [u8]> {
        let name = self.bytes.get(big_endian_u32_at(self.bytes, 20)? as usize..)?;
        name.split(|&byte| byte == 0).next()
    }

    /// Whether it only states the hashes of pages: signed ad hoc, of the version that linkers write,
    /// without a list of scattered pages, a team, or a second limit, and nothing between its parts.
    fn is_plain(&self, old: Option<&Self>, is_program: bool) -> bool {
        const VERSION: u32 = 0x20400;
        const HEADER: usize = 88;
        const AD_HOC: u32 = 2;
        const LINKER_SIGNED: u32 = 0x2_0000;
        let flags = |directory: &Self| big_endian_u32_at(directory.bytes, 12).unwrap_or(0);
        let platform = |directory: &Self| directory.bytes.get(38).copied();
        let may_be_of_linker = self.special == 0 && old.is_none_or(|old| flags(old) & LINKER_SIGNED != 0);
        let is_ad_hoc = flags(self) == AD_HOC || flags(self) == AD_HOC | LINKER_SIGNED && may_be_of_linker;
        let is_of_platform = platform(self) == Some(0) || platform(self) == old.and_then(platform);
        let plain = [0, 0, 0, 0, 0, 0, 0, u8::from(is_program)];
        let segment_flags = self.bytes.get(80..HEADER);
        let old_flags = old.filter(|old| executable_part(old).is_some()).map(|old| old.bytes.get(80..HEADER));
        let name = big_endian_u32_at(self.bytes, 20).unwrap_or(0) as usize;
        let name_end = name.saturating_add(self.identifier().unwrap_or_default().len());
        big_endian_u32_at(self.bytes, 8) == Some(VERSION)
            && is_ad_hoc
            && is_of_platform
            && (segment_flags == Some(&plain) || old_flags == Some(segment_flags))
            && is_zero(self.bytes, 40, 64)
            && is_zero(self.bytes, HEADER, name)
            && is_zero(self.bytes, name_end, self.hashes - self.special * HASH)
            && self.hashes + self.pages * HASH == self.bytes.len()
    }

    /// Hash of the blob in `slot`.
    fn special_hash(&self, slot: u32) -> Option<&'data [u8]> {
        let slot = slot as usize;
        let start = (slot <= self.special).then(|| self.hashes - slot * HASH)?;
        self.bytes.get(start..start + HASH)
    }
}

/// A set of no requirements: magic, size, number.
const NO_REQUIREMENTS: [u8; 12] = [0xfa, 0xde, 0x0c, 0x01, 0, 0, 0, 12, 0, 0, 0, 0];

/// A signed image stays signed, an unsigned one stays unsigned, and an unchanged image keeps its signature.
pub(super) fn check_signature(pair: MachPair<'_>, ledger: &mut Ledger<'_>) {
    let (_, old) = pair.old.part(Part::Signature);
    let (offset, new) = pair.new.part(Part::Signature);
    let mut differs = |place: &str, expected: &str, found: &str| {
        let difference = Difference::new(Check::Signature, Some(offset as u64), place, expected, found);
        ledger.findings.differs(difference);
    };
    if old.is_empty() || new.is_empty() {
        if old.len() != new.len() {
            differs(
                "the signature",
                "one if and only if the old image has one",
                "one of the two images has none",
            );
        }
        return;
    }
    if pair.old.bytes == pair.new.bytes {
        // The signature was not made anew: it is valid for the same bytes, in whatever form it was written.
        ledger.findings.checked(Check::Signature, "pages", 0);
        return;
    }
    let parsed = |bytes| {
        let signature = Signature::read(bytes)?;
        let directory = Directory::read(signature.blob(0)?)?;
        Some((signature, directory))
    };
    let Some((signature, directory)) = parsed(new) else {
        return differs("the signature", "a directory of SHA-256 hashes", "none");
    };
    if directory.limit != offset || directory.pages != directory.limit.div_ceil(1 << directory.page_shift) {
        differs("the signed part of the file", "everything before the signature", "another part");
    } else if let Some(page) = first_wrong_page(pair.new, &directory) {
        differs(&format!("the hash of page {page}"), "that of the contents", "another");
    }
    const PROGRAM: u32 = 2;
    let is_program = pair.new.bytes.get(12..16) == Some(&PROGRAM.to_le_bytes()[..]);
    let of_old = parsed(old).map(|(_, directory)| directory);
    if !signature.is_plain() || !directory.is_plain(of_old.as_ref(), is_program) {
        differs("the signature", "one that is ad hoc, as linkers make it", "another");
    }
    if !is_zero(new, signature.bytes.len(), new.len()) {
        differs("the bytes after the signature", "zeros", "something else");
    }
    for slot in 1..=directory.special as u32 {
        let hash = directory.special_hash(slot).unwrap_or_default();
        let is_right = match signature.blob(slot) {
            Some(blob) => Sha256::digest(blob)[..] == *hash,
            // `Info.plist` (1) and the bundle's resources (3) are other files.
            None => matches!(slot, 1 | 3) || hash.iter().all(|&byte| byte == 0),
        };
        if !is_right {
            differs(&format!("the hash of slot {slot}"), "that of the slot", "another");
        }
    }
    if let Some((blob, _)) =
        signature.blobs.iter().find(|(slot, _)| *slot > directory.special as u32 && *slot < 0x1000)
    {
        differs(&format!("slot {blob} of the signature"), "a hash in the directory", "none");
    }
    if let Some((old_signature, old_directory)) = parsed(old) {
        if directory.identifier() != old_directory.identifier() {
            differs("the identifier of the signature", "the old one", "another");
        }
        for slot in [REQUIREMENTS, ENTITLEMENTS, ENTITLEMENTS_DER] {
            let (kept, found) = (old_signature.blob(slot), signature.blob(slot));
            // Requirements that demand a certificate cannot be met by an ad hoc signature.
            let is_dropped = slot == REQUIREMENTS && kept.is_some() && found == Some(&NO_REQUIREMENTS[..]);
            if found != kept && !is_dropped {
                differs(&format!("slot {slot} of the signature"), "the old one", "another");
            }
        }
        for slot in [1, 3] {
            let zero = [0u8; HASH];
            let hash = |directory: &Directory<'_>| directory.special_hash(slot).unwrap_or(&zero).to_vec();
            if hash(&directory) != hash(&old_directory) {
                differs(&format!("the hash of slot {slot}"), "the old one", "another");
            }
        }
    }
    check_executable_part(pair.new, &directory, of_old.as_ref(), &mut differs);
    ledger.findings.checked(Check::Signature, "pages", directory.pages);
}

/// Checks the range that the signature declares executable.
fn check_executable_part(
    image: &MachView<'_>,
    directory: &Directory<'_>,
    old: Option<&Directory<'_>>,
    differs: &mut impl FnMut(&str, &str, &str),
) {
    let Some(stated) = executable_part(directory) else { return };
    // The whole segment, or as much of it as the old signature named.
    let text = image.segments.iter().find(|segment| segment.name == padded(b"__TEXT"));
    let is_segment = text.is_none_or(|text| stated == (text.offset, text.file_size));
    if !is_segment && old.and_then(executable_part) != Some(stated) {
        differs("the executable part of the signature", "the segment __TEXT", "another part");
    }
}

/// Offset and size, where the directory's version has them.
fn executable_part(directory: &Directory<'_>) -> Option<(u64, u64)> {
    const WITH_EXECUTABLE_PART: u32 = 0x20400;
    let long = |at: usize| {
        Some(
            u64::from(big_endian_u32_at(directory.bytes, at)?) << 32
                | u64::from(big_endian_u32_at(directory.bytes, at + 4)?),
        )
    };
    let has_part = big_endian_u32_at(directory.bytes, 8)? >= WITH_EXECUTABLE_PART;
    has_part.then_some(())?;
    Some((long(64)?, long(72)?))
}

fn first_wrong_page(image: &MachView<'_>, directory: &Directory<'_>) -> Option<usize> {
    let contents = image.bytes.get(..directory.limit)?;
    let hashes = directory.bytes.get(directory.hashes..)?;
    contents
        .par_chunks(1 << directory.page_shift)
        .zip(hashes.par_chunks(HASH))
        .position_first(|(page, hash)| Sha256::digest(page)[..] != *hash)
}
