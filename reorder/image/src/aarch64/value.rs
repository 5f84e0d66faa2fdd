//! What a register may hold at one place of a function.

use std::collections::HashMap;

use crate::decode::aarch64::{Extension, Register};

/// A set of `ADRP` instructions, by number in [`PageSets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PageSet(u32);

/// The sets of `ADRP` instructions that a function needs: one for each, and a union wherever paths meet.
#[derive(Default)]
pub(super) struct PageSets {
    sets: Vec<Box<[u32]>>,
    members: usize,
    numbers: HashMap<Box<[u32]>, u32>,
}

impl PageSets {
    /// Total members of all unions; compiled functions need fewer.
    const MAX_MEMBERS: usize = 1 << 18;

    pub(super) fn of(&mut self, members: Vec<u32>) -> PageSet {
        let members = members.into_boxed_slice();
        let number = *self.numbers.entry(members).or_insert_with_key(|members| {
            self.members += members.len();
            self.sets.push(members.clone());
            self.sets.len() as u32 - 1
        });
        PageSet(number)
    }

    pub(super) fn union(&mut self, first: PageSet, second: PageSet) -> PageSet {
        if first == second {
            return first;
        }
        let mut members = self.members(first).to_vec();
        members.extend_from_slice(self.members(second));
        members.sort_unstable();
        members.dedup();
        self.of(members)
    }

    pub(super) fn members(&self, set: PageSet) -> &[u32] {
        &self.sets[set.0 as usize]
    }

    pub(super) fn is_excessive(&self) -> bool {
        self.members > Self::MAX_MEMBERS
    }
}

/// What one register may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A number or a complete address that came from elsewhere.
    Unknown,
    /// The address of a page that the code shares, from any of these `ADRP`.
    Page { page: u64, from: PageSet },
    /// Perhaps what one of these `ADRP` wrote.
    MaybePage(PageSet),
    /// This address.
    Address(u64),
    /// The address of code that a word of data holds, unless the program overwrote it.
    Loaded(u64),
    /// An entry of a table.
    Entry(Entries),
    /// `base` and an entry of a table, the entry shifted.
    Sum { base: u64, entries: Entries, shift: u8 },
    /// This address and a number that came from elsewhere.
    Offset(u64),
    /// A number that a comparison bounds: less than this.
    Below(u32),
    /// The result of arithmetic on numbers from elsewhere: rarely an address, and then not one that this function formed.
    Number,
    /// The result of arithmetic, not understood, on an address or an entry of a table.
    Computed,
}

/// A jump table, as far as a load from it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entries {
    pub(super) table: u64,
    /// Bytes of an entry.
    pub(super) size: u8,
    pub(super) is_signed: bool,
    /// Upper bound of the number of entries; all ones if there was no comparison.
    pub(super) most: u32,
}

impl Entries {
    /// Entries of the same table, by way of either of two comparisons.
    fn join(self, other: Self) -> Option<Self> {
        let most = self.most.max(other.most);
        (Self { most, ..self } == Self { most, ..other }).then_some(Self { most, ..self })
    }
}

impl Value {
    /// The `ADRP` instructions whose page this may be.
    pub(super) fn pages(self) -> Option<PageSet> {
        match self {
            Self::Page { from, .. } | Self::MaybePage(from) => Some(from),
            _ => None,
        }
    }

    /// Whether it is, or may be, part of a jump through a table.
    #[inline]
    pub(super) fn is_for_jumps(self) -> bool {
        matches!(self, Self::Entry(_) | Self::Sum { .. } | Self::Offset(_) | Self::Computed)
    }

    /// The value after a call: a callee that was split off may have loaded another index.
    fn without_bound(self) -> Self {
        let any = |entries| Entries { most: u32::MAX, ..entries };
        match self {
            Self::Below(_) => Self::Number,
            Self::Entry(entries) => Self::Entry(any(entries)),
            Self::Sum { base, entries, shift } => Self::Sum { base, entries: any(entries), shift },
            other => other,
        }
    }

    /// The operand as an addition extends it: entries that were loaded without sign extension may be extended there.
    pub(super) fn extended(self, extension: Extension) -> Self {
        match self {
            Self::Entry(entries) if extension.bytes == entries.size && extension.bytes < 8 => {
                Self::Entry(Entries { is_signed: extension.is_signed, ..entries })
            }
            Self::Entry(entries) if extension.bytes < entries.size => Self::Computed,
            other => other,
        }
    }

