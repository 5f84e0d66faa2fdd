//! The address map as a file: for symbolizers, and for restoring the input.
//!
//! ```text
//! # reorder map 1
//! # lines: …                 lines below these headers: a map that was cut has fewer. Absent in maps of `reorder` 0.1
//! # old-sha256: …            digest of the input
//! # new-sha256: …            digest of the output
//! # old-bytes: …             size of the input, if that of the output may differ
//! # old-build-id: …          absent without a build-id
//! # new-build-id: …
//! # one-way: debug-information      the output's debug information was rewritten: the input cannot be restored
//! # unwind-entries: sorted          the output's unwind entries are in the order of its functions
//! move 0x1000 0x1400 0x2f name      old start, new start, size in bytes, first name or -
//! copy 0x8200 0x8210 0x1000         moving back leaves these bytes at the first file offset; in the input they are at the
//!                                   second: tables after one whose size changed
//! fill 0x12f0 0f1f4000              bytes of the input that moving back does not restore, at their file offset:
//!                                   padding that filler replaced, labels in padding
//! fill 0x1400 0f1f4000 0x800        the same, repeated up to this length: filler between functions that start pages
//! ```
//!
//! Lines are sorted by old address. Applied to the output, the map gives back the input byte for byte; applied to
//! the input, it gives the output again.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::address_map::{AddressMap, Move};
use reorder_base::address::{Address, FileOffset, NewAddress};
use reorder_base::error::{Error, Result};
use reorder_base::hexadecimal::{decode, encode};
use reorder_base::hint::{Hint, MapHint};

const FIRST_LINE: &str = "# reorder map 1";

/// A parsed map file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutMap {
    /// SHA-256 of the input, in hexadecimal.
    pub old_digest: String,
    /// SHA-256 of the output, in hexadecimal.
    pub new_digest: String,
    /// Bytes of the input, where the output may have another size.
    pub old_bytes: Option<u64>,
    /// Build-ids of both, in hexadecimal.
    pub build_ids: Option<(String, String)>,
    /// What moved, by old address.
    pub moves: Vec<Move>,
    /// The first name of each moved range.
    pub names: Vec<String>,
    /// Parts of the input that moving back leaves at another place.
    pub copies: Vec<Copied>,
    /// Bytes of the input that moving back does not restore, by file offset.
    pub fills: Vec<(FileOffset, Vec<u8>)>,
    /// The output's debug information was rewritten, so the map does not lead back.
    pub is_one_way: bool,
    /// The output's unwind entries are sorted.
    pub has_sorted_unwind_entries: bool,
}

/// A part of the input: where moving back leaves it, and where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Where moving back leaves it.
    pub from: FileOffset,
    /// Where it was.
    pub to: FileOffset,
    /// Bytes.
    pub size: u64,
}

/// Which of the map's two images a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The input: the map leads to the output.
    Old,
    /// The output: the map leads back.
    New,
}

impl LayoutMap {
    /// Whether `text` claims to be a map file.
    pub fn is_map(text: &[u8]) -> bool {
        text.starts_with(FIRST_LINE.as_bytes())
    }

    /// Which side of the map `image` is.
    ///
    /// # Errors
    /// When it is neither.
    pub(crate) fn side_of(&self, image: &[u8]) -> Result<Side> {
        match digest(image) {
            digest if digest == self.new_digest => Ok(Side::New),
            digest if digest == self.old_digest => Ok(Side::Old),
            _ => Err(Error::usage("this map belongs to another image (its digests match neither side)")
                .with_hint(Hint::Map(MapHint::OfImage))),
        }
    }

    /// The address map in the direction that starts at `side`.
    ///
    /// # Errors
    /// Overlapping ranges.
    pub fn address_map(&self, side: Side) -> Result<AddressMap> {
        AddressMap::new(self.moves.iter().map(|range| match side {
            Side::Old => *range,
            Side::New => Move { old: Address(range.new.0), new: NewAddress(range.old.0), size: range.size },
        }))
    }

