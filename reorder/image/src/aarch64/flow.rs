//! Follows control and addresses through one function: what is reached, and what each `ADRP` into the code is for.
//!
//! An abstract interpretation over basic blocks. Where paths meet, the state is what holds on all of them. A landing pad
//! starts with what any call of the function leaves in the registers that calls preserve; a place that a pointer leads to
//! starts with what any jump to a pointer brings. So every address that is formed is found, or its `ADRP` counts as not
//! understood.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use super::CodeContext;
use super::ending::{Following, following};
use super::split_off::takes_register;
use super::tables::Dispatch;
use super::value::{PageSet, PageSets, Registers};
use crate::decode::aarch64::{MemoryAccess, Operation, Register, WORD};
use crate::decoded_atom::CodeSum;
use reorder_base::address::Address;

/// An instruction that completes an address in the code's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageUse {
    pub(super) target: Address,
    pub(super) from: PageSet,
    pub(super) scale: u8,
    pub(super) is_access: bool,
}

/// The instructions of a function.
#[derive(Clone, Copy)]
pub(super) struct Code<'run> {
    pub(super) words: &'run [u32],
    /// The same, decoded.
    pub(super) operations: &'run [Operation],
}

/// What is known about the inside of a function.
#[derive(Default)]
pub(super) struct FlowFacts {
    /// For each word, whether control reaches it.
    pub(super) is_reached: Vec<bool>,
    /// Whether a word is where paths may meet.
    pub(super) is_joined: Vec<bool>,
    /// Words that complete an address, by index.
    pub(super) uses: BTreeMap<u32, PageUse>,
    /// `ADRP` into the pages of the code: word and page; the position is its number.
    pub(super) pages: Vec<(u32, u64)>,
    /// Numbers of those with a use that is not understood.
    pub(super) unresolved: BTreeSet<u32>,
    /// Numbers of those that are read without completing an address.
    pub(super) read: BTreeSet<u32>,
    /// Jumps through tables.
    pub(super) dispatches: Vec<(u32, Dispatch)>,
    /// Calls through tables, whose entries lead to functions.
    pub(super) calls: Vec<Dispatch>,
    /// Addresses of functions that numbers are added to.
    pub(super) sums: BTreeSet<CodeSum>,
    pub(super) unexplained: Unexplained,
    /// Control runs past the end.
    pub(super) runs_over_end: bool,
    /// The function exceeds the bounds of the interpretation.
    pub(super) is_excessive: bool,
    pub(super) sets: PageSets,
}

/// Jumps and calls to computed addresses that are not understood.
#[derive(Default)]
pub(super) struct Unexplained {
    /// The first of them.
    pub(super) first: Option<u32>,
    /// What numbers were added to.
    pub(super) bases: BTreeSet<u64>,
    /// Some are computed from several addresses and numbers, or in another way.
    pub(super) is_of_anything: bool,
}

impl Unexplained {
    /// `base` is what a number was added to, if that was the only operation.
    pub(super) fn add(&mut self, index: u32, base: Option<u64>) {
        self.first.get_or_insert(index);
        self.bases.extend(base);
        self.is_of_anything |= base.is_none();
    }
}

/// How often a function is interpreted again because tables lead to new places.
const MAX_ROUNDS: usize = 256;
/// Steps for each word of a function, and for entries of tables, over all rounds: loops and tables need a few each.
const STEPS_A_WORD: usize = 512;
const MIN_STEPS: usize = 1 << 20;

/// Interprets the function at `function`; control may also enter at `entries`.
pub(super) fn follow(
    context: &CodeContext<'_>,
    function: &Range<Address>,
    code: Code<'_>,
    entries: &[Address],
) -> FlowFacts {
    let mut is_joined = vec![false; code.words.len()];
    let mut entered: BTreeSet<u32> = BTreeSet::new();
    for entry in entries.iter().filter(|entry| function.contains(entry)) {
        let index = entry.distance_from(function.start) / WORD;
        is_joined[index as usize] = true;
        entered.insert(index as u32);
    }
    for operation in code.operations {
        if let Operation::Branch(target) | Operation::ConditionalBranch(target) = operation
            && function.contains(target)
            && let Some(joined) = is_joined.get_mut((target.distance_from(function.start) / WORD) as usize)
        {
            *joined = true;
        }
    }
    let steps = (code.words.len() * STEPS_A_WORD).max(MIN_STEPS);
    let following = following(context, function);
    let mut round = Round::new(context, function, code, is_joined, entered, steps, following);
    for _ in 0..MAX_ROUNDS {
        if round.run() {
            return round.facts;
        }
        // A table leads to places where no paths were expected to meet: interpret again with these known.
        let Round { facts, entered, steps, .. } = round;
        round = Round::new(context, function, code, facts.is_joined, entered, steps, following);
    }
    round.facts.is_excessive = true;
    round.facts
}

/// No known state.
const NONE: u32 = u32::MAX;

pub(super) struct Round<'run, 'data> {
    pub(super) context: &'run CodeContext<'data>,
    pub(super) function: &'run Range<Address>,
    pub(super) code: Code<'run>,
    pub(super) entered: BTreeSet<u32>,
    /// For each word, the number of the state with which control arrives there, or [`NONE`].
    state_at: Vec<u32>,
    states: Vec<Registers>,
    /// Lower addresses first: the code that falls through to a place is then mostly final.
    work: BTreeSet<u32>,
    /// What the registers hold at any call.
    at_calls: Registers,
    numbers: HashMap<u32, u32>,
    pub(super) facts: FlowFacts,
    /// Steps that are left.
    pub(super) steps: usize,
    pub(super) has_new_joins: bool,
    /// What follows the function: decides whether control may run past its end after a call.
    pub(super) following: Following,
}

