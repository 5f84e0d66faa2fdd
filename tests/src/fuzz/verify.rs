//! Any two files as a pair: a report or an error. Images that are proven the same in one direction have the same size.

use reorder_verify::{VerifyOptions, recover_moves, verify};

pub(super) fn check(input: &[u8]) {
    // Equal halves: mutations of one give a pair that is almost right.
    let (old, new) = input.split_at(input.len() / 2);
    if verify(old, new, VerifyOptions::default()).is_ok_and(|report| report.is_proven()) {
        assert_eq!(old.len(), new.len());
    }
    let _ = recover_moves(old, new);
}
