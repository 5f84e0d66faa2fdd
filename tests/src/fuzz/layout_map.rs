//! Any bytes as a map file: what is read can be written and read again, in both directions.

use reorder_relocate::layout_map::{LayoutMap, Side};

pub(super) fn check(bytes: &[u8]) {
    match LayoutMap::parse(bytes) {
        Ok(map) => {
            assert_eq!(LayoutMap::parse(map.write().as_bytes()).expect("a written map is sound"), map);
            for side in [Side::Old, Side::New] {
                let _ = map.address_map(side);
            }
        }
        Err(error) => assert!(error.offset.is_some_and(|offset| offset <= bytes.len() as u64)),
    }
}
