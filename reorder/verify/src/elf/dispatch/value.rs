//! What a register or a stack slot may hold.

use std::cmp::Ordering;

use super::interval::{Interval, mask};

/// The name of an unknown number that some instruction found or left in one place. Two places with the same root hold the
/// same number, so a comparison of one bounds the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Root(pub(super) u32);

/// The lowest `bits` bits of the root plus `add`, zero-extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) root: Root,
    pub(super) add: u64,
    pub(super) bits: u8,
}

/// Numbers, and how their upper bound is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) least: u64,
    pub(crate) most: u64,
    /// Whether the largest number certainly occurs: a comparison excludes larger ones, or it is a constant. Otherwise the
    /// bound comes from the width of a load, a mask or another calculation, and may be larger than any number that occurs.
    pub(crate) is_compared: bool,
}

impl Bounds {
    pub(super) fn full(bits: u8) -> Self {
        Self { least: 0, most: mask(bits), is_compared: false }
    }

    pub(super) fn constant(value: u64) -> Self {
        Self { least: value, most: value, is_compared: true }
    }

    pub(super) fn as_constant(self) -> Option<u64> {
        (self.least == self.most).then_some(self.least)
    }

    /// Whether it does not bound a table: the sign and the width of an index are no bounds.
    pub(crate) fn is_free(self) -> bool {
        self.most >= u64::from(u32::MAX) >> 1
    }

    pub(super) fn hull(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
            is_compared: match self.most.cmp(&other.most) {
                Ordering::Less => other.is_compared,
                Ordering::Equal => self.is_compared || other.is_compared,
                Ordering::Greater => self.is_compared,
            },
        }
    }

    pub(super) fn interval(self) -> Interval {
        Interval::new(self.least, self.most, 64)
    }
}

/// One word out of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// Address of the word with index zero.
    pub(crate) table: u64,
    /// Bytes: 4 or 8.
    pub(crate) width: u8,
    /// Indices of the words that may be read.
    pub(crate) index: Bounds,
    /// Whether the sign is extended to 64 bits.
    pub(crate) is_extended: bool,
}

/// The longest distance, in bytes, that compilers fold into the address of a read: four times the smallest case label.
const MAX_FOLDED_BYTES: u64 = 1 << 12;

impl Word {
    /// This word, counted from `anchor`, which its value is added to. Compilers fold the smallest case label into the
    /// address of the read, so that this is not the table's start; if the index has no bounds, the table starts at its
    /// anchor.
    pub(crate) fn counted_from(self, anchor: u64) -> Self {
        let folded = self.table.wrapping_sub(anchor).cast_signed();
        let is_folded = self.index.is_free()
            && self.width == 4
            && folded % 4 == 0
            && folded.unsigned_abs() <= MAX_FOLDED_BYTES;
        if is_folded { Self { table: anchor, ..self } } else { self }
    }
}

/// What is known of a 64-bit value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A number without a name.
    Number(Bounds),
    Symbol(Symbol),
    /// `table` plus a symbol times two to the power of `shift`.
    Element {
        table: u64,
        of: Symbol,
        shift: u8,
    },
    /// A word; with a base, its table is at that distance from the number with this name.
    Word {
        base: Option<Root>,
        word: Word,
    },
    /// A word added to an address; with a base, the address and the table are at these distances from it.
    Sum {
        base: Option<Root>,
        anchor: u64,
        word: Word,
    },
    /// Perhaps a word, at this index, of an unknown table.
    PerhapsWord {
        index: Bounds,
        /// The upper half is zero: it was read as a number of 32 bits.
        is_half: bool,
    },
    /// Perhaps the sum of an address and such a word.
    PerhapsSum {
        index: Bounds,
        /// The address was any number on some way: the code loaded it from memory, or got it from its caller.
        is_from_anywhere: bool,
    },
}

impl Value {
    pub(super) const UNKNOWN: Self = Self::Number(Bounds { least: 0, most: u64::MAX, is_compared: false });

    pub(super) fn constant(value: u64) -> Self {
        Self::Number(Bounds::constant(value))
    }

    pub(super) fn as_constant(self) -> Option<u64> {
        if let Self::Number(bounds) = self { bounds.as_constant() } else { None }
    }

    pub(super) fn root(self) -> Option<Root> {
        match self {
            Self::Symbol(symbol) | Self::Element { of: symbol, .. } => Some(symbol.root),
            Self::Word { base, .. } | Self::Sum { base, .. } => base,
            _ => None,
        }
    }

    /// Whether it depends on a word of a table.
    pub(super) fn is_of_table(self) -> bool {
        matches!(
            self,
            Self::Word { .. } | Self::Sum { .. } | Self::PerhapsWord { .. } | Self::PerhapsSum { .. }
        )
    }

    /// The index of a word; unbounded for other values.
    pub(super) fn index(self) -> Bounds {
        match self {
            Self::Word { word, .. } | Self::Sum { word, .. } => word.index,
            Self::PerhapsWord { index, .. } | Self::PerhapsSum { index, .. } => index,
            _ => Bounds::full(64),
        }
    }

    pub(super) fn is_sum(self) -> bool {
        matches!(self, Self::Sum { .. } | Self::PerhapsSum { .. })
    }

    /// Whether it may be the sum of a word and any number.
    pub(super) fn is_from_anywhere(self) -> bool {
        matches!(self, Self::PerhapsSum { is_from_anywhere: true, .. })
    }

    /// One of two values of which at least one depends on a word of a table.
    pub(super) fn either(self, other: Self) -> Self {
        let index = self.index().hull(other.index());
        let is_from_anywhere = self.is_from_anywhere() || other.is_from_anywhere();
        match self.is_sum() || other.is_sum() {
            true => Self::PerhapsSum { index, is_from_anywhere },
            false => Self::PerhapsWord { index, is_half: false },
        }
    }
}
