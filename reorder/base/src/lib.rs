//! What every crate of reorder shares: addresses, errors, refusals and hints, processors, lines, numbers and hexadecimal
//! digits of texts, little-endian words and numbers of variable length.

#![forbid(unsafe_code)] // the system is asked in reorder-system alone

pub mod address;
pub mod address_index;
pub mod error;
pub mod hexadecimal;
pub mod hint;
pub mod leb128;
pub mod lines;
pub mod little_endian;
pub mod numbers;
pub mod processor;
pub mod refusal;
#[cfg(any(test, feature = "test-support"))]
pub mod tool_versions;
