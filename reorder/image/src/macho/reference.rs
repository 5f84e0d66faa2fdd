//! How data holds the address of a function, or the distance to one.

use reorder_base::address::Address;

/// How data holds an address in `__text`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataForm {
    /// Eight bytes, the address; listed by rebase opcodes.
    Pointer,
    /// A chained fixup of format 2: the lowest 36 bits are the address.
    ChainedAddress,
    /// A chained fixup of format 6: the lowest 36 bits are the image offset.
    ChainedOffset,
    /// Four bytes: the image offset.
    ImageOffset,
    /// Four bytes: the distance from the field.
    Relative32,
    /// Eight bytes: the distance from the field.
    Relative64,
}

/// A field in data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataReference {
    /// The field.
    pub place: Address,
    /// What it refers to.
    pub target: Address,
    /// How.
    pub form: DataForm,
}
