//! Why the text pages of a run are unknown.

use reorder_base::hint::Hint;

/// Why a program's pages could not be inspected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The system forbids ptrace.
    NotTraced,
    /// The process has no text of the program's file mapped when it starts: another program maps or unpacks it.
    NoMapping,
    /// The process executed another program, or unmapped its own text, before it ended.
    Replaced,
    /// The process was gone, or could not be inspected, when it ended.
    Unreadable,
    /// The text has more pages than mappings are allowed.
    TooManyMappings,
    /// Mapped page by page, the program ends differently.
    EndsOtherwise(String),
}

impl Unknown {
    /// In words, and what to do about it.
    pub(super) fn told(&self) -> (String, Hint) {
        let (cause, next) = match self {
            Self::NotTraced => ("the program could not be traced", Hint::Diagnose),
            Self::NoMapping => (
                "the program's file is not mapped as text when it starts",
                "measure the program itself, not one that unpacks or loads it".into(),
            ),
            Self::Replaced => (
                "the program executed another one, or unmapped its own text, before it ended",
                "measure the program that it executes".into(),
            ),
            Self::Unreadable => (
                "the process could not be inspected when it ended",
                "measure a program that ends by itself, as the same user".into(),
            ),
            Self::TooManyMappings => (
                "the text has more pages than a process may have mappings",
                "`sysctl vm.max_map_count=1000000` as root allows more".into(),
            ),
            Self::EndsOtherwise(status) => {
                return (
                    format!("the program ended with {status} when its text was mapped page by page"),
                    "run it by hand several times: it may end by chance, or when it is slow".into(),
                );
            }
        };
        (cause.to_owned(), next)
    }
}
