//! From headers to units: everything that must be known before functions of a Mach-O image may move.
//!
//! Takes a parsed image; gives [`MachOAnalysis`]. Guarantee: a unit without a pin is referred to, and refers to other
//! places, only through the references that are listed here and the tables that list functions (symbols, exports, function
//! starts, unwind information).

mod alignment;
pub mod atoms;
mod bounds;
mod data;
mod evidence;
mod fixed_code;
mod runtimes;
#[cfg(test)]
mod tests;
pub mod units;
pub mod x86_64;

use std::collections::BTreeSet;
use std::ops::Range;

use crate::aarch64::{self, CodeContext, value};
use crate::code_reference::{AtomReferences, CodeReference, PackedReference};
use crate::decoded_atom::{DecodedAtom, check_budget, check_sums};
use crate::entry_rounds::{AtomDecoder, decode_atoms, pack};
use crate::macho::data_in_code;
use crate::macho::eh_frame::frame_entries;
use crate::macho::file::MachOFile;
use crate::macho::reference::DataReference;
use crate::macho::section::Section;
use crate::macho::unwind_info::UnwindInfo;
use crate::pins::{Pin, PinReason};
use atoms::{AtomIndex, Atoms};
use data::DataFacts;
use fixed_code::FixedCode;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::processor::Processor;
use reorder_base::refusal::RefusalCode;
use units::{Obligations, Unit};
use x86_64::X86Context;

/// All that is known about an image's code.
#[derive(Clone, Debug)]
pub struct MachOAnalysis {
    /// The image's processor.
    pub processor: Processor,
    /// Function starts.
    pub atoms: Atoms,
    /// Groups of atoms that move together, in address order.
    pub units: Vec<Unit>,
    /// References in the instructions of atoms.
    pub code: AtomReferences,
    /// References in the instructions of sections of code that are left in place.
    pub fixed_code: Vec<CodeReference>,
    /// References in data, by place.
    pub data: Vec<DataReference>,
    /// Compact unwind information.
    pub unwind: Option<UnwindInfo>,
    /// Number of functions without a known reference.
    pub unreferenced: usize,
    /// Jump tables outside functions, by word.
    pub table_words: usize,
}

impl MachOAnalysis {
    /// Analyses `file`.
    ///
    /// # Errors
    /// The first global obligation that fails, as a refusal; malformed tables.
    pub fn new(file: &MachOFile<'_>) -> Result<Self> {
        Self::with_cuts(file, &[])
    }

    /// The same with further function starts at `cuts`: images that were moved before may have lost these, since equal
    /// unwind entries of neighbours are joined.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_cuts(file: &MachOFile<'_>, cuts: &[Address]) -> Result<Self> {
        crate::macho::checks::refuse_unmovable(file)?;
        let unwind = UnwindInfo::parse(file)?;
        let frames = frame_entries(file)?;
        let atoms = Atoms::collect(file, unwind.as_ref(), cuts)?;
        let mut obligations = Obligations::new(&atoms);
        let facts = DataFacts::collect(file, &atoms, unwind.as_ref(), &frames, &mut obligations)?;
        let data_in_code = data_in_code::read(file)?;
        let data_ranges: Vec<Range<Address>> =
            data_in_code.iter().map(|data| data.start..data.start.plus(u64::from(data.length))).collect();
        let decoder = Decoder::new(file, &atoms, &data_ranges, &facts.landing_pads);
        let fixed = FixedCode::collect(file, &decoder)?;
        let (decoded, code) = decoder.decode_all(&facts, &fixed);
        check_sums(&decoded, |index| atoms.starts[index], RefusalCode::MachOBlockDistances)?;
        let sums = match &decoder.context {
            ProcessorContext::Arm64(context) => &context.sums,
            ProcessorContext::X86_64(context) => &context.sums,
        };
        check_budget(sums, file.text().address, RefusalCode::MachOBlockDistances)?;