impl<'run, 'data> Round<'run, 'data> {
    fn new(
        context: &'run CodeContext<'data>,
        function: &'run Range<Address>,
        code: Code<'run>,
        is_joined: Vec<bool>,
        entered: BTreeSet<u32>,
        steps: usize,
        following: Following,
    ) -> Self {
        let length = code.words.len();
        let facts = FlowFacts { is_reached: vec![false; length], is_joined, ..FlowFacts::default() };
        Self {
            context,
            function,
            code,
            entered,
            state_at: vec![NONE; length],
            states: Vec::new(),
            work: BTreeSet::new(),
            at_calls: Registers::dead(),
            numbers: HashMap::new(),
            facts,
            steps,
            has_new_joins: false,
            following,
        }
    }

    /// Interprets until no state changes; false when unknown places were found where paths meet. Goes on to the end even
    /// then: the next round knows the places of all tables at once.
    fn run(&mut self) -> bool {
        self.enter(0, &Registers::unknown());
        for index in self.entered.clone() {
            let place = self.function.start.plus(u64::from(index) * WORD);
            // The calls decide the state at a landing pad: before one is seen, no state arrives there.
            match self.context.landing_pads.binary_search(&place) {
                Ok(_) => self.enter(index, &Registers::dead()),
                Err(_) => self.enter(index, &Registers::unknown()),
            }
        }
        while let Some(index) = self.work.pop_first() {
            if self.facts.sets.is_excessive() || self.steps == 0 {
                self.facts.is_excessive = true;
                return true;
            }
            let registers = self.states[self.state_at[index as usize] as usize].clone();
            self.interpret(index, registers);
        }
        !self.has_new_joins
    }

    /// A call, after which control may also go on at a landing pad.
    pub(super) fn call(&mut self, registers: &mut Registers) {
        registers.call(self.context.not_returned);
        if !self.entered.is_empty() && self.at_calls.join(&registers.preserved(), &mut self.facts.sets) {
            self.enter_everywhere(&self.at_calls.clone());
        }
    }

    /// Control goes on at any of the places that are not entered by branches.
    pub(super) fn enter_everywhere(&mut self, registers: &Registers) {
        for index in self.entered.clone() {
            self.steps = self.steps.saturating_sub(1);
            self.enter(index, registers);
        }
    }

    /// Control leaves for a place in the code; the registers are not followed there. Other sections hold stubs, which lead
    /// to functions.
    pub(super) fn leave(&mut self, target: Address, registers: &Registers) {
        if self.function.contains(&target) || !self.context.text.contains(&target) {
            return;
        }
        match self.context.starts.binary_search(&target) {
            Ok(_) => self.take_away(target, registers),
            Err(_) => registers.all().for_each(|value| self.not_understood(value)),
        }
    }

    /// Control goes to the function at `target`, which may be a part that was split off from this one and may complete a
    /// page that a register holds.
    pub(super) fn take_away(&mut self, target: Address, registers: &Registers) {
        if self.function.contains(&target) || !self.context.text.contains(&target) {
            return;
        }
        for (register, value) in registers.pages() {
            self.steps = self.steps.saturating_sub(1);
            if takes_register(self.context, target, register) {
                self.not_understood(value);
            }
        }
    }

    pub(super) fn operation(&self, index: u32) -> Operation {
        self.code.operations[index as usize]
    }

    /// The use of an `ADRP` in the next instruction, if that also replaces the register, so that no later instruction uses
    /// it.
    pub(super) fn use_after(
        &self,
        index: u32,
        register: Register,
        page: Address,
    ) -> Option<(Address, u8, bool)> {
        let next = index + 1;
        if *self.facts.is_joined.get(next as usize)? {
            return None;
        }
        match self.operation(next) {
            Operation::AddImmediate(to, from, number)
                if to == register && from == register && number < 4096 =>
            {
                Some((page.plus(number), 0, false))
            }
            Operation::Access(base, offset, MemoryAccess { scale, loads: Some(to), .. })
                if base == register && to == register && offset < 4096 =>
            {
                Some((page.plus(offset), scale, true))
            }
            _ => None,
        }
    }

    pub(super) fn number_of(&mut self, index: u32, page: u64) -> u32 {
        let pages = &mut self.facts.pages;
        *self.numbers.entry(index).or_insert_with(|| {
            pages.push((index, page));
            pages.len() as u32 - 1
        })
    }

    pub(super) fn enter(&mut self, index: u32, registers: &Registers) {
        let number = &mut self.state_at[index as usize];
        let has_changed = match self.states.get_mut(*number as usize) {
            Some(known) => known.join(registers, &mut self.facts.sets),
            None => {
                *number = self.states.len() as u32;
                self.states.push(registers.clone());
                true
            }
        };
        if has_changed {
            self.work.insert(index);
        }
    }

    pub(super) fn enter_address(&mut self, target: Address, registers: &Registers) {
        if self.function.contains(&target) {
            self.enter((target.distance_from(self.function.start) / WORD) as u32, registers);
        }
    }
}
