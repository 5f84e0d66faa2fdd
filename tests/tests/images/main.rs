//! Images with moved functions: under other programs, in other tools, damaged, and wrong.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod debug_limits;
mod far_code;
mod libraries;
mod names;
mod sorted_unwind_entries;
mod two_builds;
mod verify_mutations;
mod verify_stale_sums;