        fixed.apply(&mut obligations);
        for (index, atom) in decoded.iter().enumerate() {
            oblige(AtomIndex(index as u32), atom, code.has_any(index), &atoms, &mut obligations);
        }
        for (index, atom) in decoded.iter().enumerate() {
            let index = AtomIndex(index as u32);
            if atom.is_table && !obligations.is_tied(index) {
                // The base of the entries is unknown.
                let evidence = atoms.range(index).start;
                obligations.pin(index, Pin { reason: PinReason::UnprovenTable, evidence });
            }
        }
        let starts = atoms.starts.iter().enumerate();
        let in_code = starts.flat_map(|(atom, start)| code.of_atom(atom, *start));
        if let Some(evidence) = bounds::named_bounds(file, &facts, in_code) {
            obligations.pin_at(file.text().address, PinReason::NamedSection, evidence);
        }
        let unreferenced = evidence::pin_unexplained(
            file,
            &atoms,
            &facts,
            &fixed.references,
            &decoded,
            &code,
            &mut obligations,
        );
        alignment::pin_aligned(file, &atoms, &mut obligations);
        let units = obligations.units();
        let mut data = facts.references;
        let table_words = decoded.iter().map(|atom| atom.table_words.len()).sum();
        data.sort_unstable_by_key(|reference| reference.place);
        Ok(Self {
            processor: file.processor,
            atoms,
            units,
            code,
            fixed_code: fixed.references,
            data,
            unwind,
            unreferenced,
            table_words,
        })
    }

    /// The ranges that movable units fill, by address.
    #[must_use]
    pub fn free(&self) -> Vec<Range<Address>> {
        let mut free: Vec<Range<Address>> = Vec::new();
        for unit in self.units.iter().filter(|unit| unit.pin.is_none()) {
            match free.last_mut().filter(|gap| gap.end == unit.start) {
                Some(gap) => gap.end = unit.end,
                None => free.push(unit.range()),
            }
        }
        free
    }

    /// The unit that holds `address`.
    #[must_use]
    pub fn unit_at(&self, address: Address) -> Option<&Unit> {
        let after = self.units.partition_point(|unit| unit.start <= address);
        self.units[..after].last().filter(|unit| address < unit.end)
    }

    /// The power of two modulo which the start of the unit at `address` keeps its residue: arm64 instructions are words and
    /// need no more, x86-64 functions keep the alignment that their compiler chose.
    #[must_use]
    pub fn alignment_of(&self, address: Address) -> u64 {
        const FETCH: u32 = 4;
        match self.processor {
            Processor::Aarch64 => 4,
            Processor::X86_64 | Processor::Other => 1 << address.0.trailing_zeros().min(FETCH),
        }
    }

    /// The alignment that must hold even when room is short.
    #[must_use]
    pub fn least_alignment(&self) -> u64 {
        match self.processor {
            Processor::Aarch64 => 4,
            Processor::X86_64 | Processor::Other => 1,
        }
    }

    /// Why the function at `address` stays; `None` for those that can be moved.
    #[must_use]
    pub fn pin_at(&self, address: Address) -> Option<Pin> {
        self.unit_at(address)?.pin
    }
}

/// Adds the constraints of one atom on itself and others.
fn oblige(
    index: AtomIndex,
    atom: &DecodedAtom,
    has_references: bool,
    atoms: &Atoms,
    obligations: &mut Obligations<'_>,
) {
    let range = atoms.range(index);
    if let Some(pin) = atom.pin {
        obligations.pin(index, pin);
    }
    if let Some(word) = atom.table_words.first() {
        // Only the code shows the base of the words, so a result could not be verified.
        obligations.pin(index, Pin { reason: PinReason::UnprovenTable, evidence: word.place });
    }
    for &target in &atom.ties {
        match atoms.containing(target) {
            Some(other) => obligations.tie(index, other, range.start),
            // Outside `__text` or at its end: only an atom that stays keeps the distance.
            None => {
                obligations.pin(index, Pin { reason: PinReason::ShortReference, evidence: range.start });
            }
        }
    }
    for &target in &atom.summed {
        obligations.pin_at(target, PinReason::ComputedAddress, range.start);
    }
    let reason = match has_references {
        true => PinReason::UnpairedAddress,
        false => PinReason::OpaqueReference,
    };
    for &target in &atom.possible_targets {
        obligations.pin_at(target, reason, range.start);
    }
}

