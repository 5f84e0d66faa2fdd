//! What is known of the parts of a sum: addresses, stored distances, constants.
//!
//! Each is a set, since a register may hold different things on different paths. Sets only grow, so following them ends.

use std::collections::BTreeMap;

use crate::address::Address;

/// Members of a set that are told apart; all further ones share the last bit.
const TOLD_APART: usize = 64;
/// Addresses that code makes of others by adding constants: a loop makes any number of them.
const MAX_DERIVED: usize = 16;

/// Values with a bit each.
#[derive(Clone, Debug, Default)]
struct Numbered {
    values: Vec<u64>,
    positions: BTreeMap<u64, usize>,
}

impl Numbered {
    fn bit(&mut self, value: u64) -> u64 {
        let next = self.values.len();
        let position = *self.positions.entry(value).or_insert(next);
        if position == next {
            self.values.push(value);
        }
        1 << position.min(TOLD_APART - 1)
    }

    fn of(&self, set: u64) -> impl Iterator<Item = u64> + '_ {
        let listed = self.values.iter().enumerate();
        let used = listed.filter(move |(position, _)| set >> (*position).min(TOLD_APART - 1) & 1 == 1);
        used.map(|(_, &value)| value)
    }
}

/// What the bits of sets stand for.
#[derive(Clone, Debug, Default)]
pub struct Known {
    code: Numbered,
    data: Numbered,
    constants: Numbered,
    derived: usize,
}

impl Known {
    /// One address of code.
    pub fn code(&mut self, address: Address) -> Part {
        Part { code: self.code.bit(address.0), ..Part::default() }
    }

    /// The bits of all addresses of code.
    pub fn all_code(&self) -> u64 {
        let count = self.code.values.len().min(TOLD_APART) as u32;
        u64::MAX.checked_shr(TOLD_APART as u32 - count).unwrap_or(0)
    }

    /// One address of data.
    pub fn data(&mut self, address: Address) -> Part {
        Part { data: self.data.bit(address.0), ..Part::default() }
    }

    /// One number.
    pub fn constant(&mut self, value: u64) -> Part {
        Part { constants: self.constants.bit(value), ..Part::default() }
    }

    /// The data addresses of `table`, and those so far after them.
    pub fn displaced(&mut self, table: Part, displacement: u64) -> Part {
        let places: Vec<u64> = self.data.of(table.data).collect();
        let mut all = table;
        for place in places.iter().map(|place| place.wrapping_add(displacement)) {
            all.join(self.data(Address(place)));
        }
        all
    }

    /// The code addresses of `base` with the constants of `other` added.
    pub fn derived(&mut self, base: Part, other: Part) -> Part {
        let bases: Vec<u64> = self.code.of(base.code).collect();
        let signed = |step: u64| [step, if other.is_negated { step.wrapping_neg() } else { step }];
        let steps: Vec<u64> = self.constants.of(other.constants).flat_map(signed).collect();
        let sums = bases.iter().flat_map(|base| steps.iter().map(move |step| base.wrapping_add(*step)));
        let mut found = Part::default();
        for sum in sums {
            let is_new = !self.code.positions.contains_key(&sum);
            if !is_new || self.derived < MAX_DERIVED {
                self.derived += usize::from(is_new);
                found.join(self.code(Address(sum)));
            }
        }
        found
    }
}

/// What a register, a stack slot or an operand may hold. Nothing at all before anything was learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Addresses of code, perhaps with something added.
    pub code: u64,
    /// Those to which a number was added that the code does not say.
    pub sums: u64,
    /// Addresses of data, perhaps with something added.
    data: u64,
    constants: u64,
    /// Bit n: a word of 2^n bytes that was loaded from memory.
    widths: u8,
    /// Bit n: such a word times 2^n.
    scales: u8,
    /// Addresses in data that such words were loaded from, or from a distance from.
    tables: u64,
    /// Such a word may be loaded from anywhere.
    is_loaded_anywhere: bool,
    /// It may be taken away instead of added.
    is_negated: bool,
    /// Bit n: any number times 2^n.
    strides: u8,
}