    /// The file's text.
    pub fn write(&self) -> String {
        // First: a map without its digests belongs to no image, so a map that is cut before this line is useless anyway.
        let mut text = format!("{FIRST_LINE}\n# lines: {}\n", self.lines());
        let _ = write!(text, "# old-sha256: {}\n# new-sha256: {}\n", self.old_digest, self.new_digest);
        if let Some(bytes) = self.old_bytes {
            let _ = writeln!(text, "# old-bytes: {bytes}");
        }
        if let Some((old, new)) = &self.build_ids {
            let _ = write!(text, "# old-build-id: {old}\n# new-build-id: {new}\n");
        }
        if self.is_one_way {
            text.push_str("# one-way: debug-information\n");
        }
        if self.has_sorted_unwind_entries {
            text.push_str("# unwind-entries: sorted\n");
        }
        for (range, name) in self.moves.iter().zip(&self.names) {
            let _ = writeln!(text, "move {} {} {:#x} {name}", range.old, range.new, range.size);
        }
        for Copied { from, to, size } in &self.copies {
            let _ = writeln!(text, "copy {from} {to} {size:#x}");
        }
        for (offset, bytes, length) in self.stored_fills() {
            let bytes_text = encode(bytes);
            let _ = match length == bytes.len() {
                true => writeln!(text, "fill {offset} {bytes_text}"),
                false => writeln!(text, "fill {offset} {bytes_text} {length:#x}"),
            };
        }
        text
    }

    /// Lines below the headers.
    fn lines(&self) -> usize {
        self.moves.len() + self.copies.len() + self.stored_fills().count()
    }

    /// Bytes of the input that the map stores.
    pub(crate) fn stored_bytes(&self) -> usize {
        self.stored_fills().map(|(_, bytes, _)| bytes.len()).sum()
    }

    /// The fills as lines of the file: file offset, bytes, and the length in bytes that they repeat to. Repetition stops at
    /// [`MAX_REPEATED`], so that [`Self::parse`] reads whatever is written.
    fn stored_fills(&self) -> impl Iterator<Item = (FileOffset, &[u8], usize)> {
        let mut left = MAX_REPEATED;
        let lines = self.fills.iter().flat_map(|(offset, run)| {
            pieces(run).map(move |(position, bytes, length)| (*offset, run, position, bytes, length))
        });
        lines.map(move |(offset, run, position, bytes, length)| {
            let offset = FileOffset(offset.0 + position as u64);
            match left.checked_sub(length - bytes.len()) {
                Some(rest) => {
                    left = rest;
                    (offset, bytes, length)
                }
                None => (offset, &run[position..position + length], length),
            }
        })
    }

    /// Parses a map file.
    ///
    /// # Errors
    /// The first line that breaks the format, with its byte offset.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let mut map = Self::default();
        let mut build_ids = (None, None);
        let mut stated_lines = None;
        let (mut offset, mut lines, mut repeated) = (0, 0, 0);
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            let broken = || {
                Error::malformed(
                    offset,
                    "this line of the map is not `move OLD NEW SIZE NAME`, `copy FROM TO SIZE` or `fill OFFSET BYTES [LENGTH]`",
                )
            };
            let words = std::str::from_utf8(line).map_err(|_| broken())?;
            let words: Vec<&str> = words.trim_end().splitn(5, ' ').collect();
            match words.as_slice() {
                ["#", "old-sha256:", value] => map.old_digest = (*value).to_owned(),
                ["#", "new-sha256:", value] => map.new_digest = (*value).to_owned(),
                ["#", "old-bytes:", value] => map.old_bytes = Some(value.parse().map_err(|_| broken())?),
                ["#", "old-build-id:", value] => build_ids.0 = Some((*value).to_owned()),
                ["#", "new-build-id:", value] => build_ids.1 = Some((*value).to_owned()),
                ["#", "lines:", value] => stated_lines = Some(value.parse().map_err(|_| broken())?),
                ["#", "one-way:", ..] => map.is_one_way = true,
                ["#", "unwind-entries:", ..] => map.has_sorted_unwind_entries = true,
                ["#", ..] | [""] => {}
                ["move", old, new, size, name] => {
                    lines += 1;
                    let [old, new, size] = [old, new, size].map(|word| number(word));
                    let (Some(old), Some(new), Some(size)) = (old, new, size) else { return Err(broken()) };
                    if old.checked_add(size).is_none() || new.checked_add(size).is_none() {
                        return Err(broken());
                    }
                    map.moves.push(Move { old: Address(old), new: NewAddress(new), size });
                    map.names.push((*name).to_owned());
                }
                ["copy", from, to, size] => {
                    lines += 1;
                    let [from, to, size] = [from, to, size].map(|word| number(word));
                    let (Some(from), Some(to), Some(size)) = (from, to, size) else { return Err(broken()) };
                    map.copies.push(Copied { from: FileOffset(from), to: FileOffset(to), size });
                }
                ["fill", place, bytes, length @ ..] => {
                    lines += 1;
                    let (Some(offset), Some(bytes)) = (number(place), decode(bytes.as_bytes())) else {
                        return Err(broken());
                    };
                    let length = match length {
                        [] => bytes.len(),
                        [length] => repeated_length(bytes.len(), length).ok_or_else(broken)?,
                        _ => return Err(broken()),
                    };
                    repeated += length - bytes.len();
                    if repeated > MAX_REPEATED || offset.checked_add(length as u64).is_none() {
                        return Err(broken());
                    }
                    map.add_fill(offset, bytes.into_iter().cycle().take(length));
                }
                _ => return Err(broken()),
            }
            offset += line.len() as u64;
        }
        map.build_ids = build_ids.0.zip(build_ids.1);
        let is_cut = stated_lines.is_some_and(|stated: usize| stated != lines) || !text.ends_with(b"\n");
        match is_cut {
            true => Err(Error::malformed(offset, "the end of the map, or some of its lines, are missing")
                .with_hint(Hint::Map(MapHint::Whole))),
            false => Ok(map),
        }
    }
}

