//! One instruction of a function that is copied: where control goes on, and which address it states.
//!
//! What the two processors' modules give, and what walking and copying work with.

use reorder_base::address::Address;
use reorder_image::code_reference::CodeForm;

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes.
    pub length: u8,
    /// Control may go on behind it.
    pub continues: bool,
    /// It hands the address of the next instruction to what it calls.
    pub is_call: bool,
    /// The address that it states, if any.
    pub reference: Option<Reference>,
}

/// What an instruction does with the address that it states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Continues there, always or sometimes.
    Jump,
    /// Calls it: the address behind the instruction is known to what stands there.
    Call,
    /// Keeps it, or reads or writes what stands there.
    Value,
}

/// An address that an instruction states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// The address; of a page of addresses, its first.
    pub target: Address,
    /// The field on x86-64, the instruction on AArch64.
    pub place: Address,
    /// How it is stored; nothing when it reaches too short a way to be encoded anew.
    pub form: Option<CodeForm>,
    /// What for.
    pub usage: Use,
}
