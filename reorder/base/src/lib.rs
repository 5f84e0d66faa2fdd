//! What every crate of reorder shares: addresses, errors with refusals, lines, numbers and
//! hexadecimal digits of texts, and little-endian words.

pub mod address;
pub mod address_index;
pub mod error;
pub mod hexadecimal;
pub mod lines;
pub mod little_endian;
pub mod numbers;
pub mod processor;
pub mod refusal;