/// The longest period of filler: the longest no-operation has fifteen bytes.
const MAX_PERIOD: usize = 16;
/// A shorter run is written in full.
const MIN_REPEATED: usize = 64;
/// The most bytes that all repeated fillers of a map may add up to: more than the padding of any image.
const MAX_REPEATED: usize = 1 << 26;

impl LayoutMap {
    /// Adds a fill; joins it to the one before, since a run is written piece by piece, one a line.
    fn add_fill(&mut self, offset: u64, bytes: impl Iterator<Item = u8>) {
        match self.fills.last_mut() {
            Some((last, run)) if last.0.checked_add(run.len() as u64) == Some(offset) => run.extend(bytes),
            _ => self.fills.push((FileOffset(offset), bytes.collect())),
        }
    }
}

/// The length to which `period` bytes are repeated, if it is in bounds.
fn repeated_length(period: usize, length: &str) -> Option<usize> {
    let length = usize::try_from(number(length)?).ok()?;
    (period > 0 && length > period && length <= MAX_REPEATED).then_some(length)
}

/// The lines of a run: position in it, bytes, and the length to which they are repeated.
fn pieces(run: &[u8]) -> impl Iterator<Item = (usize, &[u8], usize)> {
    let mut position = 0;
    std::iter::from_fn(move || {
        let start = position;
        let rest = run.get(start..).filter(|rest| !rest.is_empty())?;
        if let Some((period, length)) = repetition(rest) {
            position += length;
            return Some((start, &rest[..period], length));
        }
        let next =
            (1..rest.len()).find(|&at| rest.len() - at >= MIN_REPEATED && repetition(&rest[at..]).is_some());
        let length = next.unwrap_or(rest.len());
        position += length;
        Some((start, &rest[..length], length))
    })
}

/// The period with which the beginning of `bytes` repeats for the longest length, and that length.
fn repetition(bytes: &[u8]) -> Option<(usize, usize)> {
    let reach = |period: usize| {
        let same =
            bytes.iter().zip(bytes.get(period..).unwrap_or(&[])).take_while(|(one, other)| one == other);
        period + same.count()
    };
    let (length, period) = (1..=MAX_PERIOD).map(|period| (reach(period), std::cmp::Reverse(period))).max()?;
    (length >= MIN_REPEATED && length <= bytes.len()).then_some((period.0, length))
}

/// SHA-256 in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    encode(&Sha256::digest(bytes))
}

