//! A table for each measurement, and what weakens it below.

use crate::measure::MeasureReport;
use reorder_report::visible::visible;

pub(super) fn render(report: &MeasureReport) -> String {
    let mut text = String::new();
    for measurement in &report.measurements {
        text.push_str(&format!("### {}\n\n", escaped(&measurement.scenario)));
        let (titles, rows) = measurement.cells();
        push_row(&mut text, &titles);
        let alignments: Vec<String> =
            (0..titles.len()).map(|column| if column == 0 { ":---" } else { "---:" }.to_owned()).collect();
        push_row(&mut text, &alignments);
        rows.iter().for_each(|row| push_row(&mut text, row));
        text.push_str(&format!("\n{}\n\n", escaped(&measurement.ends())));
        for warning in &measurement.warnings {
            text.push_str(&format!("- {}\n", escaped(&warning.text())));
        }
        if !measurement.warnings.is_empty() {
            text.push('\n');
        }
    }
    text.push_str(&format!("System: {}\n", escaped(&report.surroundings.text())));
    for warning in &report.warnings {
        text.push_str(&format!("\n- {}\n", escaped(&warning.text())));
    }
    text
}

fn push_row(text: &mut String, cells: &[String]) {
    for cell in cells {
        text.push_str("| ");
        text.push_str(&escaped(cell));
        text.push(' ');
    }
    text.push_str("|\n");
}

/// Text that neither ends a cell nor begins markup of its own.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in visible_lines(text).chars() {
        match character {
            '|' | '<' | '*' | '_' | '[' | '\\' => escaped.extend(['\\', character]),
            character => escaped.push(character),
        }
    }
    escaped
}

/// Line ends become spaces below; all else that steers a terminal is spelled out.
fn visible_lines(text: &str) -> String {
    visible(&text.replace(['\n', '\r'], " ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_break_tables() {
        assert_eq!(escaped("a|b\nc_d"), "a\\|b c\\_d");
    }
}
