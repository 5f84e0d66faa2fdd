//! The recorder on real programs, and how they behave while recorded.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod blocks;
mod endings;
mod libraries;
mod passes;
mod programs;
mod scenarios;
mod traps;
