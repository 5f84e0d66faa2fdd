//! One atom of arm64 code: its references, and what must stay because of it.

mod compare;
mod ending;
mod flow;
mod interpret;
mod relaxed;
mod tables;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeSet;
use std::ops::Range;

use rayon::prelude::*;

use super::atoms::{AtomIndex, Atoms};
use super::decoded::DecodedAtom;
use crate::address::Address;
use crate::image::analysis::pins::{Pin, PinReason};
use crate::image::decode::aarch64::{Operation, PAGE, Register, WORD, decode, uses};
use crate::image::macho::file::MachOFile;
use crate::image::macho::reference::{CodeForm, CodeReference, DataForm, DataReference};
use flow::{Code, FlowFacts, follow};
use relaxed::{nop_behind, nop_in_front};
use tables::Dispatch;

/// What decoding needs to know of the rest of the image.
pub struct Arm64Context<'data> {
    /// The image.
    pub file: &'data MachOFile<'data>,
    /// `__text`.
    pub text: Range<Address>,
    /// Starts of atoms, sorted; the first is the start of `__text`.
    pub starts: &'data [Address],
    /// Addresses outside of `__text` that code refers to, sorted: a jump table ends in front of the next one.
    pub known: Vec<Address>,
    /// Places where only exceptions lead, sorted.
    landing_pads: &'data [Address],
    /// Registers in which no call returns anything, as bits.
    not_returned: u32,
}

/// Reach of `ADR` and of loads of literals, in bytes, in each direction.
const SHORT_REACH: u64 = 1 << 20;

impl<'data> Arm64Context<'data> {
    /// Looks once at all code for what it refers to.
    #[must_use]
    pub fn new(file: &'data MachOFile<'data>, atoms: &'data Atoms, landing_pads: &'data [Address]) -> Self {
        let is_swift = file.sections.iter().any(|section| section.name.starts_with(b"__swift5_"));
        let not_returned = if is_swift { value::NOT_RETURNED_BY_SWIFT } else { value::NOT_RETURNED };
        let text = file.text().range();
        let mut context =
            Self { file, text, starts: &atoms.starts, known: Vec::new(), landing_pads, not_returned };
        let mut known: Vec<Address> = (0..atoms.len() as u32)
            .into_par_iter()
            .with_min_len(256)
            .fold(Vec::new, |mut found, index| {
                addresses_formed(&context, atoms.range(AtomIndex(index)), &mut found);
                found
            })
            .reduce(Vec::new, |mut all, some| {
                all.extend(some);
                all
            });
        known.par_sort_unstable();
        known.dedup();
        context.known = known;
        context
    }

    /// Whether a page of 4 KiB holds bytes of `__text`.
    pub(super) fn shares_page(&self, page: Address) -> bool {
        page.plus(PAGE) > self.text.start && page < self.text.end
    }

    /// Whether `ADR` reaches `target` from wherever an atom may be put.
    fn is_near(&self, target: Address) -> bool {
        target.0.abs_diff(self.text.start.0) < SHORT_REACH && target.0.abs_diff(self.text.end.0) < SHORT_REACH
    }

    /// Whether another atom than this starts there.
    fn is_start_elsewhere(&self, address: Address, atom: &Range<Address>) -> bool {
        !atom.contains(&address) && self.starts.binary_search(&address).is_ok()
    }

    /// Starts of the atoms that share a page.
    fn atoms_on_page(&self, page: Address) -> impl Iterator<Item = Address> + '_ {
        let first = self.starts.partition_point(|start| *start <= page).saturating_sub(1);
        self.starts[first..].iter().copied().take_while(move |start| *start < page.plus(PAGE))
    }
}

/// Instructions of `bytes`; bytes behind the last whole one are left out.
fn words_of(bytes: &[u8]) -> Vec<u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn operations_of(words: &[u32], start: Address) -> Vec<Operation> {
    let places = (0..).map(|index| start.plus(index * WORD));
    words.iter().zip(places).map(|(word, place)| decode(*word, place)).collect()
}

/// Decodes the atom at `atom`; control may also arrive at `entries` inside of it.
#[must_use]
pub fn decode_atom(context: &Arm64Context<'_>, atom: Range<Address>, entries: &[Address]) -> DecodedAtom {
    let size = atom.end.distance_from(atom.start);
    let bytes = context.file.bytes_at(atom.start, size).unwrap_or_default();
    let words = words_of(bytes);
    let mut result = DecodedAtom::default();
    if !size.is_multiple_of(WORD) || !atom.start.0.is_multiple_of(WORD) || words.is_empty() {
        // Of an atom that begins or ends inside a word, the words that it shares count as its own.
        let evidence = atom.start;
        return keep(context, atom, Pin { reason: PinReason::NotDecodable, evidence });
    }
    if is_table(&words) {
        result.is_table = true;
        return result;
    }
    let operations = operations_of(&words, atom.start);
    let facts = follow(context, &atom, Code { words: &words, operations: &operations }, entries);
    let mut builder = Builder { taken: BTreeSet::new(), context, atom, words, operations, facts, result };
    builder.build();
    builder.result
}