    /// The sum of these operands, of which the second is shifted.
    pub(super) fn sum_of(first: Self, second: Self, shift: u8) -> Self {
        match (first, second) {
            (Self::Address(base), Self::Entry(entries)) => Self::Sum { base, entries, shift },
            (Self::Entry(entries), Self::Address(base)) if shift == 0 => Self::Sum { base, entries, shift },
            (Self::Address(base), Self::Unknown | Self::Number | Self::Below(_)) => Self::Offset(base),
            (Self::Unknown | Self::Number | Self::Below(_), Self::Address(base)) if shift == 0 => {
                Self::Offset(base)
            }
            operands => Self::computed_of(<[Self; 2]>::from(operands).into_iter()),
        }
    }

    /// The address, if it is known; of a word of data, the one in the file.
    pub(super) fn address(self) -> Option<u64> {
        match self {
            Self::Address(address) | Self::Loaded(address) => Some(address),
            _ => None,
        }
    }

    /// The address that a number was added to, if this is such a sum.
    fn base(self) -> Option<u64> {
        match self {
            Self::Sum { base, .. } | Self::Offset(base) => Some(base),
            _ => None,
        }
    }

    /// The result of arithmetic on these operands.
    pub(super) fn computed_of(mut operands: impl Iterator<Item = Self>) -> Self {
        let is_of_address = operands.any(|value| value.is_for_jumps() || matches!(value, Self::Address(_)));
        if is_of_address { Self::Computed } else { Self::Number }
    }

    /// The result of a selection between these operands.
    pub(super) fn selected_of(operands: impl Iterator<Item = Self>) -> Self {
        let vaguer = |chosen: Self, value: Self| match (chosen, value) {
            (Self::Computed, _) => Self::Computed,
            (_, value) if value.is_for_jumps() => Self::Computed,
            (Self::Number, _) | (_, Self::Number | Self::Below(_)) => Self::Number,
            _ => Self::Unknown,
        };
        operands.fold(Self::Unknown, vaguer)
    }

    /// The value where two paths meet. Values only become less precise, so the interpretation ends.
    pub(super) fn join(self, other: Self, sets: &mut PageSets) -> Self {
        if self == other {
            return self;
        }
        match (self, other) {
            (Self::Below(first), Self::Below(second)) => return Self::Below(first.max(second)),
            (Self::Entry(first), Self::Entry(second)) => {
                return first.join(second).map_or(Self::Computed, Self::Entry);
            }
            (
                Self::Sum { base, entries, shift },
                Self::Sum { base: other_base, entries: others, shift: other_shift },
            ) if (base, shift) == (other_base, other_shift) => {
                let entries = entries.join(others);
                return entries.map_or(Self::Offset(base), |entries| Self::Sum { base, entries, shift });
            }
            _ => {}
        }
        if let (Some(base), Some(same)) = (self.base(), other.base())
            && base == same
        {
            return Self::Offset(base);
        }
        match (self.pages(), other.pages()) {
            (Some(first), Some(second)) => {
                let from = sets.union(first, second);
                match (self, other) {
                    (Self::Page { page, .. }, Self::Page { page: same, .. }) if page == same => {
                        Self::Page { page, from }
                    }
                    _ => Self::MaybePage(from),
                }
            }
            (Some(from), None) | (None, Some(from)) => Self::MaybePage(from),
            (None, None) => Self::selected_of([self, other].into_iter()),
        }
    }
}

/// All registers but 31. Most of them are unknown most of the time, so loops visit only the bits of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    /// Bits of the registers that hold anything but [`Value::Unknown`].
    held: u32,
    /// Bits of the registers that a call may have replaced, but not with a value that it returns. A callee that was split
    /// off from this function leaves the value there; otherwise it is never read, so where paths meet the other path
    /// decides. Many calls never return, and the code that seems to follow them must not make tables unknown.
    left: u32,
    values: [Value; 31],
}

/// All registers but 31.
const ALL: u32 = 0x7fff_ffff;

/// Registers that a call may replace: x0 to x18 and the link register.
const CALL_CLOBBERED: u32 = 0x4007_ffff;

/// Registers that calls, and so the unwinder, preserve: x19 to x29.
const PRESERVED: u32 = 0x3ff8_0000;

/// Replaced registers in which C, C++ and Rust never return a value: all but x0 and x1.
pub(crate) const NOT_RETURNED: u32 = 0x4003_fffc;
/// The same for Swift, which returns in x0 to x3.
pub(crate) const NOT_RETURNED_BY_SWIFT: u32 = 0x4003_fff0;

