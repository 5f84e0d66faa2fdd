//! Exception tables for copies: the entries of the original for the instructions that were copied.
//!
//! Exceptions are caught in the original, whose frame is the same: the new tables name its start as what landing pads count
//! from.
//! Source: the Itanium C++ ABI, "Exception Handling Tables", and LLVM's `EHStreamer`.

use std::collections::BTreeSet;

use super::reader::Reader;
use reorder_base::address::{Address, NewAddress};
use reorder_base::leb128::write_unsigned;

/// The value is absent.
const OMITTED: u8 = 0xff;
/// `DW_EH_PE_uleb128`.
const UNSIGNED: u8 = 0x01;
/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`.
const FIELD_RELATIVE: u8 = 0x1b;

/// What happens with exceptions that pass through some code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// Distance of the code from the start of what the table describes.
    pub start: u64,
    /// Bytes of code.
    pub size: u64,
    /// Distance of the landing pad from what the table counts from; zero for none.
    pad: u64,
    /// Position in the table of actions, plus one; zero for none.
    action: u64,
}

/// The table of one function.
pub(super) struct ExceptionTable<'data> {
    /// Ascending and disjoint.
    sites: Vec<Site>,
    /// What landing pads count from.
    base: Address,
    /// The table and its address.
    bytes: &'data [u8],
    address: Address,
    /// Position of the actions, which extend to an unknown end.
    actions: usize,
    type_encoding: u8,
    /// Bytes of a type, if its form is known.
    type_width: Option<usize>,
    /// Position after the types, the first number last; lists of types come after them.
    types_end: usize,
}

/// What some sites need of a table.
struct Needed<'data> {
    /// Actions, in the form that they have.
    actions: &'data [u8],
    /// Fields of types, and the address of the first of them.
    types: &'data [u8],
    types_address: Address,
    /// Lists of types.
    lists: &'data [u8],
}

impl<'data> ExceptionTable<'data> {
    /// Reads the table at the beginning of `bytes`, which are at `address`, of the function at `function`. `None` for forms
    /// that cannot be repeated elsewhere.
    pub(super) fn read(
        bytes: &'data [u8],
        address: Address,
        function: Address,
        is_fixed: bool,
    ) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let base = match reader.byte()? {
            OMITTED => function,
            FIELD_RELATIVE => {
                let distance = i64::from(reader.little_endian(4)? as u32 as i32);
                address.plus(1).plus(distance as u64)
            }
            _ => return None,
        };
        let type_encoding = reader.byte()?;
        let types_end = match type_encoding {
            OMITTED => None,
            _ => {
                let distance = usize::try_from(reader.unsigned()?).ok()?;
                Some(reader.position().checked_add(distance).filter(|end| *end <= bytes.len())?)
            }
        };
        let encoding = reader.byte()?;
        let size = usize::try_from(reader.unsigned()?).ok()?;
        let sites = read_sites(reader.take(size)?, encoding)?;
        let actions = reader.position();
        let type_width = type_width(type_encoding, is_fixed);
        let types_end = types_end.unwrap_or(0);
        let table = Self { sites, base, bytes, address, actions, type_encoding, type_width, types_end };
        // What any site may need.
        table.needed(&table.sites)?;
        Some(table)
    }

    /// What `sites` need. `None` for forms that cannot be repeated elsewhere.
    fn needed(&self, sites: &[Site]) -> Option<Needed<'data>> {
        let bytes = self.bytes;
        let lists: &'data [u8] =
            if self.type_encoding == OMITTED { &[] } else { bytes.get(self.types_end..)? };
        let actions = bytes.get(self.actions..)?;
        let used = Used::by(sites, actions, lists)?;
        let types_start = match used.types {
            0 => self.types_end,
            count => self.types_end.checked_sub(count.checked_mul(self.type_width?)?)?,
        };
        Some(Needed {
            actions: actions.get(..used.actions)?,
            types: bytes.get(types_start..self.types_end)?,
            types_address: self.address.plus(types_start as u64),
            lists: lists.get(..used.lists)?,
        })
    }

    /// What describes the instruction whose last byte is so far from the start of the function.
    pub(super) fn site(&self, distance: u64) -> Option<Site> {
        let after = self.sites.partition_point(|site| site.start <= distance);
        self.sites[..after].last().filter(|site| distance - site.start < site.size).copied()
    }

    /// A table at `address` with these sites, which ascend. `None` when it is too far from what it names.
    pub(super) fn with_sites(&self, sites: &[Site], address: NewAddress) -> Option<Vec<u8>> {
        let mut bytes = vec![FIELD_RELATIVE];
        let distance = self.base.0.wrapping_sub(address.0 + 1) as i64;
        bytes.extend(i32::try_from(distance).ok()?.to_le_bytes());
        let mut described = Vec::new();
        for site in sites {
            for value in [site.start, site.size, site.pad, site.action] {
                write_unsigned(&mut described, value);
            }
        }
        let needed = self.needed(sites)?;
        let mut rest = vec![UNSIGNED];
        write_unsigned(&mut rest, described.len() as u64);
        rest.extend(described);
        rest.extend_from_slice(needed.actions);
        if needed.types.is_empty() && needed.lists.is_empty() {
            bytes.push(OMITTED);
            bytes.extend(rest);
            return Some(bytes);
        }
        bytes.push(self.type_encoding);
        write_unsigned(&mut bytes, (rest.len() + needed.types.len()) as u64);
        bytes.extend(rest);
        let types = address.plus(bytes.len() as u64);
        bytes.extend(self.moved_types(&needed, types)?);
        bytes.extend_from_slice(needed.lists);
        Some(bytes)
    }

    /// The fields of types as they read at `address`.
    fn moved_types(&self, needed: &Needed<'_>, address: NewAddress) -> Option<Vec<u8>> {
        /// `DW_EH_PE_pcrel`.
        const RELATIVE: u8 = 0x10;
        let mut types = needed.types.to_vec();
        if self.type_encoding & 0x70 != RELATIVE {
            return Some(types);
        }
        let nearer = needed.types_address.0.wrapping_sub(address.0);
        match self.type_encoding & 0x0f {
            0x03 | 0x0b => {
                for field in types.as_chunks_mut::<4>().0 {
                    let value = i64::from(i32::from_le_bytes(*field));
                    // Null stands for every type.
                    if value != 0 {
                        let moved = value.wrapping_add(nearer as i64);
                        *field = i32::try_from(moved).ok()?.to_le_bytes();
                    }
                }
            }
            _ => {
                for field in types.as_chunks_mut::<8>().0 {
                    let value = u64::from_le_bytes(*field);
                    if value != 0 {
                        *field = value.wrapping_add(nearer).to_le_bytes();
                    }
                }
            }
        }
        Some(types)
    }
}

impl Site {
    /// The same for other code.
    pub(super) fn at(self, start: u64, size: u64) -> Self {
        Self { start, size, ..self }
    }
}

/// Bytes of a type; `None` for forms that mean something else at another place.
fn type_width(encoding: u8, is_fixed: bool) -> Option<usize> {
    let is_known = match encoding & 0x70 {
        0x00 => is_fixed,
        kind => kind == 0x10,
    };
    let width = match encoding & 0x0f {
        0x03 | 0x0b => 4,
        0x00 | 0x04 | 0x0c => 8,
        _ => return None,
    };
    is_known.then_some(width)
}

fn read_sites(bytes: &[u8], encoding: u8) -> Option<Vec<Site>> {
    let mut reader = Reader::new(bytes);
    let mut sites: Vec<Site> = Vec::new();
    while reader.position() < bytes.len() {
        let mut field = || match encoding {
            UNSIGNED => reader.unsigned(),
            0x03 => reader.little_endian(4),
            _ => None,
        };
        let (start, size, pad) = (field()?, field()?, field()?);
        let action = reader.unsigned()?;
        let end = sites.last().map_or(0, |site| site.start + site.size);
        start.checked_add(size)?;
        if start < end {
            return None;
        }
        sites.push(Site { start, size, pad, action });
    }
    Some(sites)
}

/// How much of the rest of a table some sites use.
#[derive(Default)]
struct Used {
    /// Bytes of actions.
    actions: usize,
    /// Types.
    types: usize,
    /// Bytes of lists.
    lists: usize,
}

impl Used {
    fn by(sites: &[Site], actions: &[u8], lists: &[u8]) -> Option<Self> {
        let mut used = Self::default();
        let mut seen = BTreeSet::new();
        for site in sites.iter().filter(|site| site.action != 0) {
            let mut position = usize::try_from(site.action - 1).ok()?;
            // Ends: each position counts once.
            while seen.insert(position) {
                let mut reader = Reader::new(actions.get(position..)?);
                let filter = reader.signed()?;
                let from = position + reader.position();
                let next = reader.signed()?;
                used.actions = used.actions.max(position + reader.position());
                match filter {
                    0 => {}
                    1.. => used.types = used.types.max(usize::try_from(filter).ok()?),
                    _ => used.list(lists, usize::try_from(-1 - filter).ok()?)?,
                }
                if next == 0 {
                    break;
                }
                position = from.checked_add_signed(isize::try_from(next).ok()?)?;
            }
        }
        Some(used)
    }

    /// Counts a list of types, which ends with zero.
    fn list(&mut self, lists: &[u8], start: usize) -> Option<()> {
        let mut reader = Reader::new(lists.get(start..)?);
        loop {
            let number = reader.unsigned()?;
            self.lists = self.lists.max(start + reader.position());
            if number == 0 {
                return Some(());
            }
            self.types = self.types.max(usize::try_from(number).ok()?);
        }
    }
}
