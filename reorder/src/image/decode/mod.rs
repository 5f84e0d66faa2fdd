//! Code bytes → instruction boundaries, address fields, jump dispatches.

pub mod padding;
pub mod x86_64;
