//! Lists of ranges and of locations: read with their bases, divided where code went apart, rewritten.
//!
//! Each written list stands alone: entries are distances from the unit's base address where possible, and addresses
//! otherwise. The order of entries stays. Source: DWARF 5, sections 2.17.3, 2.6.2 and 7.7.3.

use gimli::{Encoding, RawLocListEntry, RawRngListEntry, Reader};

use super::expressions::{AddressUse, Stored, Use, addresses};
use super::pieces::{Piece, Pieces};
use super::sections::Slice;
use reorder_base::leb128::write_unsigned;

/// Identifies a list in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Position in the old section.
    At(usize),
    /// Position in the unit's table of lists.
    Index(usize),
    /// The unit's own ranges, which it did not have as a list before.
    Own,
}

/// One entry, with addresses instead of distances.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'data> {
    begin: u64,
    end: u64,
    /// A location's expression.
    expression: Option<Slice<'data>>,
    /// Holds where no other entry does.
    is_default: bool,
}

impl<'data> Entry<'data> {
    /// A range.
    pub fn range(begin: u64, end: u64) -> Self {
        Self { begin, end, expression: None, is_default: false }
    }

    /// The same at another place.
    pub fn at(&self, begin: u64, end: u64) -> Self {
        Self { begin, end, ..*self }
    }

    /// Its bounds; none for one that holds where no other does.
    pub fn bounds(&self) -> Option<(u64, u64)> {
        (!self.is_default).then_some((self.begin, self.end))
    }

    /// The expression of a location.
    pub fn expression(&self) -> Option<&[u8]> {
        self.expression.as_ref().map(|expression| expression.slice())
    }

    /// Its bounds, if it covers code of the image.
    pub fn code(&self, pieces: &Pieces) -> Option<(u64, u64)> {
        let is_code = !self.is_default && self.begin < self.end && pieces.is_code(self.begin);
        is_code.then_some((self.begin, self.end))
    }
}

/// The context for reading an entry.
pub struct Bases<'read, 'data> {
    /// The reader.
    pub dwarf: &'read gimli::Dwarf<Slice<'data>>,
    /// The unit.
    pub unit: &'read gimli::Unit<Slice<'data>>,
    /// Places of `.debug_addr` that are used.
    pub uses: Vec<AddressUse>,
}

/// Linkers write these instead of addresses of code that they left out.
const MIN_TOMBSTONE: u64 = u64::MAX - 1;

