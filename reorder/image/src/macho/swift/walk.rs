//! Goes from record to record, each once, and collects the fields that lead to functions.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use super::{conformance, context, names, pattern};
use crate::macho::file::MachOFile;
use crate::macho::reference::{DataForm, DataReference};
use reorder_base::address::Address;

/// A kind of record that other records refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Record {
    /// Of a module, an extension, a protocol or a type.
    Context,
    /// Of a type to a protocol.
    Conformance,
    /// A mangled name with references inside.
    Name,
    /// A function's distance, with the size of its frame: of an asynchronous function or a coroutine.
    FramedFunction,
    /// The pattern of a generic class's metadata.
    ClassPattern,
    /// The pattern of another generic type's metadata.
    ValuePattern,
    /// The pattern of a class whose superclass is not known when it is compiled.
    ResilientPattern,
    /// Of a property, for key paths.
    Property,
    /// A list of functions that replace others.
    ReplacementScope,
}

/// Collects what records say.
pub(super) struct Walk<'context, 'data> {
    pub(super) file: &'context MachOFile<'data>,
    text: Range<Address>,
    starts: &'context [Address],
    visited: HashSet<(Record, u64)>,
    pending: Vec<(Record, Address)>,
    /// Bytes that may still be read: damaged records may overlap, but valid ones read every byte a few times at most.
    allowance: usize,
    /// Function by field.
    found: BTreeMap<Address, Address>,
    doubtful: BTreeMap<Address, Address>,
}

/// Reads for each byte of the image; the largest share seen in a real image is a tenth of one.
const READS_A_BYTE: usize = 2;

impl<'context, 'data> Walk<'context, 'data> {
    pub(super) fn new(file: &'context MachOFile<'data>, starts: &'context [Address]) -> Self {
        Self {
            file,
            text: file.text().range(),
            starts,
            visited: HashSet::new(),
            pending: Vec::new(),
            allowance: file.bytes.len().saturating_mul(READS_A_BYTE),
            found: BTreeMap::new(),
            doubtful: BTreeMap::new(),
        }
    }

    /// Reads all records that were entered, and those to which they lead. A damaged record ends early.
    pub(super) fn run(&mut self) {
        while let Some((record, place)) = self.pending.pop() {
            // `None` means that the record is damaged or truncated: the fields before the damage are kept.
            let _ = match record {
                Record::Context => context::read(self, place),
                Record::Conformance => conformance::read(self, place),
                Record::Name => names::read(self, place).map(drop),
                Record::FramedFunction => self.plain_function(place),
                Record::ClassPattern => pattern::read_class(self, place),
                Record::ValuePattern => pattern::read_value(self, place),
                Record::ResilientPattern => pattern::read_resilient(self, place),
                Record::Property => pattern::read_property(self, place),
                Record::ReplacementScope => pattern::read_replacements(self, place),
            };
        }
    }

    /// The fields, and the doubtful ones with the functions that they lead into.
    pub(super) fn finish(self) -> (Vec<DataReference>, Vec<(Address, Address)>) {
        let form = DataForm::Relative32;
        let fields = self.found.into_iter().map(|(place, target)| DataReference { place, target, form });
        (fields.collect(), self.doubtful.into_iter().collect())
    }

    /// Reads a record later, unless it was read.
    pub(super) fn enter(&mut self, record: Record, place: Address) {
        if self.visited.insert((record, place.0)) {
            self.pending.push((record, place));
        }
    }

    /// The word at `place`.
    pub(super) fn word(&mut self, place: Address) -> Option<u32> {
        self.allowance = self.allowance.checked_sub(4)?;
        self.file.word_at(place)
    }

    /// The two bytes at `place`.
    pub(super) fn half(&mut self, place: Address) -> Option<u16> {
        self.allowance = self.allowance.checked_sub(2)?;
        Some(u16::from_le_bytes(self.file.bytes_at(place, 2)?.try_into().ok()?))
    }

    /// The byte at `place`.
    pub(super) fn byte(&mut self, place: Address) -> Option<u8> {
        self.allowance = self.allowance.checked_sub(1)?;
        self.file.bytes_at(place, 1)?.first().copied()
    }

    /// What the distance at `place` leads to; the inner option is `None` for the distance zero, which means no target.
    pub(super) fn distance(&mut self, place: Address) -> Option<Option<Address>> {
        let word = self.word(place)?;
        Some((word != 0).then(|| place.plus(i64::from(word as i32) as u64)))
    }

    /// Enters the record to which the distance at `place` leads.
    pub(super) fn enter_direct(&mut self, record: Record, place: Address) -> Option<()> {
        if let Some(target) = self.distance(place)? {
            self.enter(record, target);
        }
        Some(())
    }

    /// The same for a distance whose lowest bit says that it leads to a pointer instead, which the loader rebases.
    /// `flags` are the bits of the field that are not part of the distance.
    pub(super) fn enter_indirect(&mut self, record: Record, place: Address, flags: u32) -> Option<()> {
        let word = self.word(place)?;
        if word != 0 && word & 1 == 0 {
            self.enter(record, place.plus(i64::from((word & !flags) as i32) as u64));
        }
        Some(())
    }

    /// A field with the distance to a function.
    pub(super) fn plain_function(&mut self, place: Address) -> Option<()> {
        if let Some(target) = self.distance(place)?.filter(|target| self.text.contains(target)) {
            self.note(place, target);
        }
        Some(())
    }

    /// A field with the distance to the implementation of a requirement or method: a function, the record of one with a
    /// frame, or, with the lowest bit set, a name.
    pub(super) fn implementation(&mut self, place: Address) -> Option<()> {
        let Some(target) = self.distance(place)? else { return Some(()) };
        if self.text.contains(&target) {
            self.note(place, target);
        } else if target.0 & 1 == 1 {
            self.enter(Record::Name, Address(target.0 & !1));
        } else if self.file.section_at(target).is_some_and(|section| !section.is_code()) {
            self.enter(Record::FramedFunction, target);
        }
        Some(())
    }

    fn note(&mut self, place: Address, target: Address) {
        match self.starts.binary_search(&target) {
            Ok(_) => {
                self.found.insert(place, target);
            }
            Err(after) => {
                if let Some(before) = after.checked_sub(1) {
                    self.doubtful.insert(place, self.starts[before]);
                }
            }
        }
    }
}
