//! Rules for changes of outputs with copies that do not affect execution.

use std::ops::Range;

use object::{Object, ObjectSymbol};

use super::places::{Site, instructions};
use super::{CopiedOutput, RECORD, SYMBOL_SIZE};
use crate::unwind_padding::{paddings, says_nothing};

impl CopiedOutput {
    /// Why a change that was accepted cannot affect execution; `None` when no rule explains it.
    pub(super) fn excuse_for(&self, wrong: &[u8]) -> Option<&'static str> {
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
        if self.leads_to_twin(wrong, &changed) {
            return Some("leads to the original in place of its copy, or the other way round");
        }
        if self.has_other_name(wrong, &changed) {
            return Some("another name of the same function");
        }
        None
    }

    /// Whether only the name of one copy changed, to another one of the symbols at the start of its function.
    fn has_other_name(&self, wrong: &[u8], changed: &[usize]) -> bool {
        let Some(table) = self.part(".symtab") else { return false };
        let mut symbols = self.added_symbols.clone().map(|number| table.bytes.start + number * SYMBOL_SIZE);
        let Some(symbol) =
            symbols.find(|symbol| changed.iter().all(|at| (*symbol..*symbol + 4).contains(at)))
        else {
            return false;
        };
        let addresses = |bytes: &[u8]| self.addresses_of_name(bytes, symbol).unwrap_or_default();
        let (before, after) = (addresses(&self.new), addresses(wrong));
        before.iter().any(|address| after.contains(address))
    }

    /// Where functions of the old image begin that have the name of the copy with the symbol at `symbol`.
    fn addresses_of_name(&self, bytes: &[u8], symbol: usize) -> Option<Vec<u64>> {
        let position = u32::from_le_bytes(bytes.get(symbol..symbol + 4)?.try_into().ok()?);
        let names = bytes.get(self.part(".strtab")?.bytes.clone())?.get(position as usize..)?;
        let name = names.split(|byte| *byte == 0).next()?;
        let end = name.windows(8).rposition(|part| part == b".reorder")?;
        let name = &name[..end];
        let old = object::File::parse(&*self.old).ok()?;
        let named = old.symbols().filter(|symbol| symbol.name_bytes().is_ok_and(|known| known == name));
        Some(named.map(|symbol| symbol.address()).collect())
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

    /// Whether only the old length changed, within its page.
    fn is_restored(&self, changed: &[usize]) -> bool {
        let length = self.part(RECORD).map(|part| part.bytes.start + 8..part.bytes.start + 10);
        length.is_some_and(|length| changed.iter().all(|at| length.contains(at)))
    }
}
