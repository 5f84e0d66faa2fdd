//! Compares one piece of AArch64 code, which moves as a whole, in both images.
//!
//! Most code needs one pass: words are the same, or their distance follows the map. For `ADRP` to a page on which something
//! moved, and for words that differ otherwise, the contents of registers must be known: [`super::flow`].

use super::effects::effects;
use super::flow;
use super::form::{Form, IMMEDIATE, NOP, form, is_add, page_offset, register};
use super::images::{Images, MovedPages};
use crate::bytes::u32_at;
use crate::moves::Move;
use crate::report::{Check, Difference};
use reorder_base::address::NewAddress;

/// How much code was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Instructions compared.
    pub(crate) instructions: usize,
    /// Address fields that follow the map.
    pub(crate) fields: usize,
}

/// A piece of code in both images, as words.
#[derive(Clone, Copy)]
pub(crate) struct CodePair<'a> {
    /// The check that differences are reported under.
    pub(crate) check: Check,
    pub(crate) images: &'a dyn Images,
    pub(crate) pages: &'a MovedPages,
    pub(crate) range: Move,
    /// Of the same length.
    pub(crate) old: &'a [u8],
    pub(crate) new: &'a [u8],
    /// Where the new piece lies in the file.
    pub(crate) offset: u64,
}

impl CodePair<'_> {
    /// Number of words.
    pub(crate) fn len(&self) -> usize {
        self.old.len() / 4
    }

    /// The words at `index` in both images.
    pub(crate) fn words(&self, index: usize) -> (u32, u32) {
        (u32_at(self.old, index * 4).unwrap_or(0), u32_at(self.new, index * 4).unwrap_or(0))
    }

    /// The addresses of the word at `index` in both images.
    pub(crate) fn addresses(&self, index: usize) -> (u64, u64) {
        let distance = index as u64 * 4;
        (self.range.old_start.0.wrapping_add(distance), self.range.new_start.0.wrapping_add(distance))
    }

    /// The form of the old word at `index`; for data, the form without a distance.
    pub(crate) fn form(&self, index: usize) -> Form {
        let address = self.addresses(index).0;
        match self.images.data_between(address, address.wrapping_add(4)).is_empty() {
            true => form(self.words(index).0),
            false => Form::Plain,
        }
    }

    /// Whether the distances in two words of the same form lead to corresponding places.
    pub(crate) fn corresponds(&self, form: Form, index: usize) -> bool {
        let ((old, new), (from, to)) = (self.words(index), self.addresses(index));
        if (old ^ new) & !form.field() != 0 {
            return false;
        }
        let (target, found) = (form.target(old, from), form.target(new, to));
        match self.range.old_start.0 <= target && target < self.range.old_end().0 {
            true => found.wrapping_sub(target) == self.range.delta(),
            false if form.is_jump() => self.images.is_target(target, found),
            false => self.images.follows(target, found),
        }
    }

    /// A difference at the word `index`.
    pub(crate) fn difference(&self, index: usize, expected: impl Into<String>) -> Difference {
        let (old, new) = self.words(index);
        let (from, to) = self.addresses(index);
        let place = format!("the instruction at {} (was {old:#010x} at {from:#x})", NewAddress(to));
        Difference::new(
            self.check,
            Some(self.offset + index as u64 * 4),
            place,
            expected,
            format!("{new:#010x}"),
        )
    }

    /// Checks the piece; returns its first difference.
    pub(crate) fn check(&self, counts: &mut Counts) -> Option<Difference> {
        counts.instructions += self.len();
        if !self.old.len().is_multiple_of(4) && self.old != self.new {
            return Some(Difference::new(
                self.check,
                Some(self.offset),
                format!("code of {} bytes at {}", self.old.len(), self.range.new_start),
                "the same bytes",
                "others",
            ));
        }
        let has_data = !self.images.data_between(self.range.old_start.0, self.range.old_end().0).is_empty();
        // Second words of pairs that were found sound, ascending.
        let mut completed: Vec<usize> = Vec::new();
        for index in 0..self.len() {
            if completed.last() == Some(&index) {
                continue;
            }
            let (old, new) = self.words(index);
            let kind = if has_data { self.form(index) } else { form(old) };
            let is_explained = match kind {
                Form::Plain => old == new,
                Form::Adrp => {
                    counts.fields += 1;
                    let target = kind.target(old, self.addresses(index).0);
                    let is_same_form = (old ^ new) & !kind.field() == 0;
                    let is_kept = !self.pages.contains(target)
                        && is_same_form
                        && kind.target(new, self.addresses(index).1) == target;
                    let is_pair = !is_kept && !has_data && is_same_form && self.is_sound_pair(index, target);
                    completed.extend(is_pair.then_some(index + 1));
                    is_kept || is_pair
                }
                _ => {
                    counts.fields += 1;
                    self.corresponds(kind, index)
                }
            };
            if !is_explained {
                return flow::check(self);
            }
        }
        match completed.is_empty() || !self.enters_any(&completed) {
            true => None,
            false => flow::check(self),
        }
    }

    /// Whether the next word completes the page at `index` and overwrites its register, so that no other word can use it.
    fn is_sound_pair(&self, index: usize, page: u64) -> bool {
        if index + 1 >= self.len() {
            return false;
        }
        let ((adrp, new_adrp), (old, new)) = (self.words(index), self.words(index + 1));
        let is_load = old & 0xbfc0_0000 == 0xb940_0000;
        let is_closed = (is_add(old) || is_load)
            && register(adrp, 0) != 31
            && register(old, 0) == register(adrp, 0)
            && register(old, 5) == register(adrp, 0)
            && (old ^ new) & !IMMEDIATE == 0;
        let new_page = Form::Adrp.target(new_adrp, self.addresses(index).1);
        let completed = |page: u64, word: u32| Some(page.wrapping_add(page_offset(word)?));
        is_closed
            && completed(page, old)
                .zip(completed(new_page, new))
                .is_some_and(|(target, found)| self.images.follows(target, found))
    }

    /// Whether a branch of the piece leads to one of these words.
    fn enters_any(&self, words: &[usize]) -> bool {
        (0..self.len()).any(|index| {
            let (word, kind) = (self.words(index).0, form(self.words(index).0));
            let start = self.range.old_start.0;
            kind.is_jump() && {
                let distance = kind.target(word, self.addresses(index).0).wrapping_sub(start);
                words.binary_search(&((distance / 4) as usize)).is_ok()
            }
        })
    }
}

