//! Algorithms that order functions so that the start of a program touches few pages, and that place them.
//!
//! Numbers in, numbers out: no files, formats, clocks or global state, and the same result on every machine and
//! any number of threads.

#![forbid(unsafe_code)]

pub mod placement;
pub mod random;