/// The atom stays, and all that its words may refer to, whole ones at its ends.
#[must_use]
pub fn keep(context: &Arm64Context<'_>, atom: Range<Address>, pin: Pin) -> DecodedAtom {
    let whole = Address(atom.start.0 & !3)..Address(atom.end.0.next_multiple_of(WORD));
    let size = whole.end.distance_from(whole.start);
    let words = words_of(context.file.bytes_at(whole.start, size).unwrap_or_default());
    let operations = operations_of(&words, whole.start);
    let facts = FlowFacts::default();
    let mut builder = Builder {
        taken: BTreeSet::new(),
        context,
        atom: whole,
        words,
        operations,
        facts,
        result: DecodedAtom::default(),
    };
    builder.keep_everything(0);
    builder.result.pin = Some(pin);
    builder.result
}

/// Whether all words are small distances, as tables hold them: no instruction that refers to a place has such an upper
/// byte, so it cannot be code that is passed over.
fn is_table(words: &[u32]) -> bool {
    let is_small = |word: &u32| matches!(word >> 24, 0 | 0xff);
    words.iter().all(is_small) && words.iter().any(|word| *word != 0)
}

struct Builder<'run, 'data> {
    /// Words that a shortened reference needs when it becomes a pair again.
    taken: BTreeSet<usize>,
    context: &'run Arm64Context<'data>,
    atom: Range<Address>,
    words: Vec<u32>,
    operations: Vec<Operation>,
    facts: FlowFacts,
    result: DecodedAtom,
}

impl Builder<'_, '_> {
    fn place(&self, index: usize) -> Address {
        self.atom.start.plus(index as u64 * WORD)
    }

    fn pin(&mut self, reason: PinReason, evidence: Address) {
        self.result.pin.get_or_insert(Pin { reason, evidence });
    }

    fn build(&mut self) {
        if let Some(index) = self.opaque_word() {
            return self.keep_everything(index);
        }
        for index in 0..self.words.len() {
            if self.facts.is_reached[index] {
                self.add_references(index);
            }
        }
        self.add_pages();
        let dispatches: Vec<Dispatch> = self.facts.dispatches.iter().map(|(_, dispatch)| *dispatch).collect();
        for dispatch in dispatches {
            self.add_dispatch(dispatch);
        }
        for call in std::mem::take(&mut self.facts.calls) {
            self.keep_targets(call);
        }
        if let Some(index) = self.facts.unexplained_jump {
            self.pin(PinReason::UnresolvedJump, self.place(index as usize));
        }
        if self.facts.is_excessive {
            self.pin(PinReason::UnpairedAddress, self.atom.start);
        }
        if self.facts.runs_over_end {
            self.result.ties.push(self.atom.end);
        }
    }

    /// The first word that makes the atom opaque: control never reaches it, and it might refer to something outside; or
    /// control reaches it, and it is nothing.
    fn opaque_word(&self) -> Option<usize> {
        (0..self.words.len()).find(|&index| {
            let operation = self.operations[index];
            match self.facts.is_reached[index] {
                true => operation == Operation::Invalid,
                false => self.leaves(operation) || self.may_refer(index, operation),
            }
        })
    }

    fn leaves(&self, operation: Operation) -> bool {
        match operation {
            Operation::Branch(target)
            | Operation::Call(target)
            | Operation::ConditionalBranch(target)
            | Operation::Adr(_, target)
            | Operation::LoadLiteral(_, target) => !self.atom.contains(&target),
            Operation::Adrp(..) => true,
            _ => false,
        }
    }

    /// Whether an unreached word may be the distance from itself to something outside, or half of an address of which the
    /// other half was reached.
    fn may_refer(&self, index: usize, operation: Operation) -> bool {
        let word = self.words[index];
        let target = self.place(index).plus(i64::from(word as i32) as u64);
        let is_distance = word != 0 && self.context.is_start_elsewhere(target, &self.atom);
        let is_half = !self.facts.pages.is_empty()
            && matches!(operation, Operation::AddImmediate(..) | Operation::Access(..));
        is_distance || is_half
    }

