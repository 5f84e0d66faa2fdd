//! The binary forms of LLVM's sample profiles. Numbers are ULEB128 unless said otherwise.
//!
//! ```text
//! magic "SPROF42" with the form in its lowest byte; version 103
//! binary      summary, names, functions to the end of the file
//! compact     summary, names as hashes, u64 offset where the functions end (LLVM 16 and older)
//! extensible  u64 n, n x { u64 type, u64 flags, u64 offset, u64 size }, sections
//!             compressed section: size when inflated, size, zlib data
//!
//! summary     total, most, most at an entry, lines, functions, n, n x { cutoff, count, lines }
//! names       n, n x { bytes NUL | ULEB128 hash | u64 hash }
//! contexts    n, n x { frames, frames x { name, line, discriminator } }
//! function    head, name or context, body
//! body        total, n x { line, discriminator, samples, calls, calls x { name, count } },
//!             n x { line, discriminator, name, body },
//!             if the summary says so: n x { line, discriminator, types, types x { name, count } }
//! ```

use std::borrow::Cow;
use std::io::Read as _;

use super::Profile;
use crate::cursor::{ByteOrder, Cursor};
use crate::{Location, NameHash};
use reorder_base::error::{Error, Result};

const MAGIC: u64 = 0x5350_524f_4634_3200;
const VERSION: u64 = 103;

/// Which of the forms a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Binary,
    Compact,
    Extensible,
}

impl Form {
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let magic = Cursor::new(bytes, ByteOrder::Little).uleb128().ok()?;
        match magic ^ MAGIC {
            0xff => Some(Self::Binary),
            0x02 => Some(Self::Compact),
            0x04 => Some(Self::Extensible),
            _ => None,
        }
    }
}

/// Adds all functions of `bytes`.
///
/// # Errors
/// The first damage; what was added before stays.
pub(super) fn read(form: Form, bytes: &[u8], profile: &mut Profile) -> Result<()> {
    let mut cursor = Cursor::new(bytes, ByteOrder::Little);
    cursor.uleb128()?;
    let at = cursor.offset();
    let version = cursor.uleb128()?;
    if version != VERSION {
        return Err(Error::malformed(
            at,
            format!("version {version} of sample profiles is not known, {VERSION} is"),
        )
        .with_hint("write it again: llvm-profdata merge --sample --extbinary FILE -o NEW"));
    }
    match form {
        Form::Extensible => read_sections(bytes, &mut cursor, profile),
        Form::Binary => {
            skip_summary(&mut cursor)?;
            let tables = Tables { names: read_names(&mut cursor, Names::Strings)?, ..Tables::default() };
            tables.read_functions(&mut cursor, profile)
        }
        Form::Compact => {
            skip_summary(&mut cursor)?;
            let tables = Tables { names: read_names(&mut cursor, Names::Hashes)?, ..Tables::default() };
            let at = cursor.offset();
            let end = cursor.u64()?;
            let functions = end.checked_sub(cursor.offset()).ok_or_else(|| {
                Error::malformed(at, format!("the functions end at {end:#x}, before they begin"))
            })?;
            let start = cursor.offset();
            let mut functions = Cursor::part(cursor.take(functions)?, ByteOrder::Little, start);
            tables.read_functions(&mut functions, profile)
        }
    }
}

fn skip_summary(cursor: &mut Cursor<'_>) -> Result<()> {
    for _ in 0..5 {
        cursor.uleb128()?;
    }
    let cutoffs = cursor.uleb128()?;
    for _ in 0..cutoffs {
        for _ in 0..3 {
            cursor.uleb128()?;
        }
    }
    Ok(())
}

enum Names {
    Strings,
    Hashes,
    FixedHashes,
}

fn read_names(cursor: &mut Cursor<'_>, form: Names) -> Result<Vec<Location>> {
    let count = cursor.uleb128()?;
    let mut names = Vec::new();
    // Each name takes a byte at least, so the vector cannot outgrow the file.
    for _ in 0..count {
        names.push(match form {
            Names::Strings => {
                let rest = cursor.rest();
                let end = rest
                    .iter()
                    .position(|&byte| byte == 0)
                    .ok_or_else(|| Error::malformed(cursor.offset(), "a name without an end"))?;
                cursor.skip(end as u64 + 1)?;
                super::function(&rest[..end])
            }
            Names::Hashes => Location::NameHash(NameHash::Md5(cursor.uleb128()?)),
            Names::FixedHashes => Location::NameHash(NameHash::Md5(cursor.u64()?)),
        });
    }
    Ok(names)
}

