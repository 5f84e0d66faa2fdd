//! What an entry says of its code, and which of its attributes the entry of a copy repeats. Source: DWARF 5, chapters 3 and 7.

use std::ops::Range;

use gimli::{AttributeValue, DwAt, DwForm, Encoding, Operation, UnitOffset, constants};

use super::super::lists::Bases;
use super::super::sections::Slice;

/// An attribute that is repeated byte for byte.
#[derive(Clone, Debug)]
pub(super) struct Repeated {
    pub(super) name: DwAt,
    pub(super) form: DwForm,
    /// The value of an implicit constant.
    pub(super) constant: Option<i64>,
    /// Its bytes in the section of units.
    pub(super) bytes: Range<usize>,
}

/// Which entry another one continues or repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Of the same unit.
    Unit(usize),
    /// By position in the section.
    Section(usize),
}

/// The attributes of one entry.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    low: Option<u64>,
    /// An address, or a distance from the lower bound.
    high: Option<(u64, bool)>,
    /// Position of the list of ranges.
    pub(super) ranges: Option<usize>,
    /// Positions of lists of locations.
    pub(super) lists: Vec<(DwAt, usize)>,
    /// What is repeated.
    pub(super) repeated: Vec<Repeated>,
    /// The entry of the abstract instance.
    pub(super) origin: Option<Origin>,
    /// Position of the line program.
    pub(super) lines: Option<usize>,
    /// The entries of the unit are in another file.
    pub(super) is_split: bool,
}

impl Attributes {
    /// Takes one attribute, whose bytes are `bytes` of the section of units.
    ///
    /// # Errors
    /// A damaged reference to another section.
    pub(super) fn take(
        &mut self,
        attribute: &gimli::Attribute<Slice<'_>>,
        constant: Option<i64>,
        bytes: Range<usize>,
        is_root: bool,
        bases: &Bases<'_, '_>,
    ) -> gimli::Result<()> {
        let (dwarf, unit) = (bases.dwarf, bases.unit);
        let name = attribute.name();
        self.is_split |= matches!(
            name,
            constants::DW_AT_dwo_name | constants::DW_AT_GNU_dwo_name | constants::DW_AT_GNU_dwo_id
        );
        match (name, attribute.value()) {
            (constants::DW_AT_low_pc, AttributeValue::Addr(value)) => self.low = Some(value),
            (constants::DW_AT_low_pc, AttributeValue::DebugAddrIndex(index)) => {
                self.low = Some(dwarf.address(unit, index)?);
            }
            (constants::DW_AT_high_pc, AttributeValue::Addr(value)) => self.high = Some((value, true)),
            (constants::DW_AT_high_pc, AttributeValue::DebugAddrIndex(index)) => {
                self.high = Some((dwarf.address(unit, index)?, true));
            }
            (constants::DW_AT_high_pc, AttributeValue::Udata(value)) => self.high = Some((value, false)),
            (constants::DW_AT_ranges, AttributeValue::RangeListsRef(offset)) => self.ranges = Some(offset.0),
            (constants::DW_AT_ranges, AttributeValue::DebugRngListsIndex(index)) => {
                self.ranges = Some(dwarf.ranges_offset(unit, index)?.0);
            }
            (constants::DW_AT_stmt_list, AttributeValue::DebugLineRef(offset)) => self.lines = Some(offset.0),
            (constants::DW_AT_abstract_origin, AttributeValue::UnitRef(offset)) => {
                self.origin = Some(Origin::Unit(offset.0));
            }
            (constants::DW_AT_abstract_origin, AttributeValue::DebugInfoRef(offset)) => {
                self.origin = Some(Origin::Section(offset.0));
            }
            (
                constants::DW_AT_location | constants::DW_AT_frame_base,
                AttributeValue::LocationListsRef(offset),
            ) => {
                self.lists.push((name, offset.0));
            }
            (
                constants::DW_AT_location | constants::DW_AT_frame_base,
                AttributeValue::DebugLocListsIndex(index),
            ) => {
                self.lists.push((name, dwarf.locations_offset(unit, index)?.0));
            }
            (
                constants::DW_AT_location | constants::DW_AT_frame_base,
                AttributeValue::Exprloc(expression),
            ) if names_no_entry(expression.0, unit.encoding()) => {
                self.repeated.push(Repeated { name, form: attribute.form(), constant, bytes });
            }
            (name, _) if is_repeated(name, is_root) && is_free(attribute.form()) => {
                self.repeated.push(Repeated { name, form: attribute.form(), constant, bytes });
            }
            _ => {}
        }
        Ok(())
    }

