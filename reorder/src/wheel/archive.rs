//! The ZIP archive of a wheel: its members as they are in the file, and the same file with other contents of some.
//!
//! Bytes that need not change are copied, so that times, modes, comments and extra fields are preserved. All readers must
//! agree on what is in the file: members that overlap, or share a name, are errors.
//! Source: PKWARE's "APPNOTE.TXT - .ZIP File Format Specification" 6.3.10, sections 4.3 and 4.4.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::Range;

use flate2::read::{DeflateDecoder, DeflateEncoder};
use flate2::{Compression, Crc};

use reorder_base::error::{Error, Result};

const LOCAL: u32 = 0x0403_4b50;
const LOCAL_BYTES: usize = 30;
const CENTRAL: u32 = 0x0201_4b50;
const CENTRAL_BYTES: usize = 46;
const END: u32 = 0x0605_4b50;
const END_BYTES: usize = 22;
/// A comment's length has 16 bits.
const MAX_COMMENT_LENGTH: usize = 0xffff;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// Flag bits: encrypted; sizes follow the data instead of preceding it.
const ENCRYPTED: u16 = 1;
const SIZES_BEHIND: u16 = 8;
/// The extra field that holds sizes of 64 bits.
const LARGE_SIZES: u16 = 1;
/// The most bytes that one byte of deflated data can expand to.
const MAX_EXPANSION: u64 = 1032;

/// A member of an archive.
#[derive(Clone, Debug)]
struct Member<'data> {
    name: &'data str,
    /// Its entry in the directory.
    entry: Range<usize>,
    /// Its header before the data.
    header: Range<usize>,
    data: Range<usize>,
    flags: u16,
    method: u16,
    checksum: u32,
    size: u64,
}

/// An archive in memory.
#[derive(Clone, Debug)]
pub(super) struct Archive<'data> {
    bytes: &'data [u8],
    /// In the order of the directory.
    members: Vec<Member<'data>>,
    /// Positions in `members` by place in the file.
    by_place: Vec<usize>,
    by_name: BTreeMap<&'data str, usize>,
    directory: Range<usize>,
}

fn malformed(offset: usize, message: impl Into<String>) -> Error {
    Error::malformed(offset as u64, message)
}

fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> Result<[u8; BYTES]> {
    let field = at.checked_add(BYTES).and_then(|end| bytes.get(at..end));
    field
        .and_then(|field| field.try_into().ok())
        .ok_or_else(|| malformed(bytes.len(), "the archive ends too early"))
}

fn short(bytes: &[u8], at: usize) -> Result<u16> {
    Ok(u16::from_le_bytes(number(bytes, at)?))
}

fn word(bytes: &[u8], at: usize) -> Result<u32> {
    Ok(u32::from_le_bytes(number(bytes, at)?))
}

/// `length` bytes from `start` on, which must be in the file.
fn range(bytes: &[u8], start: usize, length: usize) -> Result<Range<usize>> {
    let end = start.checked_add(length).filter(|end| *end <= bytes.len());
    end.map(|end| start..end).ok_or_else(|| malformed(start.min(bytes.len()), "the archive ends too early"))
}

fn set(header: &mut [u8], at: usize, field: &[u8]) {
    if let Some(place) = header.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}

impl<'data> Archive<'data> {
    /// Reads the directory and the members' headers.
    ///
    /// # Errors
    /// Damaged, ambiguous and very large archives.
    pub(super) fn parse(bytes: &'data [u8]) -> Result<Self> {
        let end = end_record(bytes)?;
        let count = short(bytes, end + 10)?;
        let (length, start) = (word(bytes, end + 12)?, word(bytes, end + 16)?);
        if count == u16::MAX || length == u32::MAX || start == u32::MAX {
            return Err(too_large());
        }
        if word(bytes, end + 4)? != 0 || short(bytes, end + 8)? != count {
            return Err(malformed(end, "the archive has several parts"));
        }
        let directory = range(bytes, start as usize, length as usize)?;
        if directory.end != end {
            return Err(malformed(end, "the archive's directory does not reach to its end"));
        }
        let mut archive = Self {
            bytes,
            members: Vec::with_capacity(usize::from(count)),
            by_place: (0..usize::from(count)).collect(),
            by_name: BTreeMap::new(),
            directory: directory.clone(),
        };
        let mut at = directory.start;
        for index in 0..usize::from(count) {
            let member = Member::parse(bytes, at)?;
            at = member.entry.end;
            if archive.by_name.insert(member.name, index).is_some() {
                return Err(malformed(member.entry.start, format!("two members are called {}", member.name)));
            }
            archive.members.push(member);
        }
        if at != directory.end {
            return Err(malformed(at, "the archive's directory has more than its members"));
        }
        archive.order_by_place()?;
        Ok(archive)
    }

