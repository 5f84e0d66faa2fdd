//! The references in one atom's instructions.

use std::collections::BTreeSet;

use super::Builder;
use super::relaxed::{nop_after, nop_before};
use crate::code_reference::{CodeForm, CodeReference};
use crate::decode::aarch64::{Operation, Register, WORD};
use crate::pins::PinReason;
use reorder_base::address::Address;

impl Builder<'_, '_> {
    fn add(&mut self, index: usize, target: Address, form: CodeForm) {
        self.result.references.push(CodeReference { place: self.place(index), target, form });
    }

    pub(super) fn add_references(&mut self, index: usize) {
        match self.operations[index] {
            Operation::Branch(target) | Operation::Call(target) if !self.atom.contains(&target) => {
                self.add(index, target, CodeForm::Branch26);
            }
            Operation::ConditionalBranch(target) if !self.atom.contains(&target) => {
                self.result.ties.push(target);
            }
            Operation::Adr(register, target) if !self.atom.contains(&target) => {
                self.add_adr(index, register, target);
            }
            Operation::LoadLiteral(register, target) if !self.atom.contains(&target) => {
                self.add_literal(index, register, target);
            }
            Operation::Adrp(_, page) if !self.context.shares_page(page) => {
                self.add(index, page, CodeForm::Page)
            }
            _ => {}
        }
    }

    fn add_adr(&mut self, index: usize, register: Register, target: Address) {
        let joined = &self.facts.is_joined;
        let nop = nop_after(&self.words, index, register, |at| joined[at], &self.taken)
            .or_else(|| nop_before(&self.words, index, register, |at| joined[at], &self.taken));
        if let Some(nop) = nop {
            self.taken.insert(index.wrapping_add_signed(isize::from(nop)));
            return self.add(index, target, CodeForm::RelaxedAdr { nop });
        }
        if !self.context.is_near(target) && self.context.text.contains(&target) {
            return self.result.ties.push(target);
        }
        self.add(index, target, CodeForm::Adr);
        if !self.context.is_near(target) {
            self.pin(PinReason::ShortReference, self.place(index));
        }
    }

    fn add_literal(&mut self, index: usize, register: Option<Register>, target: Address) {
        if self.context.text.contains(&target) {
            return self.result.ties.push(target);
        }
        let joined = &self.facts.is_joined;
        // A load through a register needs a target aligned to its size, a literal only one aligned to a word.
        let size = if self.words[index] >> 30 == 1 { 8 } else { WORD };
        let register = register.filter(|_| target.0.is_multiple_of(size));
        let nop = register
            .and_then(|register| nop_before(&self.words, index, register, |at| joined[at], &self.taken));
        if let Some(nop) = nop {
            self.taken.insert(index.wrapping_add_signed(isize::from(nop)));
            return self.add(index, target, CodeForm::RelaxedLoad { nop });
        }
        self.add(index, target, CodeForm::LoadLiteral);
        if !self.context.is_near(target) {
            self.pin(PinReason::ShortReference, self.place(index));
        }
    }

    /// Each `ADRP` into the pages of the code, with what completes it.
    pub(super) fn add_pages(&mut self) {
        let mut targets: Vec<Vec<Address>> = vec![Vec::new(); self.facts.pages.len()];
        let uses: Vec<_> = self.facts.uses.iter().map(|(index, page_use)| (*index, *page_use)).collect();
        for (index, page_use) in uses {
            for &number in self.facts.sets.members(page_use.from) {
                targets[number as usize].push(page_use.target);
            }
            self.add(index as usize, page_use.target, CodeForm::PageOffset { scale: page_use.scale });
            // The offset of a load is scaled by its size, and a move keeps only multiples of a word.
            if page_use.is_access && page_use.scale > 2 {
                self.result.possible_targets.push(page_use.target);
            }
        }
        // A page that the function uses only for data is the same wherever functions go, so other reads of it, as where a
        // register keeps it after its last use, are unchanged.
        let text = self.context.text.clone();
        let pages_of_text: BTreeSet<u64> = (targets.iter().zip(&self.facts.pages))
            .filter(|(targets, _)| targets.iter().any(|target| text.contains(target)))
            .map(|(_, (_, page))| *page)
            .collect();
        for (number, mut targets) in targets.into_iter().enumerate() {
            let (index, page) = self.facts.pages[number];
            if !self.facts.is_reached[index as usize] {
                continue;
            }
            targets.sort_unstable();
            targets.dedup();
            let is_read = self.facts.read.contains(&(number as u32)) && pages_of_text.contains(&page);
            let is_unresolved =
                is_read || self.facts.unresolved.contains(&(number as u32)) || targets.is_empty();
            if is_unresolved {
                self.pin(PinReason::UnpairedAddress, self.place(index as usize));
                let atoms: Vec<Address> = self.context.atoms_on_page(Address(page)).collect();
                self.result.possible_targets.extend(atoms);
            }
            if targets.len() > 1 {
                // One page for several places is correct as long as none of them moves.
                self.result.possible_targets.extend(targets.iter().copied());
            }
            self.add(index as usize, targets.first().copied().unwrap_or(Address(page)), CodeForm::Page);
        }
        self.result.possible_targets.retain(|target| text.contains(target));
        if self.result.possible_targets.iter().any(|target| self.atom.contains(target)) {
            self.pin(PinReason::UnpairedAddress, self.atom.start);
        }
    }
}
