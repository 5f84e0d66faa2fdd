//! The atoms of `__text`, which must not be divided, and the map made of their new places.
//!
//! Function starts, symbols and unwind rows of the *old* image cut `__text` into atoms that cover it completely. A map is
//! accepted if the atoms do not overlap in the new image; only padding at the end of an atom need not go with it.

use super::super::aarch64::{self, NOP};
use super::super::bytes::range;
use super::super::padding::padding_length;
use super::super::processor::Processor;
use super::tables::{function_starts, symbols};
use super::unwind::UnwindTable;
use super::view::MachView;
use super::x86_64_walk::walk;
use crate::moves::{AddressMoves, Move};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};

/// The first addresses of all atoms, ascending. The first is that of `__text`, unless padding precedes the first atom.
pub(super) fn atom_starts(image: &MachView<'_>) -> Result<Vec<u64>> {
    let text = image.text().range();
    let mut starts = function_starts(image)?;
    let number = image.text_number();
    starts.extend(symbols(image).filter(|symbol| symbol.is_in(number)).map(|symbol| symbol.value));
    starts.extend(UnwindTable::read(image)?.rows.iter().map(|row| row.start));
    starts.retain(|start| text.contains(start));
    let first = starts.iter().min().map_or(text.end, |&first| first);
    if !is_padding(image.processor, &image.text().bytes[..(first - text.start) as usize]) || first == text.end
    {
        starts.push(text.start);
    }
    starts.sort_unstable();
    starts.dedup();
    starts.shrink_to_fit();
    Ok(starts)
}

/// The map that takes the atom at each of `starts` to the place at the same position of `places`.
///
/// # Errors
/// Atoms that leave `__text`, or overlap by more than padding.
pub(super) fn moves_from(old: &MachView<'_>, starts: &[u64], places: &[u64]) -> Result<AddressMoves> {
    let text = old.text().range();
    let ends = starts.iter().skip(1).chain([&text.end]);
    let mut moves: Vec<Move> = starts
        .iter()
        .zip(ends)
        .zip(places)
        .map(|((&start, &end), &place)| Move {
            old_start: Address(start),
            new_start: NewAddress(place),
            size: end - start,
        })
        .collect();
    let mut by_place: Vec<u32> = (0..moves.len() as u32).collect();
    by_place.sort_unstable_by_key(|&index| moves[index as usize].new_start);
    for (at, &index) in by_place.iter().enumerate() {
        let limit = by_place.get(at + 1).map_or(text.end, |&next| moves[next as usize].new_start.0);
        let atom = &mut moves[index as usize];
        let place = atom.new_start.0;
        if place < text.start || place >= text.end {
            return Err(Error::verification(format!("a function left __text: {atom}")));
        }
        let room = limit.saturating_sub(place);
        if room < atom.size {
            let padding = atom.size - room;
            if room == 0 || !is_padding_at_end(old, atom, padding) {
                return Err(Error::verification(format!("two functions overlap in the new image: {atom}")));
            }
            atom.size = room;
        }
    }
    AddressMoves::from_evidence(moves)
}

/// Whether the last `size` bytes of `atom` are only padding that aligns what follows it.
fn is_padding_at_end(image: &MachView<'_>, atom: &Move, size: u64) -> bool {
    let alignment = 1u64 << atom.old_end().0.trailing_zeros().min(12);
    let start = atom.old_start.0.wrapping_sub(image.text().address);
    let Some(code) = range(image.text().bytes, start, atom.size) else { return false };
    let kept = code.len().saturating_sub(size as usize);
    size < alignment
        && is_padding(image.processor, &code[kept..])
        && match image.processor {
            Processor::Aarch64 => true,
            Processor::X86_64 => walk(image, code, atom.old_start.0).end <= kept,
        }
}

/// Whether control may run past the end of `code`, an atom of `image` at `address`.
pub(super) fn runs_on(image: &MachView<'_>, code: &[u8], address: u64) -> bool {
    match image.processor {
        Processor::Aarch64 => aarch64::runs_on(code),
        Processor::X86_64 => walk(image, code, address).runs_on,
    }
}

/// Whether all of these bytes are padding.
pub(super) fn is_padding(processor: Processor, bytes: &[u8]) -> bool {
    match processor {
        Processor::Aarch64 => {
            bytes.len().is_multiple_of(4)
                && bytes.chunks_exact(4).all(|word| *word == NOP.to_le_bytes() || *word == [0; 4])
        }
        Processor::X86_64 => padding_length(processor, bytes, 0) == bytes.len(),
    }
}

/// The map that takes each atom where `claim` takes it.
///
/// # Errors
/// As [`moves_from`].
pub(super) fn moves_by(old: &MachView<'_>, claim: impl Fn(u64) -> u64) -> Result<AddressMoves> {
    let starts = atom_starts(old)?;
    let places: Vec<u64> = starts.iter().map(|&start| claim(start)).collect();
    moves_from(old, &starts, &places)
}
