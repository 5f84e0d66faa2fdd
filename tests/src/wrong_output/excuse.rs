//! Rules for changes that do not affect execution.

use std::ops::Range;

use super::CorrectOutput;

impl CorrectOutput {
    /// Why a change that was accepted cannot affect execution; `None` when no rule explains it.
    pub(super) fn excuse_for(&self, wrong: &[u8]) -> Option<&'static str> {
        let changed: Vec<usize> = (0..self.new.len()).filter(|&at| wrong[at] != self.new[at]).collect();
        let all_in =
            |ranges: &[Range<usize>]| changed.iter().all(|at| ranges.iter().any(|range| range.contains(at)));
        let named =
            |name: &str| self.part(name).map(|part| part.bytes.clone()).into_iter().collect::<Vec<_>>();
        if all_in(&named(".note.gnu.build-id")) {
            return Some("the identity names a layout; nothing that runs reads it");
        }
        let holes = self.holes();
        let is_filler = |at: &usize| matches!(wrong[*at], 0x00 | 0x90 | 0xcc) || wrong[*at] == self.old[*at];
        if all_in(&holes) && changed.iter().all(is_filler) {
            return Some("filler for filler between functions: no control arrives there");
        }
        if all_in(&self.overwritten()) && changed.iter().all(|&at| wrong[at] == self.old[at]) {
            return Some("the loader overwrites the word before anything reads it");
        }
        None
    }

    /// File ranges of code between functions that hold filler in the permuted image.
    pub(super) fn holes(&self) -> Vec<Range<usize>> {
        let mut holes = Vec::new();
        for pair in self.functions.windows(2) {
            let hole = pair[0].bytes.end..pair[1].bytes.start;
            let is_filler = hole.start < hole.end
                && hole.len() < 64
                && self.new[hole.clone()].iter().all(|byte| matches!(byte, 0x00 | 0x90 | 0xcc));
            if is_filler && !self.is_arm {
                holes.push(hole);
            }
        }
        holes
    }

    /// Addresses that the loader's relocations with addends write to.
    fn overwritten(&self) -> Vec<Range<usize>> {
        let Some(table) = self.part(".rela.dyn") else { return Vec::new() };
        let places = self.new[table.bytes.clone()].chunks_exact(24).filter_map(|entry| {
            let place = u64::from_le_bytes(entry[..8].try_into().ok()?);
            let home = self.parts.iter().find(|part| {
                part.is_loaded && (part.address..part.address + part.bytes.len() as u64).contains(&place)
            })?;
            let at = home.bytes.start + (place - home.address) as usize;
            Some(at..at + 8)
        });
        places.collect()
    }
}
