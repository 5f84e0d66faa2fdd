//! Which functions a compiler copied into which others, by the image's debug information.

use std::collections::{BTreeMap, BTreeSet};

use gimli::{AttributeValue, DebuggingInformationEntry, Dwarf, EndianSlice, LittleEndian, Unit, UnitOffset};
use object::{Object, ObjectSection};

type Reader<'data> = EndianSlice<'data, LittleEndian>;

/// By linkage name of a function: the start addresses of the functions that contain a copy of it.
pub type Inlined = BTreeMap<String, BTreeSet<u64>>;

/// Reads all of `image`'s `.debug_info`; empty without debug information.
///
/// # Errors
/// Broken debug information. Compressed sections are not read.
pub fn inlined(image: &object::File<'_>) -> Result<Inlined, gimli::Error> {
    let dwarf = Dwarf::load(|section| {
        let data = image.section_by_name(section.name()).and_then(|section| section.data().ok());
        Ok::<_, gimli::Error>(EndianSlice::new(data.unwrap_or_default(), LittleEndian))
    })?;
    let mut units = Vec::new();
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        units.push(dwarf.unit(header)?);
    }
    let mut inlined = Inlined::new();
    for unit in &units {
        // Copies are below the function that contains them, with any number of lexical blocks and copies in between.
        let mut caller = None;
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            match entry.tag() {
                gimli::DW_TAG_subprogram => {
                    caller = match entry.attr_value(gimli::DW_AT_low_pc) {
                        Some(value) => dwarf.attr_address(unit, value)?,
                        None => None,
                    };
                }
                gimli::DW_TAG_inlined_subroutine => {
                    let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
                    let name = match origin.and_then(|value| locate(&units, unit, &value)) {
                        Some((unit, offset)) => linkage_name(&dwarf, &units, unit, &unit.entry(offset)?)?,
                        None => None,
                    };
                    if let (Some(name), Some(caller)) = (name, caller) {
                        inlined.entry(name).or_default().insert(caller);
                    }
                }
                _ => {}
            }
        }
    }
    Ok(inlined)
}

/// The unit that a reference leads to and the place therein; references may leave their unit.
fn locate<'units, 'data>(
    units: &'units [Unit<Reader<'data>>],
    unit: &'units Unit<Reader<'data>>,
    reference: &AttributeValue<Reader<'data>>,
) -> Option<(&'units Unit<Reader<'data>>, UnitOffset)> {
    match *reference {
        AttributeValue::UnitRef(offset) => Some((unit, offset)),
        AttributeValue::DebugInfoRef(offset) => {
            let after = units.partition_point(|unit| {
                unit.header.debug_info_offset().is_some_and(|start| start.0 <= offset.0)
            });
            let unit = &units[after.checked_sub(1)?];
            Some((unit, offset.to_unit_offset(&unit.header)?))
        }
        _ => None,
    }
}

/// The linkage name of a function's entry or of the declaration that it completes, else its plain name.
fn linkage_name(
    dwarf: &Dwarf<Reader<'_>>,
    units: &[Unit<Reader<'_>>],
    unit: &Unit<Reader<'_>>,
    entry: &DebuggingInformationEntry<Reader<'_>>,
) -> Result<Option<String>, gimli::Error> {
    let text = |unit: &Unit<Reader<'_>>, value| {
        dwarf.attr_string(unit, value).map(|name| Some(name.to_string_lossy().into_owned()))
    };
    if let Some(value) = entry.attr_value(gimli::DW_AT_linkage_name) {
        return text(unit, value);
    }
    let declaration = entry.attr_value(gimli::DW_AT_specification);
    if let Some((unit, offset)) = declaration.and_then(|value| locate(units, unit, &value))
        && let Some(value) = unit.entry(offset)?.attr_value(gimli::DW_AT_linkage_name)
    {
        return text(unit, value);
    }
    entry.attr_value(gimli::DW_AT_name).map_or(Ok(None), |value| text(unit, value))
}