/// The numbers of the bits that are set.
fn numbers(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let number = bits.trailing_zeros() as usize;
        (bits != 0).then(|| {
            bits &= bits - 1;
            number
        })
    })
}

impl Registers {
    /// The state at the entry of a function.
    pub(super) fn unknown() -> Self {
        Self { held: 0, left: 0, values: [Value::Unknown; 31] }
    }

    /// The state that any other state replaces when joined.
    pub(super) fn dead() -> Self {
        Self { left: ALL, ..Self::unknown() }
    }

    /// The state after a call that ends with an exception.
    pub(super) fn preserved(&self) -> Self {
        let mut kept = Self::unknown();
        for number in numbers(self.held & PRESERVED) {
            kept.put(number, self.values[number]);
        }
        kept
    }

    pub(super) fn get(&self, register: Register) -> Value {
        self.values.get(usize::from(register.0)).copied().unwrap_or(Value::Unknown)
    }

    pub(super) fn set(&mut self, register: Register, value: Value) {
        if register.0 < 31 {
            self.put(usize::from(register.0), value);
        }
    }

    /// Notes that, by a comparison, the register is less than `limit`; a known value of another kind is kept.
    pub(super) fn bound(&mut self, register: Register, limit: u32) {
        match self.get(register) {
            Value::Unknown | Value::Number => self.set(register, Value::Below(limit)),
            Value::Below(known) => self.set(register, Value::Below(limit.min(known))),
            _ => {}
        }
    }

    fn put(&mut self, number: usize, value: Value) {
        self.left &= !(1 << number);
        self.values[number] = value;
        match value {
            Value::Unknown => self.held &= !(1 << number),
            _ => self.held |= 1 << number,
        }
    }

    /// What is known of the registers whose bits are set.
    pub(super) fn chosen(&self, bits: u32) -> impl Iterator<Item = Value> + '_ {
        numbers(bits & self.held).map(|number| self.values[number])
    }

    /// Sets all these registers to one value.
    pub(super) fn set_chosen(&mut self, bits: u32, value: Value) {
        numbers(bits & ALL).for_each(|number| self.put(number, value));
    }

    /// A call that returns no value in the registers `not_returned`.
    pub(super) fn call(&mut self, not_returned: u32) {
        self.lose_chosen(CALL_CLOBBERED & !not_returned);
        for number in numbers(not_returned & self.held) {
            let value = self.values[number];
            self.put(number, value.pages().map_or(value.without_bound(), Value::MaybePage));
        }
        self.left |= not_returned;
    }

    /// The values of these registers may be lost: pages are kept as possible values.
    pub(super) fn lose_chosen(&mut self, bits: u32) {
        for number in numbers(bits & self.held) {
            let value = match self.values[number].pages() {
                Some(from) => Value::MaybePage(from),
                None => Value::selected_of(std::iter::once(self.values[number])),
            };
            self.put(number, value);
        }
    }

    /// The values of all known registers.
    pub(super) fn all(&self) -> impl Iterator<Item = Value> + '_ {
        self.chosen(ALL)
    }

    /// The registers that hold or may hold a page.
    pub(super) fn pages(&self) -> impl Iterator<Item = (Register, Value)> + '_ {
        let held = numbers(self.held).map(|number| (Register(number as u8), self.values[number]));
        held.filter(|(_, value)| value.pages().is_some())
    }

    /// Joins each register; true if the state changed.
    pub(super) fn join(&mut self, other: &Self, sets: &mut PageSets) -> bool {
        let mut has_changed = false;
        // Where both are unknown, only the bit that the other path decides can change.
        for number in numbers(self.held | other.held | self.left & !other.left) {
            let (mine, theirs) = (self.values[number], other.values[number]);
            let (is_left, are_left) = (self.left >> number & 1 == 1, other.left >> number & 1 == 1);
            if mine == theirs && (is_left, are_left) != (true, false) {
                continue;
            }
            // A page may be needed after a call, so it is never dropped.
            let dropped = if is_left { mine } else { theirs };
            let is_decided = is_left != are_left && dropped.pages().is_none();
            let joined = match (is_decided, is_left) {
                (true, true) => theirs,
                (true, false) => mine,
                (false, _) => mine.join(theirs, sets),
            };
            let stays_left = is_left && are_left;
            if joined != mine || is_left != stays_left {
                has_changed = true;
                self.put(number, joined);
                self.left |= u32::from(stays_left) << number;
            }
        }
        has_changed
    }
}