/// What records refer to by number.
#[derive(Default)]
struct Tables {
    names: Vec<Location>,
    /// For each context the function that it belongs to.
    contexts: Option<Vec<Location>>,
    has_virtual_tables: bool,
}

impl Tables {
    fn read_functions(&self, cursor: &mut Cursor<'_>, profile: &mut Profile) -> Result<()> {
        while !cursor.is_at_end() {
            let head = cursor.uleb128()?;
            let function = self.name(cursor, self.contexts.as_ref().unwrap_or(&self.names))?;
            self.read_body(cursor, function, head, profile)?;
        }
        Ok(())
    }

    fn name(&self, cursor: &mut Cursor<'_>, table: &[Location]) -> Result<Location> {
        let at = cursor.offset();
        let index = cursor.uleb128()?;
        let name = usize::try_from(index).ok().and_then(|index| table.get(index));
        name.cloned().ok_or_else(|| {
            Error::malformed(at, format!("name {index} of {} is not in the table", table.len()))
        })
    }

    /// One function with all that is inlined into it, however deep: the callers' unfinished lists wait on a stack.
    fn read_body(
        &self,
        cursor: &mut Cursor<'_>,
        function: Location,
        head: u64,
        profile: &mut Profile,
    ) -> Result<()> {
        let mut unfinished = vec![self.read_own(cursor, function, head, profile)?];
        while let Some(inlined) = unfinished.last_mut() {
            if let Some(left) = inlined.checked_sub(1) {
                *inlined = left;
                cursor.uleb128()?;
                cursor.uleb128()?;
                let function = self.name(cursor, &self.names)?;
                unfinished.push(self.read_own(cursor, function, 0, profile)?);
            } else {
                unfinished.pop();
                if self.has_virtual_tables {
                    self.skip_virtual_tables(cursor)?;
                }
            }
        }
        Ok(())
    }

    /// Up to the number of functions inlined here, which is the result.
    fn read_own(
        &self,
        cursor: &mut Cursor<'_>,
        function: Location,
        head: u64,
        profile: &mut Profile,
    ) -> Result<u64> {
        let total = cursor.uleb128()?;
        let lines = cursor.uleb128()?;
        for _ in 0..lines {
            for _ in 0..3 {
                cursor.uleb128()?;
            }
            self.skip_counted_names(cursor)?;
        }
        let inlined = cursor.uleb128()?;
        profile.add(function, total, head);
        Ok(inlined)
    }

    fn skip_virtual_tables(&self, cursor: &mut Cursor<'_>) -> Result<()> {
        let places = cursor.uleb128()?;
        for _ in 0..places {
            cursor.uleb128()?;
            cursor.uleb128()?;
            self.skip_counted_names(cursor)?;
        }
        Ok(())
    }

    fn skip_counted_names(&self, cursor: &mut Cursor<'_>) -> Result<()> {
        let count = cursor.uleb128()?;
        for _ in 0..count {
            self.name(cursor, &self.names)?;
            cursor.uleb128()?;
        }
        Ok(())
    }
}

struct Section {
    kind: u64,
    flags: u64,
    offset: u64,
    size: u64,
}

const SUMMARY: u64 = 1;
const NAME_TABLE: u64 = 2;
const CONTEXT_TABLE: u64 = 6;
const FUNCTIONS: u64 = 32;

/// Of any section.
const COMPRESSED: u64 = 1;
/// Of a section's kind; the kinds' flags are in the upper half.
const SUMMARY_HAS_CONTEXTS: u64 = 1 << (32 + 1);
const SUMMARY_HAS_VIRTUAL_TABLES: u64 = 1 << (32 + 5);
const NAMES_ARE_HASHES: u64 = 1 << 32;
const HASHES_ARE_FIXED: u64 = 1 << (32 + 1);

fn read_sections(bytes: &[u8], cursor: &mut Cursor<'_>, profile: &mut Profile) -> Result<()> {
    const ENTRY: u64 = 32;
    let count = cursor.u64()?;
    let start = cursor.offset();
    let mut entries = Cursor::part(cursor.take_array(count, ENTRY)?, ByteOrder::Little, start);
    let mut sections = Vec::new();
    while !entries.is_at_end() {
        sections.push(Section {
            kind: entries.u64()?,
            flags: entries.u64()?,
            offset: entries.u64()?,
            size: entries.u64()?,
        });
    }
    let tables = read_tables(bytes, &sections)?;
    // Sections that overlap could show the same bytes again and again.
    let mut budget = bytes.len() as u64;
    for section in sections.iter().filter(|section| section.kind == FUNCTIONS && section.size > 0) {
        budget = budget.checked_sub(section.size).ok_or_else(|| {
            Error::malformed(section.offset.min(bytes.len() as u64), "sections of functions overlap")
        })?;
        let contents = section.contents(bytes)?;
        tables
            .read_functions(&mut Cursor::part(&contents, ByteOrder::Little, section.offset), profile)
            .map_err(|error| section.placed(error))?;
    }
    Ok(())
}

