//! Executes a piece of code of both images side by side, to follow page addresses in registers.
//!
//! `ADRP` gives a page, and only the instructions that add the lowest twelve bits make an address of it. Where something on
//! the page moved, the new page and the new low bits must give the new address, for every use that control can reach.
//! The state says which registers hold different values in the two images and why: a page and its counterpart, or one half
//! of a pair that the linker had shortened and that is a pair again. Any other instruction that reads such a register is a
//! difference, so a use that is not understood refutes.
//!
//! In: one piece. Out: its first difference. Cost: linear in the piece, times the few rounds that loops need.

use std::collections::BTreeMap;

use super::code_pair::CodePair;
use super::effects::effects;
use super::form::Form;
use super::step::{is_computed_jump, own_target};
use super::switch::switches;
use crate::report::Difference;

/// Number of an entry in [`Flow::values`] per register; 0 where both images hold corresponding values.
pub(super) type State = [u32; 32];

pub(super) const SAME: u32 = 0;
/// Set if other paths bring a value that is the same in both images.
pub(super) const MAYBE: u32 = 1 << 31;
/// Paths bring different pages.
pub(super) const SEVERAL: u32 = 1;

/// What the two images hold in one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Same,
    Several,
    /// A page on which something moved, and the page in the new image.
    Page {
        old: u64,
        new: u64,
    },
    /// The old image has the address, the new one its page: `ADR` became `ADRP`.
    Ahead {
        target: u64,
        page: u64,
    },
    /// The new image has the page of an address that the old one computes at the next step: `NOP` became `ADRP`.
    Early {
        page: u64,
    },
}

/// The states that may arrive at blocks that no visible branch leads to.
#[derive(Clone, Copy, Debug, Default)]
struct Brought {
    by_calls: Option<State>,
    /// From jumps that may lead anywhere.
    by_jumps: Option<State>,
}

impl Brought {
    /// The state that may arrive at a place, which is a landing pad, is not one, or may be either (`None`).
    fn at(&self, is_landing_pad: Option<bool>) -> Option<State> {
        match is_landing_pad {
            Some(true) => self.by_calls,
            Some(false) => self.by_jumps,
            None => {
                let mut both = self.by_calls;
                if let Some(jumps) = &self.by_jumps {
                    let _ = Flow::join(&mut both, jumps);
                }
                both
            }
        }
    }
}

/// How instructions used a value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uses {
    /// Some instruction completed it to an address.
    pub(super) completes: bool,
    /// Such an address lies where functions may be.
    pub(super) names_text: bool,
    /// The first instruction that read it for another purpose.
    pub(super) read: Option<usize>,
}

/// Checks `code`.
pub(super) fn check(code: &CodePair<'_>) -> Option<Difference> {
    let mut flow = Flow::new(code);
    flow.propagate();
    flow.judge()
}

/// For each word and the end: whether a piece of code begins there, and whether control may come from elsewhere than the
/// word before.
pub(super) fn beginnings(code: &CodePair<'_>) -> (Vec<bool>, Vec<bool>) {
    let mut starts = vec![false; code.len() + 1];
    let mut is_entered = vec![false; code.len() + 1];
    (starts[0], is_entered[0]) = (true, true);
    for index in 0..code.len() {
        let word = code.words(index).0;
        let kind = code.form(index);
        if let Some(target) = own_target(code, kind, index) {
            (starts[target], is_entered[target]) = (true, true);
        }
        if kind.is_jump() && kind != Form::Call || effects(word).ends {
            starts[index + 1] = true;
        }
        let is_pad = code.images.is_landing_pad(code.addresses(index).0) == Some(true);
        starts[index] |= is_pad;
        is_entered[index] |= is_pad;
    }
    (starts, is_entered)
}

pub(super) struct Flow<'a> {
    pub(super) code: &'a CodePair<'a>,
    pub(super) values: Vec<Value>,
    /// How instructions used each value.
    pub(super) uses: Vec<Uses>,
    /// The word that each value comes from, for messages.
    origins: Vec<usize>,
    /// First words of the blocks, ascending.
    blocks: Vec<u32>,
    states: Vec<Option<State>>,
    /// The blocks that a computed jump at the end of a block leads to, where its table tells.
    cases: BTreeMap<usize, Vec<usize>>,
}

impl<'a> Flow<'a> {
    fn new(code: &'a CodePair<'a>) -> Self {
        let (mut starts, is_entered) = beginnings(code);
        let cases = switches(code, &mut starts, &is_entered);
        let blocks: Vec<u32> =
            (0..code.len()).filter(|&index| starts[index]).map(|index| index as u32).collect();
        let position = |word: usize| blocks.binary_search(&(word as u32)).ok();
        let cases = cases.into_iter().filter_map(|(start, targets)| {
            Some((position(start)?, targets.into_iter().filter_map(position).collect()))
        });
        let cases = cases.collect();
        let states = vec![None; blocks.len()];
        let values = vec![Value::Same, Value::Several];
        Self { code, values, uses: vec![Uses::default(); 2], origins: vec![0; 2], blocks, states, cases }
    }

    fn end_of(&self, block: usize) -> usize {
        self.blocks.get(block + 1).map_or(self.code.len(), |&next| next as usize)
    }

