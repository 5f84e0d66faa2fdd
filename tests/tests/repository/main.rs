//! The repository itself: documents, lists and tools that must agree with the code.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod architecture;
mod cases;
mod redteam;