    fn order_by_place(&mut self) -> Result<()> {
        let members = &self.members;
        self.by_place.sort_by_key(|index| members[*index].header.start);
        let starts = self.by_place.iter().skip(1).map(|index| members[*index].header.start);
        let ends = starts.chain([self.directory.start]);
        for (index, next) in self.by_place.iter().zip(ends) {
            let member = &members[*index];
            if member.data.end > next {
                let message = format!("the member {} overlaps what follows it", member.name);
                return Err(malformed(member.header.start, message));
            }
        }
        Ok(())
    }

    /// Names of all files, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = &'data str> {
        self.by_name.keys().copied().filter(|name| !name.ends_with('/'))
    }

    /// The first `limit` bytes of a file, or all, which are then compared with its checksum.
    ///
    /// # Errors
    /// No such member, or one that is damaged, encrypted, or compressed by a method other than deflate.
    pub(super) fn read(&self, name: &str, limit: Option<u64>) -> Result<Cow<'data, [u8]>> {
        let index = self.by_name.get(name);
        let member = index.map(|index| &self.members[*index]);
        let member = member.ok_or_else(|| malformed(0, format!("the archive has no member {name}")))?;
        let data = &self.bytes[member.data.clone()];
        let damaged = |what: &str| malformed(member.data.start, format!("{what} of the member {name}"));
        if member.flags & ENCRYPTED != 0 {
            return Err(damaged("encrypted contents"));
        }
        if member.size > (data.len() as u64).saturating_add(1).saturating_mul(MAX_EXPANSION) {
            return Err(damaged("an impossible size"));
        }
        // One byte more than allowed shows that the data continue.
        let wanted = limit.unwrap_or(member.size + 1).min(member.size + 1);
        let contents = match member.method {
            STORED => Cow::Borrowed(&data[..data.len().min(usize::try_from(wanted).unwrap_or(usize::MAX))]),
            DEFLATED => {
                let mut contents = Vec::new();
                let mut decoder = DeflateDecoder::new(data).take(wanted);
                decoder
                    .read_to_end(&mut contents)
                    .map_err(|error| damaged(&format!("damaged contents ({error})")))?;
                Cow::Owned(contents)
            }
            _ => return Err(damaged("an unknown compression")),
        };
        if limit.is_none() {
            let mut checksum = Crc::new();
            checksum.update(&contents);
            if contents.len() as u64 != member.size || checksum.sum() != member.checksum {
                return Err(damaged("contents that do not fit the size and checksum"));
            }
        }
        Ok(contents)
    }

    /// The archive with other contents of the members that `replaced` names.
    ///
    /// # Errors
    /// Archives that would need the format for large ones.
    pub(super) fn with_contents(&self, replaced: &BTreeMap<&str, &[u8]>) -> Result<Vec<u8>> {
        let mut entries: Vec<Vec<u8>> =
            self.members.iter().map(|member| self.bytes[member.entry.clone()].to_vec()).collect();
        let first =
            self.by_place.first().map_or(self.directory.start, |index| self.members[*index].header.start);
        let mut out = self.bytes[..first].to_vec();
        let starts = self.by_place.iter().skip(1).map(|index| self.members[*index].header.start);
        for (index, next) in self.by_place.iter().zip(starts.chain([self.directory.start])) {
            let (member, entry) = (&self.members[*index], &mut entries[*index]);
            let position = u32::try_from(out.len()).map_err(|_| too_large())?;
            set(entry, 42, &position.to_le_bytes());
            match replaced.get(member.name) {
                None => out.extend_from_slice(&self.bytes[member.header.start..next]),
                Some(contents) => self.write_member(member, contents, entry, &mut out)?,
            }
        }
        let position = u32::try_from(out.len()).map_err(|_| too_large())?;
        out.extend(entries.iter().flatten());
        let mut end = self.bytes[self.directory.end..].to_vec();
        set(&mut end, 16, &position.to_le_bytes());
        out.extend_from_slice(&end);
        Ok(out)
    }

    fn write_member(
        &self,
        member: &Member<'_>,
        contents: &[u8],
        entry: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut packed = Vec::new();
        let data = match member.method {
            DEFLATED => {
                let mut encoder = DeflateEncoder::new(contents, Compression::default());
                encoder
                    .read_to_end(&mut packed)
                    .map_err(|error| malformed(member.data.start, error.to_string()))?;
                &packed[..]
            }
            _ => contents,
        };
        let sized = |length: usize| u32::try_from(length).ok().filter(|length| *length != u32::MAX);
        let (Some(packed_size), Some(size)) = (sized(data.len()), sized(contents.len())) else {
            return Err(too_large());
        };
        let mut checksum = Crc::new();
        checksum.update(contents);
        let old = &self.bytes[member.header.clone()];
        let (fixed, name_and_extra) = old.split_at(LOCAL_BYTES.min(old.len()));
        let (name, extra) = name_and_extra.split_at(member.name.len().min(name_and_extra.len()));
        let extra = without_large_sizes(extra);
        let mut header = [fixed, name, &extra].concat();
        let length = u16::try_from(extra.len()).unwrap_or_default();
        set(&mut header, 28, &length.to_le_bytes());
        for (header, at) in [(&mut header[..], 6), (entry, 8)] {
            // Flags and method, time and date, checksum, sizes: in both headers in this order.
            set(header, at, &(member.flags & !SIZES_BEHIND).to_le_bytes());
            set(header, at + 8, &checksum.sum().to_le_bytes());
            set(header, at + 12, &packed_size.to_le_bytes());
            set(header, at + 16, &size.to_le_bytes());
        }
        out.extend(header);
        out.extend_from_slice(data);
        Ok(())
    }
}

