//! Which entries cover an address, and where they say that variables are.

use gimli::{AttributeValue, DwAt, DwTag, EntriesCursor, Operation, UnitOffset, constants};

use super::points::Saying;
use super::{Read, Slice};

type Unit<'data> = gimli::Unit<Slice<'data>>;
type Dwarf<'data> = gimli::Dwarf<Slice<'data>>;
type Entry<'data> = gimli::DebuggingInformationEntry<Slice<'data>>;

/// What each of the `addresses`, which ascend, is said to be by those of `units`, which ascend, from position `first` on.
pub(super) fn say<'data>(
    dwarf: &Dwarf<'data>,
    (units, first): (&[Unit<'data>], usize),
    addresses: &[u64],
    saying: &mut Saying,
) -> Read<Vec<u32>> {
    let mut said = vec![0; addresses.len()];
    for unit in &units[first..] {
        let mut side = Side { dwarf, units, unit, addresses, saying: &mut *saying, said: &mut said };
        side.unit().map_err(|error| error.to_string())?;
    }
    Ok(said)
}

/// A unit that speaks of addresses.
struct Side<'run, 'data> {
    dwarf: &'run Dwarf<'data>,
    /// All units of the image.
    units: &'run [Unit<'data>],
    unit: &'run Unit<'data>,
    addresses: &'run [u64],
    saying: &'run mut Saying,
    said: &'run mut [u32],
}

