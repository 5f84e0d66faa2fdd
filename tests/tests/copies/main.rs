//! Copies of functions and of basic blocks: execution, what the other commands say of them, what is refused.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod blocks_again;
mod blocks_everywhere;
mod clones;
mod copied_entries;
mod copies_mutations;
mod fixed_addresses;
mod own_data;
mod runs;
mod undescribed_code;
