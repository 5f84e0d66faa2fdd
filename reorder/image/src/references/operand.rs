//! References as any processor states them: what the processor's own module gives, and what the rest works with.

use std::ops::Range;

use reorder_base::address::Address;

/// What an instruction does with the address that it states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// Calls what stands there.
    Call,
    /// Continues there.
    Jump,
    /// Calls what the word there points to.
    CallThrough,
    /// Continues at what the word there points to.
    JumpThrough,
    /// Keeps the address.
    Address,
    /// Reads or writes what stands there.
    Memory,
}

/// An address that an instruction states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    /// The address.
    pub target: Address,
    /// What for.
    pub usage: Usage,
    /// The bytes of the function that state it: what changes when either moves.
    pub bytes: Range<usize>,
}

/// How a relocation states what its place refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelocationMeaning {
    /// The addend is the address.
    Addend,
    /// The symbol's value plus the addend is the address.
    Symbol,
    /// The place holds the distance of the symbol from itself or from the start of a table.
    Distance,
}
