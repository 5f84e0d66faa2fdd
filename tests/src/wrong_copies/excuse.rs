//! Rules for changes of outputs with copies that do not affect execution.

use std::ops::Range;

use super::call_sites::unsigned;
use super::places::{Site, instructions};
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
        if all_in(&self.last_sizes(wrong)) {
            return Some("a call site goes on over the jump after the instructions, which throws nothing");
        }
        if self.leads_to_twin(wrong, &changed) {
            return Some("leads to the original in place of its copy, or the other way round");
        }
        let symbols = self.part(".symtab").map_or(0, |part| part.bytes.start);
        let added = &self.added_symbols;
        let added = symbols + added.start * SYMBOL_SIZE..symbols + added.end * SYMBOL_SIZE;
        if all_in(&[added]) {
            return Some("the name of a copy, in a table that is not loaded");
        }
        None
    }

    /// The field of the size of each last call site that is larger in `wrong` and ended before, at most, the jump at the end of
    /// its copy.
    fn last_sizes(&self, wrong: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for table in &self.tables {
            let Some([start, size, pad, _]) = table.sites.last() else { continue };
            let Some(copy) = self.copies.iter().find(|copy| copy.address == table.address) else { continue };
            let end = unsigned(&self.new, *start) + unsigned(&self.new, *size);
            let rest = self.new.get(copy.bytes.start + end..copy.bytes.end).unwrap_or_default();
            let is_jump = matches!(rest, [] | [0xeb, _] | [0xe9, _, _, _, _]);
            if is_jump && unsigned(wrong, *size) > unsigned(&self.new, *size) {
                found.push(*size..*pad);
            }
        }
        found
    }

    /// Whether the one field that changed belongs to a branch in a copy, which leads to the same code by its other address.
    fn leads_to_twin(&self, wrong: &[u8], changed: &[usize]) -> bool {
        let (Some(first), Some(last)) = (changed.first(), changed.last()) else { return false };
        let Some(copy) = self.copies.iter().find(|copy| copy.bytes.contains(first)) else { return false };
        let within = |site: &&Site| {
            let field = site.at + site.offsets.immediate_offset();
            let is_branch = site.is_jump() || site.instruction.is_call_near();
            is_branch && *first >= field && *last < field + site.offsets.immediate_size()
        };
        let target = |bytes: &[u8]| {
            let sites = instructions(bytes, copy);
            let target = sites.iter().find(within)?.instruction.near_branch_target();
            let twin = self.copies.iter().find(|copy| copy.address == target);
            Some(twin.map_or(target, |twin| twin.original))
        };
        target(&self.new).is_some() && target(&self.new) == target(wrong)
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
