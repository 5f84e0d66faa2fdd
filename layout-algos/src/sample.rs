//! A fair sample of a stream that comes in parts: the bottom-k sketch with priorities.
//!
//! Every item has an identity, and from it and the seed a random number u in (0, 1), the same wherever and whenever the
//! item is seen. The sample keeps the items with the smallest u / weight. So merging is union and cutting: it is
//! associative, commutative and idempotent, so the result does not depend on which system did what in which order, nor
//! on retries. (A reservoir depends on all of that.)
//!
//! Weights: with the threshold t, the smallest u / weight that was left out, a kept item of weight w stands for
//! max(w, 1 / t). Sums of these estimate sums over all items without bias: priority sampling, Duffield, Lund and
//! Thorup, "Priority sampling for estimation of arbitrary subset sums", Journal of the ACM 54(6), 2007.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::random::Random;

/// The identity of an item, distinct from all others, also from those with equal contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub u128);

/// u / weight in units of 2⁻¹²⁸; the smaller, the sooner an item is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority(pub u128);

impl Priority {
    /// The priority of an item. `None` for items without weight, which are never drawn.
    #[must_use]
    pub fn of(seed: u64, identity: Identity, weight: u64) -> Option<Self> {
        let mut random = Random::new(seed, &[(identity.0 >> 64) as u64, identity.0 as u64]);
        let number = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        number.checked_div(u128::from(weight)).map(Self)
    }

    /// The weight that an item of `weight` represents when this is the threshold of its sample: an unbiased estimate.
    #[must_use]
    pub fn stands_for(self, weight: u64) -> f64 {
        let whole = 2f64.powi(128);
        (weight as f64).max(whole / (self.0.max(1) as f64))
    }
}

/// At most `capacity` items, drawn fairly; values of equal items are equal, or the smallest is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample<Value> {
    capacity: usize,
    seed: u64,
    kept: BTreeMap<(Priority, Identity, u64), Value>,
    threshold: Option<Priority>,
}

/// An item of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn<'sample, Value> {
    /// Its identity.
    pub identity: Identity,
    /// Its own weight.
    pub weight: u64,
    /// The weight of the whole that it represents.
    pub stands_for: f64,
    /// Its value.
    pub value: &'sample Value,
}

impl<Value: Ord> Sample<Value> {
    /// An empty sample for up to `capacity` items.
    #[must_use]
    pub fn new(capacity: usize, seed: u64) -> Self {
        Self { capacity, seed, kept: BTreeMap::new(), threshold: None }
    }

    /// Whether an item has a chance to be kept; its value need not be made otherwise, but it must still be left out
    /// by [`Sample::leave_out`].
    #[must_use]
    pub fn would_keep(&self, priority: Priority) -> bool {
        let last = self.kept.last_key_value();
        let is_full = self.kept.len() >= self.capacity;
        !is_full || last.is_some_and(|((last, ..), _)| priority <= *last)
    }

    /// Adds an item; those without weight are ignored.
    pub fn insert(&mut self, identity: Identity, weight: u64, value: Value) {
        let Some(priority) = Priority::of(self.seed, identity, weight) else { return };
        match self.kept.entry((priority, identity, weight)) {
            Entry::Vacant(place) => {
                place.insert(value);
            }
            Entry::Occupied(mut known) if value < *known.get() => {
                known.insert(value);
            }
            Entry::Occupied(_) => {}
        }
        self.cut();
    }

    /// Takes note of an item, or of a threshold, that is not kept.
    pub fn leave_out(&mut self, priority: Priority) {
        self.threshold = Some(self.threshold.map_or(priority, |threshold| threshold.min(priority)));
    }

    /// Both samples as one; the smaller capacity holds. Samples of different seeds cannot be merged: `None` is
    /// returned.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Option<Self> {
        if self.seed != other.seed {
            return None;
        }
        self.limit(other.capacity);
        if let Some(threshold) = other.threshold {
            self.leave_out(threshold);
        }
        for ((_, identity, weight), value) in other.kept {
            self.insert(identity, weight, value);
        }
        self.cut();
        Some(self)
    }

    /// The smallest priority that was left out; `None` while all items are kept.
    #[must_use]
    pub fn threshold(&self) -> Option<Priority> {
        self.threshold
    }

    /// The kept items, best priority first.
    pub fn iter(&self) -> impl Iterator<Item = Drawn<'_, Value>> {
        self.kept.iter().map(|(&(_, identity, weight), value)| {
            let stands_for = self.threshold.map_or(weight as f64, |threshold| threshold.stands_for(weight));
            Drawn { identity, weight, stands_for, value }
        })
    }

    /// Lowers the capacity to that of another sample whose items are merged one by one.
    pub fn limit(&mut self, capacity: usize) {
        self.capacity = self.capacity.min(capacity);
        self.cut();
    }

    /// How many items are kept at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The values of the kept items, best priority first.
    pub fn into_values(self) -> impl Iterator<Item = Value> {
        self.kept.into_values()
    }

    /// Number of kept items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether the sample is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Leaves out what is beyond the capacity.
    fn cut(&mut self) {
        while self.kept.len() > self.capacity {
            if let Some(((priority, ..), _)) = self.kept.pop_last() {
                self.leave_out(priority);
            }
        }
    }
}