    /// Nothing of the atom is written, and whatever it may refer to stays.
    fn keep_everything(&mut self, evidence: usize) {
        self.pin(PinReason::NotDecodable, self.place(evidence));
        for index in 0..self.words.len() {
            let distance = i64::from(self.words[index] as i32) as u64;
            if self.words[index] != 0 {
                self.result.possible_targets.push(self.place(index).plus(distance));
            }
            match self.operations[index] {
                Operation::Branch(target)
                | Operation::Call(target)
                | Operation::ConditionalBranch(target)
                | Operation::Adr(_, target)
                | Operation::LoadLiteral(_, target) => self.result.possible_targets.push(target),
                Operation::Adrp(_, page) if self.context.shares_page(page) => {
                    self.result.possible_targets.extend(self.context.atoms_on_page(page));
                }
                _ => {}
            }
        }
        self.keep_entries();
        // Control may run over the end into what stands behind.
        self.result.possible_targets.push(self.atom.end);
        let (text, atom) = (&self.context.text, &self.atom);
        self.result.possible_targets.retain(|target| text.contains(target) && !atom.contains(target));
    }

    /// Words behind a place that the atom addresses may be distances from there.
    fn keep_entries(&mut self) {
        let formed = self.operations.iter().filter_map(|operation| match operation {
            Operation::Adr(_, target) if self.atom.contains(target) => {
                Some((target.distance_from(self.atom.start) / WORD) as usize)
            }
            _ => None,
        });
        let bases: BTreeSet<usize> = formed.collect();
        for &base in &bases {
            let next = bases.range(base + 1..).next().copied().unwrap_or(self.words.len());
            let table = self.place(base);
            let words = self.words[base..next].iter().filter(|word| **word != 0);
            let targets = words.map(|word| table.plus(i64::from(*word as i32) as u64));
            self.result.possible_targets.extend(targets);
        }
    }

    fn add(&mut self, index: usize, target: Address, form: CodeForm) {
        self.result.references.push(CodeReference { place: self.place(index), target, form });
    }

    fn add_references(&mut self, index: usize) {
        match self.operations[index] {
            Operation::Branch(target) | Operation::Call(target) if !self.atom.contains(&target) => {
                self.add(index, target, CodeForm::Branch26);
            }
            Operation::ConditionalBranch(target) if !self.atom.contains(&target) => {
                self.result.ties.push(target);
            }
            Operation::Adr(register, target) if !self.atom.contains(&target) => {
                self.add_adr(index, register, target);
            }
            Operation::LoadLiteral(register, target) if !self.atom.contains(&target) => {
                self.add_literal(index, register, target);
            }
            Operation::Adrp(_, page) if !self.context.shares_page(page) => {
                self.add(index, page, CodeForm::Page)
            }
            _ => {}
        }
    }

    fn add_adr(&mut self, index: usize, register: Register, target: Address) {
        let joined = &self.facts.is_joined;
        let nop = nop_behind(&self.words, index, register, |at| joined[at], &self.taken);
        if let Some(nop) = nop {
            self.taken.insert(index.wrapping_add_signed(isize::from(nop)));
            return self.add(index, target, CodeForm::RelaxedAdr { nop });
        }
        if !self.context.is_near(target) && self.context.text.contains(&target) {
            return self.result.ties.push(target);
        }
        self.add(index, target, CodeForm::Adr);
        if !self.context.is_near(target) {
            self.pin(PinReason::ShortReference, self.place(index));
        }
    }

    fn add_literal(&mut self, index: usize, register: Option<Register>, target: Address) {
        if self.context.text.contains(&target) {
            return self.result.ties.push(target);
        }
        let joined = &self.facts.is_joined;
        // A load through a register needs a target aligned to its size, a literal only one aligned to a word.
        let size = if self.words[index] >> 30 == 1 { 8 } else { WORD };
        let register = register.filter(|_| target.0.is_multiple_of(size));
        let nop = register
            .and_then(|register| nop_in_front(&self.words, index, register, |at| joined[at], &self.taken));
        if let Some(nop) = nop {
            self.taken.insert(index.wrapping_add_signed(isize::from(nop)));
            return self.add(index, target, CodeForm::RelaxedLoad { nop });
        }
        self.add(index, target, CodeForm::LoadLiteral);
        if !self.context.is_near(target) {
            self.pin(PinReason::ShortReference, self.place(index));
        }
    }

