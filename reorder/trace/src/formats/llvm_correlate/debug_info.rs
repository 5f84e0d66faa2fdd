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

use gimli::{AttributeValue, Dwarf, EndianSlice, Operation, RunTimeEndian, Section as _, Unit, UnitOffset};
use object::Object as _;

use super::{CorrelatedFunction, CorrelatedFunctions, contents, counter_offset};
use crate::Name;
use crate::formats::llvm_images::InstrumentedImage;
use crate::formats::llvm_names::name_hash;
use reorder_base::address::Address;

/// Vendor tag, unknown to gimli.
const LLVM_ANNOTATION: gimli::DwTag = gimli::DwTag(0x6000);

type Slice<'data> = EndianSlice<'data, RunTimeEndian>;
type Attribute<'data> = gimli::Attribute<Slice<'data>>;

/// The functions with counters, in the order of the units.
///
/// # Errors
/// What is wrong with an image that describes none.
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
    let loaded = dwarf.debug_info.reader().len()
        + dwarf.debug_str.reader().len()
        + dwarf.debug_line_str.reader().len();
    let strings = Strings::of(loaded as u64);
    let mut collector = Collector { image, counters, strings, known: HashSet::new(), functions: Vec::new() };
    let (mut is_split, mut first_error) = (false, None);
    let mut units = dwarf.units();
    loop {
        let header = match units.next() {
            Ok(Some(header)) => header,
            Ok(None) => break,
            Err(error) => {
                first_error.get_or_insert(error);
                break;
            }
        };
        let result = dwarf.unit(header).and_then(|unit| {
            is_split |= unit.dwo_name()?.is_some();
            collector.read_unit(&dwarf, &unit)
        });
        // The units after a damaged one are found by its length.
        first_error = first_error.or(result.err());
    }
    if !collector.functions.is_empty() {
        let remark = |error| format!("{} {}; functions may be missing", image.name(), unreadable(&error));
        let remarks = first_error.map(remark).into_iter().chain(collector.strings.remark(image)).collect();
        return Ok(CorrelatedFunctions { functions: collector.functions, remarks });
    }
    Err(match first_error {
        _ if is_split => "has its debug information in .dwo files; build without -gsplit-dwarf".to_owned(),
        Some(error) => unreadable(&error),
        None => "has no debug information about counters".to_owned(),
    })
}

fn unreadable(error: &gimli::Error) -> String {
    format!("has debug information that cannot be read: {error}")
}

/// What strings may cost: any number of entries can refer to the same long one.
struct Strings {
    /// Bytes that may still be looked at.
    read: u64,
    /// Bytes that may still be kept; every function has a name of its own.
    kept: u64,
    left_out: u64,
}

impl Strings {
    /// No symbol is longer.
    const MAX_LENGTH: usize = 64 << 10;
    /// Functions of headers have their names in every unit, and linkers merge them.
    const REPETITIONS: u64 = 64;

    fn of(sections: u64) -> Self {
        Self { read: sections.saturating_mul(Self::REPETITIONS), kept: sections, left_out: 0 }
    }

    /// A string, unless it is too long or too much was read before.
    fn read<'data>(
        &mut self,
        string: impl FnOnce() -> gimli::Result<Slice<'data>>,
    ) -> gimli::Result<Option<Slice<'data>>> {
        if self.read == 0 {
            self.left_out += 1;
            return Ok(None);
        }
        // A string without an end may have been looked for in all of its section.
        let text = string().inspect_err(|_| self.read /= 2)?;
        self.read = self.read.saturating_sub(text.len() as u64);
        self.left_out += u64::from(text.len() > Self::MAX_LENGTH);
        Ok(Some(text).filter(|text| text.len() <= Self::MAX_LENGTH))
    }

    /// Whether a name can be kept.
    fn keep(&mut self, name: Slice<'_>) -> bool {
        let left = self.kept.checked_sub(name.len() as u64);
        self.left_out += u64::from(left.is_none());
        self.kept = left.unwrap_or(self.kept);
        left.is_some()
    }

    fn remark(&self, image: &InstrumentedImage) -> Option<String> {
        let message = || {
            format!(
                "{} has debug information with {} strings that are too long or repeated too often; functions may be \
                 missing",
                image.name(),
                self.left_out
            )
        };
        (self.left_out > 0).then(message)
    }
}

