//! Which executed blocks run in their original, which in their copy, and which in both.
//!
//! Takes both images and the blocks that one run executed, in order of first execution; gives the places where each runs.
//! Control is followed as the new image leads it: a branch of an original leads where its bytes say, a branch of a copy leads to
//! the copy of its target if there is one, and control falls out of a copy into the original. Blocks that no executed branch
//! leads to are entered
//!
//! * by the address of their function: in the copy if some pointer, symbol or instruction of the new image has the address
//!   of the copy, else in the original;
//! * by a jump through a table, whose entries say where it leads: from a copy into copies where the table has a copy, else into
//!   originals;
//! * by unwinding: landing pads are the originals'.
//!
//! Every branch between two executed blocks counts as taken, in each place where it runs. So a block may be said to run in
//! places that this run did not use; it is never said to run nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use layout_algos::score::Span;

use super::entries::addresses_of_copies;
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::Result;
use reorder_image::decode::control::control_step;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::loaded_ranges::LoadedRanges;
use reorder_image::functions::{Function, FunctionIndex, FunctionTable};
use reorder_trace::ExecutedBlock;
use reorder_verify::{AddressMoves, PlacedCopy, PlacedTable};

/// Control in an image with copies.
#[derive(Clone, Debug)]
pub(super) struct CopiedControl<'image> {
    old: &'image ElfFile<'image>,
    new: ElfFile<'image>,
    moves: &'image AddressMoves,
    /// All code of the old image.
    code: LoadedRanges,
    /// Where all copies are, of code and of tables.
    copies: Range<NewAddress>,
    /// Starts of originals for which the new image uses the address of the copy.
    led: BTreeSet<NewAddress>,
}

/// A jump table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Table {
    address: Address,
    holds: Holds,
}

/// What the entries of a table hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holds {
    /// Distances from the table.
    Distances,
    /// Addresses, in a program at a fixed address.
    Addresses,
}

/// Where a block runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Original,
    Copy,
}

impl<'image> CopiedControl<'image> {
    pub(super) fn new(
        old: &'image ElfFile<'image>,
        new: ElfFile<'image>,
        moves: &'image AddressMoves,
    ) -> Result<Self> {
        let code = moves.copies().iter().map(|copy| copy.copy..copy.copy.plus(copy.copy_size));
        let tables = moves.copied_tables().iter().map(|table| table.copy..table.copy.plus(table.size));
        let copies = code.chain(tables).reduce(|all, one| all.start.min(one.start)..all.end.max(one.end));
        let copies = copies.unwrap_or(NewAddress(0)..NewAddress(0));
        let led = addresses_of_copies(&new, moves, &copies)?;
        Ok(Self { code: LoadedRanges::of_code(old), old, new, moves, copies, led })
    }

    /// Where all copies are, of code and of tables.
    pub(super) fn copies(&self) -> Range<NewAddress> {
        self.copies.clone()
    }

    /// The places of each of `blocks`, which are at `spans` of the old image.
    pub(super) fn places(
        &self,
        functions: &FunctionTable<'_>,
        blocks: &[ExecutedBlock],
        spans: &[Span],
    ) -> Vec<Vec<Span>> {
        let mut by_start: Vec<usize> = (0..spans.len()).collect();
        by_start.sort_unstable_by_key(|&block| spans[block].start);
        let mut follower = Follower {
            control: self,
            functions,
            blocks,
            spans,
            by_start,
            reached: BTreeSet::new(),
            waiting: Vec::new(),
            computed: BTreeMap::new(),
            known_tables: BTreeMap::new(),
            tables: BTreeMap::new(),
            places: vec![Vec::new(); blocks.len()],
        };
        for block in 0..blocks.len() {
            follower.enter(block);
            follower.follow();
        }
        follower.places
    }

    /// The copy that holds what was at `address` of the old image.
    fn copy_of(&self, address: Address) -> Option<&PlacedCopy> {
        let original = self.moves.map(address);
        let after = self.moves.copies().partition_point(|copy| copy.original <= original);
        let copy = self.moves.copies().get(after.checked_sub(1)?)?;
        (original.0 - copy.original.0 < copy.size).then_some(copy)
    }

    fn place_of(&self, address: Address) -> Place {
        if self.copy_of(address).is_some() { Place::Copy } else { Place::Original }
    }

    /// Where `size` bytes at `address` of the old image are in `place`.
    fn spans(&self, place: Place, address: Address, size: u64) -> Vec<Span> {
        let places = match place {
            Place::Copy => self.moves.places(address, size),
            Place::Original => {
                let start = self.moves.map(address);
                vec![start..start.plus(size)]
            }
        };
        places.into_iter().map(|place| Span { start: place.start.0, end: place.end.0 }).collect()
    }