impl<'data> Bases<'_, 'data> {
    fn indexed(&mut self, index: usize, meaning: Use) -> gimli::Result<u64> {
        self.uses.push(AddressUse { index, meaning });
        self.dwarf.address(self.unit, gimli::DebugAddrIndex(index))
    }

    /// Reads the list of ranges at `offset`.
    ///
    /// # Errors
    /// A damaged list.
    pub fn ranges(&mut self, offset: usize) -> gimli::Result<Vec<Entry<'data>>> {
        let mut list = self.dwarf.raw_ranges(self.unit, gimli::RangeListsOffset(offset))?;
        let (mut entries, mut base) = (Vec::new(), self.unit.low_pc);
        while let Some(entry) = list.next()? {
            let (begin, end) = match entry {
                RawRngListEntry::BaseAddress { addr } => {
                    base = addr;
                    continue;
                }
                RawRngListEntry::BaseAddressx { addr } => {
                    base = self.indexed(addr.0, Use::Start)?;
                    continue;
                }
                RawRngListEntry::AddressOrOffsetPair { begin, end }
                | RawRngListEntry::OffsetPair { begin, end } => pair(base, begin, end),
                RawRngListEntry::StartEnd { begin, end } => (begin, end),
                RawRngListEntry::StartLength { begin, length } => (begin, begin.wrapping_add(length)),
                RawRngListEntry::StartxEndx { begin, end } => {
                    (self.indexed(begin.0, Use::Start)?, self.indexed(end.0, Use::End)?)
                }
                RawRngListEntry::StartxLength { begin, length } => {
                    let begin = self.indexed(begin.0, Use::Start)?;
                    (begin, begin.wrapping_add(length))
                }
            };
            entries.push(Entry::range(begin, end));
        }
        Ok(entries)
    }

    /// Reads the list of locations at `offset`.
    ///
    /// # Errors
    /// A damaged list.
    pub fn locations(&mut self, offset: usize) -> gimli::Result<Vec<Entry<'data>>> {
        let mut list = self.dwarf.raw_locations(self.unit, gimli::LocationListsOffset(offset))?;
        let (mut entries, mut base) = (Vec::new(), self.unit.low_pc);
        while let Some(entry) = list.next()? {
            let ((begin, end), data) = match entry {
                RawLocListEntry::BaseAddress { addr } => {
                    base = addr;
                    continue;
                }
                RawLocListEntry::BaseAddressx { addr } => {
                    base = self.indexed(addr.0, Use::Start)?;
                    continue;
                }
                RawLocListEntry::AddressOrOffsetPair { begin, end, data }
                | RawLocListEntry::OffsetPair { begin, end, data } => (pair(base, begin, end), data),
                RawLocListEntry::StartEnd { begin, end, data } => ((begin, end), data),
                RawLocListEntry::StartLength { begin, length, data } => {
                    ((begin, begin.wrapping_add(length)), data)
                }
                RawLocListEntry::StartxEndx { begin, end, data } => {
                    ((self.indexed(begin.0, Use::Start)?, self.indexed(end.0, Use::End)?), data)
                }
                RawLocListEntry::StartxLength { begin, length, data } => {
                    let begin = self.indexed(begin.0, Use::Start)?;
                    ((begin, begin.wrapping_add(length)), data)
                }
                RawLocListEntry::DefaultLocation { data } => {
                    entries.push(Entry { begin: 0, end: 0, expression: Some(data.0), is_default: true });
                    continue;
                }
            };
            entries.push(Entry { begin, end, expression: Some(data.0), is_default: false });
        }
        Ok(entries)
    }
}

/// A pair after a base that stands for left-out code is left out as well, wherever it would point.
fn pair(base: u64, begin: u64, end: u64) -> (u64, u64) {
    match base >= MIN_TOMBSTONE {
        true => (base, base.wrapping_add(end.wrapping_sub(begin))),
        false => (base.wrapping_add(begin), base.wrapping_add(end)),
    }
}

/// A run of entries in new addresses, with the number of the old entry that each comes from.
struct Moved<'data> {
    entry: Entry<'data>,
    origin: usize,
}

fn moved<'data>(entries: &[Entry<'data>], pieces: &Pieces) -> Vec<Moved<'data>> {
    let mut moved = Vec::with_capacity(entries.len());
    // Empty entries at the end of a function go with the function, not with what follows it.
    let home: Option<Piece> = entries
        .iter()
        .filter(|entry| !entry.is_default && entry.begin < entry.end && pieces.is_code(entry.begin))
        .find_map(|entry| pieces.at(entry.begin).copied());
    for (origin, entry) in entries.iter().enumerate() {
        // Entries that stay are written as well, once for each list that holds them.
        if !pieces.count() {
            break;
        }
        let mut push = |begin, end| moved.push(Moved { entry: Entry { begin, end, ..*entry }, origin });
        if entry.is_default
            || !pieces.is_code(entry.begin) && entry.begin != entry.end
            || entry.end < entry.begin
        {
            push(entry.begin, entry.end);
        } else if entry.begin == entry.end {
            let home = home.filter(|home| home.start.0 <= entry.begin && entry.begin <= home.end.0);
            let begin = home.map_or_else(|| pieces.start(entry.begin), |home| home.map(entry.begin));
            push(begin, begin);
        } else {
            pieces.split(entry.begin, entry.end).into_iter().for_each(|(begin, end)| push(begin.0, end.0));
        }
    }
    moved
}

