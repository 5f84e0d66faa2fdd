//! From headers to units: everything that must be known before a function of a Mach-O image may move.

pub mod decoded;
