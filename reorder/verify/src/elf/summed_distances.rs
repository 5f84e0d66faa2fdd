//! Numbers in data that lead from one function to another, where code adds an unknown value to the first function's address.
//!
//! Neither function may have moved: the sum does not say which number it uses, and the numbers in data do not change.

use rayon::prelude::*;

use goblin::elf::section_header::SHT_PROGBITS;

use super::pair::ImagePair;
use crate::bytes::{u32_at, u64_at};
use crate::elf::view::SectionView;
use crate::moves::Move;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::Address;

/// Addresses that are checked. Such sums are written by hand, so an image has few of them.
const MAX_ADDRESSES: usize = 1 << 10;

/// Checks the functions at `summed`, and the functions that words of data lead to from there.
pub(crate) fn check_summed(pair: ImagePair<'_>, summed: &[Address], findings: &mut Findings) {
    for &address in summed.iter().take(MAX_ADDRESSES) {
        let moved = moved_function_at(pair, address);
        let reached = moved.map(|function| (address, function)).or_else(|| first_moved(pair, address));
        if let Some((place, function)) = reached {
            findings.differs(Difference::new(
                Check::JumpTables,
                pair.old.offset_of(place.0).map(|offset| offset.0),
                format!("what code adds to {address}, and the number at {place}"),
                "functions that stayed where they were",
                function.to_string(),
            ));
        }
    }
}

/// The first word of data that leads from `address` to the start of a function that moved.
fn first_moved<'a>(pair: ImagePair<'a>, address: Address) -> Option<(Address, &'a Move)> {
    let mut sections = pair.old.sections.iter().filter(|section| may_hold_numbers(section));
    sections.find_map(|section| {
        let skipped = (section.address.wrapping_neg() % 4) as usize;
        let bytes = section.bytes.get(skipped..)?;
        (0..bytes.len() / 4).into_par_iter().with_min_len(1 << 14).find_map_first(|index| {
            let place = Address(section.address).plus((skipped + index * 4) as u64);
            let narrow = u32_at(bytes, index * 4).map(|word| i64::from(word.cast_signed()).cast_unsigned());
            let wide = u64_at(bytes, index * 4).filter(|_| place.0.is_multiple_of(8));
            let mut targets = narrow.into_iter().chain(wide).map(|number| address.plus(number));
            targets.find_map(|target| Some((place, moved_function_at(pair, target)?)))
        })
    })
}

fn moved_function_at<'a>(pair: ImagePair<'a>, address: Address) -> Option<&'a Move> {
    pair.moves.starting_at(address).filter(|range| range.is_moved())
}

/// Whether `section` holds data that no other check reads word by word.
fn may_hold_numbers(section: &SectionView<'_>) -> bool {
    const KNOWN: [&[u8]; 3] = [b".eh_frame", b".eh_frame_hdr", b".gcc_except_table"];
    section.is_loaded()
        && !section.is_code()
        && section.kind == SHT_PROGBITS
        && !KNOWN.contains(&section.name)
}
