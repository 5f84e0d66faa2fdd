//! Every slot of data that the loader rebases, in either of the forms that linkers write.
//!
//! In a position-independent image this is the complete list of absolute addresses.

mod chained;
mod opcodes;

use super::file::MachOFile;
use super::load_command::LinkEditPart;
use super::reference::DataReference;
use reorder_base::error::{Error, Result};
use reorder_base::refusal::{Refusal, RefusalCode};

/// All slots that are rebased, with their targets, sorted by place; no two overlap.
///
/// # Errors
/// Refuses (M9) formats other than opcodes with pointers and chained fixups 2 and 6; reports malformed tables.
pub fn rebases(file: &MachOFile<'_>) -> Result<Vec<DataReference>> {
    let chained = file.link_edit_range(LinkEditPart::ChainedFixups);
    let opcodes = file.link_edit_range(LinkEditPart::Rebase);
    let mut slots = match (chained, opcodes) {
        (Some(_), Some(_)) => return Err(unknown("both chained fixups and rebase opcodes").into()),
        (Some(range), None) => chained::slots(file, range)?,
        (None, Some(range)) => opcodes::slots(file, range)?,
        (None, None) => Vec::new(),
    };
    // Linkers write them in this order, and checking is cheaper than sorting.
    if !slots.is_sorted_by_key(|slot| slot.place) {
        slots.sort_unstable_by_key(|slot| slot.place);
    }
    match slots.windows(2).find(|pair| pair[1].place.0 - pair[0].place.0 < SLOT_SIZE) {
        Some(pair) => {
            let offset = file.offset_of(pair[1].place, 0).unwrap_or(0) as u64;
            Err(Error::malformed(offset, "two slots that the loader rebases overlap"))
        }
        None => Ok(slots),
    }
}

const SLOT_SIZE: u64 = 8;

fn unknown(what: impl Into<String>) -> Refusal {
    Refusal::new(
        RefusalCode::MachOFixups,
        format!("the image has {}", what.into()),
        "link it for arm64 or x86_64 and macOS 11 or later with ld or lld, without -fixup_chains_section",
    )
}
