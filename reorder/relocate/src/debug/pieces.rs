//! The parts of the old address space that stay together, and the distance by which each moves.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::address_map::AddressMap;
use reorder_base::address::{Address, NewAddress};
use reorder_base::address_index::AddressIndex;

/// Old addresses that move by one distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First address.
    pub start: Address,
    /// One past the last address.
    pub end: Address,
    /// What is added to each address; wraps for moves to lower addresses.
    pub delta: u64,
}

impl Piece {
    /// Where `address`, which lies in the piece or at its end, is in the new image.
    pub fn map(&self, address: u64) -> u64 {
        address.wrapping_add(self.delta)
    }
}

/// The old address space in pieces, without what the new image has no place for: padding whose code before it moved
/// away, and places that other code took.
#[derive(Debug, Default)]
pub struct Pieces {
    /// Sorted and disjoint.
    pieces: Vec<Piece>,
    index: AddressIndex,
    /// Executable sections, sorted.
    code: Vec<Range<Address>>,
    /// Parts made so far, and how many may be made: a file could describe all code over and over, or one list in many
    /// places.
    made: AtomicU64,
    most: u64,
}

impl Pieces {
    /// Divides the address space by `map`. `code` are the executable sections, `padding` the filler between functions;
    /// both sorted and disjoint.
    pub fn new(map: &AddressMap, code: Vec<Range<Address>>, padding: &[Range<Address>]) -> Self {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut taken: Vec<(u64, u64)> = Vec::with_capacity(2 * map.moves().len());
        for range in map.moves() {
            let piece = Piece { start: range.old, end: range.old.plus(range.size), delta: range.delta() };
            match pieces.last_mut() {
                Some(last) if last.end == piece.start && last.delta == piece.delta => last.end = piece.end,
                _ => pieces.push(piece),
            }
            taken.push((range.old.0, range.size));
            taken.push((range.new.0, range.size));
        }
        taken.sort_unstable();
        let mut position = 0;
        for (start, size) in taken.into_iter().chain([(u64::MAX, 0)]) {
            // Padding after code that left or arrived belongs to no code.
            let from = if position == 0 { 0 } else { after_padding(padding, position) };
            if from < start {
                pieces.push(Piece { start: Address(from), end: Address(start), delta: 0 });
            }
            position = position.max(start.saturating_add(size));
        }
        pieces.sort_unstable_by_key(|piece| piece.start);
        let index = AddressIndex::new(pieces.iter().map(|piece| piece.start.0));
        Self { pieces, index, code, made: AtomicU64::new(0), most: u64::MAX }
    }

    /// Limits how much is divided to what `bytes` of debug information can justify.
    #[must_use]
    pub fn limited(mut self, bytes: u64) -> Self {
        /// Each function is described by its unit, its lines, tables of addresses and the blocks around it.
        const MAX_FOR_A_PIECE: u64 = 64;
        self.most = bytes.saturating_add(MAX_FOR_A_PIECE.saturating_mul(self.pieces.len() as u64));
        self
    }

    /// Counts a part; false when there are too many, so that the division must be abandoned.
    pub fn count(&self) -> bool {
        self.count_many(1)
    }

    /// Counts `parts` parts, or bytes that are written as often as a part.
    pub(crate) fn count_many(&self, parts: u64) -> bool {
        self.made.fetch_add(parts, Ordering::Relaxed).saturating_add(parts) <= self.most
    }

    /// Whether a division was abandoned.
    pub fn is_exhausted(&self) -> bool {
        self.made.load(Ordering::Relaxed) > self.most
    }

    /// Whether `address` lies in an executable section. Descriptions of code that the linker left out do not.
    pub fn is_code(&self, address: u64) -> bool {
        let after = self.code.partition_point(|range| range.start.0 <= address);
        self.code[..after].last().is_some_and(|range| address < range.end.0)
    }

    /// The piece that holds `address`.
    pub fn at(&self, address: u64) -> Option<&Piece> {
        let after = self.index.count_up_to(address, |at| self.pieces[at].start.0);
        self.pieces[..after].last().filter(|piece| address < piece.end.0)
    }

    /// Start of the first piece after `address`.
    pub fn next_start(&self, address: u64) -> Option<u64> {
        let after = self.index.count_up_to(address, |at| self.pieces[at].start.0);
        self.pieces.get(after).map(|piece| piece.start.0)
    }

    /// Where the code at `address` went; addresses that hold no code stay.
    pub fn start(&self, address: u64) -> u64 {
        match self.is_code(address) {
            true => self.at(address).map_or(address, |piece| piece.map(address)),
            false => address,
        }
    }

    /// Where `address` went, as the address of something and as the end of the code before it. `None` when the two differ.
    /// `is_data` says that something other than code is there.
    pub fn either(&self, address: u64, is_data: bool) -> Option<u64> {
        let before = address.wrapping_sub(1);
        let piece = |at| self.at(at).filter(|_| self.is_code(at)).map(|piece| piece.map(address));
        // No code begins in padding that belongs to no code.
        let start = if is_data { Some(address) } else { piece(address) };
        match (start, piece(before)) {
            (Some(start), Some(end)) if start != end => None,
            (start, end) => Some(start.or(end).unwrap_or(address)),
        }
    }

