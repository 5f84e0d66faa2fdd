//! Jumps through a register, and the jump tables outside `__text` that explain some of them.
//!
//! A table in the atom moves with it and needs no update. Compilers write no others for x86-64; hand-written code has some,
//! with distances from the table's start. Such a table ends where an entry leads out of the atom, at the next place that
//! the atom addresses, and at the section's end.

use std::ops::Range;

use iced_x86::InstructionInfoFactory;

use super::X86Context;
use super::walk::{Byte, Walk};
use crate::decoded_atom::TableWord;
use crate::elf::analysis::dispatch::{BlockFlow, Dispatch};
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;

/// The jump tables of an atom, and the jumps that they explain.
#[derive(Default)]
pub(super) struct Explained {
    /// The words of tables outside `__text`, by place.
    pub(super) words: Vec<TableWord>,
    /// The jumps through a register whose targets are known, sorted.
    pub(super) jumps: Vec<Address>,
    /// The first jump that is not explained.
    pub(super) pin: Option<Pin>,
}

/// Explains all jumps through a register of `walk`.
pub(super) fn explain(context: &X86Context<'_>, atom: &Range<Address>, walk: &Walk<'_>) -> Explained {
    let mut explained = Explained::default();
    if !walk.has_register_jump {
        return explained;
    }
    let flow = BlockFlow::new(walk.instructions());
    let mut factory = InstructionInfoFactory::new();
    let has_inner_table = walk.states().contains(&Byte::Table);
    let mut bases = Vec::new();
    for (jump, dispatch) in flow.dispatches(&|address| context.is_code(address), &|_| true, &mut factory) {
        let is_explained = match dispatch {
            // Words with a distance to a function are listed, or pin that function.
            Dispatch::Pointer | Dispatch::SelfRelative => true,
            Dispatch::Unknown => false,
            // The register was loaded from the stack: its value is from one of the tables that the atom addresses.
            Dispatch::Table { bases: found, .. } if found.is_empty() => has_inner_table,
            Dispatch::Table { bases: found, .. } => {
                let (inner, outer): (Vec<Address>, Vec<Address>) =
                    found.into_keys().partition(|base| atom.contains(base));
                let count = bases.len();
                bases.extend(outer.iter().filter(|base| first_word_leads_into(context, atom, **base)));
                // On paths that do not lead here, the register may have held other addresses.
                !inner.is_empty() || bases.len() > count
            }
        };
        if is_explained {
            explained.jumps.push(jump);
        } else {
            explained.pin.get_or_insert(Pin { reason: PinReason::UnresolvedJump, evidence: jump });
        }
    }
    bases.sort_unstable();
    bases.dedup();
    let addressed = if bases.is_empty() { Vec::new() } else { addressed(walk) };
    for base in bases {
        let words = words_of(context, walk, base, &addressed);
        if words.is_empty() {
            explained.pin.get_or_insert(Pin { reason: PinReason::UnprovenTable, evidence: base });
        }
        explained.words.extend(words);
    }
    explained
}

fn first_word_leads_into(context: &X86Context<'_>, atom: &Range<Address>, base: Address) -> bool {
    let word = context.file.word_at(base).filter(|_| !context.is_code(base));
    word.is_some_and(|word| atom.contains(&base.plus(i64::from(word as i32) as u64)))
}

/// The places that the instructions address, sorted.
fn addressed(walk: &Walk<'_>) -> Vec<Address> {
    let mut places: Vec<Address> = walk.fields.iter().map(|field| field.target).collect();
    places.sort_unstable();
    places.dedup();
    places
}

fn words_of(
    context: &X86Context<'_>,
    walk: &Walk<'_>,
    base: Address,
    addressed: &[Address],
) -> Vec<TableWord> {
    let Some(section) = context.file.section_at(base).filter(|section| !section.is_code()) else {
        return Vec::new();
    };
    let after = addressed.partition_point(|place| *place <= base);
    let end = addressed.get(after).map_or(section.end(), |next| section.end().min(*next));
    let mut words = Vec::new();
    let mut place = base;
    while place.plus(4) <= end
        && let Some(word) = context.file.word_at(place)
    {
        let target = base.plus(i64::from(word as i32) as u64);
        // Unreached code will be reached from here; an entry that leads inside an instruction ends the table.
        match walk.offset_of(target).map(|offset| walk.state(offset)) {
            Some(Byte::First | Byte::Unknown) => {}
            _ => break,
        }
        words.push(TableWord { place, target, base });
        place = place.plus(4);
    }
    words
}
