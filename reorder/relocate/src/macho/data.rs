//! Rewrites the fields of data that hold addresses of functions or distances to them.

use crate::address_map::AddressMap;
use reorder_base::address::NewAddress;
use reorder_base::error::{Error, Result};
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::macho::analysis::MachOAnalysis;
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::reference::{DataForm, DataReference};

/// Bits of a chained fixup, of format 2 or 6, that hold its target; the others stay.
const CHAINED_TARGET: u64 = (1 << 36) - 1;

/// Rewrites every reference whose target moved. The fields themselves stay where they are.
///
/// # Errors
/// Refuses (R12) a distance that its field cannot hold.
pub(crate) fn move_data(
    file: &MachOFile<'_>,
    analysis: &MachOAnalysis,
    map: &AddressMap,
    output: &mut [u8],
) -> Result<()> {
    for reference in &analysis.data {
        let target = map.map(reference.target);
        let from = NewAddress(reference.place.0);
        if target.0 == reference.target.0 {
            continue;
        }
        rewrite(file, reference, from, target, output).ok_or_else(|| out_of_reach(reference, target))?;
    }
    Ok(())
}

fn out_of_reach(reference: &DataReference, target: NewAddress) -> Error {
    Refusal::new(
        RefusalCode::OutOfReach,
        format!("a field of data cannot hold the distance to {target}"),
        "use another order, such as one that places fewer functions first",
    )
    .at(reference.place)
    .into()
}

fn rewrite(
    file: &MachOFile<'_>,
    reference: &DataReference,
    from: NewAddress,
    target: NewAddress,
    output: &mut [u8],
) -> Option<()> {
    let relative = target.distance_from(from);
    let image_offset = target.0.checked_sub(file.base().0)?;
    let wide = match reference.form {
        DataForm::Pointer | DataForm::ChainedAddress => Some(target.0),
        DataForm::ChainedOffset => Some(image_offset),
        DataForm::Relative64 => Some(relative),
        _ => None,
    };
    let Some(value) = wide else {
        let value = match reference.form {
            DataForm::ImageOffset => u32::try_from(image_offset).ok()?,
            _ => i32::try_from(relative as i64).ok()? as u32,
        };
        let offset = file.offset_of(reference.place, 4)?;
        output.get_mut(offset..offset + 4)?.copy_from_slice(&value.to_le_bytes());
        return Some(());
    };
    let offset = file.offset_of(reference.place, 8)?;
    let field = output.get_mut(offset..offset + 8)?;
    let value = match reference.form {
        DataForm::ChainedAddress | DataForm::ChainedOffset => {
            let old = u64::from_le_bytes(field.try_into().ok()?);
            (value <= CHAINED_TARGET).then_some(old & !CHAINED_TARGET | value)?
        }
        _ => value,
    };
    field.copy_from_slice(&value.to_le_bytes());
    Some(())
}