/// `0x` and digits. Unlike in [`reorder_base::numbers`], a leading `+` is accepted, so that maps that could be read stay
/// readable.
fn number(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::collection;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let map = LayoutMap {
            old_bytes: None,
            old_digest: "aa".into(),
            new_digest: "bb".into(),
            build_ids: Some(("01".into(), "02".into())),
            moves: vec![Move { old: Address(0x1000), new: NewAddress(0x2000), size: 0x30 }],
            names: vec!["operator new(unsigned long)".into()],
            copies: vec![Copied { from: FileOffset(0x40), to: FileOffset(0x48), size: 9 }],
            fills: vec![(FileOffset(0x1030), vec![0x0f, 0x1f])],
            is_one_way: true,
            has_sorted_unwind_entries: true,
        };
        assert_eq!(LayoutMap::parse(map.write().as_bytes()).expect("a written map parses"), map);
    }

    #[test]
    fn long_filler_is_written_once() {
        let mut run = vec![0xcc, 0x0f];
        run.extend([0x66, 0x0f, 0x1f, 0x44, 0, 0].into_iter().cycle().take(4000));
        run.extend([0x90, 0xc3]);
        let map = LayoutMap { fills: vec![(FileOffset(0x40), run)], ..LayoutMap::default() };
        let text = map.write();
        assert!(text.contains("fill 0x42 660f1f440000 0xfa0\n"), "{text}");
        assert!(map.stored_bytes() < 16);
        assert_eq!(LayoutMap::parse(text.as_bytes()).expect("a written map parses"), map);
    }

    #[test]
    fn more_filler_than_a_reader_repeats_is_written_out() {
        let map = LayoutMap {
            fills: vec![(FileOffset(0x40), vec![0x90; MAX_REPEATED + 100])],
            ..LayoutMap::default()
        };
        assert_eq!(map.stored_bytes(), MAX_REPEATED + 100);
        assert!(LayoutMap::parse(map.write().as_bytes()).is_ok_and(|read| read == map));
    }

    #[test]
    fn no_cut_passes_for_a_map() {
        let map = LayoutMap {
            old_digest: "aa".into(),
            new_digest: "bb".into(),
            moves: vec![Move { old: Address(0x1000), new: NewAddress(0x2000), size: 0x30 }],
            names: vec!["main".into()],
            fills: vec![(FileOffset(0x1030), vec![0x0f, 0x1f])],
            ..LayoutMap::default()
        };
        let text = map.write();
        for at in 0..text.len() {
            let is_usable = |map: LayoutMap| map.old_digest == "aa" || map.new_digest == "bb";
            assert!(!LayoutMap::parse(&text.as_bytes()[..at]).is_ok_and(is_usable), "cut at {at}");
        }
    }

    #[test]
    fn broken_lines_are_errors_with_their_offset() {
        for line in [
            "move 1 2 3 x",
            "move 0x1 0x2",
            "fill 0x1 0",
            "fill 0x1 zz",
            "fill 0x1 90 0x1",
            "fill 0xfffffffffffffff0 90 0x20",
            "fill 0x1 90 0xffffffffffff",
            "fill 0x1  0x10",
            "fill 0x1 90 0x10 0x10",
            "copy 0x1 0x2",
            "copy 0x1 0x2 x",
            "other",
            "move 0xffffffffffffffff 0x0 0x2 x",
        ] {
            let text = format!("{FIRST_LINE}\n{line}\n");
            let error = LayoutMap::parse(text.as_bytes()).expect_err(line);
            assert_eq!(error.offset, Some(FIRST_LINE.len() as u64 + 1), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_map_that_survives_or_an_error_inside_it(lines in collection::vec(line(), 0..12)) {
            let text = lines.join(&b'\n');
            match LayoutMap::parse(&text) {
                Ok(map) => {
                    let again = LayoutMap::parse(map.write().as_bytes()).expect("a written map parses");
                    prop_assert_eq!(&again, &map);
                    // Ranges of an arbitrary map may overlap; that must be an error.
                    for side in [Side::Old, Side::New] {
                        let moved = map.address_map(side).map(|moves| moves.moves().len());
                        prop_assert!(moved.is_err() || moved.is_ok_and(|count| count <= map.moves.len()));
                    }
                }
                Err(error) => {
                    prop_assert!(error.offset.is_some_and(|offset| offset <= text.len() as u64));
                }
            }
        }
    }

    /// Lines that are almost right, and bytes.
    fn line() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            Just(FIRST_LINE.as_bytes().to_vec()),
            Just(b"# one-way: debug-information".to_vec()),
            "# (old|new)-(sha256|build-id):[ 0-9a-f]{0,20}".prop_map(String::into_bytes),
            "move 0x[0-9a-f]{1,16} 0x[0-9a-f]{1,16} 0x[0-9a-f]{1,17} [ -~]{0,8}".prop_map(String::into_bytes),
            "(move|fill) [ 0-9a-fx]{0,30}".prop_map(String::into_bytes),
            "fill 0x[0-9a-f]{1,4} ([0-9a-f]{2}){0,8}".prop_map(String::into_bytes),
            "fill 0x[0-9a-f]{1,4} ([0-9a-f]{2}){1,3} 0x[0-9a-f]{1,4}".prop_map(String::into_bytes),
            collection::vec(any::<u8>(), 0..20),
        ]
    }
}
