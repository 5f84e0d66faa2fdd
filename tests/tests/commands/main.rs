//! Commands as a user types them: their effects on files, their answers, their words.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod check;
mod doctor;
mod explain;
mod kept_files;
mod optimize_endings;
mod optimize_page;
mod options;
mod page;
mod replace;
mod sets_and_wheels;
mod sizes;
mod words;