/// What was found so far.
struct Collector<'image> {
    image: &'image InstrumentedImage,
    counters: &'image Range<u64>,
    strings: Strings,
    /// Offsets of counters: copies of inlined functions come again.
    known: HashSet<u64>,
    functions: Vec<CorrelatedFunction>,
}

impl Collector<'_> {
    /// Adds the functions of a unit, up to its damage if there is any.
    fn read_unit<'data>(
        &mut self,
        dwarf: &Dwarf<Slice<'data>>,
        unit: &Unit<Slice<'data>>,
    ) -> gimli::Result<()> {
        let mut walk = Walk {
            dwarf,
            unit,
            strings: &mut self.strings,
            subprograms: Vec::new(),
            counters: None,
            code_of: HashMap::new(),
            annotated: Vec::new(),
        };
        let result = walk.run();
        let Walk { annotated, code_of, .. } = walk;
        annotated.iter().for_each(|counters| self.add(counters, &code_of));
        result
    }

    fn add(&mut self, annotated: &Counters<'_>, code_of: &HashMap<UnitOffset, u64>) {
        let (Some(name), Some(count)) = (annotated.name, annotated.count) else { return };
        // Of functions that the linker dropped, counters are nowhere.
        let Some(counters) = counter_offset(annotated.address, self.counters) else { return };
        let Ok(counter_count) = u32::try_from(count) else { return };
        let address = annotated.function_address.or_else(|| code_of.get(&annotated.subprogram).copied());
        if self.known.insert(counters) && self.strings.keep(name) {
            self.functions.push(CorrelatedFunction {
                name_hash: name_hash(&name),
                name: Some(Name::from(name.slice())),
                counters,
                counter_count,
                address: address.map(Address).filter(|address| self.image.has_code_at(*address)),
            });
        }
    }
}

/// A subprogram that the walk is inside of.
struct Subprogram {
    depth: isize,
    offset: UnitOffset,
    address: Option<u64>,
}

/// A function's counters.
struct Counters<'data> {
    depth: isize,
    address: u64,
    subprogram: UnitOffset,
    function_address: Option<u64>,
    name: Option<Slice<'data>>,
    count: Option<u64>,
}

/// The role of an entry in the walk.
enum Role {
    Subprogram,
    /// A variable of a function.
    Variable,
    /// A child of counters.
    Annotation,
}

/// Goes through the entries of one unit.
struct Walk<'unit, 'data> {
    dwarf: &'unit Dwarf<Slice<'data>>,
    unit: &'unit Unit<Slice<'data>>,
    strings: &'unit mut Strings,
    /// Outermost first.
    subprograms: Vec<Subprogram>,
    counters: Option<Counters<'data>>,
    /// Functions that were inlined somewhere have their code apart from what all copies have in common.
    code_of: HashMap<UnitOffset, u64>,
    annotated: Vec<Counters<'data>>,
}

