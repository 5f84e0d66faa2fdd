//! Small aligned tables for the text form of reports.
//!
//! Leading columns that hold labels are left-aligned, the others right-aligned, because they hold figures.

use std::fmt::Write;

/// Rows of cells under one header.
#[derive(Clone, Debug)]
pub struct Table {
    labels: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these column titles; the first column holds labels.
    pub fn new<S: Into<String>>(titles: impl IntoIterator<Item = S>) -> Self {
        Self { labels: 1, rows: vec![titles.into_iter().map(Into::into).collect()] }
    }

    /// Makes the first `count` columns label columns.
    #[must_use]
    pub fn with_labels(mut self, count: usize) -> Self {
        self.labels = count;
        self
    }

    /// Appends a row; missing cells stay blank.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The aligned lines, two spaces between columns, each ending in a line break.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
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
}

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
        assert_eq!(table.render(), "run         faults\ngit status       9\nlog          1 234\n");
    }

    #[test]
    fn digits_are_grouped_from_the_right() {
        let shown: Vec<String> = [0, 12, 123, 1_234, 1_234_567].map(grouped).into();
        assert_eq!(shown, ["0", "12", "123", "1 234", "1 234 567"]);
    }

    #[test]
    fn a_change_from_nothing_is_not_a_number() {
        assert_eq!((change(0.0, 4.0), change(200.0, 118.0)), ("-".to_owned(), "-41 %".to_owned()));
    }
}