    /// Whether `table` can be a jump table of `function`.
    fn is_table(&self, table: Table, function: &Function) -> bool {
        !self.code.contain(table.address) && self.entries(table, function).next().is_some()
    }

    /// Where the entries of a table lead. A table with a copy has a known length. Any other is read up to the first entry that
    /// leads to no code; what leads out of `function` may be of another table.
    fn entries(&self, table: Table, function: &Function) -> impl Iterator<Item = Address> + use<'_> {
        /// More than any switch has.
        const MAX_ENTRIES: u64 = 4096;
        let range = function.start..function.end;
        let size = if table.holds == Holds::Distances { 4 } else { 8 };
        let copied = self.table_at(table.address);
        let entry = move |number: u64| {
            let bytes = self.old.bytes_at(table.address.plus(number * size), size)?;
            let target = match table.holds {
                Holds::Distances => {
                    let distance = i32::from_le_bytes(*bytes.first_chunk()?);
                    table.address.plus(i64::from(distance) as u64)
                }
                Holds::Addresses => Address(u64::from_le_bytes(*bytes.first_chunk()?)),
            };
            self.code.contain(target).then_some(target)
        };
        let count = copied.map_or(MAX_ENTRIES, |copied| copied.size / size);
        let is_own = move |target: &Address| copied.is_some() || range.contains(target);
        (0..count).map_while(entry).filter(is_own)
    }

    /// The copy of the jump table at `address` of the old image.
    fn table_at(&self, address: Address) -> Option<&PlacedTable> {
        let original = self.moves.map(address);
        let tables = self.moves.copied_tables();
        tables.binary_search_by_key(&original, |table| table.original).ok().map(|found| &tables[found])
    }
}

/// State while control is followed through the blocks of one run.
struct Follower<'run> {
    control: &'run CopiedControl<'run>,
    functions: &'run FunctionTable<'run>,
    blocks: &'run [ExecutedBlock],
    spans: &'run [Span],
    /// Numbers of blocks, by address.
    by_start: Vec<usize>,
    reached: BTreeSet<(usize, Place)>,
    waiting: Vec<(usize, Place)>,
    /// By function: where its computed jumps lead, and the blocks that only they lead to.
    computed: BTreeMap<FunctionIndex, (BTreeSet<Place>, Vec<usize>)>,
    /// Addresses that functions formed, and whether they can be tables.
    known_tables: BTreeMap<(FunctionIndex, Table), bool>,
    /// By function: the jump tables whose address it formed.
    tables: BTreeMap<FunctionIndex, BTreeSet<Table>>,
    places: Vec<Vec<Span>>,
}

