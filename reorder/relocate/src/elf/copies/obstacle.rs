//! Why a function is not copied.

use std::fmt;

use serde::Serialize;

/// What keeps a function from having a copy; it still runs where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// Control reaches bytes that are not an instruction.
    NotDecodable,
    /// Control reaches the middle of an instruction.
    Overlap,
    /// It calls a place inside itself to learn where it is.
    TakesOwnPlace,
    /// It compares an address that it returns to, calls a function that computes with one, or calls a run-time that may look it up.
    ReturnAddressKnown,
    /// It calls directly before a return, which the callee may skip.
    CallBeforeReturn,
    /// Bytes of unknown meaning end at its entry; callers may read them relative to it.
    BytesBeforeEntry,
    /// A branch or literal cannot reach its target from anywhere else.
    ShortReach,
    /// A place inside is known elsewhere: an interrupted program counter may be compared with it.
    InsideKnown,
    /// Its exception table has a form that cannot be repeated elsewhere.
    ExceptionTable,
    /// Its unwind entry has instructions that are not known.
    UnwindInstructions,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NotDecodable => "control reaches bytes that are not instructions",
            Self::Overlap => "control reaches the middle of an instruction",
            Self::TakesOwnPlace => "it calls a place inside itself",
            Self::ReturnAddressKnown => {
                "it refers to the address after one of its calls, or calls code that computes with its return address or may look it up"
            }
            Self::CallBeforeReturn => "it calls directly before a return, which the callee may skip",
            Self::BytesBeforeEntry => "callers may read the bytes before its entry",
            Self::ShortReach => "a branch or a literal has too short a reach",
            Self::InsideKnown => "a place inside it is known elsewhere",
            Self::ExceptionTable => "its exception table has an unknown form",
            Self::UnwindInstructions => "its unwind entry has unknown instructions",
        })
    }
}