fn read_tables(bytes: &[u8], sections: &[Section]) -> Result<Tables> {
    let find = |kind| sections.iter().find(|section| section.kind == kind && section.size > 0);
    let mut tables = Tables::default();
    let summary = find(SUMMARY).map_or(0, |section| section.flags);
    tables.has_virtual_tables = summary & SUMMARY_HAS_VIRTUAL_TABLES != 0;
    if let Some(section) = find(NAME_TABLE) {
        let contents = section.contents(bytes)?;
        let form = match section.flags {
            flags if flags & HASHES_ARE_FIXED != 0 => Names::FixedHashes,
            flags if flags & NAMES_ARE_HASHES != 0 => Names::Hashes,
            _ => Names::Strings,
        };
        tables.names = read_names(&mut Cursor::part(&contents, ByteOrder::Little, section.offset), form)
            .map_err(|error| section.placed(error))?;
    }
    if summary & SUMMARY_HAS_CONTEXTS != 0 {
        tables.contexts = Some(Vec::new());
        if let Some(section) = find(CONTEXT_TABLE) {
            let contents = section.contents(bytes)?;
            let mut cursor = Cursor::part(&contents, ByteOrder::Little, section.offset);
            tables.contexts = Some(tables.read_contexts(&mut cursor).map_err(|error| section.placed(error))?);
        }
    }
    Ok(tables)
}

impl Tables {
    /// The function of each context: that of its last frame.
    fn read_contexts(&self, cursor: &mut Cursor<'_>) -> Result<Vec<Location>> {
        let count = cursor.uleb128()?;
        let mut contexts = Vec::new();
        for _ in 0..count {
            let at = cursor.offset();
            let frames = cursor.uleb128()?;
            let mut last = None;
            for _ in 0..frames {
                last = Some(self.name(cursor, &self.names)?);
                cursor.uleb128()?;
                cursor.uleb128()?;
            }
            contexts.push(last.ok_or_else(|| Error::malformed(at, "a context without a function"))?);
        }
        Ok(contexts)
    }
}

impl Section {
    /// The bytes of the section, inflated if need be.
    fn contents<'data>(&self, bytes: &'data [u8]) -> Result<Cow<'data, [u8]>> {
        let stored = usize::try_from(self.offset)
            .ok()
            .and_then(|offset| bytes.get(offset..))
            .and_then(|rest| rest.get(..usize::try_from(self.size).ok()?));
        let stored = stored.ok_or_else(|| {
            let (end, size) = (self.offset.saturating_add(self.size), bytes.len());
            Error::malformed(
                bytes.len() as u64,
                format!("a section should reach to {end:#x}, the file has {size:#x}"),
            )
            .with_hint("the file was cut: copy it again")
        })?;
        if self.flags & COMPRESSED == 0 {
            return Ok(Cow::Borrowed(stored));
        }
        let mut cursor = Cursor::part(stored, ByteOrder::Little, self.offset);
        let size = cursor.uleb128()?;
        let compressed = cursor.uleb128()?;
        let at = cursor.offset();
        let mut inflated = Vec::new();
        // The vector grows with what comes out; zlib cannot make more than a thousandfold of its input.
        flate2::read::ZlibDecoder::new(cursor.take(compressed)?)
            .take(size)
            .read_to_end(&mut inflated)
            .map_err(|error| {
                Error::malformed(at, format!("a compressed section cannot be inflated: {error}"))
            })?;
        if inflated.len() as u64 != size {
            return Err(Error::malformed(
                at,
                format!("a section inflates to {} of {size} bytes", inflated.len()),
            ));
        }
        Ok(Cow::Owned(inflated))
    }

    /// An error inside an inflated section lies, for the file, where the section starts.
    fn placed(&self, mut error: Error) -> Error {
        if self.flags & COMPRESSED != 0 {
            error.offset = Some(self.offset);
        }
        error
    }
}
