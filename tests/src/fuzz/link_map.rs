//! Any bytes as a link map: sections have bytes and addresses, and errors name a place inside of the file.

use reorder_trace::link_map::{LinkMap, ObjectFile};

pub(super) fn check(bytes: &[u8]) {
    match LinkMap::parse(bytes) {
        Ok(map) => {
            assert!(map.sections.len() <= bytes.len());
            for section in &map.sections {
                assert!(section.end() > section.address);
                let _ = ObjectFile::of(section.object).leaf();
            }
        }
        Err(error) => assert!(error.offset.is_some_and(|offset| offset <= bytes.len() as u64)),
    }
}
