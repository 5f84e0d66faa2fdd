//! Records as annotations of the counters in the debug information.
//!
//! ```text
//! DW_TAG_subprogram            low_pc
//!   DW_TAG_variable            name "__profc_...", location: the address of the counters
//!     DW_TAG_LLVM_annotation   "Function Name": string
//!     DW_TAG_LLVM_annotation   "CFG Hash": number
//!     DW_TAG_LLVM_annotation   "Num Counters": number
//! ```
//!
//! Specification: `InstrProfCorrelator.cpp`.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use gimli::{AttributeValue, EndianSlice, Operation, RunTimeEndian, UnitOffset};
use object::Object as _;

use super::{CorrelatedFunction, CorrelatedFunctions, contents, counter_offset};
use crate::address::Address;
use crate::trace::Name;
use crate::trace::formats::llvm_images::InstrumentedImage;
use crate::trace::formats::llvm_names::name_hash;

/// Vendor tag, unknown to gimli.
const LLVM_ANNOTATION: gimli::DwTag = gimli::DwTag(0x6000);

type Slice<'data> = EndianSlice<'data, RunTimeEndian>;
type Attribute<'data> = gimli::Attribute<Slice<'data>>;

pub(super) fn read(
    object: &object::File<'_>,
    image: &InstrumentedImage,
    counters: &Range<u64>,
) -> Result<CorrelatedFunctions, String> {
    let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let load = |section: gimli::SectionId| -> gimli::Result<Cow<'_, [u8]>> {
        Ok(contents(object, section.name()).unwrap_or_default())
    };
    let sections = gimli::DwarfSections::load(load).map_err(|error| unreadable(&error))?;
    let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, endian));
    let mut collector =
        Collector { image, counters, known: HashSet::new(), functions: Vec::new(), is_split: false };
    let mut remarks = Vec::new();
    let mut units = dwarf.units();
    loop {
        let unit = match units.next() {
            Ok(Some(header)) => dwarf.unit(header),
            Ok(None) => break,
            Err(error) => {
                remarks.push(format!("{} {}: functions may be missing", image.name(), unreadable(&error)));
                break;
            }
        };
        // The units behind a broken one are found by its length.
        if let Err(error) = unit.and_then(|unit| collector.read_unit(&dwarf, &unit)) {
            remarks.push(format!("{} {}: functions may be missing", image.name(), unreadable(&error)));
        }
    }
    if collector.functions.is_empty() {
        return Err(match collector.is_split {
            true => "has its debug information in .dwo files; build without -gsplit-dwarf".to_owned(),
            false => remarks.pop().unwrap_or_else(|| "has no debug information about counters".to_owned()),
        });
    }
    Ok(CorrelatedFunctions { functions: collector.functions, remarks })
}

fn unreadable(error: &gimli::Error) -> String {
    format!("has debug information that cannot be read: {error}")
}

/// What was found so far.
struct Collector<'image> {
    image: &'image InstrumentedImage,
    counters: &'image Range<u64>,
    /// Offsets of counters: copies of inlined functions come again.
    known: HashSet<u64>,
    functions: Vec<CorrelatedFunction>,
    is_split: bool,
}

/// A subprogram that the walk is inside of.
struct Subprogram {
    depth: isize,
    offset: UnitOffset,
    address: Option<u64>,
}

/// The counters that the walk is inside of.
struct Counters<'data> {
    depth: isize,
    address: u64,
    subprogram: UnitOffset,
    function_address: Option<u64>,
    name: Option<Slice<'data>>,
    count: Option<u64>,
}