    /// Each `ADRP` into the pages of `__text`, with what completes it.
    fn add_pages(&mut self) {
        let mut targets: Vec<Vec<Address>> = vec![Vec::new(); self.facts.pages.len()];
        let uses: Vec<_> = self.facts.uses.iter().map(|(index, page_use)| (*index, *page_use)).collect();
        for (index, page_use) in uses {
            for &number in self.facts.sets.members(page_use.from) {
                targets[number as usize].push(page_use.target);
            }
            self.add(index as usize, page_use.target, CodeForm::PageOffset { scale: page_use.scale });
            // Loads count in their own size, and a move keeps multiples of a word only.
            if page_use.is_access && page_use.scale > 2 {
                self.result.possible_targets.push(page_use.target);
            }
        }
        // A page that the function names for nothing but data is the same wherever functions go: what reads it reads what it
        // did, as where a register keeps it after its last use.
        let text = self.context.text.clone();
        let pages_of_text: BTreeSet<u64> = (targets.iter().zip(&self.facts.pages))
            .filter(|(targets, _)| targets.iter().any(|target| text.contains(target)))
            .map(|(_, (_, page))| *page)
            .collect();
        for (number, mut targets) in targets.into_iter().enumerate() {
            let (index, page) = self.facts.pages[number];
            if !self.facts.is_reached[index as usize] {
                continue;
            }
            targets.sort_unstable();
            targets.dedup();
            let is_read = self.facts.read.contains(&(number as u32)) && pages_of_text.contains(&page);
            let is_unresolved =
                is_read || self.facts.unresolved.contains(&(number as u32)) || targets.is_empty();
            if is_unresolved {
                self.pin(PinReason::UnpairedAddress, self.place(index as usize));
                let atoms: Vec<Address> = self.context.atoms_on_page(Address(page)).collect();
                self.result.possible_targets.extend(atoms);
            }
            if targets.len() > 1 {
                // One page for several places: that holds as long as none of them moves.
                self.result.possible_targets.extend(targets.iter().copied());
            }
            self.add(index as usize, targets.first().copied().unwrap_or(Address(page)), CodeForm::Page);
        }
        self.result.possible_targets.retain(|target| text.contains(target));
        if self.result.possible_targets.iter().any(|target| self.atom.contains(target)) {
            self.pin(PinReason::UnpairedAddress, self.atom.start);
        }
    }

    fn add_dispatch(&mut self, dispatch: Dispatch) {
        if self.context.text.contains(&dispatch.table) && !self.atom.contains(&dispatch.table) {
            // Whatever its entries count from, the distance stays.
            self.result.ties.push(dispatch.table);
        }
        let targets = dispatch.targets(self.context, &self.atom);
        if targets.is_empty() {
            self.keep_targets(dispatch);
            return self.pin(PinReason::UnresolvedJump, dispatch.table);
        }
        let leaving = self.leaving_entries(dispatch, targets.len());
        if !leaving.is_empty() {
            self.result.possible_targets.extend(leaving);
            self.pin(PinReason::UnresolvedJump, dispatch.table);
        }
        if self.atom.contains(&dispatch.base) {
            return;
        }
        let is_of_table = dispatch.base == dispatch.table && dispatch.size == 4 && dispatch.shift == 0;
        if self.context.text.contains(&dispatch.base) && is_of_table {
            return;
        }
        if !is_of_table {
            self.keep_targets(dispatch);
            return self.pin(PinReason::UnresolvedJump, dispatch.table);
        }
        let from = dispatch.table;
        let words = targets.into_iter().map(|(place, target)| DataReference {
            place,
            target,
            form: DataForm::Difference32 { from },
        });
        self.result.table_words.extend(words);
    }
}

impl Builder<'_, '_> {
    /// Where a table goes on behind its first `inside` entries, as far as that is known, and leads out of the function. Of a
    /// table between functions everything up to the next table, the next instruction that is reached or the atom's end is an
    /// entry; behind one in data there may be anything, so only what leads exactly to functions counts.
    fn leaving_entries(&self, dispatch: Dispatch, inside: usize) -> Vec<Address> {
        let (text, table) = (&self.context.text, dispatch.table);
        let entries = dispatch.entries(self.context).skip(inside);
        if !text.contains(&table) {
            let is_start = |target: &Address| self.context.is_start_elsewhere(*target, &self.atom);
            let targets = entries.map(|(_, target)| target);
            let known = targets
                .take_while(|target| dispatch.size == 4 && (is_start(target) || self.atom.contains(target)));
            return known.filter(is_start).collect();
        }
        let next = self.context.starts.partition_point(|start| *start <= table);
        let end = self.context.starts.get(next).copied().unwrap_or(text.end);
        let others =
            self.facts.dispatches.iter().map(|(_, other)| other.table).filter(|other| *other > table);
        let end = others.fold(end, Address::min);
        let is_reached = |place: Address| {
            let index = place.distance_from(self.atom.start) / WORD;
            self.facts.is_reached.get(index as usize).is_some_and(|is_reached| *is_reached)
        };
        let is_entry = |(place, _): &(Address, Address)| *place < end && !is_reached(*place);
        let is_leaving = |target: &Address| {
            text.contains(target) && !self.atom.contains(target) && target.0.is_multiple_of(WORD)
        };
        entries.take_while(is_entry).map(|(_, target)| target).filter(is_leaving).collect()
    }

