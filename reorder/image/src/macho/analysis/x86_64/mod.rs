//! The references in the x86-64 code of one atom.
//!
//! Takes an atom and the places where control arrives in it; gives [`DecodedAtom`]. Instructions are found by following
//! control, since jump tables, mostly unlisted, lie between them. Every byte must belong to a reached instruction, a table
//! or padding; otherwise the atom is opaque: it stays, and so does all that its bytes may refer to.
//!
//! Every reference is a distance of four bytes that reaches 2 GiB, so there are no pairs and code never grows.
//! Source: AMD64 Architecture Programmer's Manual, volume 3; System V ABI for AMD64, "Position-Independent Code".

mod ending;
mod explore;
mod fields;
mod fixed;
mod opaque;
mod stored_distances;
mod sum_flow;
mod sums;
mod tables;
#[cfg(test)]
mod tests;
mod walk;

use std::ops::Range;

use crate::decoded_atom::DecodedAtom;
use crate::macho::file::MachOFile;
use crate::pins::{Pin, PinReason};
use crate::stored_distances::SumBudget;
use reorder_base::address::Address;

use explore::Atom;
pub use fixed::decode_fixed_section;
pub use opaque::opaque as keep;

/// What decoding needs of the image.
#[derive(Debug)]
pub struct X86Context<'context> {
    file: &'context MachOFile<'context>,
    starts: &'context [Address],
    data_in_code: &'context [Range<Address>],
    code: Vec<Range<Address>>,
    image: Range<Address>,
    /// Sums of stored distances that may still be tried.
    pub(super) sums: SumBudget,
}

/// Rounds in which tables outside the atom may lead to more code with more such tables.
const MAX_ROUNDS: usize = 4;

impl<'context> X86Context<'context> {
    /// `starts` are those of all atoms and `data_in_code` the listed ranges of data, both sorted.
    #[must_use]
    pub fn new(
        file: &'context MachOFile<'context>,
        starts: &'context [Address],
        data_in_code: &'context [Range<Address>],
    ) -> Self {
        let code = file.sections.iter().filter(|section| section.is_code()).map(|section| section.range());
        let ends = file.segments.iter().map(|segment| segment.range().end);
        let image = file.base()..ends.max().unwrap_or(file.base());
        let text = file.text().range();
        let sums = SumBudget::for_code(text.end.distance_from(text.start));
        Self { file, starts, data_in_code, code: code.collect(), image, sums }
    }

    fn is_code(&self, address: Address) -> bool {
        self.code.iter().any(|range| range.contains(&address))
    }

    fn image_range(&self) -> Range<Address> {
        self.image.clone()
    }

    /// Bytes of an atom; empty if the file does not hold them.
    fn bytes(&self, atom: &Range<Address>) -> &'context [u8] {
        let length = atom.end.0.saturating_sub(atom.start.0);
        self.file.bytes_at(atom.start, length).unwrap_or_default()
    }
}

/// Decodes one atom. `entries` are the places in it, besides its start, where control may arrive: pointers into it,
/// landing pads, targets of other atoms' branches. Those outside it are ignored.
#[must_use]
pub fn decode_atom(context: &X86Context<'_>, atom: Range<Address>, entries: &[Address]) -> DecodedAtom {
    let bytes = context.bytes(&atom);
    let pin = |reason, evidence| Pin { reason, evidence };
    if bytes.is_empty() {
        let pin = Some(pin(PinReason::NotDecodable, atom.start));
        return DecodedAtom { pin, ..DecodedAtom::default() };
    }
    let offset_of = |address: Address| address.0.saturating_sub(atom.start.0) as usize;
    let mut offsets: Vec<usize> =
        entries.iter().filter(|entry| atom.contains(entry)).map(|entry| offset_of(*entry)).collect();
    offsets.push(0);
    let listed = listed_in(context, &atom);
    for _ in 0..MAX_ROUNDS {
        offsets.sort_unstable();
        offsets.dedup();
        let found = explore::explore(&Atom { bytes, start: atom.start, entries: &offsets, listed: &listed });
        let (mut walk, unexplained) = match found {
            Ok(found) => found,
            Err(offset) => {
                let evidence = atom.start.plus(offset as u64);
                return opaque::opaque(context, &atom, pin(PinReason::NotDecodable, evidence));
            }
        };
        walk.fields.sort_unstable_by_key(|field| field.place);
        let explained = tables::explain(context, &atom, &walk);
        let known = offsets.len();
        let targets = explained.words.iter().map(|word| offset_of(word.target));
        offsets.extend(targets.filter(|target| walk.state(*target) == walk::Byte::Unknown));
        if offsets.len() > known {
            continue;
        }
        if let Some(offset) = unexplained {
            let evidence = atom.start.plus(offset as u64);
            return opaque::opaque(context, &atom, pin(PinReason::NotDecodable, evidence));
        }
        return decode_reached(context, &atom, &walk, explained);
    }
    opaque::opaque(context, &atom, pin(PinReason::UnprovenTable, atom.start))
}

/// The listed ranges of data in the atom, as offsets.
fn listed_in(context: &X86Context<'_>, atom: &Range<Address>) -> Vec<Range<usize>> {
    let first = context.data_in_code.partition_point(|range| range.end <= atom.start);
    let ranges = context.data_in_code[first..].iter().take_while(|range| range.start < atom.end);
    let ranges = ranges.filter(|range| range.start < range.end && atom.start < range.end);
    let offset_of = |address: Address| address.0.saturating_sub(atom.start.0) as usize;
    ranges.map(|range| offset_of(range.start)..offset_of(range.end.min(atom.end))).collect()
}

fn decode_reached(
    context: &X86Context<'_>,
    atom: &Range<Address>,
    walk: &walk::Walk<'_>,
    explained: tables::Explained,
) -> DecodedAtom {
    let mut decoded =
        DecodedAtom { table_words: explained.words, pin: explained.pin, ..DecodedAtom::default() };
    for field in &walk.fields {
        if let Err(reason) = fields::add(context, atom, field, &mut decoded) {
            let pin = Pin { reason, evidence: field.instruction };
            return opaque::opaque(context, atom, pin);
        }
    }
    let sums = sums::reached(context, atom, walk, |jump| explained.jumps.binary_search(&jump).is_ok());
    decoded.summed = sums.functions;
    stored_distances::keep(context, atom, walk, &mut decoded);
    if walk.falls_through {
        match atom.end < context.file.text().end() {
            true => decoded.ties.push(atom.end),
            false => {
                decoded.pin.get_or_insert(Pin { reason: PinReason::GluedToGap, evidence: atom.end });
            }
        }
    }
    if walk.ends_with_call && ending::is_continued(context, atom, walk) {
        decoded.ties.push(atom.end);
    }
    decoded.ties.sort_unstable();
    decoded.ties.dedup();
    decoded
}