/// The lists of one unit, in new addresses.
#[derive(Clone, Debug, Default)]
pub struct UnitLists {
    /// All lists, concatenated.
    pub bytes: Vec<u8>,
    /// Key, position of the list in `bytes`, and of its views.
    pub lists: Vec<(Key, usize, usize)>,
}

/// How lists are written.
#[derive(Clone, Copy, Debug)]
pub struct Writing<'write> {
    /// Of the unit.
    pub encoding: Encoding,
    /// The unit's base address in the new image, if it has one.
    pub base: Option<u64>,
    /// Where everything went.
    pub pieces: &'write Pieces,
}

impl UnitLists {
    /// Position of the list `key`.
    pub fn position(&self, key: Key) -> Option<(usize, usize)> {
        let at = self.lists.binary_search_by_key(&key, |(key, _, _)| *key).ok()?;
        Some((self.lists[at].1, self.lists[at].2))
    }

    /// Appends a list and, before it, the pairs of `views` that its entries had.
    ///
    /// # Errors
    /// An expression that cannot be read.
    pub fn push<'data>(
        &mut self,
        key: Key,
        entries: &[Entry<'data>],
        views: Option<Slice<'data>>,
        writing: Writing<'_>,
        uses: &mut Vec<AddressUse>,
    ) -> gimli::Result<()> {
        let moved = moved(entries, writing.pieces);
        let views_at = self.bytes.len();
        if let Some(views) = views {
            self.push_views(entries, &moved, views)?;
        }
        let list_at = self.bytes.len();
        self.lists.push((key, list_at, views_at));
        match writing.encoding.version {
            ..=4 => self.push_old(&moved, writing, uses),
            _ => self.push_new(&moved, writing, uses),
        }
    }

