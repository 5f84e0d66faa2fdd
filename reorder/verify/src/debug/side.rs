//! One unit of one image, and what it names in other sections.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use gimli::{AttributeValue, Reader as _};

use super::coverage::Range;
use super::lists::ranges;
use super::scene::Scene;
use super::view::{DebugView, Slice};

/// The units of one image, and its sections.
pub(super) type Source<'unit, 'data> = (&'unit gimli::Dwarf<Slice<'data>>, &'unit DebugView<'unit>);

/// One unit of one image.
pub(super) struct Side<'unit, 'data> {
    pub(super) dwarf: &'unit gimli::Dwarf<Slice<'data>>,
    pub(super) unit: &'unit gimli::Unit<Slice<'data>>,
    /// The section of the unit's locations, in which views stand, too.
    locations: &'unit [u8],
    /// Numbers of the addresses that were requested.
    pub(super) named: RefCell<BTreeSet<usize>>,
    /// Lists of ranges that were read.
    ranges: RefCell<BTreeMap<usize, Rc<Vec<Range>>>>,
}

impl<'unit, 'data> Side<'unit, 'data> {
    pub(super) fn new(
        (dwarf, sections): Source<'unit, 'data>,
        unit: &'unit gimli::Unit<Slice<'data>>,
    ) -> Self {
        let name = if unit.encoding().version >= 5 { ".debug_loclists" } else { ".debug_loc" };
        let locations = sections.bytes(name);
        Self { dwarf, unit, locations, named: RefCell::default(), ranges: RefCell::default() }
    }

    /// The pairs of views at `position`.
    pub(super) fn views(&self, position: usize) -> gimli::Result<Slice<'unit>> {
        let mut views = Slice::new(self.locations, gimli::LittleEndian);
        views.skip(position)?;
        Ok(views)
    }

    /// The address of this number.
    pub(super) fn address(&self, index: gimli::DebugAddrIndex<usize>) -> gimli::Result<u64> {
        self.named.borrow_mut().insert(index.0);
        self.dwarf.address(self.unit, index)
    }

    /// The list of ranges at `offset`, read once.
    pub(super) fn ranges(&self, pair: Scene<'_>, offset: usize) -> gimli::Result<Rc<Vec<Range>>> {
        if let Some(known) = self.ranges.borrow().get(&offset) {
            return Ok(Rc::clone(known));
        }
        let ranges = Rc::new(ranges(pair, self, offset)?);
        self.ranges.borrow_mut().insert(offset, Rc::clone(&ranges));
        Ok(ranges)
    }

    /// The address that an attribute is.
    pub(super) fn attribute_address(
        &self,
        value: AttributeValue<Slice<'data>>,
    ) -> gimli::Result<Option<u64>> {
        match value {
            AttributeValue::DebugAddrIndex(index) => self.address(index).map(Some),
            value => self.dwarf.attr_address(self.unit, value),
        }
    }
}
