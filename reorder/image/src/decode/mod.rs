//! Code bytes → instruction boundaries, address fields, jump dispatches.

pub mod aarch64;
pub(crate) mod aarch64_gap;
pub mod control;
pub mod gap;
pub mod padding;
pub mod sums;
pub mod x86_64;