impl<'data> Side<'_, 'data> {
    fn unit(&mut self) -> gimli::Result<()> {
        let mut cursor: EntriesCursor<'_, Slice<'data>> = self.unit.entries();
        let Some(root) = cursor.next_dfs()? else { return Ok(()) };
        let of_unit = self.ranges(root)?;
        if !self.covers(&of_unit) {
            return Ok(());
        }
        let is_split = root.attrs().iter().any(|attribute| names_other_file(attribute.name()));
        let identity = self.identity_of_unit(root)?;
        self.say_of(&of_unit, identity);
        if is_split {
            return Ok(());
        }
        // The code of each open entry that has code.
        let mut open: Vec<(isize, Vec<(u64, u64)>)> = Vec::new();
        while let Some(entry) = cursor.next_dfs()? {
            while open.last().is_some_and(|(depth, _)| *depth >= entry.depth()) {
                open.pop();
            }
            let is_direct = open.last().is_some_and(|(depth, _)| *depth + 1 == entry.depth());
            match entry.tag() {
                tag if tag == constants::DW_TAG_subprogram || is_scope(tag) && is_direct => {
                    let ranges = self.ranges(entry)?;
                    if !self.covers(&ranges) {
                        continue;
                    }
                    let identity = self.identity(entry)?;
                    self.say_of(&ranges, identity);
                    self.lists(entry, constants::DW_AT_frame_base, &ranges)?;
                    open.push((entry.depth(), ranges));
                }
                constants::DW_TAG_variable | constants::DW_TAG_formal_parameter if is_direct => {
                    let ranges = open.last().map(|(_, ranges)| ranges.clone()).unwrap_or_default();
                    self.variable(entry, &ranges)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn covers(&self, ranges: &[(u64, u64)]) -> bool {
        let first = |address| self.addresses.partition_point(|known| *known < address);
        ranges.iter().any(|(start, end)| first(*start) < first(*end))
    }

    fn say_of(&mut self, ranges: &[(u64, u64)], thing: Vec<u8>) {
        let thing = self.saying.thing(thing);
        ranges.iter().for_each(|range| self.saying.say(self.addresses, self.said, *range, thing));
    }

    fn ranges(&self, entry: &Entry<'data>) -> gimli::Result<Vec<(u64, u64)>> {
        let mut ranges = self.dwarf.die_ranges(self.unit, entry)?;
        let mut all = Vec::new();
        while let Some(range) = ranges.next()? {
            all.push((range.begin, range.end));
        }
        Ok(all)
    }

    /// What a variable is and where it is, for the addresses where it is there.
    fn variable(&mut self, entry: &Entry<'data>, scope: &[(u64, u64)]) -> gimli::Result<()> {
        if entry.attr(constants::DW_AT_const_value).is_some()
            || self.expression(entry, constants::DW_AT_location).is_some()
        {
            let identity = self.identity(entry)?;
            self.say_of(scope, identity);
        }
        self.lists(entry, constants::DW_AT_location, scope)
    }

    fn lists(&mut self, entry: &Entry<'data>, name: DwAt, scope: &[(u64, u64)]) -> gimli::Result<()> {
        let Some(value) = entry.attr_value(name) else { return Ok(()) };
        let Some(mut locations) = self.dwarf.attr_locations(self.unit, value)? else { return Ok(()) };
        let origin = self.origin(entry)?;
        while let Some(location) = locations.next()? {
            if self.names_an_entry(location.data.0) {
                continue;
            }
            let mut thing = vec![b'l'];
            thing.extend_from_slice(&(entry.tag().0).to_le_bytes());
            thing.extend_from_slice(&name.0.to_le_bytes());
            thing.extend_from_slice(&(origin as u64).to_le_bytes());
            thing.extend_from_slice(location.data.0.slice());
            // A location that holds where no other does covers everything.
            let range = (location.range.begin, location.range.end);
            let ranges = if range == (0, u64::MAX) { scope.to_vec() } else { vec![range] };
            self.say_of(&ranges, thing);
        }
        Ok(())
    }

    /// The expression of an attribute, if it names no entry by its position in the unit.
    fn expression(&self, entry: &Entry<'data>, name: DwAt) -> Option<Slice<'data>> {
        match entry.attr_value(name)? {
            AttributeValue::Exprloc(expression) if !self.names_an_entry(expression.0) => Some(expression.0),
            _ => None,
        }
    }

    fn names_an_entry(&self, expression: Slice<'data>) -> bool {
        names_an_entry(expression, self.unit.encoding())
    }

    /// What an entry is: its kind, the entry that it finally stands for, and what is said of it alone.
    fn identity(&self, entry: &Entry<'data>) -> gimli::Result<Vec<u8>> {
        let mut thing = vec![b'e'];
        thing.extend_from_slice(&entry.tag().0.to_le_bytes());
        let origin = if is_nameless(entry.tag()) { 0 } else { self.origin(entry)? };
        thing.extend_from_slice(&(origin as u64).to_le_bytes());
        for name in OF_CALLS {
            let value = entry.attr(name).and_then(gimli::Attribute::udata_value);
            thing.extend_from_slice(&value.map_or(u64::MAX, |value| value).to_le_bytes());
        }
        for name in [constants::DW_AT_location, constants::DW_AT_frame_base] {
            thing.push(b'x');
            if let Some(expression) = self.expression(entry, name) {
                thing.extend_from_slice(expression.slice());
            }
        }
        match entry.attr_value(constants::DW_AT_const_value) {
            None => {}
            Some(AttributeValue::Block(bytes)) => thing.extend_from_slice(bytes.slice()),
            Some(value) => match self.dwarf.attr_string(self.unit, value) {
                Ok(text) => thing.extend_from_slice(text.slice()),
                Err(_) => thing.extend_from_slice(format!("{value:?}").as_bytes()),
            },
        }
        Ok(thing)
    }

    fn identity_of_unit(&self, root: &Entry<'data>) -> gimli::Result<Vec<u8>> {
        let mut thing = format!("u{:?}", self.unit.encoding().version).into_bytes();
        for name in [constants::DW_AT_name, constants::DW_AT_comp_dir, constants::DW_AT_producer] {
            thing.push(0);
            if let Some(value) = root.attr_value(name) {
                thing.extend_from_slice(self.dwarf.attr_string(self.unit, value)?.slice());
            }
        }
        thing.push(0);
        let bases = (self.unit.str_offsets_base.0, self.unit.addr_base.0);
        thing.extend_from_slice(
            format!("{:?}{bases:?}", root.attr_value(constants::DW_AT_language)).as_bytes(),
        );
        Ok(thing)
    }

    /// Position of the entry that `entry` finally stands for.
    fn origin(&self, entry: &Entry<'data>) -> gimli::Result<usize> {
        let mut at = self.unit.header.offset().0 + entry.offset().0;
        let mut next = reference(self.unit, entry);
        // Longer chains than these go around in circles.
        for _ in 0..MAX_CHAIN {
            let Some(target) = next else { return Ok(at) };
            at = target;
            let Some(unit) = self.unit_at(target) else { return Err(gimli::Error::MissingUnitDie) };
            let entry = unit.entry(UnitOffset(target - unit.header.offset().0))?;
            next = reference(unit, &entry);
        }
        Err(gimli::Error::MissingUnitDie)
    }

    fn unit_at(&self, position: usize) -> Option<&Unit<'data>> {
        let after = self.units.partition_point(|unit| unit.header.offset().0 <= position);
        self.units[..after].last()
    }
}

/// The entry that another one continues or repeats, by position in the section.
fn reference(
    unit: &gimli::Unit<Slice<'_>>,
    entry: &gimli::DebuggingInformationEntry<Slice<'_>>,
) -> Option<usize> {
    let value = entry
        .attr_value(constants::DW_AT_abstract_origin)
        .or_else(|| entry.attr_value(constants::DW_AT_specification))?;
    match value {
        AttributeValue::UnitRef(offset) => Some(unit.header.offset().0 + offset.0),
        AttributeValue::DebugInfoRef(offset) => Some(offset.0),
        _ => None,
    }
}

const MAX_CHAIN: usize = 16;

/// What is said of a call that was inlined.
const OF_CALLS: [DwAt; 4] = [
    constants::DW_AT_call_file,
    constants::DW_AT_call_line,
    constants::DW_AT_call_column,
    constants::DW_AT_GNU_discriminator,
];

fn is_nameless(tag: DwTag) -> bool {
    matches!(
        tag,
        constants::DW_TAG_lexical_block | constants::DW_TAG_try_block | constants::DW_TAG_catch_block
    )
}

fn is_scope(tag: DwTag) -> bool {
    is_nameless(tag) || tag == constants::DW_TAG_inlined_subroutine
}

fn names_other_file(name: DwAt) -> bool {
    matches!(name, constants::DW_AT_dwo_name | constants::DW_AT_GNU_dwo_name | constants::DW_AT_GNU_dwo_id)
}

fn names_an_entry(mut expression: Slice<'_>, encoding: gimli::Encoding) -> bool {
    while !expression.is_empty() {
        let is_name = match Operation::parse(&mut expression, encoding) {
            Err(_) => true,
            Ok(operation) => match operation {
                Operation::Call { .. }
                | Operation::ParameterRef { .. }
                | Operation::TypedLiteral { .. }
                | Operation::Convert { .. }
                | Operation::Reinterpret { .. } => true,
                Operation::Deref { base_type, .. } | Operation::RegisterOffset { base_type, .. } => {
                    base_type != UnitOffset(0)
                }
                // One inside of another one is not read here, so nothing is known of it.
                Operation::EntryValue { expression } => {
                    let mut inner = expression;
                    !inner.is_empty() && is_deep_name(&mut inner, encoding)
                }
                _ => false,
            },
        };
        if is_name {
            return true;
        }
    }
    false
}

/// Whether the value of a parameter at the entry of a function names an entry.
fn is_deep_name(expression: &mut Slice<'_>, encoding: gimli::Encoding) -> bool {
    while !expression.is_empty() {
        match Operation::parse(expression, encoding) {
            Ok(Operation::Register { .. }) => {}
            Ok(Operation::RegisterOffset { base_type, .. } | Operation::Deref { base_type, .. })
                if base_type == UnitOffset(0) => {}
            _ => return true,
        }
    }
    false
}

/// Checks that an added unit consists of nothing but entries and attributes that are compared.
pub(super) fn check_shape(dwarf: &Dwarf<'_>, unit: &Unit<'_>) -> Read<()> {
    let side = |error: gimli::Error| error.to_string();
    let mut cursor = unit.entries();
    let mut is_root = true;
    while let Some(entry) = cursor.next_dfs().map_err(side)? {
        let is_known = |tag| tag == constants::DW_TAG_subprogram || is_scope(tag);
        let is_variable =
            matches!(entry.tag(), constants::DW_TAG_variable | constants::DW_TAG_formal_parameter);
        let is_sound = match is_root {
            true => entry.tag() == constants::DW_TAG_compile_unit && unit.low_pc == 0,
            false => is_known(entry.tag()) || is_variable,
        };
        let unknown = entry.attrs().iter().map(gimli::Attribute::name).find(|name| !may_have(is_root, *name));
        if let Some(name) = unknown.filter(|_| is_sound).or((!is_sound).then_some(constants::DW_AT_null)) {
            return Err(format!("{} at {:#x} has {name}", entry.tag(), entry.offset().0));
        }
        for name in [constants::DW_AT_location, constants::DW_AT_frame_base] {
            let Some(value) = entry.attr_value(name) else { continue };
            if let Some(mut list) = dwarf.attr_locations(unit, value).map_err(side)? {
                while let Some(location) = list.next().map_err(side)? {
                    if names_an_entry(location.data.0, unit.encoding()) {
                        return Err(format!(
                            "a location at {:#x} names an entry of another unit",
                            entry.offset().0
                        ));
                    }
                }
            }
            if let AttributeValue::Exprloc(expression) = value
                && names_an_entry(expression.0, unit.encoding())
            {
                return Err(format!("a location at {:#x} names an entry of another unit", entry.offset().0));
            }
        }
        is_root = false;
    }
    Ok(())
}

fn may_have(is_root: bool, name: DwAt) -> bool {
    match name {
        constants::DW_AT_ranges => true,
        constants::DW_AT_low_pc
        | constants::DW_AT_name
        | constants::DW_AT_comp_dir
        | constants::DW_AT_language
        | constants::DW_AT_producer
        | constants::DW_AT_stmt_list
        | constants::DW_AT_str_offsets_base
        | constants::DW_AT_addr_base
        | constants::DW_AT_GNU_addr_base => is_root,
        constants::DW_AT_abstract_origin
        | constants::DW_AT_specification
        | constants::DW_AT_location
        | constants::DW_AT_frame_base
        | constants::DW_AT_const_value
        | constants::DW_AT_call_file
        | constants::DW_AT_call_line
        | constants::DW_AT_call_column
        | constants::DW_AT_GNU_discriminator => !is_root,
        _ => false,
    }
}
