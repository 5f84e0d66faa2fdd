//! Entries → bytes of `__unwind_info`.
//!
//! Source: `mach-o/compact_unwind_encoding.h`. Pages reach up to 64 KiB: every distance in a page has 16 bits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use reorder_image::macho::unwind_info::{COMPRESSED_PAGE, REGULAR_PAGE};

const HEADER: usize = 28;
const INDEX_ROW: usize = 12;
const REGULAR_HEADER: usize = 8;
const COMPRESSED_HEADER: usize = 12;
const MAX_PAGE: usize = 0xfffc;
/// Indices of encodings have eight bits; those below this number mean common encodings.
const MAX_COMMON: usize = 127;
const MAX_ENCODINGS: usize = 256;
/// What a compressed row can hold as the distance from the page's first function.
const MAX_DISTANCE: u32 = 0x00ff_ffff;

/// An entry: from this image offset on, this encoding holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) start: u32,
    pub(super) encoding: u32,
}

enum Page {
    /// Whole encodings.
    Regular(Vec<Row>),
    /// Indices of encodings, and those that are not common.
    Compressed(Vec<(u32, usize)>, Vec<u32>),
}

/// All parts of the table.
pub(super) struct Table {
    common: Vec<u32>,
    personalities: Vec<u32>,
    pages: Vec<Page>,
    end: u32,
    exception_tables: Vec<(u32, u32)>,
}

impl Table {
    /// Chooses common encodings and pages; `rows` and `exception_tables` are sorted.
    pub(super) fn new(
        personalities: Vec<u32>,
        rows: Vec<Row>,
        end: u32,
        exception_tables: Vec<(u32, u32)>,
    ) -> Self {
        let common = common(&rows);
        let indices: HashMap<u32, usize> =
            common.iter().enumerate().map(|(index, encoding)| (*encoding, index)).collect();
        let mut pages: Vec<Page> = Vec::new();
        let mut rest = rows.as_slice();
        while !rest.is_empty() {
            let (compressed, own) = compressed(rest, &indices);
            let count = compressed.len();
            let (taken, remaining) = rest.split_at(count);
            let as_compressed = COMPRESSED_HEADER + INDEX_ROW + 4 * count + 4 * own.len();
            let as_regular = REGULAR_HEADER + INDEX_ROW + 8 * count;
            match pages.last_mut() {
                _ if as_compressed <= as_regular => pages.push(Page::Compressed(compressed, own)),
                Some(Page::Regular(rows)) if REGULAR_HEADER + 8 * (rows.len() + count) <= MAX_PAGE => {
                    rows.extend_from_slice(taken);
                }
                _ => pages.push(Page::Regular(taken.to_vec())),
            }
            rest = remaining;
        }
        Self { common, personalities, pages, end, exception_tables }
    }

    /// Bytes of the table.
    pub(super) fn size(&self) -> usize {
        let pages: usize = self.pages.iter().map(|page| page.size()).sum();
        self.pages_start() + pages
    }

    fn exception_tables_start(&self) -> usize {
        let words = self.common.len() + self.personalities.len();
        HEADER + 4 * words + INDEX_ROW * (self.pages.len() + 1)
    }

    fn pages_start(&self) -> usize {
        self.exception_tables_start() + 8 * self.exception_tables.len()
    }

    /// The table.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size());
        let personalities = HEADER + 4 * self.common.len();
        let index = personalities + 4 * self.personalities.len();
        words(&mut bytes, &[1, HEADER, self.common.len(), personalities, self.personalities.len()]);
        words(&mut bytes, &[index, self.pages.len() + 1]);
        for word in self.common.iter().chain(&self.personalities) {
            words(&mut bytes, &[*word as usize]);
        }
        let tables_of = |first: u32| {
            let before = self.exception_tables.partition_point(|(function, _)| *function < first);
            self.exception_tables_start() + 8 * before
        };
        let mut start = self.pages_start();
        for (number, page) in self.pages.iter().enumerate() {
            let first = page.first();
            // Tables before the first entry would be in no page's range.
            let tables = if number == 0 { self.exception_tables_start() } else { tables_of(first) };
            words(&mut bytes, &[first as usize, start, tables]);
            start += page.size();
        }
        words(&mut bytes, &[self.end as usize, 0, self.pages_start()]);
        for (function, table) in &self.exception_tables {
            words(&mut bytes, &[*function as usize, *table as usize]);
        }
        for page in &self.pages {
            page.write(&mut bytes);
        }
        bytes
    }
}

impl Page {
    fn first(&self) -> u32 {
        match self {
            Self::Regular(rows) => rows.first().map_or(0, |row| row.start),
            Self::Compressed(rows, _) => rows.first().map_or(0, |(start, _)| *start),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Regular(rows) => REGULAR_HEADER + 8 * rows.len(),
            Self::Compressed(rows, own) => COMPRESSED_HEADER + 4 * (rows.len() + own.len()),
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let mut halves = |numbers: [usize; 2]| {
            numbers.iter().for_each(|number| bytes.extend((*number as u16).to_le_bytes()));
        };
        match self {
            Self::Regular(rows) => {
                halves([REGULAR_PAGE as usize, 0]);
                halves([REGULAR_HEADER, rows.len()]);
                for row in rows {
                    words(bytes, &[row.start as usize, row.encoding as usize]);
                }
            }
            Self::Compressed(rows, own) => {
                halves([COMPRESSED_PAGE as usize, 0]);
                halves([COMPRESSED_HEADER, rows.len()]);
                halves([COMPRESSED_HEADER + 4 * rows.len(), own.len()]);
                let first = self.first();
                for (start, index) in rows {
                    words(bytes, &[index << 24 | (start - first) as usize]);
                }
                own.iter().for_each(|encoding| words(bytes, &[*encoding as usize]));
            }
        }
    }
}

fn words(bytes: &mut Vec<u8>, words: &[usize]) {
    words.iter().for_each(|word| bytes.extend((*word as u32).to_le_bytes()));
}

/// The encodings that occur most often, equal ones by value, so that the table depends on the entries alone.
fn common(rows: &[Row]) -> Vec<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    rows.iter().for_each(|row| *counts.entry(row.encoding).or_default() += 1);
    let mut common: Vec<(Reverse<usize>, u32)> = counts
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .map(|(encoding, count)| (Reverse(count), encoding))
        .collect();
    common.sort_unstable();
    common.truncate(MAX_COMMON);
    common.into_iter().map(|(_, encoding)| encoding).collect()
}

/// As many rows as one compressed page can hold.
fn compressed(rows: &[Row], common: &HashMap<u32, usize>) -> (Vec<(u32, usize)>, Vec<u32>) {
    let mut indices: HashMap<u32, usize> = HashMap::new();
    let (mut taken, mut own) = (Vec::new(), Vec::new());
    let first = rows.first().map_or(0, |row| row.start);
    for row in rows {
        let known = common.get(&row.encoding).or_else(|| indices.get(&row.encoding)).copied();
        let index = known.unwrap_or(common.len() + own.len());
        let size = COMPRESSED_HEADER + 4 * (taken.len() + own.len() + 2);
        if row.start - first > MAX_DISTANCE || index >= MAX_ENCODINGS || size > MAX_PAGE {
            break;
        }
        if known.is_none() {
            indices.insert(row.encoding, index);
            own.push(row.encoding);
        }
        taken.push((row.start, index));
    }
    (taken, own)
}
