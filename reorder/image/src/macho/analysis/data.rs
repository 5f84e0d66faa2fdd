//! References from data to functions, except those of tables that are rebuilt.

use std::collections::HashSet;
use std::ops::Range;

use super::atoms::{AtomIndex, Atoms};
use super::runtimes::refuse_runtimes;
use super::units::Obligations;
use crate::exception_table::TableBudget;
use crate::macho::data_in_code;
use crate::macho::eh_frame::FrameEntry;
use crate::macho::entry::entry;
use crate::macho::file::MachOFile;
use crate::macho::fixups::rebases;
use crate::macho::init_offsets::initializer_offsets;
use crate::macho::landing_pads::landing_pads;
use crate::macho::method_lists::implementations;
use crate::macho::reference::{DataForm, DataReference};
use crate::macho::swift;
use crate::macho::unwind_info::UnwindInfo;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::processor::Processor;
use reorder_base::refusal::{Refusal, RefusalCode};

/// References from data to functions.
pub(super) struct DataFacts {
    /// Fields that hold addresses in `__text` or distances to them.
    pub(super) references: Vec<DataReference>,
    /// Places inside functions where control may arrive.
    pub(super) entries: Vec<Address>,
    /// Those of them that only exceptions lead to, sorted.
    pub(super) landing_pads: Vec<Address>,
    /// Functions that are referred to by other means: the entry point.
    pub(super) roots: Vec<Address>,
    /// A pointer to the end of `__text`.
    pub(super) end_pointer: Option<Address>,
}

impl DataFacts {
    pub(super) fn collect(
        file: &MachOFile<'_>,
        atoms: &Atoms,
        unwind: Option<&UnwindInfo>,
        frames: &[FrameEntry],
        obligations: &mut Obligations<'_>,
    ) -> Result<Self> {
        let text = file.text().range();
        let slots = rebases(file)?;
        if let Some(slot) = slots.iter().find(|slot| text.contains(&slot.place)) {
            return Err(Refusal::new(
                RefusalCode::MachOFixups,
                "the loader writes a pointer between the functions",
                "link it without pointers in __text",
            )
            .at(slot.place)
            .into());
        }
        refuse_runtimes(file, atoms, &slots)?;
        let mut references = initializer_offsets(file)?;
        references.extend(implementations(file, &slots)?);
        let swift = swift::references(file, &slots, &atoms.starts)?;
        references.extend(swift.references);
        for (word, function) in swift.unknown {
            obligations.pin_at(function, PinReason::SwiftRecord, word);
        }
        let end_pointer = slots.iter().find(|slot| slot.target == text.end).map(|slot| slot.place);
        references.extend(slots.into_iter().filter(|slot| text.contains(&slot.target)));
        let mut entries: Vec<Address> = references.iter().map(|reference| reference.target).collect();
        references.extend(frames.iter().filter(|frame| text.contains(&frame.start)).map(|frame| {
            let form = if frame.start_width == 4 { DataForm::Relative32 } else { DataForm::Relative64 };
            DataReference { place: frame.start_field, target: frame.start, form }
        }));
        // An entry covers its function from the start, so the parts of the function keep their distances.
        let bound = unwind.into_iter().flat_map(UnwindInfo::bound_ranges);
        let last = unwind.into_iter().flat_map(UnwindInfo::dwarf_ranges).filter(|range| range.end > text.end);
        for range in frames.iter().map(FrameEntry::range).chain(bound).chain(last) {
            keep_together(atoms, &range, obligations);
        }
        let with_table = frames.iter().filter_map(|frame| Some((frame.start, frame.exception_table?)));
        let in_unwind = unwind.into_iter().flat_map(|info| info.exception_tables.iter().copied());
        let mut budget = TableBudget::new(file.bytes.len());
        let mut pads = Vec::new();
        for (start, table) in with_table.chain(in_unwind) {
            for pad in landing_pads(file, table, start, &mut budget)? {
                pads.push(pad);
                keep_distance(atoms, start, pad, table, obligations);
            }
        }
        // Decoding of x86-64 code follows control and uses these ranges itself.
        let listed_data = match file.processor {
            Processor::Aarch64 => data_in_code::read(file)?,
            Processor::X86_64 | Processor::Other => Vec::new(),
        };
        for range in listed_data {
            let end = range.start.plus(u64::from(range.length.max(1)) - 1);
            if let (Some(first), Some(last)) = (atoms.containing(range.start), atoms.containing(end)) {
                let pin = Pin { reason: PinReason::NotDecodable, evidence: range.start };
                obligations.pin_all(first, last, pin);
            }
        }
        let roots: Vec<Address> = entry(file)?.into_iter().map(|entry| entry.address).collect();
        entries.extend(&roots);
        pads.sort_unstable();
        pads.dedup();
        let other: HashSet<Address> = entries.iter().copied().collect();
        let landing_pads = pads.iter().copied().filter(|pad| !other.contains(pad)).collect();
        entries.extend(pads);
        entries.retain(|entry| text.contains(entry) && !atoms.is_start(*entry));
        entries.sort_unstable();
        entries.dedup();
        Ok(Self { references, entries, landing_pads, roots, end_pointer })
    }
}

fn keep_together(atoms: &Atoms, range: &Range<Address>, obligations: &mut Obligations<'_>) {
    let Some(first) = atoms.containing(range.start) else { return };
    let last = Address(range.end.0.saturating_sub(1));
    match atoms.containing(last) {
        Some(last) => obligations.tie_all(first, last, range.start),
        // Apple's linker lets the last entry end one byte after the code. The code there stays, and the unwinder finds the
        // entry by the distance from its start.
        None => {
            let last = AtomIndex(atoms.len() as u32 - 1);
            obligations.pin_all(first, last, Pin { reason: PinReason::GluedToGap, evidence: atoms.end });
        }
    }
}

/// Landing pads are distances from the function's start.
fn keep_distance(
    atoms: &Atoms,
    start: Address,
    pad: Address,
    table: Address,
    obligations: &mut Obligations<'_>,
) {
    if let (Some(owner), Some(other)) = (atoms.containing(start), atoms.containing(pad))
        && owner != other
    {
        obligations.tie(owner, other, table);
    }
}