/// Decodes atoms for one processor.
pub(crate) struct Decoder<'data> {
    file: &'data MachOFile<'data>,
    atoms: &'data Atoms,
    context: ProcessorContext<'data>,
}

enum ProcessorContext<'data> {
    Arm64(CodeContext<'data>),
    X86_64(X86Context<'data>),
}

impl<'data> Decoder<'data> {
    /// `data_in_code` are the listed ranges of data in `__text`, sorted.
    fn new(
        file: &'data MachOFile<'data>,
        atoms: &'data Atoms,
        data_in_code: &'data [Range<Address>],
        landing_pads: &'data [Address],
    ) -> Self {
        let context = match file.processor {
            Processor::Aarch64 => ProcessorContext::Arm64(arm64_context(file, atoms, landing_pads)),
            Processor::X86_64 | Processor::Other => {
                ProcessorContext::X86_64(X86Context::new(file, &atoms.starts, data_in_code))
            }
        };
        Self { file, atoms, context }
    }

    /// `starts` are those of all functions, sorted.
    fn decode_fixed_section(
        &self,
        section: &Section<'_>,
        starts: &[Address],
    ) -> (Vec<CodeReference>, Vec<Address>) {
        match &self.context {
            ProcessorContext::Arm64(context) => {
                aarch64::fixed::decode_fixed_section(context, section.range())
            }
            ProcessorContext::X86_64(_) => {
                (x86_64::decode_fixed_section(self.file, section, starts), Vec::new())
            }
        }
    }

    /// Decodes all atoms.
    fn decode_all(&self, facts: &DataFacts, fixed: &FixedCode) -> (Vec<DecodedAtom>, AtomReferences) {
        let mut entries: BTreeSet<Address> = facts.entries.iter().copied().collect();
        entries.extend(fixed.references.iter().map(|reference| reference.target));
        decode_atoms(&ranges(self.atoms), self.file.base(), entries, self)
    }
}

impl AtomDecoder for Decoder<'_> {
    fn decode(&self, range: Range<Address>, entries: &[Address]) -> (DecodedAtom, Box<[PackedReference]>) {
        let atom = match &self.context {
            ProcessorContext::Arm64(context) => aarch64::decode_atom(context, range.clone(), entries),
            ProcessorContext::X86_64(context) => x86_64::decode_atom(context, range.clone(), entries),
        };
        pack(atom, range.start, self.file.base(), &self.file.text().range())
    }

    fn keep(&self, atom: Range<Address>) -> DecodedAtom {
        let pin = Pin { reason: PinReason::InsideAddressed, evidence: atom.start };
        match &self.context {
            ProcessorContext::Arm64(context) => aarch64::keep(context, atom, pin),
            ProcessorContext::X86_64(context) => x86_64::keep(context, &atom, pin),
        }
    }
}

fn ranges(atoms: &Atoms) -> Vec<Range<Address>> {
    (0..atoms.len() as u32).map(|index| atoms.range(AtomIndex(index))).collect()
}

pub(crate) fn arm64_context<'data>(
    file: &'data MachOFile<'data>,
    atoms: &'data Atoms,
    landing_pads: &'data [Address],
) -> CodeContext<'data> {
    let is_swift = file.sections.iter().any(|section| section.name.starts_with(b"__swift5_"));
    let not_returned = if is_swift { value::NOT_RETURNED_BY_SWIFT } else { value::NOT_RETURNED };
    CodeContext::new(file, file.text().range(), &atoms.starts, &ranges(atoms), landing_pads, not_returned)
}