/// Whether control may run past the last instruction of `code` that is neither padding nor a barrier.
pub(crate) fn runs_on(code: &[u8]) -> bool {
    let words = code.chunks_exact(4).rev().filter_map(|word| u32_at(word, 0));
    let last = words.into_iter().find(|&word| word != NOP && !is_barrier(word));
    last.is_some_and(|word| {
        // No instruction begins with eight one bits: this is a negative entry of a table.
        let is_negative = word >> 24 == 0xff;
        let effects = effects(word);
        !(is_negative || is_unallocated(word) || effects.ends || effects.is_call)
    })
}

/// `code` at `start` without the constants at its end that it loads.
pub(crate) fn without_literals(code: &[u8], start: u64) -> &[u8] {
    let words = code.chunks_exact(4).zip((start..).step_by(4));
    let loads = words.filter_map(|(word, place)| Some((u32_at(word, 0)?, place)));
    let loads = loads.filter(|&(word, _)| form(word) == Form::Literal);
    let mut constants: Vec<(u64, u64)> = loads
        .map(|(word, place)| {
            let (is_vector, size) = (word >> 26 & 1 == 1, word >> 30);
            // Among general registers, this size encodes LDRSW; among vectors, 16 bytes.
            let width = if size == 2 && !is_vector { 4 } else { 4 << size.min(2) };
            let first = Form::Literal.target(word, place);
            (first.wrapping_sub(start), width)
        })
        .filter(|&(first, width)| first.checked_add(width).is_some_and(|end| end <= code.len() as u64))
        .collect();
    constants.sort_unstable();
    let mut length = code.len() as u64;
    for (first, width) in constants.into_iter().rev() {
        // Zeros may lie between constants of different alignment.
        let after = code.get((first + width) as usize..length as usize).unwrap_or_default();
        if after.iter().any(|byte| *byte != 0) {
            break;
        }
        length = length.min(first);
    }
    code.get(..length as usize).unwrap_or(code)
}

/// Whether `word` is a barrier, which compilers put after a return to stop speculation.
fn is_barrier(word: u32) -> bool {
    word & 0xffff_f01f == 0xd503_301f
}

/// Whether `word` is reserved, or lies in the class of ordered loads and stores of vectors but is none of them: a constant.
///
/// All words below 2²⁵ except `UDF` are reserved, which includes positive entries of tables (Arm Architecture Reference
/// Manual, C4.1).
fn is_unallocated(word: u32) -> bool {
    let is_reserved = word & 0x9e00_0000 == 0 && word >> 16 != 0;
    let is_in_class = word & 0x3f00_0000 == 0x1d00_0000;
    // 16 bytes have a bit of their own, and no size.
    let has_two_sizes = word & 1 << 23 != 0 && word >> 30 != 0;
    is_reserved || is_in_class && (has_two_sizes || word & 0x0020_0c00 != 0x0000_0800)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_does_not_run_out_of_constants() {
        let code = |words: [u32; 2]| words.map(u32::to_le_bytes).concat();
        let (load, store_release, call, padding) = (0x79cc_4519, 0x9d00_0a87, 0x9400_0001, NOP);
        assert!(runs_on(&code([call, load])) && runs_on(&code([load, padding])));
        assert!(runs_on(&code([load, store_release])));
        // DSB and ISB after RET, and after another word.
        let (ret, wait, synchronise) = (0xd65f_03c0, 0xd503_3f9f, 0xd503_3fdf);
        assert!(!runs_on(&[code([ret, wait]), code([synchronise, padding])].concat()));
        assert!(runs_on(&code([load, synchronise])));
        // LDR of the word after a return, which would be an instruction.
        let literal = [code([0x1800_0040, ret]), code([0x1234_5678, 0])].concat();
        assert!(runs_on(&literal[..12]) && !runs_on(without_literals(&literal[..12], 0x1000)));
        assert_eq!(without_literals(&literal[..8], 0x1000).len(), 8);
        // The constant of SM3; a negative entry of a table, and a positive one; a call that does not return.
        for last in [0x9d8a_7a87, 0xffff_fee0, 0x0005_c514, call] {
            assert!(!runs_on(&code([load, last])), "{last:#x}");
        }
    }
}
