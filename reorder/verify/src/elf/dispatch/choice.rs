//! Small sets of addresses, one of which a register holds: where paths meet that put different tables into one register.

use super::state::State;
use super::value::{Root, Symbol, Value};

/// Addresses in one set. Compilers select between two tables; loops that advance a pointer would make sets without end.
const MAX_ADDRESSES: usize = 4;
/// No table lies before this address: the headers of the file are there. Lower numbers are no addresses.
const MIN_TABLE: u64 = 0x100;
/// Sets that are remembered.
const MAX_CHOICES: usize = 32;

/// One to four addresses, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    /// The first `count` are in the set; the others are zero.
    all: [u64; MAX_ADDRESSES],
    count: usize,
}

impl Addresses {
    pub(super) fn single(address: u64) -> Self {
        let mut all = [0; MAX_ADDRESSES];
        all[0] = address;
        Self { all, count: 1 }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.all.iter().take(self.count).copied()
    }

    /// The addresses of both; `None` if they are too many.
    pub(super) fn union(self, other: Self) -> Option<Self> {
        other.iter().try_fold(self, Self::with)
    }

    fn with(mut self, address: u64) -> Option<Self> {
        let at = self.iter().take_while(|&before| before < address).count();
        if self.iter().any(|own| own == address) {
            return Some(self);
        }
        if self.count == MAX_ADDRESSES {
            return None;
        }
        self.all.copy_within(at..self.count, at + 1);
        self.all[at] = address;
        self.count += 1;
        Some(self)
    }
}

/// The number with the name `root` is one of these addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) root: Root,
    pub(super) addresses: Addresses,
}

impl State {
    /// The addresses of which a value is one. Sums of a name and a number have none: a pointer that a loop advances would
    /// fill the set before it is found to be unknown.
    pub(super) fn addresses(&self, value: Value) -> Option<Addresses> {
        match value {
            Value::Symbol(Symbol { root, add: 0, bits: 64 }) => self.choice(root),
            _ => value.as_constant().filter(|&address| address >= MIN_TABLE).map(Addresses::single),
        }
    }

    /// The addresses of which the number with this name is one.
    pub(super) fn choice(&self, root: Root) -> Option<Addresses> {
        self.choices.iter().find(|choice| choice.root == root).map(|choice| choice.addresses)
    }

    /// Remembers that the number with the name `root` is one of these.
    pub(super) fn choose(&mut self, root: Root, addresses: Addresses) {
        self.choices.retain(|choice| choice.root != root);
        if self.choices.len() >= MAX_CHOICES {
            let used = self.used_names();
            self.choices.retain(|choice| used.contains(&choice.root));
        }
        if self.choices.len() < MAX_CHOICES {
            let at = self.choices.partition_point(|choice| choice.root < root);
            self.choices.insert(at, Choice { root, addresses });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(addresses: &[u64]) -> Addresses {
        addresses[1..]
            .iter()
            .try_fold(Addresses::single(addresses[0]), |set, &address| set.with(address))
            .expect("few enough")
    }

    #[test]
    fn sets_are_equal_whatever_the_order_of_paths() {
        assert_eq!(set(&[0x3000, 0x1000, 0x2000]), set(&[0x2000, 0x3000, 0x1000, 0x3000]));
        assert_eq!(set(&[0x3000, 0x1000]).iter().collect::<Vec<u64>>(), [0x1000, 0x3000]);
    }

    #[test]
    fn more_addresses_than_four_are_unknown() {
        let (low, high) = (set(&[0x1000, 0x2000, 0x3000]), set(&[0x3000, 0x4000]));
        assert_eq!(low.union(high), Some(set(&[0x1000, 0x2000, 0x3000, 0x4000])));
        assert_eq!(low.union(high).and_then(|all| all.union(set(&[0x5000]))), None);
        assert_eq!(low.union(low), Some(low));
    }
}
