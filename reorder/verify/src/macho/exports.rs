//! The trie of exported symbols: the same names, with addresses that follow the map.
//!
//! Both tries are walked in the order of their names at the same time, so nothing is kept but the path. Source:
//! `mach-o/loader.h` of Apple's cctools (`LC_DYLD_INFO`, export information).

use super::super::bytes::read_uleb128;
use super::super::report::{Check, Difference};
use super::pair::{Ledger, MachPair};
use super::view::{MachView, Part};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};

/// What the trie says of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Export<'data> {
    pub(super) flags: u64,
    /// Addresses in the image: one; two with a resolver; none for re-exports and absolute symbols.
    pub(super) addresses: Vec<u64>,
    /// The payload of symbols without an address.
    pub(super) rest: &'data [u8],
}

/// Walks a trie in the order of the names.
pub(super) struct ExportWalk<'data> {
    bytes: &'data [u8],
    offset: usize,
    base: u64,
    name: Vec<u8>,
    /// Nodes still to visit: length of the parent's name, the edge's text, position.
    open: Vec<(usize, &'data [u8], usize)>,
    is_visited: Vec<bool>,
    /// Bytes of all names returned so far.
    given: usize,
}

/// Longer than any linker's names; without it a damaged trie would cost the square of its size.
const MAX_NAME_LENGTH: usize = 1 << 16;
/// Names share prefixes, so together they may be longer than the trie; this many times its size bounds the memory for them.
const NAMES_PER_TRIE: usize = 64;

impl<'data> ExportWalk<'data> {
    /// At the start of the image's trie.
    pub(super) fn new(image: &MachView<'data>) -> Self {
        let (offset, bytes) = image.part(Part::Exports);
        let open = if bytes.is_empty() { Vec::new() } else { vec![(0, &bytes[..0], 0)] };
        Self {
            bytes,
            offset,
            base: image.base(),
            name: Vec::new(),
            open,
            is_visited: vec![false; bytes.len()],
            given: 0,
        }
    }

    /// The next name with its export.
    ///
    /// # Errors
    /// A damaged trie.
    pub(super) fn next(&mut self) -> Result<Option<(&[u8], Export<'data>)>> {
        while let Some((length, edge, node)) = self.open.pop() {
            self.name.truncate(length);
            self.name.extend_from_slice(edge);
            let export = self.visit(node).ok_or_else(|| {
                Error::malformed((self.offset + node) as u64, "the trie of exported symbols is damaged")
            })?;
            if let Some(export) = export {
                self.given += self.name.len();
                if self.given > self.bytes.len().saturating_mul(NAMES_PER_TRIE) {
                    let offset = (self.offset + node) as u64;
                    return Err(Error::malformed(offset, "the trie of exported symbols repeats long names"));
                }
                return Ok(Some((&self.name, export)));
            }
        }
        Ok(None)
    }

    /// Reads one node and queues its children; `None` when it is damaged.
    fn visit(&mut self, node: usize) -> Option<Option<Export<'data>>> {
        let bytes = self.bytes;
        if std::mem::replace(self.is_visited.get_mut(node)?, true) || self.name.len() > MAX_NAME_LENGTH {
            return None;
        }
        let mut position = node;
        let size = usize::try_from(read_uleb128(bytes, &mut position)?).ok()?;
        let end = position.checked_add(size)?;
        let payload = bytes.get(position..end)?;
        let export = match size {
            0 => None,
            _ => Some(read_export(payload, self.base)?),
        };
        let mut position = end + 1;
        let mut children = Vec::new();
        for _ in 0..*bytes.get(end)? {
            let text = bytes.get(position..)?;
            let length = text.iter().position(|&byte| byte == 0)?;
            position += length + 1;
            let child = usize::try_from(read_uleb128(bytes, &mut position)?).ok()?;
            children.push((self.name.len(), &text[..length], child));
        }
        // The last in the list is the next to be visited.
        children.sort_by(|left, right| right.1.cmp(left.1));
        self.open.append(&mut children);
        Some(export)
    }
}