    /// Where the end of code went, such as the address after a call.
    pub fn end(&self, address: u64) -> u64 {
        let before = address.wrapping_sub(1);
        match self.is_code(before) {
            true => self.at(before).map_or(address, |piece| piece.map(address)),
            false => address,
        }
    }

    /// Where the addresses from `start` to `end` went, in the old order; neighbours are joined.
    pub fn split(&self, start: u64, end: u64) -> Vec<(NewAddress, NewAddress)> {
        let mut parts: Vec<(NewAddress, NewAddress)> = Vec::new();
        let first = self.pieces.partition_point(|piece| piece.end.0 <= start);
        for piece in self.pieces[first..].iter().take_while(|piece| piece.start.0 < end && self.count()) {
            let from = NewAddress(piece.map(start.max(piece.start.0)));
            let to = NewAddress(piece.map(end.min(piece.end.0)));
            match parts.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                _ => parts.push((from, to)),
            }
        }
        parts
    }

    /// The distance by which everything from `start` to `end` moves; `None` when parts of it go apart. Padding that belongs
    /// to no code does not count.
    pub fn distance(&self, start: u64, end: u64) -> Option<u64> {
        let first = self.pieces.partition_point(|piece| piece.end.0 <= start);
        let mut parts = self.pieces[first..].iter().take_while(|piece| piece.start.0 < end && self.count());
        let distance = parts.next().map_or(0, |piece| piece.delta);
        parts.all(|piece| piece.delta == distance).then_some(distance)
    }
}

/// The first address from `position` on that is not padding.
fn after_padding(padding: &[Range<Address>], position: u64) -> u64 {
    let after = padding.partition_point(|range| range.end.0 <= position);
    match padding.get(after) {
        Some(range) if range.start.0 <= position => range.end.0,
        _ => position,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_map::Move;

    fn pieces() -> Pieces {
        let moved = |old, new, size| Move { old: Address(old), new: NewAddress(new), size };
        // f 0x100..0x10c, padding, g 0x110..0x120, h 0x120..0x130 change places: g h f.
        let map =
            AddressMap::new([moved(0x100, 0x120, 12), moved(0x110, 0x100, 16), moved(0x120, 0x110, 16)])
                .expect("no overlap");
        Pieces::new(&map, vec![Address(0x80)..Address(0x200)], &[Address(0x10c)..Address(0x110)])
    }

    #[test]
    fn what_moves_together_is_one_piece() {
        let pieces = pieces();
        assert_eq!(pieces.split(0x110, 0x130), [(NewAddress(0x100), NewAddress(0x120))]);
    }

    #[test]
    fn a_range_over_padding_is_cut_at_the_function() {
        let part = |from, to| (NewAddress(from), NewAddress(to));
        assert_eq!(pieces().split(0x100, 0x110), [part(0x120, 0x12c)]);
        assert_eq!(pieces().split(0xf0, 0x118), [part(0xf0, 0x100), part(0x120, 0x12c), part(0x100, 0x108)]);
    }

    #[test]
    fn describing_all_code_over_and_over_is_given_up() {
        let pieces = pieces().limited(10);
        let parts: usize = (0..10_000).map(|_| pieces.split(0, 0x1000).len()).sum();
        assert!(parts < 1000 && pieces.is_exhausted());
    }

    #[test]
    fn an_address_between_two_functions_has_two_readings() {
        let pieces = pieces();
        // After f is padding, after g is h, which moves along, and after h what stays.
        let either = |address| pieces.either(address, false);
        assert_eq!((either(0x10c), either(0x120), either(0x130)), (Some(0x12c), Some(0x110), None));
        assert_eq!(
            (either(0x118), either(0x40), pieces.either(0x130, true)),
            (Some(0x108), Some(0x40), None)
        );
    }

    #[test]
    fn padding_between_does_not_count_for_a_distance() {
        // f and g 0x110..0x120 both by 0x100; the bytes after them stay.
        let moved = |old, new, size| Move { old: Address(old), new: NewAddress(new), size };
        let map = AddressMap::new([moved(0x100, 0x200, 12), moved(0x110, 0x210, 16)]).expect("no overlap");
        let code = vec![Address(0x80)..Address(0x300)];
        let pieces = Pieces::new(&map, code, &[Address(0x10c)..Address(0x110)]);
        assert_eq!((pieces.distance(0x100, 0x120), pieces.distance(0x100, 0x121)), (Some(0x100), None));
    }

    #[test]
    fn ends_go_with_the_code_before() {
        let pieces = pieces();
        assert_eq!((pieces.end(0x10c), pieces.start(0x110), pieces.end(0x110)), (0x12c, 0x100, 0x110));
        assert_eq!((pieces.end(0x130), pieces.start(0x40), pieces.start(0x1f0)), (0x120, 0x40, 0x1f0));
    }
}
