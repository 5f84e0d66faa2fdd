//! Any two files as a pair of Mach-O images: a report or an error, without a panic and in bounded time.
//! Proven pairs have the same functions in both directions.

use reorder_verify::{VerifyOptions, recover_moves, verify};

/// The header of a thin image for arm64; the fuzzer chooses the rest.
const MAGIC: [u8; 8] = [0xcf, 0xfa, 0xed, 0xfe, 0x0c, 0, 0, 1];

pub(super) fn check(input: &[u8]) {
    // Equal halves: mutations of one give a pair that is almost right.
    let (old, new) = input.split_at(input.len() / 2);
    let with_magic = |bytes: &[u8]| {
        let mut image = bytes.to_vec();
        let length = image.len().min(MAGIC.len());
        image[..length].copy_from_slice(&MAGIC[..length]);
        image
    };
    for (old, new) in [(old.to_vec(), new.to_vec()), (with_magic(old), with_magic(new))] {
        if verify(&old, &new, VerifyOptions::default()).is_ok_and(|report| report.is_proven()) {
            assert!(old == new || recover_moves(&old, &new).is_ok() || old.starts_with(&[0xca, 0xfe]));
        }
        let _ = recover_moves(&old, &new);
    }
}
