//! Where input sections went from one link to another of the same objects.

use std::collections::{HashMap, VecDeque};

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
pub struct Moved {
    /// First address, size, first address in the other image; sorted.
    ranges: Vec<(u64, u64, u64)>,
}

impl Moved {
    /// Pairs input sections of the same object and name, in the order in which the maps list them.
    #[must_use]
    pub fn between(old: &LinkMap<'_>, new: &LinkMap<'_>) -> Self {
        let mut places: HashMap<_, VecDeque<u64>> = HashMap::new();
        for section in &new.sections {
            let key = (stable_object_name(section.object), section.name, section.size);
            places.entry(key).or_default().push_back(section.address.0);
        }
        let mut ranges: Vec<_> = old
            .sections
            .iter()
            .filter_map(|section| {
                let key = (stable_object_name(section.object), section.name, section.size);
                let new = places.get_mut(&key)?.pop_front()?;
                Some((section.address.0, section.size, new))
            })
            .collect();
        ranges.sort_unstable();
        Self { ranges }
    }

    /// Where what is at `address` went.
    #[must_use]
    pub fn map(&self, address: Address) -> Option<Address> {
        let after = self.ranges.partition_point(|(start, ..)| *start <= address.0);
        let (start, size, new) = *self.ranges.get(after.checked_sub(1)?)?;
        let offset = address.0 - start;
        (offset < size).then(|| Address(new.wrapping_add(offset)))
    }
}
