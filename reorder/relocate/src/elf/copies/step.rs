//! One instruction of a function that is copied: where control goes on, and which address it states.
//!
//! The modules of both processors produce it; walking and copying use it.

use reorder_base::address::Address;
use reorder_image::code_reference::CodeForm;

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes.
    pub length: u8,
    /// Control may continue after it.
    pub continues: bool,
    /// It passes the address of the next instruction to its callee.
    pub is_call: bool,
    /// It stops the program, unless a handler of the program continues after it.
    pub is_trap: bool,
    /// The address that it states, if any.
    pub reference: Option<Reference>,
}

/// What an instruction does with the address that it states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Continues there, always or sometimes.
    Jump,
    /// Calls it: the callee knows the address after the instruction.
    Call,
    /// Keeps it, or reads or writes what is there.
    Value,
}

/// How an instruction stores an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As those that moved functions have: it reaches the whole image.
    Far(CodeForm),
    /// A jump of x86-64 with one byte of distance, which has a form of four bytes.
    Short,
    /// A branch without such a form; it reaches this many bytes forwards, and about as many backwards.
    Near(u32),
}

/// An address that an instruction states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// The address; of a page of addresses, its first.
    pub target: Address,
    /// The field on x86-64, the instruction on AArch64.
    pub place: Address,
    /// How it is stored.
    pub form: Form,
    /// Its use.
    pub usage: Use,
}
