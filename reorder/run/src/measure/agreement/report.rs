//! The report of a comparison of predicted and real pages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;

use super::causes::Cause;
use reorder_base::address::Address;
use reorder_report::table::{Table, grouped};
use reorder_report::visible::visible;
use reorder_report::{Report, Width};

/// Predicted and real text pages of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgreementReport {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The trace that predicts.
    pub trace: String,
    /// How the run ended.
    pub status: String,
    /// Functions of the trace.
    pub functions: u64,
    /// 4 KiB pages of these functions, by executed blocks where these are known, and of code outside of functions that the loader or
    /// these blocks may enter.
    pub predicted_pages: u64,
    /// Pages that were touched, by the page table.
    pub touched_pages: u64,
    /// Predicted and touched.
    pub pages_in_both: u64,
    /// Pages on one side alone, less those that hold untraced code, in per cent of the touched ones.
    pub difference_percent: f64,
    /// The pages by the page cache.
    pub page_cache: Option<SecondWitness>,
    /// The pages by the kernel's samples of page faults.
    pub fault_samples: Option<SecondWitness>,
    /// Predicted, not touched.
    pub predicted_only: Vec<ExplainedPage>,
    /// Touched, not predicted.
    pub touched_only: Vec<ExplainedPage>,
}

/// A page of one side and why the other does not have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedPage {
    /// Its first address.
    pub page: Address,
    /// Why.
    pub cause: Cause,
    /// The functions or sections concerned.
    pub holds: Vec<String>,
}

/// Another way to learn the touched pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SecondWitness {
    /// Pages by it.
    pub pages: u64,
    /// Pages that only one of it and the page table has.
    pub differing_pages: u64,
}

impl SecondWitness {
    pub(super) fn of(touched: &BTreeSet<Address>, seen: &BTreeSet<Address>) -> Self {
        Self { pages: seen.len() as u64, differing_pages: touched.symmetric_difference(seen).count() as u64 }
    }

    fn text(witness: Option<Self>) -> String {
        match witness {
            None => "unknown".to_owned(),
            Some(witness) if witness.differing_pages == 0 => format!("the same {}", grouped(witness.pages)),
            Some(witness) => {
                format!("{}, {} of them otherwise", grouped(witness.pages), grouped(witness.differing_pages))
            }
        }
    }
}

/// How many functions or sections are named for a page; JSON has all.
const NAMED: usize = 3;

impl Report for AgreementReport {
    const COMMAND: &'static str = "measure-agreement";

    fn text(&self, width: Width) -> String {
        let words: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let title = format!("{} {}", self.program.display(), words.join(" "));
        let mut text = format!("{}\n", visible(&title));
        text.push_str(&format!("it ended with {}\n", self.status));
        text.push_str(&format!(
            "the trace has {} functions and predicts {} pages; this run touched {}, {} of them predicted\n",
            grouped(self.functions),
            grouped(self.predicted_pages),
            grouped(self.touched_pages),
            grouped(self.pages_in_both),
        ));
        text.push_str(&format!(
            "by the page cache: {}; by the kernel's fault samples: {}\n",
            SecondWitness::text(self.page_cache),
            SecondWitness::text(self.fault_samples),
        ));
        let mut causes: BTreeMap<Cause, u64> = BTreeMap::new();
        for page in self.predicted_only.iter().chain(&self.touched_only) {
            *causes.entry(page.cause).or_default() += 1;
        }
        for (cause, pages) in causes {
            text.push_str(&format!("  {} {}: {}\n", grouped(pages), side(cause), cause.title()));
        }
        let mut table = Table::new(["page", "side", "why"]).with_labels(3);
        for page in self.predicted_only.iter().chain(&self.touched_only) {
            let more = if page.holds.len() > NAMED { ", …" } else { "" };
            let holds: Vec<&str> = page.holds.iter().take(NAMED).map(String::as_str).collect();
            table.row([
                page.page.to_string(),
                side(page.cause).to_owned(),
                visible(&format!("{}: {}{more}", page.cause.title(), holds.join(", "))).into_owned(),
            ]);
        }
        if !self.predicted_only.is_empty() || !self.touched_only.is_empty() {
            text.push_str(&table.render(width));
        }
        text.push_str(&format!(
            "difference {:.1} % of the touched pages, untraced code not counted\n",
            self.difference_percent
        ));
        text
    }
}

fn side(cause: Cause) -> &'static str {
    match cause {
        Cause::PartNotReached | Cause::NotRun | Cause::OutsideNotEntered => "only predicted",
        _ => "only touched",
    }
}
