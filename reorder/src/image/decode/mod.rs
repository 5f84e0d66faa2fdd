//! Code bytes → instruction boundaries, address fields, jump dispatches.

pub mod gap;
pub mod padding;
pub mod x86_64;
