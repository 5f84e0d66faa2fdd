//! One instruction of a function that is copied: where control goes on, and which address it states.
//!
//! The modules of both processors produce it; walking and copying use it.

use reorder_base::address::{Address, NewAddress};
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
    /// A return on x86-64. A callee may skip it if it directly follows the call. Never set on AArch64.
    pub is_skippable: bool,
    /// It stops the program, unless a handler of the program continues after it.
    pub is_trap: bool,
    /// The address that it states, if any.
    pub reference: Option<Reference>,
    /// A comparison that comes before it in its copy.
    pub guard: Option<Guard>,
}

/// A comparison and a branch before the copy of a dispatch: control goes to the original unless the register is below the limit.
/// Nothing reads the flags that the comparison changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guard {
    /// Number of a register of x86-64.
    pub register: u8,
    /// Entries that the copy of the table has.
    pub limit: u32,
}

impl Guard {
    /// Bytes of the comparison and of the branch, `JAE` with four bytes of distance.
    pub(super) fn size(self) -> u32 {
        let comparison = if i8::try_from(self.limit).is_ok() { 4 } else { 7 };
        comparison + 6
    }

    /// `CMP` of 64 bits with a number that is extended.
    /// Source: AMD64 Architecture Programmer's Manual, volume 3, `CMP`.
    fn comparison(self) -> Vec<u8> {
        let (prefix, operand) = (0x48 | self.register >> 3, 0xf8 | self.register & 7);
        match i8::try_from(self.limit) {
            Ok(limit) => vec![prefix, 0x83, operand, limit as u8],
            Err(_) => [&[prefix, 0x81, operand], self.limit.to_le_bytes().as_slice()].concat(),
        }
    }

    /// Its bytes at `place`, with a branch to `exit`; `None` if that is too far away.
    pub(super) fn bytes(self, place: NewAddress, exit: NewAddress) -> Option<Vec<u8>> {
        let end = place.plus(u64::from(self.size()));
        let distance = i32::try_from(exit.distance_from(end) as i64).ok()?;
        Some([self.comparison().as_slice(), &[0x0f, 0x83], &distance.to_le_bytes()].concat())
    }
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
