//! Where the copies of code are, for the parts of an image that describe the originals.

use std::ops::Range;

use reorder_base::address::{Address, NewAddress};

/// Consecutive instructions of which there is a copy.
#[derive(Clone, Debug)]
pub struct CopiedRun {
    /// Where the originals are.
    pub original: Range<Address>,
    /// Where the copies are, with the jumps after them.
    pub copy: Range<NewAddress>,
    /// For each instruction, the distance of the original from the first original, and of the copy from the first copy;
    /// ascending.
    pub instructions: Vec<(u32, u32)>,
    /// Comparisons before copied instructions, which the originals lack; the copy of an instruction begins with its guard. Each
    /// guarded instruction's distance from the first original, and its guard's length; ascending.
    pub guards: Vec<(u32, u32)>,
}

impl CopiedRun {
    /// What of the copy corresponds to the originals from `start` to `end`; empty when nothing does. A part that reaches to the
    /// end of the originals has the jumps after the copy, too.
    pub fn part(&self, start: u64, end: u64) -> Range<NewAddress> {
        let from = if start <= self.original.start.0 { self.copy.start } else { self.place(start) };
        let to = if end >= self.original.end.0 { self.copy.end } else { self.place(end) };
        from..to.max(from)
    }

    /// The place in the copy for an address inside of the originals. Debug information also names places between the starts of
    /// two instructions, such as the last byte of a call. These count from the end of their instruction, whose copy may be
    /// longer.
    pub fn place(&self, address: u64) -> NewAddress {
        let distance = address.saturating_sub(self.original.start.0);
        let at = self.instructions.partition_point(|(original, _)| u64::from(*original) < distance);
        let (original, copy) = match self.instructions.get(at) {
            Some((original, copy)) => (u64::from(*original), u64::from(*copy)),
            // Inside of the last instruction, which may be followed by jumps of the copy alone.
            None => return self.in_last(distance),
        };
        self.copy.start.plus(copy.saturating_sub(original - distance))
    }

    /// The place in the copy of the instruction at `address`: of the guard before it, if it has one, and of itself.
    pub fn guarded_place(&self, address: u64) -> (NewAddress, NewAddress) {
        let place = self.place(address);
        let distance = address.saturating_sub(self.original.start.0);
        let at = self.guards.binary_search_by_key(&distance, |(original, _)| u64::from(*original));
        (place, at.map_or(place, |at| place.plus(u64::from(self.guards[at].1))))
    }

    fn in_last(&self, distance: u64) -> NewAddress {
        let (original, copy) = self.instructions.last().copied().unwrap_or_default();
        let guard = self.guards.last().filter(|(guarded, _)| *guarded == original).map_or(0, |guard| guard.1);
        let inside = distance - u64::from(original);
        self.copy.start.plus(u64::from(copy) + u64::from(guard) + inside).min(self.copy.end)
    }
}

/// All copies, by original.
#[derive(Clone, Debug, Default)]
pub struct CopiedCode {
    /// Ascending, disjoint.
    runs: Vec<CopiedRun>,
}

impl CopiedCode {
    /// Takes runs whose originals are disjoint.
    pub fn new(mut runs: Vec<CopiedRun>) -> Self {
        runs.sort_unstable_by_key(|run| run.original.start);
        Self { runs }
    }

    /// Whether nothing was copied.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs with an original in `start..end`.
    pub fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = &CopiedRun> {
        let first = self.runs.partition_point(|run| run.original.end.0 <= start);
        self.runs[first..].iter().take_while(move |run| run.original.start.0 < end)
    }

    /// Where the copies of `start..end` are, in the order of the originals.
    pub fn parts(&self, start: u64, end: u64) -> impl Iterator<Item = Range<NewAddress>> {
        self.overlapping(start, end).map(move |run| run.part(start, end)).filter(|part| part.start < part.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of five bytes, a short jump whose copy has six bytes, an instruction of three bytes after a guard of four; then a jump
    /// of five.
    fn run() -> CopiedRun {
        CopiedRun {
            original: Address(0x100)..Address(0x10a),
            copy: NewAddress(0x900)..NewAddress(0x917),
            instructions: vec![(0, 0), (5, 5), (7, 11)],
            guards: vec![(7, 4)],
        }
    }

    #[test]
    fn places_inside_an_instruction_count_from_its_end() {
        let places = [0x100, 0x104, 0x105, 0x106, 0x107, 0x109].map(|address| run().place(address).0);
        assert_eq!(places, [0x900, 0x904, 0x905, 0x90a, 0x90b, 0x911]);
    }

    #[test]
    fn a_guard_is_before_its_instruction() {
        assert_eq!(run().guarded_place(0x105), (NewAddress(0x905), NewAddress(0x905)));
        assert_eq!(run().guarded_place(0x107), (NewAddress(0x90b), NewAddress(0x90f)));
    }

    #[test]
    fn what_reaches_the_end_has_the_jumps() {
        let code = CopiedCode::new(vec![run()]);
        let parts =
            |start, end| code.parts(start, end).map(|part| (part.start.0, part.end.0)).collect::<Vec<_>>();
        assert_eq!(parts(0, 0x200), [(0x900, 0x917)]);
        assert_eq!(parts(0x105, 0x107), [(0x905, 0x90b)]);
        assert_eq!(parts(0x107, 0x10a), [(0x90b, 0x917)]);
        assert_eq!(parts(0x10a, 0x200), []);
    }
}
