//! The units that wait for a place, in the wanted order.

/// A singly linked list over the order: removal in the middle without moving the rest.
pub(super) struct Queue {
    units: Vec<usize>,
    /// Link 0 leads to the first element; link i + 1 leads from element i to the next. `units.len()` ends.
    next: Vec<usize>,
}

/// A place between two elements of a [`Queue`]: the link that leads to the later one.
#[derive(Clone, Copy)]
pub(super) struct Link(usize);

impl Queue {
    pub(super) fn new(units: Vec<usize>) -> Self {
        let next = (0..=units.len()).collect();
        Self { units, next }
    }

    pub(super) fn first(&self) -> Link {
        Link(0)
    }

    pub(super) fn unit_after(&self, link: Link) -> Option<usize> {
        self.units.get(self.next[link.0]).copied()
    }

    /// The link after the element that `link` leads to; there must be one.
    pub(super) fn advance(&self, link: Link) -> Link {
        Link(self.next[link.0] + 1)
    }

    /// Drops the element that `link` leads to; there must be one.
    pub(super) fn remove_after(&mut self, link: Link) {
        self.next[link.0] = self.next[self.next[link.0] + 1];
    }

    /// The first elements, at most `count`.
    pub(super) fn next_units(&self, count: usize) -> Vec<usize> {
        let mut link = self.first();
        let mut units = Vec::new();
        while units.len() < count
            && let Some(unit) = self.unit_after(link)
        {
            units.push(unit);
            link = self.advance(link);
        }
        units
    }

    /// Drops `removed`, which are among the next units.
    pub(super) fn remove(&mut self, mut removed: Vec<usize>) {
        let mut link = self.first();
        while let Some(unit) = self.unit_after(link).filter(|_| !removed.is_empty()) {
            match removed.iter().position(|&other| other == unit) {
                Some(index) => {
                    removed.remove(index);
                    self.remove_after(link);
                }
                None => link = self.advance(link),
            }
        }
    }
}