impl<'data> Member<'data> {
    /// The member with the directory's entry at `at`.
    fn parse(bytes: &'data [u8], at: usize) -> Result<Self> {
        if word(bytes, at)? != CENTRAL {
            return Err(malformed(at, "this is not an entry of an archive's directory"));
        }
        let lengths = [28, 30, 32].map(|field| short(bytes, at + field).map(usize::from));
        let [name_length, extra, comment] = lengths;
        let name_length = name_length?;
        let entry = range(bytes, at, CENTRAL_BYTES + name_length + extra? + comment?)?;
        let name = &bytes[range(bytes, at + CENTRAL_BYTES, name_length)?];
        let name = std::str::from_utf8(name).map_err(|_| malformed(at, "a member's name is not UTF-8"))?;
        let [packed, size, place] = [20, 24, 42].map(|field| word(bytes, at + field));
        let (packed, size, place) = (packed?, size?, place?);
        if [packed, size, place].contains(&u32::MAX) {
            return Err(too_large());
        }
        let place = place as usize;
        let (flags, method) = (short(bytes, at + 8)?, short(bytes, at + 10)?);
        let header = range(bytes, place, LOCAL_BYTES)?;
        let local_name = usize::from(short(bytes, place + 26)?);
        let header =
            header.start..range(bytes, header.end, local_name + usize::from(short(bytes, place + 28)?))?.end;
        let is_same = word(bytes, place)? == LOCAL
            && bytes.get(place + LOCAL_BYTES..place + LOCAL_BYTES + local_name) == Some(name.as_bytes())
            && short(bytes, place + 8)? == method;
        if !is_same {
            return Err(malformed(
                place,
                format!("the member {name} is not where the archive's directory says"),
            ));
        }
        let data = range(bytes, header.end, packed as usize)?;
        let checksum = word(bytes, at + 16)?;
        Ok(Self { name, entry, header, data, flags, method, checksum, size: u64::from(size) })
    }
}

/// The end-of-directory record, which only the archive's comment follows.
fn end_record(bytes: &[u8]) -> Result<usize> {
    let last = bytes
        .len()
        .checked_sub(END_BYTES)
        .ok_or_else(|| malformed(bytes.len(), "the end of the archive is missing"))?;
    let first = last.saturating_sub(MAX_COMMENT_LENGTH);
    let is_end = |at: &usize| {
        let comment = last - at;
        word(bytes, *at).is_ok_and(|word| word == END)
            && short(bytes, at + 20).is_ok_and(|length| usize::from(length) == comment)
    };
    let mut found = (first..=last).filter(is_end);
    match (found.next(), found.next()) {
        (Some(end), None) => Ok(end),
        (None, _) => Err(malformed(bytes.len(), "the archive's directory is missing")),
        (Some(_), Some(second)) => Err(malformed(second, "the archive may end in two places")),
    }
}

fn too_large() -> Error {
    Error::usage("archives in the format for more than 4 GiB or 65 534 files cannot be written")
        .with_hint("unpack it, and give the programs and libraries in it one by one")
}

/// Extra fields without the one for 64-bit sizes: the sizes in the header are valid again.
fn without_large_sizes(mut extra: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(extra.len());
    while let (Ok(kind), Ok(length)) = (short(extra, 0), short(extra, 2)) {
        let Some((field, rest)) = extra.split_at_checked(4 + usize::from(length)) else { break };
        if kind != LARGE_SIZES {
            kept.extend_from_slice(field);
        }
        extra = rest;
    }
    kept
}
