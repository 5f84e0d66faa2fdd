//! Scores of many layouts of one program, side by side.

use layout_algos::score::Span;
use reorder_report::Width;
use reorder_report::table::Table;
use serde::{Deserialize, Serialize};

use crate::layout_corpus::Corpus;
use crate::layout_scores::{SetScore, aligned_bound, layout_score, raw_bound};

/// One row: a layout or a bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the layout.
    pub label: String,
    /// Remarks, such as functions that could not be matched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Train, then held-out.
    pub sets: Vec<SetScore>,
}

/// Everything about one program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutReport {
    /// The program's directory.
    pub program: String,
    /// Functions of the image.
    pub functions: usize,
    /// Input sections of its text.
    pub sections: usize,
    /// Names of the runs, by set, in the order of the figures by run.
    pub starts: Vec<Vec<String>>,
    /// Bounds first, then layouts in the order given.
    pub rows: Vec<Row>,
}

impl LayoutReport {
    /// Begins with the bounds.
    #[must_use]
    pub fn new(corpus: &Corpus) -> Self {
        let sets = [&corpus.train, &corpus.held_out];
        let row =
            |label: &str, sets: Vec<SetScore>| Row { label: label.to_owned(), remarks: Vec::new(), sets };
        Self {
            program: corpus.directory.display().to_string(),
            functions: corpus.spans.len(),
            sections: corpus.sections.len(),
            starts: sets.map(|set| set.starts.iter().map(|start| start.name.clone()).collect()).into(),
            rows: vec![
                row("bound", sets.map(|set| raw_bound(corpus, set)).into()),
                row("bound, aligned", sets.map(|set| aligned_bound(corpus, set)).into()),
            ],
        }
    }

    /// Adds the layout that puts functions at `spans`.
    pub fn add(&mut self, corpus: &Corpus, label: &str, spans: &[Span], remarks: Vec<String>) {
        let sets = [&corpus.train, &corpus.held_out].map(|set| layout_score(set, spans)).into();
        self.rows.push(Row { label: label.to_owned(), remarks, sets });
    }

    /// One table per set: for each model the sum of faults and the area under the curve.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text =
            format!("{}: {} functions, {} sections\n", self.program, self.functions, self.sections);
        let set_names: Vec<&str> = self.rows[0].sets.iter().map(|set| set.set.as_str()).collect();
        for (index, set_name) in set_names.iter().enumerate() {
            let models = &self.rows[0].sets[index].models;
            let title = format!("{set_name} ({})", self.starts[index].len());
            let columns = models.iter().flat_map(|score| [score.model.clone(), "area".to_owned()]);
            let mut table = Table::new(std::iter::once(title).chain(columns));
            for row in &self.rows {
                let figures = row.sets[index]
                    .models
                    .iter()
                    .flat_map(|score| [score.faults.to_string(), format!("{:.1}", score.area)]);
                table.row(std::iter::once(row.label.clone()).chain(figures));
            }
            text.push('\n');
            text.push_str(&table.render(Width::UNLIMITED));
        }
        for row in &self.rows {
            for remark in &row.remarks {
                text.push_str(&format!("{}: {remark}\n", row.label));
            }
        }
        text
    }
}
