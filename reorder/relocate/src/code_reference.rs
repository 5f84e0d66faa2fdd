//! Rewrites the address field of one instruction.

use crate::elf::aarch64 as encode;
use reorder_base::address::NewAddress;
use reorder_base::error::Error;
use reorder_base::little_endian::u32_at;
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::code_reference::{CodeForm, CodeReference};

/// The refusal for an instruction whose field cannot hold the distance.
pub(super) fn out_of_reach(reference: &CodeReference, target: NewAddress) -> Error {
    Refusal::new(
        RefusalCode::OutOfReach,
        format!("after the move an instruction could no longer reach its target, {target}"),
        "use another order, such as one that places fewer functions first",
    )
    .at(reference.place)
    .into()
}

fn write(code: &mut [u8], offset: usize, word: u32) -> Option<()> {
    *code.get_mut(offset..)?.first_chunk_mut()? = word.to_le_bytes();
    Some(())
}

/// Encodes the instruction at `offset` in `code` again; `None` when the target is out of reach.
pub(super) fn rewrite(
    code: &mut [u8],
    offset: usize,
    reference: &CodeReference,
    place: NewAddress,
    target: NewAddress,
) -> Option<()> {
    let word = u32_at(code, offset)?;
    let new = match reference.form {
        CodeForm::Branch26 => encode::branch(word, place, target)?,
        CodeForm::Adr => encode::adr(word, place, target)?,
        CodeForm::Page => encode::adrp(word, place, target)?,
        // If neither end moved, the lowest bits stay right.
        CodeForm::PageOffset { .. } if target.0 == reference.target.0 => word,
        CodeForm::PageOffset { scale } => encode::page_offset(word, target, scale)?,
        CodeForm::LoadLiteral => encode::literal(word, place, target)?,
        CodeForm::RelaxedAdr { nop } => match encode::adr(word, place, target) {
            Some(word) => word,
            None if nop < 0 => {
                let page = NewAddress(place.0.wrapping_add_signed(i64::from(nop) * 4));
                write(code, beside(offset, nop)?, encode::adrp(word, page, target)?)?;
                encode::add_of(word, target)?
            }
            None => {
                write(code, beside(offset, nop)?, encode::add_of(word, target)?)?;
                encode::adrp(word, place, target)?
            }
        },
        CodeForm::RelaxedLoad { nop } => match encode::literal(word, place, target) {
            Some(word) => word,
            None => {
                let page = NewAddress(place.0.wrapping_add_signed(i64::from(nop) * 4));
                write(code, beside(offset, nop)?, encode::adrp_of(word, page, target)?)?;
                encode::load_of(word, target)?
            }
        },
        CodeForm::Relative32 { end } => {
            let distance = target.distance_from(place.plus(u64::from(end))) as i64;
            i32::try_from(distance).ok()? as u32
        }
    };
    write(code, offset, new)
}

/// The offset that many instructions further on.
fn beside(offset: usize, instructions: i8) -> Option<usize> {
    offset.checked_add_signed(isize::from(instructions) * 4)
}