impl Collector<'_> {
    fn read_unit<'data>(
        &mut self,
        dwarf: &gimli::Dwarf<Slice<'data>>,
        unit: &gimli::Unit<Slice<'data>>,
    ) -> gimli::Result<()> {
        self.is_split |= unit.dwo_name()?.is_some();
        let first = self.functions.len();
        let mut subprograms: Vec<Subprogram> = Vec::new();
        // Functions that were inlined somewhere have their code apart from what belongs to all copies.
        let mut code_of: HashMap<UnitOffset, u64> = HashMap::new();
        let mut origins: Vec<UnitOffset> = Vec::new();
        let mut counters: Option<Counters<'data>> = None;
        let mut attributes: Vec<Attribute<'data>> = Vec::new();
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let depth = entries.next_depth();
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            if counters.as_ref().is_some_and(|counters| depth <= counters.depth) {
                self.finish(counters.take(), &mut origins);
            }
            while subprograms.last().is_some_and(|subprogram| depth <= subprogram.depth) {
                subprograms.pop();
            }
            let tag = abbreviation.tag();
            let is_inside = |outer: isize| outer + 1 == depth;
            let parent = subprograms.last().filter(|subprogram| is_inside(subprogram.depth));
            let annotated = counters.as_mut().filter(|counters| is_inside(counters.depth));
            let is_wanted = tag == gimli::DW_TAG_subprogram
                || tag == gimli::DW_TAG_variable && parent.is_some()
                || tag == LLVM_ANNOTATION && annotated.is_some();
            if !is_wanted {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            attributes.clear();
            entries.read_attributes(abbreviation.attributes(), &mut attributes)?;
            if tag == gimli::DW_TAG_subprogram {
                let address = match value(&attributes, gimli::DW_AT_low_pc) {
                    Some(low) => dwarf.attr_address(unit, low)?,
                    None => None,
                };
                let origin = value(&attributes, gimli::DW_AT_abstract_origin);
                if let (Some(address), Some(AttributeValue::UnitRef(origin))) = (address, origin) {
                    code_of.entry(origin).or_insert(address);
                }
                subprograms.push(Subprogram { depth, offset, address });
            } else if let Some(parent) = parent.filter(|_| tag == gimli::DW_TAG_variable) {
                counters = counters_of(dwarf, unit, &attributes)?.map(|address| Counters {
                    depth,
                    address,
                    subprogram: parent.offset,
                    function_address: parent.address,
                    name: None,
                    count: None,
                });
            } else if let Some(annotated) = annotated {
                annotate(annotated, dwarf, unit, &attributes)?;
            }
        }
        self.finish(counters, &mut origins);
        for (function, origin) in self.functions[first..].iter_mut().zip(origins) {
            let address = code_of.get(&origin).map(|address| Address(*address));
            function.address =
                function.address.or(address).filter(|address| self.image.has_code_at(*address));
        }
        Ok(())
    }

    /// Enters a function, with the subprogram that its counters belong to.
    fn finish(&mut self, counters: Option<Counters<'_>>, origins: &mut Vec<UnitOffset>) {
        let Some(Counters {
            address,
            subprogram,
            function_address,
            name: Some(name),
            count: Some(count),
            ..
        }) = counters
        else {
            return;
        };
        // Of functions that the linker dropped, counters are nowhere.
        let Some(counters) = counter_offset(address, self.counters) else { return };
        let Ok(counter_count) = u32::try_from(count) else { return };
        if self.known.insert(counters) {
            origins.push(subprogram);
            self.functions.push(CorrelatedFunction {
                name_hash: name_hash(&name),
                name: Some(Name::from(name.slice())),
                counters,
                counter_count,
                address: function_address.map(Address),
            });
        }
    }
}

fn value<'data>(attributes: &[Attribute<'data>], name: gimli::DwAt) -> Option<AttributeValue<Slice<'data>>> {
    attributes.iter().find(|attribute| attribute.name() == name).map(gimli::Attribute::value)
}

/// The address of the counters, if the variable is that.
fn counters_of<'data>(
    dwarf: &gimli::Dwarf<Slice<'data>>,
    unit: &gimli::Unit<Slice<'data>>,
    attributes: &[Attribute<'data>],
) -> gimli::Result<Option<u64>> {
    let (Some(name), Some(AttributeValue::Exprloc(location))) =
        (value(attributes, gimli::DW_AT_name), value(attributes, gimli::DW_AT_location))
    else {
        return Ok(None);
    };
    if !dwarf.attr_string(unit, name)?.starts_with(b"__profc_") {
        return Ok(None);
    }
    match location.operations(unit.encoding()).next()? {
        Some(Operation::Address { address }) => Ok(Some(address)),
        Some(Operation::AddressIndex { index }) => dwarf.address(unit, index).map(Some),
        _ => Ok(None),
    }
}

fn annotate<'data>(
    counters: &mut Counters<'data>,
    dwarf: &gimli::Dwarf<Slice<'data>>,
    unit: &gimli::Unit<Slice<'data>>,
    attributes: &[Attribute<'data>],
) -> gimli::Result<()> {
    let (Some(name), Some(constant)) =
        (value(attributes, gimli::DW_AT_name), value(attributes, gimli::DW_AT_const_value))
    else {
        return Ok(());
    };
    match dwarf.attr_string(unit, name)?.slice() {
        b"Function Name" => counters.name = Some(dwarf.attr_string(unit, constant)?),
        b"Num Counters" => counters.count = constant.udata_value(),
        _ => {}
    }
    Ok(())
}
