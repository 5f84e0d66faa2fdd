//! What every crate of reorder shares: addresses, errors and refusals, processors, and lines of text.

pub mod address;
pub mod address_index;
pub mod error;
pub mod lines;
pub mod processor;
pub mod refusal;
