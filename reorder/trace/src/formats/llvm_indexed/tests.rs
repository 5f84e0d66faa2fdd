//! Damaged profiles never panic, and hostile tables end.

use std::path::Path;

use proptest::prelude::*;

use super::table;
use crate::formats::damage;

proptest! {
    #[test]
    fn damaged_profiles_never_panic(bytes in damage::damaged(damage::sample("llvm_merged/v13-ab.profdata"))) {
        damage::check("LLVM indexed profile", &bytes, Path::new("x.profdata"))?;
    }

    #[test]
    fn damaged_older_profiles_never_panic(
        bytes in damage::damaged(damage::sample("llvm_merged/v8-rust.profdata")),
    ) {
        damage::check("LLVM indexed profile", &bytes, Path::new("x.profdata"))?;
    }
}

#[test]
fn overlapping_buckets_are_not_read_forever() {
    // Each of the buckets starts at the same place and claims 65535 entries without key and data.
    const BUCKETS: usize = 10_000;
    let entries = 16 + 8 * BUCKETS;
    let mut bytes = Vec::new();
    bytes.extend((BUCKETS as u64).to_le_bytes());
    bytes.extend(u64::MAX.to_le_bytes());
    (0..BUCKETS).for_each(|_| bytes.extend((entries as u64).to_le_bytes()));
    bytes.extend(u16::MAX.to_le_bytes());
    bytes.resize(bytes.len() + 24 * usize::from(u16::MAX), 0);
    let mut visited = 0;
    let walk = table::walk(&bytes, 0, |_| visited += 1);
    assert_eq!(
        walk.damage.unwrap().to_string().split(": ").last(),
        Some("buckets of the function table overlap")
    );
    assert_eq!((walk.records, visited), (visited, walk.records));
    assert!(visited <= bytes.len() as u64 / 24);
}

#[test]
fn overlapping_entries_show_no_byte_twice() {
    // Each of the buckets is one entry whose key and data are the rest of the file.
    const BUCKETS: usize = 1000;
    const ENTRY: usize = 2 + 24;
    let entries = 16 + 8 * BUCKETS;
    let mut bytes = Vec::new();
    bytes.extend((BUCKETS as u64).to_le_bytes());
    bytes.extend((BUCKETS as u64).to_le_bytes());
    (0..BUCKETS).for_each(|index| bytes.extend(((entries + index * ENTRY) as u64).to_le_bytes()));
    for index in 0..BUCKETS {
        let after = ((BUCKETS - 1 - index) * ENTRY) as u64;
        bytes.extend(1u16.to_le_bytes());
        [index as u64, after / 2, after / 2].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    }
    let mut shown = 0;
    let walk = table::walk(&bytes, 0, |record| shown += record.name.len() + record.data.len());
    assert!(walk.damage.is_some());
    assert!(shown <= bytes.len(), "{shown} of {} bytes", bytes.len());
}
