//! What looks like a buffer and what does not; damaged buffers never panic.

use std::path::Path;

use proptest::prelude::*;

use super::{WRITTEN, accepts, name_hash};
use crate::formats::{damage, detect};
use crate::{Companions, read_bytes};

/// A buffer of `size` bytes with the hashes of `count` functions.
fn buffer(count: usize, size: usize) -> Vec<u8> {
    let hashes = (0..count).map(|index| name_hash(format!("function{index}").as_bytes()));
    let mut bytes: Vec<u8> = hashes.flat_map(u64::to_le_bytes).collect();
    bytes.resize(size, 0);
    bytes
}

proptest! {
    #[test]
    fn damaged_buffers_never_panic(bytes in damage::damaged(buffer(20, 256))) {
        damage::check(NAME, &bytes, Path::new("/nowhere/x.order"))?;
    }
}

const NAME: &str = "clang order-file buffer";

#[test]
fn buffers_of_any_fill_are_accepted() {
    for (count, size) in [(1, WRITTEN), (8, 128), (1000, WRITTEN), (65_536, WRITTEN), (100_000, 1 << 20)] {
        let bytes = buffer(count, size);
        assert_eq!(detect(&bytes).map(|format| format.name), Some(NAME), "{count} in {size}");
        let reading = read_bytes(&bytes, Path::new("/nowhere/x.order"), &Companions::default()).unwrap();
        assert_eq!(reading.traces[0].events.len(), count);
        assert_eq!(reading.notes.len(), usize::from(count * 8 == size));
    }
}

#[test]
fn other_files_are_not_accepted() {
    assert!(!accepts(&buffer(8, 64)), "neither zeros after it nor the size");
    assert!(!accepts(&"function_name_1\n".repeat(WRITTEN / 16).into_bytes()), "text of the size");
    assert!(!accepts(&0x5555_5555_1000u64.to_le_bytes().repeat(WRITTEN / 8)), "addresses");
    let mut after = buffer(8, 256);
    after[200] = 1;
    assert!(!accepts(&after), "something after the zeros");
}

#[test]
fn an_empty_buffer_is_told() {
    let error = read_bytes(&vec![0; WRITTEN], Path::new("x.order"), &Companions::default()).unwrap_err();
    assert!(error.to_string().contains("no function was recorded"), "{error}");
}

#[test]
fn names_that_do_not_have_their_hash_are_left_out() {
    let mut names = std::collections::HashMap::new();
    let (a, b) = (name_hash(b"a"), name_hash(b"b"));
    super::read_mapping(
        format!("MD5 {a:x} a\nMD5 {a:x} b\nMD5 {b:x} c d\nMD5 x a\nMD5\n").as_bytes(),
        &mut names,
    );
    assert_eq!(names.into_keys().collect::<Vec<_>>(), [a]);
}