    /// The number of a value. A linear search suffices: most code has a handful.
    pub(super) fn number(&mut self, value: Value, origin: usize) -> u32 {
        let known = self.values.iter().rposition(|known| *known == value);
        let number = known.unwrap_or_else(|| {
            self.values.push(value);
            self.uses.push(Uses::default());
            self.origins.push(origin);
            self.values.len() - 1
        });
        number as u32
    }

    /// Finds the state at the start of every block.
    ///
    /// A block that no visible branch leads to is a landing pad or the target of a computed jump: it starts with the join of
    /// what the calls or computed jumps of the code may bring there. The outer loop ends because a state only rises, by at
    /// most three steps in each register.
    fn propagate(&mut self) {
        self.states[0] = Some([SAME; 32]);
        let mut open = vec![0];
        let pads = (0..self.blocks.len()).filter(|&block| self.is_landing_pad(block) == Some(true));
        // Other jumps may lead where a table does.
        let mut entered: Vec<usize> = pads.chain(self.cases.values().flatten().copied()).collect();
        entered.sort_unstable();
        entered.dedup();
        let mut brought = Brought::default();
        let mut next_entry = 0;
        loop {
            while let Some(block) = open.pop() {
                self.follow(block, &mut open, &mut brought);
            }
            // In address order: a block that is reached by then already has a state.
            while self.states.get(next_entry).is_some_and(Option::is_some) {
                next_entry += 1;
            }
            if next_entry < self.blocks.len() {
                let state = brought.at(self.is_landing_pad(next_entry)).unwrap_or([SAME; 32]);
                self.states[next_entry] = Some(state);
                entered.push(next_entry);
                open.push(next_entry);
                continue;
            }
            for &block in &entered {
                let state = brought.at(self.is_landing_pad(block));
                if state.is_some_and(|state| Self::join(&mut self.states[block], &state)) {
                    open.push(block);
                }
            }
            if open.is_empty() {
                return;
            }
        }
    }

    fn is_landing_pad(&self, block: usize) -> Option<bool> {
        let (address, _) = self.code.addresses(self.blocks[block] as usize);
        self.code.images.is_landing_pad(address)
    }

    /// Executes a block and joins its final state into its successors; those that changed become `open` again.
    fn follow(&mut self, block: usize, open: &mut Vec<usize>, brought: &mut Brought) {
        let Some(mut state) = self.states[block] else { return };
        let end = self.end_of(block);
        for index in self.blocks[block] as usize..end {
            let _ = self.step(index, &mut state);
            let word = self.code.words(index).0;
            if effects(word).is_call {
                let _ = Self::join(&mut brought.by_calls, &state);
            } else if is_computed_jump(word) && !self.cases.contains_key(&block) {
                let _ = Self::join(&mut brought.by_jumps, &state);
            }
        }
        let Some(last) = end.checked_sub(1) else { return };
        let word = self.code.words(last).0;
        // A call within the code arrives like one from elsewhere: the callee does not use the caller's registers.
        let form = self.code.form(last);
        let target = own_target(self.code, form, last).filter(|start| form != Form::Call || *start != 0);
        let target = target.and_then(|start| self.blocks.binary_search(&(start as u32)).ok());
        let next = (!effects(word).ends && block + 1 < self.blocks.len()).then_some(block + 1);
        let cases = self.cases.get(&block).map(Vec::as_slice).unwrap_or_default();
        for successor in target.into_iter().chain(next).chain(cases.iter().copied()) {
            if Self::join(&mut self.states[successor], &state) {
                open.push(successor);
            }
        }
    }

    /// Joins a path into the state of a place; returns whether that changed it.
    fn join(known: &mut Option<State>, state: &State) -> bool {
        let Some(known) = known else {
            *known = Some(*state);
            return true;
        };
        let mut is_changed = false;
        for (known, &brought) in known.iter_mut().zip(state) {
            let joined = match (*known & !MAYBE, brought & !MAYBE) {
                (left, right) if left == right => left | (*known | brought) & MAYBE,
                (SAME, other) | (other, SAME) => other | MAYBE,
                // The flag is kept; otherwise paths that disagree would change the state forever.
                _ => SEVERAL | (*known | brought) & MAYBE,
            };
            is_changed |= joined != *known;
            *known = joined;
        }
        is_changed
    }

    /// Walks every block once more with the final states and judges each word.
    fn judge(&mut self) -> Option<Difference> {
        self.uses.fill(Uses::default());
        for block in 0..self.blocks.len() {
            let mut state = self.states[block].unwrap_or([SAME; 32]);
            let end = self.end_of(block);
            for index in self.blocks[block] as usize..end {
                if let Err(expected) = self.step(index, &mut state) {
                    return Some(self.code.difference(index, expected));
                }
            }
            let is_open = |number: &u32| {
                matches!(self.values[(*number & !MAYBE) as usize], Value::Ahead { .. } | Value::Early { .. })
            };
            if state.iter().any(is_open) {
                return Some(self.code.difference(end - 1, "the second half of an address before this"));
            }
        }
        let misread = self.uses.iter().find_map(|uses| uses.read.filter(|_| uses.names_text));
        if let Some(index) = misread {
            return Some(self.code.difference(index, "no use of a page whose functions moved"));
        }
        let unused = (2..self.values.len()).find(|&number| !self.uses[number].completes);
        unused.map(|number| {
            self.code
                .difference(self.origins[number], "a page whose use is known, or one on which nothing moved")
        })
    }
}
