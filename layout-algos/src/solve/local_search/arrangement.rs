//! Functions at their addresses, and what each page costs.

use std::ops::Range;

use super::touch_costs::TouchCosts;

/// A function at its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// Its row of costs.
    pub(super) row: u32,
    /// Bytes, without padding.
    pub(super) size: u64,
    /// Bytes until the next function's place.
    pub(super) padded: u64,
    /// First byte, counted from the first page of the arrangement.
    pub(super) start: u64,
}

/// Positions in an arrangement.
pub(super) type Run = Range<usize>;

/// A run that goes elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Shift {
    pub(super) run: Run,
    /// Bytes by which its functions' addresses grow.
    pub(super) by: i64,
}

/// The functions in the order of their addresses, on pages.
pub(super) struct Arrangement<'costs> {
    costs: &'costs TouchCosts,
    page_shift: u32,
    placed: Vec<Placed>,
    /// By page: the position of the first function that ends on it or after it.
    first_on_page: Vec<u32>,
    /// By page and lane: the largest cost of any function on the page.
    largest: Vec<u16>,
    /// By page and lane: the second largest, which is what remains when the largest leaves.
    second: Vec<u16>,
    /// By page: the sum of the largest.
    page_costs: Vec<u64>,
}

impl Placed {
    /// The next function's place.
    pub(super) fn end(&self) -> u64 {
        self.start + self.padded
    }

    pub(super) fn pages(&self, page_shift: u32) -> Range<usize> {
        let first = (self.start >> page_shift) as usize;
        let last = self.size.checked_sub(1).map(|last| ((self.start + last) >> page_shift) as usize);
        first..last.map_or(first, |last| last + 1)
    }

    fn shifted(self, by: i64) -> Self {
        Self { start: self.start.wrapping_add_signed(by), ..self }
    }
}

impl<'costs> Arrangement<'costs> {
    /// Functions in the order of their addresses, without overlap.
    pub(super) fn new(costs: &'costs TouchCosts, page_shift: u32, placed: Vec<Placed>) -> Self {
        // Padding may extend past the start of a function with less alignment, so the last need not end last.
        let end = placed.iter().map(Placed::end).max();
        let pages = end.map_or(0, |end| (end >> page_shift) as usize + 1);
        let mut arrangement = Self {
            costs,
            page_shift,
            placed,
            first_on_page: vec![0; pages],
            largest: vec![0; pages * costs.width()],
            second: vec![0; pages * costs.width()],
            page_costs: vec![0; pages],
        };
        arrangement.refresh(0..pages);
        arrangement
    }

    pub(super) fn placed(&self) -> &[Placed] {
        &self.placed
    }

    /// What all pages cost together.
    #[cfg(test)]
    pub(super) fn cost(&self) -> u64 {
        self.page_costs.iter().sum()
    }

    pub(super) fn into_placed(self) -> Vec<Placed> {
        self.placed
    }

    fn pages_of(&self, run: Run) -> Range<usize> {
        let (first, last) = (&self.placed[run.start], &self.placed[run.end - 1]);
        first.pages(self.page_shift).start..((last.end() - 1) >> self.page_shift) as usize + 1
    }

    /// Positions of the functions that touch neither the first nor the last page.
    pub(super) fn inner(&self) -> Run {
        let pages = self.page_costs.len();
        let from = self.placed.partition_point(|placed| placed.pages(self.page_shift).start < 1);
        let to = self.placed.partition_point(|placed| placed.pages(self.page_shift).end < pages);
        from..to.max(from)
    }

    /// Whether the functions at two positions are run by the same traces.
    pub(super) fn have_same_traces(&self, one: usize, other: usize) -> bool {
        self.costs.have_same_traces(self.placed[one].row, self.placed[other].row)
    }

    /// Whether the functions of a run have no gaps between them, so that they can be moved as one.
    pub(super) fn is_dense(&self, run: Run) -> bool {
        self.placed[run].windows(2).all(|pair| pair[0].end() == pair[1].start)
    }

    /// How much cheaper everything gets when the functions at two positions, of equal padded size, are exchanged.
    pub(super) fn exchange_gain(&self, one: usize, other: usize) -> i64 {
        let (one, other) = (&self.placed[one], &self.placed[other]);
        let (pages_of_one, pages_of_other) = (one.pages(self.page_shift), other.pages(self.page_shift));
        let (row_of_one, row_of_other) = (self.costs.row(one.row), self.costs.row(other.row));
        let mut gain = 0;
        for page in pages_of_one.clone().filter(|page| !pages_of_other.contains(page)) {
            gain += self.replacement_gain(page, row_of_one, row_of_other);
        }
        for page in pages_of_other.filter(|page| !pages_of_one.contains(page)) {
            gain += self.replacement_gain(page, row_of_other, row_of_one);
        }
        gain
    }

