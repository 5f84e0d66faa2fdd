//! The library's error: what went wrong, where in which file, and what to do next.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::hint::Hint;
use crate::refusal::Refusal;

/// The result of anything that reads or writes files.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure an [`Error`] is; decides the exit status.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system refused a read, a write or a call.
    Io(std::io::Error),
    /// A file is not what its format demands.
    Malformed,
    /// The image cannot be moved safely; it was left untouched.
    Refused(Box<Refusal>),
    /// An output did not pass verification; nothing was written.
    Verification,
    /// The request does not apply to this input.
    Usage,
}

/// A failure with its place and a hint.
#[derive(Debug)]
pub struct Error {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// One sentence: what was found.
    pub message: String,
    /// The file concerned.
    pub file: Option<PathBuf>,
    /// Byte offset in `file`.
    pub offset: Option<u64>,
    /// What to do next.
    pub hint: Option<Hint>,
}

impl Error {
    /// A failure of `kind`, described by `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), file: None, offset: None, hint: None }
    }

    /// A file that breaks its format at `offset`.
    pub fn malformed(offset: u64, message: impl Into<String>) -> Self {
        let mut error = Self::new(ErrorKind::Malformed, message);
        error.offset = Some(offset);
        error
    }

    /// A failed system call concerning `file`.
    pub fn io(file: &Path, source: std::io::Error) -> Self {
        let mut error = Self::new(ErrorKind::Io(source), String::new());
        error.file = Some(file.to_path_buf());
        error
    }

    /// A request that cannot be met as made.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// An output that failed its proof.
    pub fn verification(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Verification, message)
    }

    /// Sets the file, unless one is set already.
    #[must_use]
    pub fn in_file(mut self, file: &Path) -> Self {
        self.file.get_or_insert_with(|| file.to_path_buf());
        self
    }

    /// Adds what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Hint>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let hint = refusal.cure.clone();
        Self::new(ErrorKind::Refused(Box::new(refusal)), String::new()).with_hint(hint)
    }
}

/// Writes the file and offset that precede a message, as far as they are known.
pub fn write_place(
    formatter: &mut fmt::Formatter<'_>,
    file: Option<&Path>,
    offset: Option<u64>,
) -> fmt::Result {
    if let Some(file) = file {
        write!(formatter, "{}: ", file.display())?;
    }
    offset.map_or(Ok(()), |offset| write!(formatter, "at offset {offset:#x}: "))
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(formatter, self.file.as_deref(), self.offset)?;
        match &self.kind {
            ErrorKind::Io(source) if self.message.is_empty() => write!(formatter, "{source}"),
            ErrorKind::Io(source) => write!(formatter, "{}: {source}", self.message),
            ErrorKind::Refused(refusal) => write!(formatter, "{refusal}"),
            _ => formatter.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Io(source) => Some(source),
            _ => None,
        }
    }
}