impl Follower<'_> {
    fn go(&mut self, block: usize, place: Place) {
        // Control that leads to copies leads to the original of a block that has no copy.
        let place = match place {
            Place::Copy => self.control.place_of(Address(self.spans[block].start)),
            Place::Original => Place::Original,
        };
        if self.reached.insert((block, place)) {
            self.waiting.push((block, place));
        }
    }

    fn go_to(&mut self, target: Address, place: Place) {
        if let Some(block) = self.block_at(target) {
            self.go(block, place);
        }
    }

    fn block_at(&self, address: Address) -> Option<usize> {
        let after = self.by_start.partition_point(|&block| self.spans[block].start <= address.0);
        let block = self.by_start[after.checked_sub(1)?];
        (address.0 < self.spans[block].end).then_some(block)
    }

    /// Enters a block that nothing before it leads to.
    fn enter(&mut self, block: usize) {
        if [Place::Original, Place::Copy].iter().any(|place| self.reached.contains(&(block, *place))) {
            return;
        }
        let start = Address(self.spans[block].start);
        let function = self.blocks[block].function;
        if self.functions.get(function).start == start {
            let is_led = self.control.led.contains(&self.control.moves.map(start));
            self.go(block, if is_led { Place::Copy } else { Place::Original });
            return;
        }
        let (places, targets) = self.computed.entry(function).or_default();
        targets.push(block);
        let mut places: Vec<Place> = places.iter().copied().collect();
        if places.is_empty() {
            places.push(Place::Original);
        }
        places.into_iter().for_each(|place| self.go(block, place));
    }

    fn follow(&mut self) {
        while let Some((block, place)) = self.waiting.pop() {
            self.run(block, place);
        }
    }

    /// As that of [`CopiedControl`], which takes thousands of steps for some addresses.
    fn is_table(&mut self, table: Table, function: FunctionIndex) -> bool {
        let (control, functions) = (self.control, self.functions);
        *self
            .known_tables
            .entry((function, table))
            .or_insert_with(|| control.is_table(table, functions.get(function)))
    }

    /// Goes through the instructions of a block that is entered in `entered`.
    fn run(&mut self, block: usize, entered: Place) {
        let control = self.control;
        let Span { start, end } = self.spans[block];
        let size = end.saturating_sub(start);
        let moved = Address(control.moves.map(Address(start)).0);
        let code = control.old.bytes_at(Address(start), size);
        let new_code = control.new.bytes_at(moved, size);
        let (Some(code), Some(new_code)) = (code, new_code) else { return };
        let processor = control.old.processor;
        let (mut place, mut continues) = (entered, false);
        let mut pieces: Vec<(Place, Range<u64>)> = Vec::new();
        let mut table = None;
        let mut offset = 0;
        while offset < size {
            let at = Address(start).plus(offset);
            // Control that fell out of a copy stays in the original. Code after a jump is entered from elsewhere, in the same
            // place as this block.
            if !(continues && place == Place::Original) {
                place = if entered == Place::Copy { control.place_of(at) } else { Place::Original };
            }
            let rest = offset as usize..;
            let Some(step) = control_step(processor, &code[rest.clone()], at) else { break };
            let next = (offset + step.length).min(size);
            match pieces.last_mut() {
                Some((last, piece)) if *last == place => piece.end = next,
                _ => pieces.push((place, offset..next)),
            }
            if let Some(target) = step.target {
                let new_target = || control_step(processor, &new_code[rest], moved.plus(offset))?.target;
                let leads = match place {
                    Place::Copy => control.place_of(target),
                    Place::Original => match new_target() {
                        Some(target) if control.copies.contains(&NewAddress(target.0)) => Place::Copy,
                        _ => Place::Original,
                    },
                };
                self.go_to(target, leads);
            }
            let function = self.blocks[block].function;
            let formed = step.formed.map(|address| Table { address, holds: Holds::Distances });
            let read = step.loads_from.map(|address| Table { address, holds: Holds::Addresses });
            let named = formed.or(read);
            if let Some(named) = named.filter(|table| self.is_table(*table, function)) {
                self.tables.entry(function).or_default().insert(named);
                table = Some(named);
            }
            if step.jumps_to_computed {
                self.jump_by_table(block, table, place);
            }
            continues = step.continues;
            offset = next;
        }
        for (place, piece) in pieces {
            let (at, size) = (Address(start).plus(piece.start), piece.end - piece.start);
            self.places[block].extend(control.spans(place, at, size));
        }
        if continues {
            let leads = if place == Place::Copy { control.place_of(Address(end)) } else { place };
            if let Some(next) = self.block_at(Address(end)).filter(|&next| self.spans[next].start == end) {
                self.go(next, leads);
            }
        }
    }

    /// Follows a jump through `table`; if its address was formed in another block, through the copied tables of the function,
    /// or through all if none is copied.
    fn jump_by_table(&mut self, block: usize, table: Option<Table>, place: Place) {
        let control = self.control;
        let function = self.blocks[block].function;
        let is_copied = |table: &Table| place == Place::Copy && control.table_at(table.address).is_some();
        let mut tables: Vec<Table> = match table {
            Some(table) => vec![table],
            None => self.tables.get(&function).into_iter().flatten().copied().collect(),
        };
        if table.is_none() && tables.iter().any(is_copied) {
            tables.retain(is_copied);
        }
        for table in &tables {
            let copied = control.table_at(table.address).filter(|_| is_copied(table));
            let leads = if copied.is_some() { Place::Copy } else { Place::Original };
            let has_copy = control.table_at(table.address).is_some();
            for target in control.entries(*table, self.functions.get(function)) {
                let Some(block) = self.block_at(target) else { continue };
                // Nothing says where a table without a copy ends. Words after it mostly lead into the middle of blocks.
                let ExecutedBlock { offset, size, .. } = self.blocks[block];
                let is_whole = offset == 0 && u64::from(size) == self.functions.get(function).size();
                if has_copy || is_whole || self.spans[block].start == target.0 {
                    self.go(block, leads);
                }
            }
            let read = copied.map(|table| Span { start: table.copy.0, end: table.copy.plus(table.size).0 });
            self.places[block].extend(read);
        }
        if tables.is_empty() {
            self.jump_to_computed(Place::Original, function);
        }
    }

    fn jump_to_computed(&mut self, place: Place, function: FunctionIndex) {
        let (places, targets) = self.computed.entry(function).or_default();
        if places.insert(place) {
            for target in targets.clone() {
                self.go(target, place);
            }
        }
    }
}
