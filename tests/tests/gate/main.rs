//! `reorder gate`: verdicts, reports, recipes.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod formats;
mod images;
mod recipes;
mod verdicts;
