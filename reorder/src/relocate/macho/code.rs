//! Moves units and rewrites the references in their instructions.

use crate::address::{Address, NewAddress};
use crate::error::{Error, Result};
use crate::image::macho::analysis::MachOAnalysis;
use crate::image::macho::file::MachOFile;
use crate::image::macho::reference::{CodeForm, CodeReference};
use crate::image::refusal::{Refusal, RefusalCode};
use crate::relocate::address_map::AddressMap;

use super::encode;

/// Copies every moved range to its new place, then encodes every reference anew of which one end moved.
///
/// # Errors
/// Refuses (R12) a reference that does not reach its target from the new place.
pub fn move_code(
    file: &MachOFile<'_>,
    analysis: &MachOAnalysis,
    map: &AddressMap,
    output: &mut [u8],
) -> Result<()> {
    let text = file.text();
    let offset_in_text = |address: u64| text.offset + address.wrapping_sub(text.address.0) as usize;
    for range in map.moves() {
        let size = range.size as usize;
        let (from, to) = (offset_in_text(range.old.0), offset_in_text(range.new.0));
        let (Some(bytes), Some(place)) = (file.bytes.get(from..from + size), output.get_mut(to..to + size))
        else {
            return Err(Error::usage(format!("the function at {} would leave the image", range.old)));
        };
        place.copy_from_slice(bytes);
    }
    for reference in &analysis.code {
        let (place, target) = (map.map(reference.place), map.map(reference.target));
        if place.0 == reference.place.0 && target.0 == reference.target.0 {
            continue;
        }
        let code = Code { file, output };
        code.rewrite(reference, place, target).ok_or_else(|| out_of_reach(reference, target))?;
    }
    Ok(())
}

fn out_of_reach(reference: &CodeReference, target: NewAddress) -> Error {
    Refusal::new(
        RefusalCode::R12,
        format!("an instruction does not reach {target} from its new place"),
        "use another order, such as one with fewer functions in front",
    )
    .at(reference.place)
    .into()
}

struct Code<'run, 'data> {
    file: &'run MachOFile<'data>,
    output: &'run mut [u8],
}

impl Code<'_, '_> {
    /// Where an instruction stands in the output. In sections other than `__text` nothing moves, and moves stay in it.
    fn offset(&self, place: NewAddress) -> Option<usize> {
        self.file.offset_of(Address(place.0), 4)
    }

    fn word(&self, offset: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.output.get(offset..offset + 4)?.try_into().ok()?))
    }

    fn write(&mut self, offset: usize, word: u32) -> Option<()> {
        self.output.get_mut(offset..offset + 4)?.copy_from_slice(&word.to_le_bytes());
        Some(())
    }

    /// `None` when the target is out of reach.
    fn rewrite(mut self, reference: &CodeReference, place: NewAddress, target: NewAddress) -> Option<()> {
        let offset = self.offset(place)?;
        let word = self.word(offset)?;
        let new = match reference.form {
            CodeForm::Branch26 => encode::branch(word, place, target)?,
            CodeForm::Adr => encode::adr(word, place, target)?,
            CodeForm::Page => encode::adrp(word, place, target)?,
            // What stays where it is keeps its lowest bits, whatever they mean.
            CodeForm::PageOffset { .. } if target.0 == reference.target.0 => word,
            CodeForm::PageOffset { scale } => encode::page_offset(word, target, scale)?,
            CodeForm::LoadLiteral => encode::literal(word, place, target)?,
            CodeForm::RelaxedAdr { nop } => match encode::adr(word, place, target) {
                Some(word) => word,
                None => {
                    self.write(beside(offset, nop)?, encode::add_of(word, target)?)?;
                    encode::adrp(word, place, target)?
                }
            },
            CodeForm::RelaxedLoad { nop } => match encode::literal(word, place, target) {
                Some(word) => word,
                None => {
                    let page = NewAddress(place.0.wrapping_add_signed(i64::from(nop) * 4));
                    self.write(beside(offset, nop)?, encode::adrp_of(word, page, target)?)?;
                    encode::load_of(word, target)?
                }
            },
            CodeForm::Relative32 { end } => {
                let distance = target.distance_from(place.plus(u64::from(end))) as i64;
                i32::try_from(distance).ok()? as u32
            }
        };
        self.write(offset, new)
    }
}

/// The instruction so many instructions further on.
fn beside(offset: usize, instructions: i8) -> Option<usize> {
    offset.checked_add_signed(isize::from(instructions) * 4)
}
