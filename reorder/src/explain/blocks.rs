//! Which parts of a function run, and where they are in an image that has copies of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use layout_algos::score::Span;
use serde::Serialize;

use reorder_base::address::Address;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_layout::simulate::placed;
use reorder_report::Width;
use reorder_report::table::{Table, grouped};
use reorder_trace::ExecutedBlocks;
use reorder_verify::AddressMoves;

/// What runs of a function, of which the traces have basic blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedBlocks {
    /// Bytes of the parts.
    pub executed_bytes: u64,
    /// By address.
    pub parts: Vec<Part>,
}

/// Blocks one after the other that the same number of recordings run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Bytes from the start of the function.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Recordings that run it.
    pub recordings: u64,
    /// Where it runs in the new image, several places if it is in several copies; empty without one.
    pub new: Vec<Address>,
}

/// By function: the places of executed blocks, each with the number of recordings that run it.
#[derive(Debug, Default)]
pub(super) struct Parts(HashMap<FunctionIndex, BTreeMap<(u32, u32), u64>>);

impl Parts {
    pub(super) fn of(executed: &ExecutedBlocks) -> Self {
        let mut parts: HashMap<FunctionIndex, BTreeMap<(u32, u32), u64>> = HashMap::new();
        for trace in &executed.traces {
            for block in trace.iter().collect::<BTreeSet<_>>() {
                *parts.entry(block.function).or_default().entry((block.offset, block.size)).or_default() += 1;
            }
        }
        Self(parts)
    }

    /// The code of the function that runs; all of it where that is not known.
    pub(super) fn code(&self, index: FunctionIndex, functions: &FunctionTable<'_>) -> Vec<Span> {
        let function = functions.get(index);
        let Some(blocks) = self.0.get(&index) else {
            return vec![Span { start: function.start.0, end: function.end.0 }];
        };
        let at = |distance: u64| function.start.0.saturating_add(distance);
        let span = |&(offset, size): &(u32, u32)| Span {
            start: at(u64::from(offset)),
            end: at(u64::from(offset) + u64::from(size)),
        };
        blocks.keys().map(span).collect()
    }

    /// The parts that run, and where they are in the image that `moves` leads to.
    pub(super) fn explained(
        &self,
        index: FunctionIndex,
        functions: &FunctionTable<'_>,
        moves: Option<&AddressMoves>,
    ) -> Option<ExplainedBlocks> {
        let mut parts: Vec<Part> = Vec::new();
        for (&(offset, size), &recordings) in self.0.get(&index)? {
            let (offset, end) = (u64::from(offset), u64::from(offset) + u64::from(size));
            match parts.last_mut() {
                // Blocks of different recordings may overlap.
                Some(last) if last.recordings == recordings && offset <= last.offset + last.size => {
                    last.size = last.size.max(end - last.offset);
                }
                _ => parts.push(Part { offset, size: end - offset, recordings, new: Vec::new() }),
            }
        }
        let start = functions.get(index).start;
        for part in parts.iter_mut() {
            let span = Span { start: start.plus(part.offset).0, end: start.plus(part.offset + part.size).0 };
            let places = moves.into_iter().flat_map(|moves| placed(span, moves));
            part.new = places.map(|place| Address(place.start)).collect();
        }
        let mut executed_bytes = 0;
        let mut end = 0;
        for part in &parts {
            let part_end = part.offset + part.size;
            executed_bytes += part_end.saturating_sub(part.offset.max(end));
            end = end.max(part_end);
        }
        Some(ExplainedBlocks { executed_bytes, parts })
    }
}

/// Parts that are listed; JSON has all.
const SHOWN: usize = 12;

impl ExplainedBlocks {
    /// For people. `size` is that of the function.
    pub(super) fn text(&self, size: u64, width: Width) -> String {
        let percent = self.executed_bytes as f64 * 100.0 / size.max(1) as f64;
        let mut text = format!(
            "  executed {} of {} bytes ({percent:.0} %)\n",
            grouped(self.executed_bytes),
            grouped(size)
        );
        let is_compared = self.parts.iter().any(|part| !part.new.is_empty());
        let mut titles = vec!["  part", "bytes", "recordings"];
        titles.extend(is_compared.then_some("becomes"));
        let mut table = Table::new(titles);
        for part in self.parts.iter().take(SHOWN) {
            let mut row =
                vec![format!("    +{:#x}", part.offset), grouped(part.size), grouped(part.recordings)];
            if let Some(place) = part.new.first() {
                let more = if part.new.len() > 1 { ", …" } else { "" };
                row.push(format!("{place}{more}"));
            }
            table.row(row);
        }
        text.push_str(&table.render(width));
        if self.parts.len() > SHOWN {
            text.push_str(&format!(
                "    … and {} more (--format json lists all)\n",
                self.parts.len() - SHOWN
            ));
        }
        text
    }
}