    /// The bounds of the code, where they are not a list.
    pub(super) fn bounds(&self) -> Option<(u64, u64)> {
        let (low, (high, is_address)) = (self.low?, self.high?);
        let end = if is_address { high } else { low.checked_add(high)? };
        (low < end).then_some((low, end))
    }

    /// Whether the entry says where something is.
    pub(super) fn is_located(&self) -> bool {
        let says = |name: DwAt| matches!(name, constants::DW_AT_location | constants::DW_AT_const_value);
        !self.lists.is_empty() || self.repeated.iter().any(|attribute| says(attribute.name))
    }
}

/// Attributes that debuggers do not look for where the entry of a copy refers to.
fn is_repeated(name: DwAt, is_root: bool) -> bool {
    match name {
        constants::DW_AT_name
        | constants::DW_AT_comp_dir
        | constants::DW_AT_language
        | constants::DW_AT_producer
        | constants::DW_AT_str_offsets_base
        | constants::DW_AT_addr_base
        | constants::DW_AT_GNU_addr_base => is_root,
        // Of calls that were inlined, and of variables that are constants.
        constants::DW_AT_call_file
        | constants::DW_AT_call_line
        | constants::DW_AT_call_column
        | constants::DW_AT_GNU_discriminator
        | constants::DW_AT_const_value => !is_root,
        _ => false,
    }
}

/// Whether a value of this form means the same in another unit that has the same bases.
fn is_free(form: DwForm) -> bool {
    matches!(
        form,
        constants::DW_FORM_data1
            | constants::DW_FORM_data2
            | constants::DW_FORM_data4
            | constants::DW_FORM_data8
            | constants::DW_FORM_data16
            | constants::DW_FORM_sdata
            | constants::DW_FORM_udata
            | constants::DW_FORM_implicit_const
            | constants::DW_FORM_block
            | constants::DW_FORM_block1
            | constants::DW_FORM_block2
            | constants::DW_FORM_block4
            | constants::DW_FORM_string
            | constants::DW_FORM_strp
            | constants::DW_FORM_line_strp
            | constants::DW_FORM_strp_sup
            | constants::DW_FORM_GNU_strp_alt
            | constants::DW_FORM_strx
            | constants::DW_FORM_strx1
            | constants::DW_FORM_strx2
            | constants::DW_FORM_strx3
            | constants::DW_FORM_strx4
            | constants::DW_FORM_GNU_str_index
            | constants::DW_FORM_sec_offset
    )
}

/// Whether an expression names no entry by its position in the unit: in another unit, another entry would be there.
pub(super) fn names_no_entry(expression: Slice<'_>, encoding: Encoding) -> bool {
    let mut waiting = vec![expression];
    while let Some(mut rest) = waiting.pop() {
        while !rest.is_empty() {
            let Ok(operation) = Operation::parse(&mut rest, encoding) else { return false };
            match operation {
                Operation::Call { .. }
                | Operation::ParameterRef { .. }
                | Operation::TypedLiteral { .. }
                | Operation::Convert { .. }
                | Operation::Reinterpret { .. } => return false,
                Operation::Deref { base_type, .. } | Operation::RegisterOffset { base_type, .. }
                    if base_type != UnitOffset(0) =>
                {
                    return false;
                }
                Operation::EntryValue { expression } => waiting.push(expression),
                _ => {}
            }
        }
    }
    true
}
