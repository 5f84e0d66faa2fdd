//! What a reader is given, and what it gives back.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{Companions, Trace};
use reorder_base::error::write_place;
use reorder_base::hint::Hint;

/// One trace file.
#[derive(Clone, Copy)]
pub struct Input<'data> {
    /// The whole file.
    pub bytes: &'data [u8],
    /// Where it was read from: for messages, and for files beside it that belong to it.
    pub path: &'data Path,
    /// Further files that the format needs to be understood.
    pub companions: &'data Companions,
}

/// What was read from one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// In file order.
    pub traces: Vec<Trace>,
    /// Parts that were left out, kept in spite of damage, or distrusted.
    pub notes: Vec<Note>,
}

impl Reading {
    /// One trace without notes.
    pub fn of(trace: Trace) -> Self {
        Self { traces: vec![trace], notes: Vec::new() }
    }
}

/// A message for the user about a file that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The file concerned; readers leave it to their caller.
    pub file: Option<PathBuf>,
    /// Where in the file.
    pub offset: Option<u64>,
    /// What was found and what was kept.
    pub message: String,
    /// What to do about it.
    pub hint: Option<Hint>,
}

impl Note {
    /// About the file as a whole.
    pub fn new(message: impl Into<String>) -> Self {
        Self { file: None, offset: None, message: message.into(), hint: None }
    }

    /// About one place of the file.
    pub fn at(offset: u64, message: impl Into<String>) -> Self {
        Self { file: None, offset: Some(offset), message: message.into(), hint: None }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Hint>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(formatter, self.file.as_deref(), self.offset)?;
        formatter.write_str(&self.message)
    }
}

impl From<reorder_base::error::Error> for Note {
    fn from(mut error: reorder_base::error::Error) -> Self {
        let (file, offset, hint) = (error.file.take(), error.offset.take(), error.hint.take());
        Self { file, offset, message: error.to_string(), hint }
    }
}
