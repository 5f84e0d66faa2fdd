//! References in a form common to all processors: the module of each processor gives them, the others use them.

use std::ops::Range;

use reorder_base::address::Address;

/// What an instruction does with the address that it states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// Calls the code there.
    Call,
    /// Jumps there.
    Jump,
    /// Calls what the word there points to.
    CallThrough,
    /// Jumps to what the word there points to.
    JumpThrough,
    /// Takes the address.
    Address,
    /// Reads or writes memory there.
    Memory,
}

/// An address that an instruction states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    /// The address.
    pub target: Address,
    /// How it is used.
    pub usage: Usage,
    /// The bytes of the function that state it: those that change when either moves.
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
