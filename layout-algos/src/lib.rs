//! Algorithms that order functions so that startup touches few pages, and that place them.
//!
//! Numbers in, numbers out: no files, formats, clocks or global state, and the same result on every system and
//! any number of threads.
//!
//! ```text
//! sizes, traces ── LayoutProblem ── solve::Orderer ──> FunctionOrder ── placement::place ──> addresses
//!                                                                            score ──> faults, bounds, curves
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))] // a failed unwrap is a failed test

pub mod control;
pub mod ids;
pub mod order;
pub mod placement;
pub mod problem;
pub mod random;
pub mod sample;
pub mod score;
pub mod solve;