impl<'data> Walk<'_, 'data> {
    fn run(&mut self) -> gimli::Result<()> {
        let mut attributes = Vec::new();
        let unit = self.unit;
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let (depth, offset) = (entries.next_depth(), entries.next_offset());
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            self.leave(depth);
            let Some(role) = self.role(abbreviation.tag(), depth) else {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            };
            attributes.clear();
            entries.read_attributes(abbreviation.attributes(), &mut attributes)?;
            match role {
                Role::Subprogram => self.enter_subprogram(depth, offset, &attributes)?,
                Role::Variable => self.enter_variable(depth, &attributes)?,
                Role::Annotation => self.annotate(&attributes)?,
            }
        }
        self.leave(0);
        Ok(())
    }

    /// Leaves the scopes that do not contain an entry at `depth`.
    fn leave(&mut self, depth: isize) {
        self.annotated.extend(self.counters.take_if(|counters| depth <= counters.depth));
        while self.subprograms.last().is_some_and(|subprogram| depth <= subprogram.depth) {
            self.subprograms.pop();
        }
    }

    fn role(&self, tag: gimli::DwTag, depth: isize) -> Option<Role> {
        let is_in_counters = self.counters.as_ref().is_some_and(|counters| counters.depth + 1 == depth);
        let is_in_function = self.subprograms.last().is_some_and(|outer| outer.depth + 1 == depth);
        match tag {
            gimli::DW_TAG_subprogram => Some(Role::Subprogram),
            gimli::DW_TAG_variable if is_in_function => Some(Role::Variable),
            LLVM_ANNOTATION if is_in_counters => Some(Role::Annotation),
            _ => None,
        }
    }

    fn enter_subprogram(
        &mut self,
        depth: isize,
        offset: UnitOffset,
        attributes: &[Attribute<'data>],
    ) -> gimli::Result<()> {
        let address = match value(attributes, gimli::DW_AT_low_pc) {
            Some(low) => self.dwarf.attr_address(self.unit, low)?,
            None => None,
        };
        let origin = value(attributes, gimli::DW_AT_abstract_origin);
        if let (Some(address), Some(AttributeValue::UnitRef(origin))) = (address, origin) {
            self.code_of.entry(origin).or_insert(address);
        }
        self.subprograms.push(Subprogram { depth, offset, address });
        Ok(())
    }

    fn enter_variable(&mut self, depth: isize, attributes: &[Attribute<'data>]) -> gimli::Result<()> {
        let Some(address) = self.counters_address(attributes)? else { return Ok(()) };
        self.counters = self.subprograms.last().map(|subprogram| Counters {
            depth,
            address,
            subprogram: subprogram.offset,
            function_address: subprogram.address,
            name: None,
            count: None,
        });
        Ok(())
    }

    /// Where the counters are, if the variable stands for such.
    fn counters_address(&mut self, attributes: &[Attribute<'data>]) -> gimli::Result<Option<u64>> {
        let (Some(name), Some(AttributeValue::Exprloc(location))) =
            (value(attributes, gimli::DW_AT_name), value(attributes, gimli::DW_AT_location))
        else {
            return Ok(None);
        };
        let name = self.strings.read(|| self.dwarf.attr_string(self.unit, name))?;
        if !name.is_some_and(|name| name.starts_with(b"__profc_")) {
            return Ok(None);
        }
        match location.operations(self.unit.encoding()).next()? {
            Some(Operation::Address { address }) => Ok(Some(address)),
            Some(Operation::AddressIndex { index }) => self.dwarf.address(self.unit, index).map(Some),
            _ => Ok(None),
        }
    }

    fn annotate(&mut self, attributes: &[Attribute<'data>]) -> gimli::Result<()> {
        let (Some(name), Some(constant), Some(counters)) = (
            value(attributes, gimli::DW_AT_name),
            value(attributes, gimli::DW_AT_const_value),
            self.counters.as_mut(),
        ) else {
            return Ok(());
        };
        let Some(name) = self.strings.read(|| self.dwarf.attr_string(self.unit, name))? else {
            return Ok(());
        };
        match name.slice() {
            b"Function Name" => {
                counters.name = self.strings.read(|| self.dwarf.attr_string(self.unit, constant))?
            }
            b"Num Counters" => counters.count = constant.udata_value(),
            _ => {}
        }
        Ok(())
    }
}

fn value<'data>(attributes: &[Attribute<'data>], name: gimli::DwAt) -> Option<AttributeValue<Slice<'data>>> {
    attributes.iter().find(|attribute| attribute.name() == name).map(gimli::Attribute::value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_cost_no_more_than_their_sections() {
        const SECTIONS: u64 = 1 << 20;
        let (long, short) = ([b'a'; Strings::MAX_LENGTH + 1], [b'a'; 1000]);
        let [long, short] = [&long[..], &short[..]].map(|text| EndianSlice::new(text, RunTimeEndian::Little));
        let mut strings = Strings::of(SECTIONS);
        assert!(strings.read(|| Ok(long)).unwrap().is_none(), "too long");
        let mut read = 0;
        while strings.read(|| Ok(short)).unwrap().is_some() {
            read += short.len() as u64;
        }
        assert!((SECTIONS..=SECTIONS * Strings::REPETITIONS).contains(&read), "{read}");
        let kept = (0..10_000).filter(|_| strings.keep(short)).count();
        assert_eq!(kept as u64, SECTIONS / 1000);
        assert_eq!(strings.left_out, 2 + 10_000 - kept as u64);
    }

    #[test]
    fn strings_without_an_end_are_not_looked_for_again_and_again() {
        let mut strings = Strings::of(1 << 20);
        let failed = (0..1000)
            .filter(|_| strings.read(|| Err(gimli::Error::UnknownForm(gimli::DwForm(0)))).is_err())
            .count();
        assert!(failed < 30, "{failed}");
    }
}
