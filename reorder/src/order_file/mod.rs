//! Order files: one function per line, the first at the lowest address.
//!
//! [`lld`] writes them for a linker, [`read`] reads them, whoever wrote them.

pub mod lld;
pub mod read;
#[cfg(test)]
mod tests;
