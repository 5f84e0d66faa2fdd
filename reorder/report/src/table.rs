//! Small aligned tables for the text form of reports.
//!
//! Leading columns that hold labels are left-aligned, the others right-aligned, because they hold figures. Where a table is
//! wider than the terminal, columns that can be spared are left out, then texts are cut in the middle, the longest first;
//! figures are whole.

use std::fmt::Write;

use crate::width::{Width, middle_cut};

/// Rows of cells under one header.
#[derive(Clone, Debug)]
pub struct Table {
    labels: usize,
    /// Further columns that hold texts.
    texts: Vec<usize>,
    /// Columns that are left out where there is no room, the first one first.
    spare: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these column titles; the first column holds labels.
    pub fn new<S: Into<String>>(titles: impl IntoIterator<Item = S>) -> Self {
        let rows = vec![titles.into_iter().map(Into::into).collect()];
        Self { labels: 1, texts: Vec::new(), spare: Vec::new(), rows }
    }

    /// Makes the first `count` columns label columns.
    #[must_use]
    pub fn with_labels(mut self, count: usize) -> Self {
        self.labels = count;
        self
    }

    /// Says that these columns hold texts, which may be cut.
    #[must_use]
    pub fn with_texts(mut self, columns: impl Into<Vec<usize>>) -> Self {
        self.texts = columns.into();
        self
    }

    /// Says that these columns, in this order, are left out of a table that does not fit otherwise.
    #[must_use]
    pub fn with_spare(mut self, columns: impl Into<Vec<usize>>) -> Self {
        self.spare = columns.into();
        self
    }

    /// Appends a row; missing cells stay blank.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The aligned lines, two spaces between columns, each ending in a line break and fitting into `width`, if the figures
    /// alone do.
    pub fn render(&self, width: Width) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut is_shown = vec![true; columns];
        if let Some(room) = width.columns() {
            self.leave_out(&mut widths, &mut is_shown, room);
            self.narrow(&mut widths, room);
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                if !is_shown[column] {
                    continue;
                }
                let gap = if column == 0 { "" } else { GAP };
                let cell = middle_cut(cell, width);
                // Writing to a string cannot fail.
                let _ = if column < self.labels {
                    write!(line, "{gap}{cell:<width$}")
                } else {
                    write!(line, "{gap}{cell:>width$}")
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Takes columns away until the others fit. One that is left out has neither width nor gap.
    fn leave_out(&self, widths: &mut [usize], is_shown: &mut [bool], room: usize) {
        for &column in &self.spare {
            if fits(widths, room) {
                return;
            }
            widths[column] = 0;
            is_shown[column] = false;
        }
    }

    /// Takes columns of texts down together, the widest first, until the table fits or they are as narrow as is useful.
    fn narrow(&self, widths: &mut [usize], room: usize) {
        let is_text = |column: usize| column < self.labels || self.texts.contains(&column);
        while !fits(widths, room) {
            let texts = (0..widths.len()).filter(|&column| is_text(column) && widths[column] > MIN_TEXT);
            let Some(widest) = texts.max_by_key(|&column| (widths[column], std::cmp::Reverse(column))) else {
                return;
            };
            widths[widest] -= 1;
        }
    }
}

/// Whether columns of these widths fit; those of no width are not shown.
fn fits(widths: &[usize], room: usize) -> bool {
    let shown = widths.iter().filter(|width| **width > 0);
    shown.clone().sum::<usize>() + GAP.len() * shown.count().saturating_sub(1) <= room
}

/// Between columns.
const GAP: &str = "  ";

/// Texts are not cut to less.
const MIN_TEXT: usize = 12;

/// `1234567` as `1 234 567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// `1 function`, `1 234 functions`.
pub fn counted(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", grouped(number))
}

/// The change from `old` to `new` in per cent, such as `-41 %`; `-` when `old` is not above zero.
pub fn change(old: f64, new: f64) -> String {
    if old > 0.0 { format!("{:+.0} %", (new / old - 1.0) * 100.0) } else { "-".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_line_up_on_the_right() {
        let mut table = Table::new(["run", "faults"]);
        table.row(["git status", "9"]);
        table.row(["log", &grouped(1_234)]);
        assert_eq!(
            table.render(Width::UNLIMITED),
            "run         faults\ngit status       9\nlog          1 234\n"
        );
    }

    #[test]
    fn texts_are_cut_and_figures_are_not() {
        let mut table = Table::new(["function", "bytes", "because"]).with_texts([2]);
        table.row([
            "core::iter::traits::iterator::Iterator::fold",
            "1 234 567",
            "something keeps it where it is",
        ]);
        table.row(["main", "12", "short"]);
        let text = table.render(Width::of_terminal(50));
        assert!(text.lines().all(|line| line.chars().count() <= 50), "{text}");
        assert!(text.contains("1 234 567") && text.contains("core::") && text.contains("::fold"), "{text}");
        assert!(table.render(Width::UNLIMITED).contains("::iterator::Iterator::fold"));
    }

    #[test]
    fn spare_columns_go_before_texts_are_cut() {
        let mut table =
            Table::new(["figure of some length", "median", "lowest", "highest"]).with_spare([3, 2]);
        table.row(["page faults", "1 234 567", "1 000 000", "2 000 000"]);
        let shown = |columns| table.render(Width::of_terminal(columns));
        assert_eq!(shown(54), table.render(Width::UNLIMITED));
        assert_eq!(
            shown(53),
            "figure of some length     median     lowest\npage faults            1 234 567  1 000 000\n"
        );
        assert_eq!(shown(42), "figure of some length     median\npage faults            1 234 567\n");
    }

    #[test]
    fn digits_are_grouped_from_the_right() {
        let shown: Vec<String> = [0, 12, 123, 1_234, 1_234_567].map(grouped).into();
        assert_eq!(shown, ["0", "12", "123", "1 234", "1 234 567"]);
    }

    #[test]
    fn one_is_singular() {
        let shown: Vec<String> = [0, 1, 2, 1_001].map(|number| counted(number, "run")).into();
        assert_eq!(shown, ["0 runs", "1 run", "2 runs", "1 001 runs"]);
    }

    #[test]
    fn a_change_from_nothing_is_not_a_number() {
        assert_eq!((change(0.0, 4.0), change(200.0, 118.0)), ("-".to_owned(), "-41 %".to_owned()));
    }
}
