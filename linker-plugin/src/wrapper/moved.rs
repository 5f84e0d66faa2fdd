//! Where input sections went from one link to another of the same objects.

use std::collections::{BTreeMap, VecDeque};

use reorder_base::address::Address;
use reorder_trace::link_map::LinkMap;

/// The part of an object's name that is the same in each link: compilers that link give their objects random names, such
/// as `/tmp/ccAbC123.ltrans0.ltrans.o`.
fn stable_object_name(object: &[u8]) -> &[u8] {
    let name = object.iter().rposition(|&byte| byte == b'/').map_or(object, |slash| &object[slash + 1..]);
    let is_temporary = name.starts_with(b"cc") && name.get(8) == Some(&b'.');
    if is_temporary { &name[8..] } else { name }
}

/// Ranges of an image and where they begin in another.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    /// First address, size, first address in the other image; sorted.
    ranges: Vec<(u64, u64, u64)>,
}

impl Moved {
    /// Pairs input sections of the same object and name, in the order in which the maps list them.
    #[must_use]
    pub(crate) fn between(old: &LinkMap<'_>, new: &LinkMap<'_>) -> Self {
        let mut places: BTreeMap<_, VecDeque<u64>> = BTreeMap::new();
        for section in &new.sections {
            let key = (stable_object_name(section.object), section.name, section.size);
            places.entry(key).or_default().push_back(section.address.0);
        }
        let mut ranges = Vec::new();
        let mut left: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for section in &old.sections {
            let key = (stable_object_name(section.object), section.name, section.size);
            match places.get_mut(&key).and_then(VecDeque::pop_front) {
                Some(new) => ranges.push((section.address.0, section.size, new)),
                None => left.entry((section.name, section.size)).or_default().push(section.address.0),
            }
        }
        // Link-time optimisation names its objects after the output, which is another file in a trial.
        let mut unpaired: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for ((_, name, size), places) in places {
            unpaired.entry((name, size)).or_default().extend(places);
        }
        for ((name, size), old) in left {
            if let ([old], Some([new])) = (old.as_slice(), unpaired.get(&(name, size)).map(Vec::as_slice)) {
                ranges.push((*old, size, *new));
            }
        }
        ranges.sort_unstable();
        Self { ranges }
    }

    /// Where what is at `address` went.
    #[must_use]
    pub(crate) fn map(&self, address: Address) -> Option<Address> {
        let after = self.ranges.partition_point(|(start, ..)| *start <= address.0);
        let (start, size, new) = *self.ranges.get(after.checked_sub(1)?)?;
        let offset = address.0 - start;
        (offset < size).then(|| Address(new.wrapping_add(offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map of lld with these sections: object, name, address, size.
    fn map(sections: &[(&str, &str, u64, u64)]) -> String {
        let mut text =
            "     VMA      LMA     Size Align Out     In      Symbol\n     0 0 1000 16 .text\n".to_owned();
        for (object, name, address, size) in sections {
            text.push_str(&format!("     {address:x} {address:x} {size:x} 1         {object}:({name})\n"));
        }
        text
    }

    /// ThinLTO compiles into objects that are called after the output.
    #[test]
    fn renamed_objects_are_paired_by_section_where_certain() {
        let old = map(&[
            ("trial.lto.a.o", ".text.main", 0x10, 8),
            ("trial.lto.a.o", ".text.twice", 0x20, 8),
            ("trial.lto.b.o", ".text.twice", 0x30, 8),
            ("same.o", ".text.same", 0x40, 8),
        ]);
        let new = map(&[
            ("same.o", ".text.same", 0x100, 8),
            ("output.lto.b.o", ".text.twice", 0x110, 8),
            ("output.lto.a.o", ".text.twice", 0x120, 8),
            ("output.lto.a.o", ".text.main", 0x130, 8),
        ]);
        let parsed = [&old, &new].map(|text| LinkMap::parse(text.as_bytes()).unwrap());
        assert_eq!(parsed.each_ref().map(|map| map.sections.len()), [4, 4]);
        let moved = Moved::between(&parsed[0], &parsed[1]);
        assert_eq!(moved.map(Address(0x14)), Some(Address(0x134)));
        assert_eq!(moved.map(Address(0x40)), Some(Address(0x100)));
        assert_eq!([0x20, 0x30].map(|address| moved.map(Address(address))), [None, None]);
    }
}