impl Part {
    /// Any number at all.
    pub const UNKNOWN: Self = Self {
        code: 0,
        sums: 0,
        data: 0,
        constants: 0,
        widths: 0,
        scales: 0,
        tables: 0,
        is_loaded_anywhere: false,
        is_negated: false,
        strides: 1,
    };

    /// A word of `width` bytes at `table`, or at an unknown distance from it.
    pub fn loaded_from(table: Self, width: usize) -> Self {
        if !matches!(width, 1 | 2 | 4 | 8) {
            return Self::UNKNOWN;
        }
        Self {
            widths: width as u8,
            scales: 1,
            tables: table.data,
            is_loaded_anywhere: table.data == 0,
            ..Self::default()
        }
    }

    /// Either of both.
    pub fn join(&mut self, other: Self) {
        self.code |= other.code;
        self.sums |= other.sums;
        self.data |= other.data;
        self.constants |= other.constants;
        self.widths |= other.widths;
        self.scales |= other.scales;
        self.tables |= other.tables;
        self.is_loaded_anywhere |= other.is_loaded_anywhere;
        self.is_negated |= other.is_negated;
        self.strides |= other.strides;
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(mut self, other: Self) -> Self {
        self.join(other);
        self
    }

    /// It times 2^`bits`.
    #[must_use]
    pub fn scaled(self, bits: u64) -> Self {
        if bits == 0 {
            return self;
        }
        let shift = |set: u8| if bits < 8 { set << bits } else { 0 };
        // A scaled address is none, and a scaled constant is taken for any number like it.
        let has_number = self.code | self.data | self.constants != 0;
        let strides = shift(self.strides | u8::from(has_number));
        Self { code: 0, data: 0, constants: 0, scales: shift(self.scales), strides, ..self }
    }

    /// Its negative.
    #[must_use]
    pub fn negated(self) -> Self {
        Self { is_negated: true, ..self }
    }

    /// Whether it may be a number that the code does not say.
    pub fn has_number(&self) -> bool {
        self.widths != 0 || self.strides != 0 || self.constants != 0
    }

    /// Whether it may be an address.
    pub fn has_address(&self) -> bool {
        self.code | self.data != 0
    }
}

/// Addresses of code, and what is added to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The addresses.
    pub bases: Vec<Address>,
    /// Widths in bytes of the stored distances.
    pub widths: Vec<u64>,
    /// What these are multiplied by.
    pub scales: Vec<u64>,
    /// Where they are stored, or near; none where that is not known.
    pub tables: Option<Vec<Address>>,
    /// They may be subtracted.
    pub is_negated: bool,
    /// Constants that are added, perhaps over and over.
    pub steps: Vec<u64>,
}

impl Sum {
    /// The sum of `part` and the addresses with this bit.
    pub fn new(known: &Known, bit: u8, part: Part) -> Self {
        let addresses = |numbered: &Numbered, set: u64| numbered.of(set).map(Address).collect();
        let powers = |set: u8| (0..8).filter(move |bit| set >> bit & 1 == 1).map(|bit| 1u64 << bit);
        Self {
            bases: addresses(&known.code, 1 << bit),
            widths: (0..4).map(|bit| 1 << bit).filter(|width| u64::from(part.widths) & width != 0).collect(),
            scales: powers(part.scales).collect(),
            tables: (!part.is_loaded_anywhere).then(|| addresses(&known.data, part.tables)),
            is_negated: part.is_negated,
            steps: known.constants.of(part.constants).chain(powers(part.strides & !1)).collect(),
        }
    }
}

/// Positions of the bits in `set`.
pub fn bits(set: u64) -> impl Iterator<Item = u8> {
    (0..TOLD_APART as u8).filter(move |bit| set >> bit & 1 == 1)
}
