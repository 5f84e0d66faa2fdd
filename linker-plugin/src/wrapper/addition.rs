//! What the real linker gets in addition to its arguments.

use std::ffi::OsString;
use std::path::Path;

use reorder_base::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// A file for the linker, and the option that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addition {
    /// How the linker takes it.
    pub(crate) form: Form,
    /// The file's contents.
    pub(crate) contents: Vec<u8>,
}

/// How a linker takes an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Form {
    /// Symbols, for lld.
    Symbols,
    /// A linker script.
    Script,
    /// Names of input sections, for gold.
    Sections,
    /// Symbols and their objects, for Apple's linkers.
    OrderFile,
}

impl Addition {
    /// A file with these contents.
    #[must_use]
    pub(crate) fn new(form: Form, contents: &[u8]) -> Self {
        Self { form, contents: contents.to_vec() }
    }

    /// Writes the file to `path` and gives the arguments that name it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn arguments(&self, path: &Path) -> Result<Vec<OsString>> {
        std::fs::write(path, &self.contents).map_err(|error| Error::io(path, error))?;
        let with_equals = |option: &str| {
            let mut argument = OsString::from(option);
            argument.push("=");
            argument.push(path);
            argument
        };
        Ok(match self.form {
            // Functions without a place among the sections, such as folded ones, are expected.
            Form::Symbols => vec![with_equals("--symbol-ordering-file"), "--no-warn-symbol-ordering".into()],
            Form::Script => vec!["-T".into(), path.into()],
            Form::Sections => vec![with_equals("--section-ordering-file")],
            Form::OrderFile => vec!["-order_file".into(), path.into()],
        })
    }
}