    fn replacement_gain(&self, page: usize, leaves: &[u16], comes: &[u16]) -> i64 {
        let lanes = page * self.costs.width()..(page + 1) * self.costs.width();
        let kept = self.largest[lanes.clone()].iter().zip(&self.second[lanes]);
        let after: u32 = kept
            .zip(leaves.iter().zip(comes))
            .map(|((&largest, &second), (&leaves, &comes))| {
                let rest = if leaves == largest { second } else { largest };
                u32::from(rest.max(comes))
            })
            .sum();
        self.page_costs[page] as i64 - i64::from(after)
    }

    /// Exchanges the functions at two positions, of equal padded size.
    pub(super) fn exchange(&mut self, one: usize, other: usize) {
        let (a, b) = (self.placed[one], self.placed[other]);
        self.placed[one] = Placed { start: a.start, ..b };
        self.placed[other] = Placed { start: b.start, ..a };
        self.refresh(a.pages(self.page_shift));
        self.refresh(b.pages(self.page_shift));
    }

    /// How much cheaper everything gets when two runs go elsewhere: into each other's place, or past each other.
    pub(super) fn shift_gain(&self, shifts: &[Shift; 2], scratch: &mut Vec<u16>) -> i64 {
        self.affected_pages(shifts).map(|pages| self.pages_gain(pages, shifts, scratch)).sum()
    }

    fn pages_gain(&self, pages: Range<usize>, shifts: &[Shift; 2], scratch: &mut Vec<u16>) -> i64 {
        let width = self.costs.width();
        scratch.clear();
        scratch.resize(width * pages.len(), 0);
        let mut add = |placed: &Placed| {
            let row = self.costs.row(placed.row);
            let touched = placed.pages(self.page_shift);
            for page in touched.start.max(pages.start)..touched.end.min(pages.end) {
                let largest = &mut scratch[(page - pages.start) * width..][..width];
                for (largest, &cost) in largest.iter_mut().zip(row) {
                    *largest = (*largest).max(cost);
                }
            }
        };
        let end = (pages.end as u64) << self.page_shift;
        let from = self.first_on_page[pages.start] as usize;
        let mut position = from;
        while let Some(placed) = self.placed.get(position).filter(|placed| placed.start < end) {
            match shifts.iter().find(|shift| shift.run.contains(&position)) {
                Some(shift) => position = shift.run.end,
                None => {
                    add(placed);
                    position += 1;
                }
            }
        }
        for shift in shifts {
            for placed in &self.placed[shift.run.clone()] {
                add(&placed.shifted(shift.by));
            }
        }
        let after: u64 = scratch.iter().map(|&cost| u64::from(cost)).sum();
        self.page_costs[pages].iter().sum::<u64>() as i64 - after as i64
    }

    /// The pages that two runs leave or move to. Each takes the other's place, or room that the other leaves, so
    /// these are the pages of both as they are; ranges that meet are joined.
    fn affected_pages(&self, shifts: &[Shift; 2]) -> impl Iterator<Item = Range<usize>> + use<> {
        let [one, other] = shifts.each_ref().map(|shift| self.pages_of(shift.run.clone()));
        let (first, second) = if other.start <= one.end {
            (one.start..one.end.max(other.end), None)
        } else {
            (one, Some(other))
        };
        std::iter::once(first).chain(second)
    }

    /// Lets two runs go into each other's place (`one` before `other`, of equal padded size), or past each other
    /// (when they are adjacent).
    pub(super) fn shift(&mut self, shifts: &[Shift; 2]) {
        let affected: Vec<Range<usize>> = self.affected_pages(shifts).collect();
        for shift in shifts {
            for placed in &mut self.placed[shift.run.clone()] {
                *placed = placed.shifted(shift.by);
            }
        }
        let [one, other] = shifts.each_ref().map(|shift| shift.run.clone());
        let (count, other_count) = (one.len(), other.len());
        let section = &mut self.placed[one.start..other.end];
        section.rotate_left(count);
        // Now: what was between, the other, the one. The other moves to the beginning.
        let end = section.len() - count;
        section[..end].rotate_right(other_count);
        if let [first, second] = affected.as_slice() {
            // What is between has kept its addresses, not its positions.
            for position in &mut self.first_on_page[first.end..second.start] {
                *position = *position + other_count as u32 - count as u32;
            }
        }
        for pages in affected {
            self.refresh(pages);
        }
    }

    fn refresh(&mut self, pages: Range<usize>) {
        let width = self.costs.width();
        for page in pages {
            let start = (page as u64) << self.page_shift;
            let first = self.placed.partition_point(|placed| placed.start + placed.size <= start);
            let largest = &mut self.largest[page * width..][..width];
            let second = &mut self.second[page * width..][..width];
            largest.fill(0);
            second.fill(0);
            let end = start + (1 << self.page_shift);
            for placed in self.placed[first..].iter().take_while(|placed| placed.start < end) {
                for ((largest, second), &cost) in
                    largest.iter_mut().zip(second.iter_mut()).zip(self.costs.row(placed.row))
                {
                    *second = (*second).max((*largest).min(cost));
                    *largest = (*largest).max(cost);
                }
            }
            self.first_on_page[page] = first as u32;
            self.page_costs[page] = largest.iter().map(|&cost| u64::from(cost)).sum();
        }
    }
}
