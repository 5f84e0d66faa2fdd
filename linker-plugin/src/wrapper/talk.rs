//! The wrapper's messages on stderr, after its name: linkers and compilers write there as well.

use std::io::Write;

use reorder_base::error::Error;

use super::options::Options;
use crate::hints::{self, Spelling};

/// Speaks to the user.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Talk {
    is_quiet: bool,
    is_verbose: bool,
}

impl Talk {
    /// Talk as the options ask for.
    #[must_use]
    pub(crate) fn new(options: &Options) -> Self {
        Self { is_quiet: options.quiet, is_verbose: options.verbose }
    }

    /// A failure and what to do next.
    pub(crate) fn error(self, error: &Error) {
        say(&format!("error: {error}"));
        self.hint(error);
    }

    /// Something that needs attention, and what to do next.
    pub(crate) fn warning(self, cause: &str, hint: Option<&str>) {
        say(&format!("warning: {cause}"));
        if let Some(hint) = hint {
            say(&format!("hint: {hint}"));
        }
    }

    /// A result in a line.
    pub(crate) fn note(self, fact: &str) {
        if !self.is_quiet {
            say(fact);
        }
    }

    /// What is done and why.
    pub(crate) fn detail(self, fact: &str) {
        if self.is_verbose {
            say(fact);
        }
    }

    fn hint(self, error: &Error) {
        if let Some(hint) = hint_of(error) {
            say(&format!("hint: {hint}"));
        }
    }
}

/// What to do about an error, in the wrapper's options.
#[must_use]
pub(crate) fn hint_of(error: &Error) -> Option<String> {
    error.hint.as_ref().and_then(|hint| hints::text(hint, Spelling::Wrapper))
}

fn say(message: &str) {
    // A closed stderr cannot be reported; the exit status still can.
    let _ = writeln!(std::io::stderr().lock(), "reorder-ld: {message}");
}
