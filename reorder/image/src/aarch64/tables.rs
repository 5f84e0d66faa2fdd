//! Jump tables of AArch64 code: bytes, halfwords or words, relative to a place in the function or to the table.

use std::ops::Range;

use super::CodeContext;
use super::value::Entries;
use reorder_base::address::Address;

/// A dispatch through a table: a jump to a base plus an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dispatch {
    pub(super) base: Address,
    pub(super) table: Address,
    /// Bytes of an entry.
    pub(super) size: u8,
    pub(super) is_signed: bool,
    /// How far entries are shifted.
    pub(super) shift: u8,
    /// Upper bound of the number of entries; all ones if unknown.
    pub(super) most: u32,
}

/// More cases than any function has.
const MAX_ENTRIES: u64 = 1 << 16;

impl Dispatch {
    pub(super) fn new(base: u64, entries: Entries, shift: u8) -> Self {
        let Entries { table, size, is_signed, most } = entries;
        Self { base: Address(base), table: Address(table), size, is_signed, shift, most }
    }

    /// The places in `function` that the entries lead to, with the entries' addresses: up to, and not including, the first
    /// entry that leaves the function, or up to the next address that is referred to.
    ///
    /// A comparison with the number of cases is the bound where there is one; compilers leave it out where they know the
    /// value. The bytes up to the next address may be more than the table.
    pub(super) fn targets(
        &self,
        context: &CodeContext<'_>,
        function: &Range<Address>,
    ) -> Vec<(Address, Address)> {
        let is_inside =
            |(_, target): &(Address, Address)| function.contains(target) && target.0.is_multiple_of(4);
        self.entries(context).take_while(is_inside).collect()
    }

    /// The places in `function` where control may go on. If a comparison bounds the table, entries after one that leaves the
    /// function count, too.
    pub(super) fn entered(&self, context: &CodeContext<'_>, function: &Range<Address>) -> Vec<Address> {
        let is_inside = |target: &Address| function.contains(target) && target.0.is_multiple_of(4);
        let targets = self.entries(context).map(|(_, target)| target);
        match self.is_bounded() {
            true => targets.filter(is_inside).collect(),
            false => targets.take_while(is_inside).collect(),
        }
    }

    /// Whether a comparison bounds the number of entries.
    pub(super) fn is_bounded(&self) -> bool {
        self.most != u32::MAX
    }

    /// All entries, with where they lead.
    pub(super) fn entries<'run>(
        &'run self,
        context: &'run CodeContext<'_>,
    ) -> impl Iterator<Item = (Address, Address)> + 'run {
        self.read(context, self.limit(context))
    }

    /// How many entries there may be before the next address that is referred to.
    fn limit(&self, context: &CodeContext<'_>) -> u64 {
        if self.is_bounded() {
            return u64::from(self.most);
        }
        let next = context.known.partition_point(|known| *known <= self.table);
        let room = context.known.get(next).map_or(u64::MAX, |known| known.distance_from(self.table));
        room / u64::from(self.size.max(1))
    }

    fn read<'run>(
        &'run self,
        context: &'run CodeContext<'_>,
        limit: u64,
    ) -> impl Iterator<Item = (Address, Address)> + 'run {
        let size = u64::from(self.size);
        (0..limit.min(MAX_ENTRIES)).map_while(move |index| {
            let place = self.table.plus(index * size);
            let bytes = context.image.bytes_at(place, size)?;
            let entry = match (bytes, self.is_signed) {
                (&[byte], false) => i64::from(byte),
                (&[byte], true) => i64::from(byte as i8),
                (&[low, high], false) => i64::from(u16::from_le_bytes([low, high])),
                (&[low, high], true) => i64::from(i16::from_le_bytes([low, high])),
                (&[a, b, c, d], _) => i64::from(i32::from_le_bytes([a, b, c, d])),
                _ => return None,
            };
            let target = self.base.plus((entry << self.shift) as u64);
            Some((place, target))
        })
    }
}