fn read_export(payload: &[u8], base: u64) -> Option<Export<'_>> {
    const KIND: u64 = 3;
    const ABSOLUTE: u64 = 2;
    const RE_EXPORT: u64 = 8;
    const RESOLVER: u64 = 0x10;
    let mut position = 0;
    let flags = read_uleb128(payload, &mut position)?;
    let count = match flags {
        _ if flags & RE_EXPORT != 0 || flags & KIND == ABSOLUTE => 0,
        _ if flags & RESOLVER != 0 => 2,
        _ => 1,
    };
    let mut addresses = Vec::with_capacity(count);
    for _ in 0..count {
        addresses.push(base.wrapping_add(read_uleb128(payload, &mut position)?));
    }
    let rest = payload.get(position..)?;
    if count > 0 && !rest.is_empty() {
        return None;
    }
    Some(Export { flags, addresses, rest })
}

/// All exports sorted by name: two tries of the same names may order them differently.
fn exports_by_name<'data>(image: &'data MachView<'_>) -> Result<Vec<(Vec<u8>, Export<'data>)>> {
    let mut walk = ExportWalk::new(image);
    let mut exports = Vec::new();
    while let Some((name, export)) = walk.next()? {
        exports.push((name.to_vec(), export));
    }
    exports.sort_by(|(left, _), (right, _)| left.cmp(right));
    Ok(exports)
}

/// Both tries have the same names with the same meaning, and addresses follow the map.
///
/// # Errors
/// Damaged tries.
pub(super) fn check_exports(pair: MachPair<'_>, ledger: &mut Ledger<'_>) -> Result<()> {
    let (old, new) = (exports_by_name(pair.old)?, exports_by_name(pair.new)?);
    let (offset, _) = pair.new.part(Part::Exports);
    let differs = |place: &str, expected: String, found: String, ledger: &mut Ledger<'_>| {
        let difference = Difference::new(Check::Exports, Some(offset as u64), place, expected, found);
        ledger.findings.differs(difference);
    };
    let first_unequal = (0..old.len().max(new.len()))
        .find(|&at| old.get(at).map(|(name, _)| name) != new.get(at).map(|(name, _)| name));
    if let Some(at) = first_unequal {
        let name = |exports: &[(Vec<u8>, Export<'_>)]| {
            exports
                .get(at)
                .map_or_else(|| "no more".to_owned(), |(name, _)| String::from_utf8_lossy(name).into_owned())
        };
        differs("an exported symbol", name(&old), name(&new), ledger);
        return Ok(());
    }
    for ((name, before), (_, after)) in old.iter().zip(&new) {
        let title = || format!("the exported symbol {}", String::from_utf8_lossy(name));
        let is_same = before.flags == after.flags
            && before.rest == after.rest
            && before.addresses.len() == after.addresses.len();
        if !is_same {
            differs(&title(), "the same".to_owned(), "another meaning".to_owned(), ledger);
            continue;
        }
        for (&before, &after) in before.addresses.iter().zip(&after.addresses) {
            let (before, after) = (Address(before), NewAddress(after));
            if !pair.follows(before, after) {
                ledger.follows(pair, Check::Exports, offset, &title(), before, after);
            }
        }
    }
    ledger.findings.checked(Check::Exports, "names", old.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    /// Bytes of a number below 2^14, always two.
    fn number(value: usize) -> [u8; 2] {
        [(value & 0x7f | 0x80) as u8, (value >> 7) as u8]
    }

    /// A trie whose root has one edge of `length` bytes, to a node with `count` children of one byte each.
    fn fan(length: usize, count: u8) -> Vec<u8> {
        let mut trie = vec![0, 1];
        trie.extend(std::iter::repeat_n(b'n', length));
        trie.push(0);
        let node = trie.len() + 2;
        trie.extend(number(node));
        trie.extend([0, count]);
        let leaves = node + 2 + usize::from(count) * 4;
        for child in 0..count {
            trie.extend([child + 1, 0]);
            trie.extend(number(leaves + usize::from(child) * 4));
        }
        // Flags and one address, no children.
        trie.extend([2, 0, 1, 0].repeat(usize::from(count)));
        trie
    }

    fn walk(bytes: &[u8]) -> Result<usize> {
        let mut walk = ExportWalk {
            bytes,
            offset: 0,
            base: 0,
            name: Vec::new(),
            open: vec![(0, &bytes[..0], 0)],
            is_visited: vec![false; bytes.len()],
            given: 0,
        };
        let mut given = 0;
        while let Some((name, _)) = walk.next()? {
            given += name.len();
        }
        Ok(given)
    }

    #[test]
    fn names_with_a_long_common_prefix_are_bounded() {
        assert_eq!(walk(&fan(20, 200)).unwrap(), 21 * 200);
        // 1.2 MB of names in 8 KB.
        assert!(walk(&fan(6000, 200)).is_err());
    }
}
