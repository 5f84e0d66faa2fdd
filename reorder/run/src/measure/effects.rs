//! Pages that the kernel loads beyond those a program touches: read-ahead from disk and fault-around into the page table.

use serde::Serialize;

use super::figures::{FigureKind, Figures};
use reorder_report::Width;
use reorder_report::table::grouped;

/// Text pages of one program at each stage, medians over the rounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Effect {
    /// `old`, `new`, or `program` where there is only one.
    pub program: &'static str,
    /// Executed or read by the program, counted with read-ahead and fault-around off.
    pub touched_pages: u64,
    /// In the page cache after an ordinary cold start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_pages: Option<u64>,
    /// In the page table at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapped_pages: Option<u64>,
}

/// The effects on each program; none where touched pages are unknown.
pub(super) fn of(figures: &Figures) -> Vec<Effect> {
    let Some(touched) = figures.get(FigureKind::TextPagesTouched) else { return Vec::new() };
    let pages = |kind, index| figures.sample(kind, index).map(|sample| sample.median.round() as u64);
    let names = touched.samples().into_iter().map(|(name, _)| name);
    let effect = |(index, program)| {
        Some(Effect {
            program,
            touched_pages: pages(FigureKind::TextPagesTouched, index)?,
            cached_pages: pages(FigureKind::TextPagesCached, index),
            mapped_pages: pages(FigureKind::TextPagesMapped, index),
        })
    };
    names.enumerate().filter_map(effect).collect()
}

impl Effect {
    /// The stages in one line and their meaning in another.
    pub(super) fn text(&self, read_ahead_bytes: Option<u64>, width: Width) -> String {
        let mut way = format!("{}: pages touched {}", self.program, grouped(self.touched_pages));
        let mut meaning = Vec::new();
        if let Some(cached) = self.cached_pages {
            way.push_str(&format!(" → read ahead {}", grouped(cached)));
            let setting = read_ahead_bytes
                .map_or_else(String::new, |bytes| format!(", up to {} KiB at once", grouped(bytes / 1024)));
            meaning.push(format!(
                "read-ahead brought in {} pages that the program did not touch{setting}",
                grouped(cached.saturating_sub(self.touched_pages))
            ));
        }
        if let Some(mapped) = self.mapped_pages {
            way.push_str(&format!(" → mapped by fault-around {}", grouped(mapped)));
            meaning.push(format!(
                "fault-around mapped {} pages that the program did not touch",
                grouped(mapped.saturating_sub(self.touched_pages))
            ));
        }
        match meaning.is_empty() {
            true => format!("{way}\n"),
            false => format!("{way}\n{}\n", width.hanging("  ", &meaning.join("; "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_asked_for_is_told() {
        let effect =
            Effect { program: "new", touched_pages: 70, cached_pages: Some(148), mapped_pages: Some(129) };
        assert_eq!(
            effect.text(Some(128 << 10), Width::UNLIMITED),
            "new: pages touched 70 → read ahead 148 → mapped by fault-around 129\n  read-ahead brought in 78 pages \
             that the program did not touch, up to 128 KiB at once; fault-around mapped 59 pages that the program did not touch\n"
        );
    }
}
