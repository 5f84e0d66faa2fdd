//! Code addresses inside of expressions. Source: DWARF 5, section 2.5.

use gimli::{Encoding, Operation};

use super::pieces::Pieces;
use super::sections::Slice;

/// How the place of an address in `.debug_addr` is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// An address of code or data.
    Start,
    /// The end of the code before it.
    End,
    /// A number, such as a distance into thread-local storage.
    Number,
}

/// One place in `.debug_addr` that a unit names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressUse {
    /// Index in the unit's own table.
    pub index: usize,
    /// Its use.
    pub meaning: Use,
}

/// An address stored in an expression: its position from the start of `whole`, and where it went.
pub type Stored = (usize, u64);

/// Lists the addresses in `expression` that changed, and its uses of `.debug_addr`.
///
/// # Errors
/// An operation that is not known, since its length is not known either.
pub fn addresses<'data>(
    expression: Slice<'data>,
    whole: Slice<'data>,
    encoding: Encoding,
    pieces: &Pieces,
    stored: &mut Vec<Stored>,
    uses: &mut Vec<AddressUse>,
) -> gimli::Result<()> {
    // A list instead of recursion: a file may nest expressions to any depth. The innermost parts are looked at last.
    let mut waiting = vec![expression];
    while let Some(mut rest) = waiting.pop() {
        while !rest.is_empty() {
            let at = rest.offset_from(whole) + 1;
            match Operation::parse(&mut rest, encoding)? {
                Operation::Address { address } => {
                    let new = pieces.start(address);
                    if new != address {
                        stored.push((at, new));
                    }
                }
                Operation::AddressIndex { index } => {
                    uses.push(AddressUse { index: index.0, meaning: Use::Start });
                }
                Operation::ConstantIndex { index } => {
                    uses.push(AddressUse { index: index.0, meaning: Use::Number });
                }
                Operation::EntryValue { expression } => waiting.push(expression),
                _ => {}
            }
        }
    }
    Ok(())
}
