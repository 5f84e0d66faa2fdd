//! Compressed rows: many short lists in two arrays.

/// Lists of items, one after the other in memory. At most 2³² − 1 items in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows<T> {
    /// Where each row ends; it begins where the row before ends.
    ends: Vec<u32>,
    items: Vec<T>,
}

/// More items than 32-bit positions can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyItems;

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self { ends: Vec::new(), items: Vec::new() }
    }
}

impl<T> Rows<T> {
    /// No rows yet, with capacity for the given numbers.
    #[must_use]
    pub fn with_capacity(rows: usize, items: usize) -> Self {
        Self { ends: Vec::with_capacity(rows), items: Vec::with_capacity(items) }
    }

    /// Appends one row.
    ///
    /// # Errors
    /// More items in all than 32-bit positions can tell apart; the rows are then unchanged.
    pub fn push(&mut self, row: impl IntoIterator<Item = T>) -> Result<(), TooManyItems> {
        let before = self.items.len();
        self.items.extend(row);
        match u32::try_from(self.items.len()) {
            Ok(end) => {
                self.ends.push(end);
                Ok(())
            }
            Err(_) => {
                self.items.truncate(before);
                Err(TooManyItems)
            }
        }
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The items of all rows, in the order of the rows.
    #[must_use]
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// Row number `index`.
    #[must_use]
    pub fn row(&self, index: usize) -> &[T] {
        let start = index.checked_sub(1).map_or(0, |previous| self.ends[previous] as usize);
        &self.items[start..self.ends[index] as usize]
    }

    /// All rows.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[T]> {
        (0..self.len()).map(|index| self.row(index))
    }
}

impl<T: Copy + Default> Rows<T> {
    /// Rows `0..count` out of (row, item) pairs; the items of a row keep the order of the pairs. `pairs` is iterated
    /// twice and must give the same both times.
    ///
    /// # Errors
    /// More pairs than 32-bit positions can tell apart.
    pub fn grouped<I: Iterator<Item = (usize, T)>>(
        count: usize,
        pairs: impl Fn() -> I,
    ) -> Result<Self, TooManyItems> {
        let mut ends = vec![0u32; count];
        for (row, _) in pairs() {
            ends[row] = ends[row].checked_add(1).ok_or(TooManyItems)?;
        }
        let mut total = 0u32;
        for end in &mut ends {
            let length = *end;
            *end = total;
            total = total.checked_add(length).ok_or(TooManyItems)?;
        }
        let mut items = vec![T::default(); total as usize];
        for (row, item) in pairs() {
            items[ends[row] as usize] = item;
            ends[row] += 1;
        }
        Ok(Self { ends, items })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_as_they_were_pushed() {
        let mut rows = Rows::with_capacity(3, 3);
        for row in [vec![1, 2], vec![], vec![3]] {
            rows.push(row).unwrap();
        }
        assert_eq!(rows.iter().collect::<Vec<_>>(), [&[1, 2][..], &[], &[3]]);
        assert_eq!((rows.len(), rows.items()), (3, &[1, 2, 3][..]));
    }

    #[test]
    fn grouping_keeps_the_order_of_pairs() {
        let pairs = [(2, 'a'), (0, 'b'), (2, 'c'), (0, 'd')];
        let rows = Rows::grouped(4, || pairs.iter().copied()).unwrap();
        assert_eq!(rows.iter().collect::<Vec<_>>(), [&['b', 'd'][..], &[], &['a', 'c'], &[]]);
    }
}
