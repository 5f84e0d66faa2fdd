//! Abbreviations: a unit whose code went apart gets ranges in place of its bounds, of the same width in bytes.
//! Source: DWARF 5, sections 3.1.1 and 7.5.3.

use std::collections::BTreeMap;

use gimli::{DwForm, Encoding, LittleEndian, Reader, constants};

use super::sections::{DebugSection, Slice};
use reorder_base::error::Result;
use reorder_base::leb128::write_unsigned;

/// The attribute of filler that readers ignore: the last number in the range for producers.
const FILLER: gimli::DwAt = constants::DW_AT_hi_user;

/// New attributes in place of one.
type Replacement = Vec<(u64, u64)>;

/// How the abbreviation of a unit's first entry changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reshape {
    code: u64,
    low: Option<Replacement>,
    high: Replacement,
}

/// Which attribute makes room for the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// The upper bound, else the lower one.
    pub is_high: bool,
    /// Its width.
    pub width: usize,
}

impl Reshape {
    /// The upper bound makes room if it is wide enough, else the lower one. Both are given as form and width.
    pub(crate) fn choose(
        code: u64,
        encoding: Encoding,
        low: (DwForm, usize),
        high: (DwForm, usize),
    ) -> Option<(Slot, Self)> {
        if let Some(replacement) = ranges(encoding, high) {
            let reshape = Self { code, low: None, high: replacement };
            return Some((Slot { is_high: true, width: high.1 }, reshape));
        }
        let replacement = ranges(encoding, low)?;
        let filler = vec![(u64::from(FILLER.0), u64::from(high.0.0))];
        let reshape = Self { code, low: Some(replacement), high: filler };
        (high.0 != constants::DW_FORM_implicit_const)
            .then_some((Slot { is_high: false, width: low.1 }, reshape))
    }
}

/// A list of ranges and filler, as wide as the attribute was.
fn ranges(encoding: Encoding, (form, width): (DwForm, usize)) -> Option<Replacement> {
    let is_fixed =
        matches!(form, constants::DW_FORM_addr | constants::DW_FORM_data4 | constants::DW_FORM_data8);
    let word = usize::from(encoding.format.word_size());
    let offset = match (encoding.version, word) {
        (..=3, 4) => constants::DW_FORM_data4,
        (..=3, _) => constants::DW_FORM_data8,
        _ => constants::DW_FORM_sec_offset,
    };
    let mut attributes = vec![(u64::from(constants::DW_AT_ranges.0), u64::from(offset.0))];
    match width.checked_sub(word)? {
        0 => {}
        4 => attributes.push((u64::from(FILLER.0), u64::from(constants::DW_FORM_data4.0))),
        _ => return None,
    }
    is_fixed.then_some(attributes)
}

/// `.debug_abbrev` with the tables that units use, changed as they ask for.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// The new section.
    pub bytes: Vec<u8>,
    places: BTreeMap<(usize, Option<Reshape>), usize>,
}

impl Tables {
    /// Where the table at the old `offset` is now.
    ///
    /// # Errors
    /// A damaged table.
    pub(crate) fn place(
        &mut self,
        section: &DebugSection<'_>,
        offset: usize,
        reshape: Option<&Reshape>,
    ) -> Result<usize> {
        let key = (offset, reshape.cloned());
        if let Some(place) = self.places.get(&key) {
            return Ok(*place);
        }
        let place = self.bytes.len();
        // Bounds the output: overlapping tables, or one table in many forms, would expand far beyond what compilers write.
        const MAX_GROWTH: usize = 8;
        if place / MAX_GROWTH > section.bytes.len() {
            return Err(section.damaged(offset, "abbreviations overlap each other"));
        }
        let bytes = section.bytes.get(offset..).unwrap_or_default();
        copy_table(bytes, reshape, &mut self.bytes).map_err(|error| section.damaged(offset, error))?;
        self.places.insert(key, place);
        Ok(place)
    }
}

fn copy_table(table: &[u8], reshape: Option<&Reshape>, output: &mut Vec<u8>) -> gimli::Result<()> {
    let whole = Slice::new(table, LittleEndian);
    let mut rest = whole;
    loop {
        let start = rest.offset_from(whole);
        let code = rest.read_uleb128()?;
        if code != 0 {
            rest.read_uleb128()?;
            rest.read_u8()?;
        }
        copy(table, start..rest.offset_from(whole), output);
        if code == 0 {
            return Ok(());
        }
        let reshape = reshape.filter(|reshape| reshape.code == code);
        loop {
            let start = rest.offset_from(whole);
            let (name, form) = (rest.read_uleb128()?, rest.read_uleb128()?);
            if form == u64::from(constants::DW_FORM_implicit_const.0) {
                rest.read_sleb128()?;
            }
            let replacement = match reshape {
                Some(reshape) if name == u64::from(constants::DW_AT_low_pc.0) => reshape.low.as_ref(),
                Some(reshape) if name == u64::from(constants::DW_AT_high_pc.0) => Some(&reshape.high),
                _ => None,
            };
            match replacement {
                Some(attributes) => attributes.iter().for_each(|(name, form)| {
                    write_unsigned(output, *name);
                    write_unsigned(output, *form);
                }),
                None => copy(table, start..rest.offset_from(whole), output),
            }
            if (name, form) == (0, 0) {
                break;
            }
        }
    }
}

fn copy(table: &[u8], range: std::ops::Range<usize>, output: &mut Vec<u8>) {
    output.extend_from_slice(table.get(range).unwrap_or_default());
}