    /// The entries of a table that is not understood may mean functions: these stay.
    fn keep_targets(&mut self, dispatch: Dispatch) {
        let (text, atom) = (&self.context.text, &self.atom);
        let targets = dispatch.entries(self.context).map(|(_, target)| target);
        let others = targets.filter(|target| text.contains(target) && !atom.contains(target));
        self.result.possible_targets.extend(others);
    }
}

/// Addresses outside of `__text` that the instructions at `range` form, as far as a straight look tells.
fn addresses_formed(context: &Arm64Context<'_>, range: Range<Address>, found: &mut Vec<Address>) {
    let bytes = context.file.bytes_at(range.start, range.end.distance_from(range.start)).unwrap_or_default();
    let mut pages: [Option<Address>; 32] = [None; 32];
    // Bits of the registers with a page: most instructions have nothing to do with one.
    let mut held = 0_u32;
    let mut push = |target: Address| {
        if !context.text.contains(&target) {
            found.push(target);
        }
    };
    let (words, _) = bytes.as_chunks::<4>();
    for (index, word) in words.iter().enumerate() {
        let word = u32::from_le_bytes(*word);
        if held == 0 && !forms_address(word) {
            continue;
        }
        let page_of = |register: Register| pages[usize::from(register.0)];
        match decode(word, range.start.plus(index as u64 * WORD)) {
            Operation::Adr(_, target) | Operation::LoadLiteral(_, target) => push(target),
            Operation::AddImmediate(_, source, number) => {
                page_of(source).into_iter().for_each(|page| push(page.plus(number)));
            }
            Operation::Access(base, offset, _) => {
                page_of(base).into_iter().for_each(|page| push(page.plus(offset)));
            }
            Operation::Adrp(register, page) => {
                pages[usize::from(register.0)] = Some(page);
                held |= 1 << register.0;
                continue;
            }
            Operation::Call(_) | Operation::CallRegister(_) => {
                pages[..19].fill(None);
                held &= !0x7_ffff;
            }
            _ => {}
        }
        let mut written = uses(word).writes & held;
        held &= !written;
        while written != 0 {
            pages[written.trailing_zeros() as usize] = None;
            written &= written - 1;
        }
    }
}

/// Whether `word` may be `ADR`, `ADRP` or a load of a literal.
fn forms_address(word: u32) -> bool {
    word & 0x1f00_0000 == 0x1000_0000 || word & 0x3b00_0000 == 0x1800_0000
}

/// References of a section of code that stays, such as the linker's helpers for stubs, to `__text`; and places in
/// `__text` that must stay because of it.
#[must_use]
pub fn decode_fixed_section(
    context: &Arm64Context<'_>,
    range: Range<Address>,
) -> (Vec<CodeReference>, Vec<Address>) {
    let bytes = context.file.bytes_at(range.start, range.end.distance_from(range.start)).unwrap_or_default();
    let words = words_of(bytes);
    let (mut references, mut must_stay) = (Vec::new(), Vec::new());
    for (index, &word) in words.iter().enumerate() {
        let place = range.start.plus(index as u64 * WORD);
        match decode(word, place) {
            Operation::Branch(target) | Operation::Call(target) if context.text.contains(&target) => {
                references.push(CodeReference { place, target, form: CodeForm::Branch26 });
            }
            Operation::ConditionalBranch(target)
            | Operation::Adr(_, target)
            | Operation::LoadLiteral(_, target)
                if context.text.contains(&target) =>
            {
                must_stay.push(target);
            }
            Operation::Adrp(register, page) if context.shares_page(page) => {
                let next = words.get(index + 1).map(|next| decode(*next, place.plus(WORD)));
                match next {
                    Some(Operation::AddImmediate(to, from, number)) if to == register && from == register => {
                        let target = page.plus(number);
                        references.push(CodeReference { place, target, form: CodeForm::Page });
                        let form = CodeForm::PageOffset { scale: 0 };
                        references.push(CodeReference { place: place.plus(WORD), target, form });
                    }
                    _ => must_stay.extend(context.atoms_on_page(page)),
                }
            }
            _ => {}
        }
    }
    references.retain(|reference| context.text.contains(&reference.target));
    (references, must_stay)
}