    /// Views of a divided entry: its first part begins where it began, its last part ends where it ended.
    fn push_views(
        &mut self,
        entries: &[Entry<'_>],
        moved: &[Moved<'_>],
        mut views: Slice<'_>,
    ) -> gimli::Result<()> {
        let mut pairs = Vec::with_capacity(entries.len());
        for entry in entries {
            pairs.push(match entry.is_default {
                true => (0, 0),
                false => (views.read_uleb128()?, views.read_uleb128()?),
            });
        }
        for (at, part) in moved.iter().enumerate().filter(|(_, part)| !part.entry.is_default) {
            let (begin, end) = pairs[part.origin];
            let is_first = at == 0 || moved[at - 1].origin != part.origin;
            let is_last = moved.get(at + 1).is_none_or(|next| next.origin != part.origin);
            write_unsigned(&mut self.bytes, if is_first { begin } else { 0 });
            write_unsigned(&mut self.bytes, if is_last { end } else { 0 });
        }
        Ok(())
    }

    /// DWARF 2 to 4: pairs of words, from the unit's base or from one that a pair states.
    fn push_old(
        &mut self,
        moved: &[Moved<'_>],
        writing: Writing<'_>,
        uses: &mut Vec<AddressUse>,
    ) -> gimli::Result<()> {
        let mut base = writing.base.unwrap_or(0);
        // Two zeros end a list.
        let ends = |entry: &Entry<'_>| entry.begin == base && entry.end == base;
        if moved.iter().any(|part| part.entry.begin < base || ends(&part.entry)) {
            self.push_words(u64::MAX, 0);
            base = 0;
        }
        for Moved { entry, .. } in moved {
            let is_dead = entry.begin >= MIN_TOMBSTONE && base < MIN_TOMBSTONE;
            if is_dead {
                // As a pair of addresses it would be read as a base; after a base of its own it must not look like an end.
                self.push_words(u64::MAX, entry.begin);
                self.push_words(1, entry.end.wrapping_sub(entry.begin).wrapping_add(1));
            } else {
                self.push_words(entry.begin.wrapping_sub(base), entry.end.wrapping_sub(base));
            }
            if let Some(expression) = entry.expression {
                let length = u16::try_from(expression.len()).unwrap_or(u16::MAX);
                self.bytes.extend_from_slice(&length.to_le_bytes());
                self.push_expression(expression, writing, uses)?;
            }
            if is_dead {
                self.push_words(u64::MAX, base);
            }
        }
        self.push_words(0, 0);
        Ok(())
    }

    fn push_words(&mut self, first: u64, second: u64) {
        self.bytes.extend_from_slice(&first.to_le_bytes());
        self.bytes.extend_from_slice(&second.to_le_bytes());
    }

    /// DWARF 5: distances from the unit's base or from one stated once, or a start with a length.
    fn push_new(
        &mut self,
        moved: &[Moved<'_>],
        writing: Writing<'_>,
        uses: &mut Vec<AddressUse>,
    ) -> gimli::Result<()> {
        let is_location = moved.iter().any(|part| part.entry.expression.is_some());
        let codes = if is_location { LOCATION_CODES } else { RANGE_CODES };
        let is_live = |entry: &Entry<'_>| !entry.is_default && entry.begin < MIN_TOMBSTONE;
        let lowest = moved.iter().map(|part| part.entry).filter(is_live).map(|entry| entry.begin).min();
        let stated = lowest.filter(|&lowest| writing.base.is_none_or(|base| lowest < base));
        if let Some(stated) = stated {
            self.bytes.push(codes.base_address);
            self.bytes.extend_from_slice(&stated.to_le_bytes());
        }
        let base = stated.or(writing.base).unwrap_or(0);
        for Moved { entry, .. } in moved {
            if entry.is_default {
                self.bytes.push(codes.default_location);
            } else if is_live(entry) && entry.begin <= entry.end {
                self.bytes.push(codes.offset_pair);
                write_unsigned(&mut self.bytes, entry.begin - base);
                write_unsigned(&mut self.bytes, entry.end - base);
            } else {
                self.bytes.push(codes.start_length);
                self.bytes.extend_from_slice(&entry.begin.to_le_bytes());
                write_unsigned(&mut self.bytes, entry.end.wrapping_sub(entry.begin));
            }
            if let Some(expression) = entry.expression {
                write_unsigned(&mut self.bytes, expression.len() as u64);
                self.push_expression(expression, writing, uses)?;
            }
        }
        self.bytes.push(0);
        Ok(())
    }

    fn push_expression(
        &mut self,
        expression: Slice<'_>,
        writing: Writing<'_>,
        uses: &mut Vec<AddressUse>,
    ) -> gimli::Result<()> {
        if !writing.pieces.count_many(expression.len() as u64) {
            return Ok(());
        }
        let mut stored: Vec<Stored> = Vec::new();
        addresses(expression, expression, writing.encoding, writing.pieces, &mut stored, uses)?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(expression.slice());
        for (at, address) in stored {
            self.bytes[start + at..start + at + 8].copy_from_slice(&address.to_le_bytes());
        }
        Ok(())
    }
}

/// Codes of entries, which differ between the two kinds of lists.
struct Codes {
    offset_pair: u8,
    default_location: u8,
    base_address: u8,
    start_length: u8,
}

const RANGE_CODES: Codes = Codes {
    offset_pair: gimli::DW_RLE_offset_pair.0,
    // Ranges have no such entry.
    default_location: 0,
    base_address: gimli::DW_RLE_base_address.0,
    start_length: gimli::DW_RLE_start_length.0,
};

const LOCATION_CODES: Codes = Codes {
    offset_pair: gimli::DW_LLE_offset_pair.0,
    default_location: gimli::DW_LLE_default_location.0,
    base_address: gimli::DW_LLE_base_address.0,
    start_length: gimli::DW_LLE_start_length.0,
};
