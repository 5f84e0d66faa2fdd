//! What every crate of reorder shares: addresses, errors and refusals, processors, and lines of text.

#![forbid(unsafe_code)] // the system is asked in reorder-system alone

pub mod address;
pub mod address_index;
pub mod error;
pub mod lines;
pub mod processor;
pub mod refusal;
