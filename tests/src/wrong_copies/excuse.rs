//! Rules for changes of outputs with copies that do not affect execution.

use std::ops::Range;

use super::{CopiedOutput, RECORD, SYMBOL_SIZE};
use crate::unwind_padding::{paddings, says_nothing};

impl CopiedOutput {
    /// Why a change that was accepted cannot affect execution; `None` when no rule explains it.
    pub fn excuse(&self, wrong: &[u8]) -> Option<&'static str> {
        let changed: Vec<usize> = (0..self.new.len()).filter(|&at| wrong[at] != self.new[at]).collect();
        let all_in =
            |ranges: &[Range<usize>]| changed.iter().all(|at| ranges.iter().any(|range| range.contains(at)));
        let frames = self.part(".eh_frame").map(|part| part.bytes.clone()).unwrap_or_default();
        let in_file = |padding: Range<usize>| padding.start + frames.start..padding.end + frames.start;
        let paddings: Vec<Range<usize>> =
            paddings(&self.new[frames.clone()]).into_iter().map(in_file).collect();
        let touched = paddings.iter().filter(|padding| changed.iter().any(|at| padding.contains(at)));
        if all_in(&paddings) && touched.clone().all(|padding| says_nothing(&wrong[padding.clone()])) {
            return Some("pads an unwind entry: instructions without effect for others without effect");
        }
        let is_filler = |at: &usize| matches!(wrong[*at], 0x00 | 0x90 | 0xcc);
        if all_in(&self.holes()) && changed.iter().all(is_filler) {
            return Some("filler for filler between copies: no control arrives there");
        }
        if all_in(&self.part(RECORD).map(|part| part.bytes.clone()).into_iter().collect::<Vec<_>>()) {
            return self.is_restored(&changed).then_some("the way back rounds the old length to a page");
        }
        if all_in(&self.without_pads()) && changed.iter().all(|at| wrong[*at] < 0x80 || self.new[*at] >= 0x80)
        {
            return Some(
                "of calls without a landing pad: no action is looked up, and nothing is counted from a start",
            );
        }
        let symbols = self.part(".symtab").map_or(0, |part| part.bytes.start);
        let added = &self.added_symbols;
        let added = symbols + added.start * SYMBOL_SIZE..symbols + added.end * SYMBOL_SIZE;
        if all_in(&[added]) {
            return Some("the name of a copy, in a table that is not loaded");
        }
        None
    }

    /// Bytes of exception tables that have no meaning without landing pads.
    fn without_pads(&self) -> Vec<Range<usize>> {
        let has_pad = |site: &&[usize; 4]| self.new.get(site[2]) != Some(&0);
        let mut found = Vec::new();
        for table in &self.tables {
            if !table.sites.iter().any(|site| has_pad(&site)) {
                found.push(table.base.clone());
            }
            found.extend(table.sites.iter().filter(|site| !has_pad(site)).map(|site| site[3]..site[3] + 1));
        }
        found
    }

    /// Whether only the old length changed, within its page.
    fn is_restored(&self, changed: &[usize]) -> bool {
        let length = self.part(RECORD).map(|part| part.bytes.start + 8..part.bytes.start + 10);
        length.is_some_and(|length| changed.iter().all(|at| length.contains(at)))
    }
}
