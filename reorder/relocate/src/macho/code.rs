//! Moves units and rewrites the references in their instructions.

use rayon::prelude::*;

use crate::address_map::AddressMap;
use reorder_base::address::NewAddress;
use reorder_base::error::{Error, Result};
use reorder_image::macho::analysis::MachOAnalysis;
use reorder_image::macho::analysis::atoms::AtomIndex;
use reorder_image::macho::file::MachOFile;

use crate::code_reference::{out_of_reach, rewrite};

/// Copies every atom to its new place and encodes again every reference of which one end moved.
///
/// # Errors
/// Refuses (R12) a reference that does not reach its target from the new place; a map that puts two atoms into one place.
pub(crate) fn move_code(
    file: &MachOFile<'_>,
    analysis: &MachOAnalysis,
    map: &AddressMap,
    output: &mut [u8],
) -> Result<()> {
    for reference in &analysis.fixed_code {
        let target = map.map(reference.target);
        if target.0 != reference.target.0 {
            let offset = file.offset_of(reference.place, 4).filter(|offset| *offset <= output.len());
            let rewritten = offset.and_then(|offset| {
                rewrite(&mut output[offset..], 0, reference, NewAddress(reference.place.0), target)
            });
            rewritten.ok_or_else(|| out_of_reach(reference, target))?;
        }
    }
    let text = file.text();
    let text_end = text.offset + text.size as usize;
    let places = split(analysis, map, &mut output[text.offset..text_end])?;
    let failed =
        places.into_par_iter().with_min_len(64).find_map_first(|place| place.fill(file, analysis, map).err());
    failed.map_or(Ok(()), Err)
}

/// The new place of an atom.
struct Place<'output> {
    atom: AtomIndex,
    start: NewAddress,
    bytes: &'output mut [u8],
}

/// Cuts `text`, the bytes of the section, into the new places of all atoms.
fn split<'output>(
    analysis: &MachOAnalysis,
    map: &AddressMap,
    mut text: &'output mut [u8],
) -> Result<Vec<Place<'output>>> {
    let mut starts: Vec<(NewAddress, AtomIndex)> = (0..analysis.atoms.len() as u32)
        .map(|atom| (map.map(analysis.atoms.starts[atom as usize]), AtomIndex(atom)))
        .collect();
    starts.par_sort_unstable();
    let mut position = NewAddress(analysis.atoms.starts.first().map_or(0, |start| start.0));
    let mut places = Vec::with_capacity(starts.len());
    for (start, atom) in starts {
        let range = analysis.atoms.range(atom);
        let size = range.end.distance_from(range.start) as usize;
        let rest = start.0.checked_sub(position.0).and_then(|gap| text.split_at_mut_checked(gap as usize));
        let Some((bytes, rest)) = rest.and_then(|(_, rest)| rest.split_at_mut_checked(size)) else {
            return Err(Error::usage(format!("the function at {} would leave its place", range.start)));
        };
        places.push(Place { atom, start, bytes });
        position = start.plus(size as u64);
        text = rest;
    }
    Ok(places)
}

impl Place<'_> {
    fn fill(self, file: &MachOFile<'_>, analysis: &MachOAnalysis, map: &AddressMap) -> Result<()> {
        let old = analysis.atoms.range(self.atom);
        if self.start.0 != old.start.0 {
            let Some(bytes) = file.bytes_at(old.start, self.bytes.len() as u64) else {
                return Err(Error::malformed(
                    0,
                    format!("the file does not hold the function at {}", old.start),
                ));
            };
            self.bytes.copy_from_slice(bytes);
        }
        for reference in analysis.code.of_atom(self.atom.0 as usize, old.start) {
            let distance = reference.place.distance_from(old.start);
            let (place, target) = (self.start.plus(distance), map.map(reference.target));
            if place.0 != reference.place.0 || target.0 != reference.target.0 {
                rewrite(self.bytes, distance as usize, &reference, place, target)
                    .ok_or_else(|| out_of_reach(&reference, target))?;
            }
        }
        Ok(())
    }
}
