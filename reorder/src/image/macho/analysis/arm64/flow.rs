//! Follows control and addresses through one function: what is reached, and what each `ADRP` into `__text` is for.
//!
//! An abstract interpretation over straight runs of instructions. At each place where paths meet, the registers hold what
//! holds on all of them; a landing pad starts with registers that may hold any page that this function ever puts into them,
//! and a place that a pointer leads to with what any jump to a pointer brings. So an address that is formed is found, or
//! its `ADRP` counts as not understood.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use super::Arm64Context;
use super::tables::Dispatch;
use super::value::{PageSet, PageSets, Registers, Value};
use crate::address::Address;
use crate::image::decode::aarch64::{MemoryAccess, Operation, Register, WORD, decode, uses};

/// Registers that a call may replace: x0 to x18 and the link register.
const CALL_CLOBBERED: u32 = 0x4007_ffff;

/// Registers that calls, and so the unwinder, leave as they were.
const PRESERVED: std::ops::RangeInclusive<u8> = 19..=29;

/// An instruction that completes an address in `__text`'s pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageUse {
    pub(super) target: Address,
    pub(super) from: PageSet,
    pub(super) scale: u8,
    pub(super) is_access: bool,
}

/// What is known about a function's inside.
#[derive(Default)]
pub(super) struct FlowFacts {
    /// For each word, whether control reaches it.
    pub(super) is_reached: Vec<bool>,
    /// Whether a word is where paths may meet.
    pub(super) is_joined: Vec<bool>,
    /// Words that complete an address, by index.
    pub(super) uses: BTreeMap<u32, PageUse>,
    /// `ADRP` into the pages of `__text`: word and page, by number.
    pub(super) pages: Vec<(u32, u64)>,
    /// Numbers of those of which a use is not understood.
    pub(super) unresolved: BTreeSet<u32>,
    /// Jumps through tables.
    pub(super) dispatches: Vec<(u32, Dispatch)>,
    /// Calls through tables, whose entries lead to functions.
    pub(super) calls: Vec<Dispatch>,
    /// The first jump to a computed address that is not understood.
    pub(super) unexplained_jump: Option<u32>,
    /// Control runs over the end.
    pub(super) runs_over_end: bool,
    /// The function is beyond all bounds.
    pub(super) is_excessive: bool,
    pub(super) sets: PageSets,
}

/// A function is interpreted anew for places that tables lead to no more often than this.
const MOST_ROUNDS: usize = 256;
/// Steps for each word of a function, and for entries of tables, over all rounds: loops and tables need a few each.
const STEPS_A_WORD: usize = 512;
const LEAST_STEPS: usize = 1 << 20;

/// Interprets the function at `function`, whose words are `words`; control may also enter at `entries`.
pub(super) fn follow(
    context: &Arm64Context<'_>,
    function: &Range<Address>,
    words: &[u32],
    entries: &[Address],
) -> FlowFacts {
    let mut is_joined = vec![false; words.len()];
    let mut entered: BTreeSet<u32> = BTreeSet::new();
    for entry in entries.iter().filter(|entry| function.contains(entry)) {
        let index = entry.distance_from(function.start) / WORD;
        is_joined[index as usize] = true;
        entered.insert(index as u32);
    }
    for (index, &word) in words.iter().enumerate() {
        let place = function.start.plus(index as u64 * WORD);
        if let Operation::Branch(target) | Operation::ConditionalBranch(target) = decode(word, place)
            && function.contains(&target)
            && let Some(joined) = is_joined.get_mut((target.distance_from(function.start) / WORD) as usize)
        {
            *joined = true;
        }
    }
    let steps = (words.len() * STEPS_A_WORD).max(LEAST_STEPS);
    let mut round = Round::new(context, function, words, is_joined, entered, steps);
    for _ in 0..MOST_ROUNDS {
        if round.run() {
            return round.facts;
        }
        // A table leads to places that were passed as if nothing met there: once more, with these known.
        let Round { facts, entered, steps, .. } = round;
        round = Round::new(context, function, words, facts.is_joined, entered, steps);
    }
    round.facts.is_excessive = true;
    round.facts
}

struct Round<'run, 'data> {
    context: &'run Arm64Context<'data>,
    function: &'run Range<Address>,
    words: &'run [u32],
    entered: BTreeSet<u32>,
    states: HashMap<u32, Registers>,
    work: Vec<u32>,
    numbers: HashMap<u32, u32>,
    facts: FlowFacts,
    /// What may still be done.
    steps: usize,
    has_new_joins: bool,
}

impl<'run, 'data> Round<'run, 'data> {
    fn new(
        context: &'run Arm64Context<'data>,
        function: &'run Range<Address>,
        words: &'run [u32],
        is_joined: Vec<bool>,
        entered: BTreeSet<u32>,
        steps: usize,
    ) -> Self {
        let facts = FlowFacts { is_reached: vec![false; words.len()], is_joined, ..FlowFacts::default() };
        Self {
            context,
            function,
            words,
            entered,
            states: HashMap::new(),
            work: Vec::new(),
            numbers: HashMap::new(),
            facts,
            steps,
            has_new_joins: false,
        }
    }

    /// Until nothing changes; false when places were found where paths meet that were not known.
    fn run(&mut self) -> bool {
        self.enter(0, &Registers::unknown());
        let anything = self.anything();
        for index in self.entered.clone() {
            self.enter(index, &anything);
        }
        while let Some(index) = self.work.pop() {
            if self.has_new_joins {
                return false;
            }
            if self.facts.sets.is_excessive() || self.steps == 0 {
                self.facts.is_excessive = true;
                return true;
            }
            if let Some(registers) = self.states.get(&index).cloned() {
                self.interpret(index, registers);
            }
        }
        !self.has_new_joins
    }

    /// Registers as at a landing pad: those that calls preserve may hold every page that the function ever puts into them.
    fn anything(&mut self) -> Registers {
        let mut by_register: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
        for index in 0..self.words.len() as u32 {
            if let Operation::Adrp(register, page) = self.operation(index)
                && self.is_for_text(index, register, page)
            {
                by_register.entry(register.0).or_default().push(self.number_of(index, page.0));
            }
        }
        self.follow_copies(&mut by_register);
        let mut registers = Registers::unknown();
        for (register, mut members) in
            by_register.into_iter().filter(|(register, _)| PRESERVED.contains(register))
        {
            members.sort_unstable();
            members.dedup();
            let set = self.facts.sets.of(members);
            registers.set(Register(register), Value::MaybePage(set));
        }
        registers
    }

    /// Pages are also in the registers that they are copied to.
    fn follow_copies(&self, by_register: &mut BTreeMap<u8, Vec<u32>>) {
        if by_register.is_empty() {
            return;
        }
        let copies: BTreeSet<(u8, u8)> = (0..self.words.len() as u32)
            .filter_map(|index| match self.operation(index) {
                Operation::Move(to, from) if to != from => Some((from.0, to.0)),
                _ => None,
            })
            .collect();
        // No chain of copies is longer than there are registers.
        for _ in 0..32 {
            for (from, to) in &copies {
                let pages = by_register.get(from).cloned().unwrap_or_default();
                if !pages.is_empty() {
                    let known = by_register.entry(*to).or_default();
                    known.extend(pages);
                    known.sort_unstable();
                    known.dedup();
                }
            }
        }
    }

    /// Control leaves for a place that is no function: what it finds in registers there is not followed.
    fn leave(&mut self, target: Address, registers: &Registers) {
        if self.function.contains(&target) || self.context.starts.binary_search(&target).is_ok() {
            return;
        }
        registers.all().for_each(|value| self.not_understood(value));
    }

    fn place(&self, index: u32) -> Address {
        self.function.start.plus(u64::from(index) * WORD)
    }

    fn operation(&self, index: u32) -> Operation {
        decode(self.words[index as usize], self.place(index))
    }

    /// Whether an `ADRP` of this page may be for an address in `__text`, and its use does not stand right behind it.
    fn is_for_text(&self, index: u32, register: Register, page: Address) -> bool {
        self.context.shares_page(page) && self.use_behind(index, register, page).is_none()
    }

    /// The use of an `ADRP` in the next instruction, if that also replaces the register, so that no other can use it.
    fn use_behind(&self, index: u32, register: Register, page: Address) -> Option<(Address, u8, bool)> {
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

    fn number_of(&mut self, index: u32, page: u64) -> u32 {
        let pages = &mut self.facts.pages;
        *self.numbers.entry(index).or_insert_with(|| {
            pages.push((index, page));
            pages.len() as u32 - 1
        })
    }

    fn enter(&mut self, index: u32, registers: &Registers) {
        let has_changed = match self.states.get_mut(&index) {
            Some(known) => known.join(registers, &mut self.facts.sets),
            None => {
                self.states.insert(index, registers.clone());
                true
            }
        };
        if has_changed {
            self.work.push(index);
        }
    }

    fn enter_address(&mut self, target: Address, registers: &Registers) {
        if self.function.contains(&target) {
            self.enter((target.distance_from(self.function.start) / WORD) as u32, registers);
        }
    }

    fn interpret(&mut self, first: u32, mut registers: Registers) {
        let mut index = first;
        loop {
            if index as usize >= self.words.len() {
                if !self.ends_with_call() {
                    self.facts.runs_over_end = true;
                    registers.all().for_each(|value| self.not_understood(value));
                }
                return;
            }
            if index != first && self.facts.is_joined[index as usize] {
                self.enter(index, &registers);
                return;
            }
            self.facts.is_reached[index as usize] = true;
            self.steps = self.steps.saturating_sub(1);
            match self.operation(index) {
                Operation::Branch(target) => {
                    self.leave(target, &registers);
                    return self.enter_address(target, &registers);
                }
                Operation::ConditionalBranch(target) => {
                    self.read(index, &registers);
                    self.leave(target, &registers);
                    self.enter_address(target, &registers);
                }
                Operation::BranchRegister(register) => return self.jump(index, register, &registers),
                Operation::Return | Operation::Trap | Operation::Invalid => return,
                Operation::Call(_) => registers.lose_chosen(CALL_CLOBBERED),
                Operation::CallRegister(register) => {
                    self.read(index, &registers);
                    match registers.get(register) {
                        Value::Sum { base, table, size, is_signed, shift } => {
                            let (base, table) = (Address(base), Address(table));
                            self.facts.calls.push(Dispatch { base, table, size, is_signed, shift });
                            self.facts.unexplained_jump.get_or_insert(index);
                        }
                        Value::Computed | Value::Entry { .. } => {
                            self.facts.unexplained_jump.get_or_insert(index);
                        }
                        _ => {}
                    }
                    registers.lose_chosen(CALL_CLOBBERED);
                }
                operation => {
                    if let Some(value) = self.adrp_pair(index, operation) {
                        let (register, value) = value;
                        registers.set(register, value);
                        self.facts.is_reached[index as usize + 1] = true;
                        index += 1;
                    } else {
                        self.step(index, operation, &mut registers);
                    }
                }
            }
            index += 1;
        }
    }

    /// Whether nothing but padding stands behind the last call, which then does not come back.
    fn ends_with_call(&self) -> bool {
        let last = (0..self.words.len() as u32).rev().map(|index| self.operation(index));
        let last = last.into_iter().find(|operation| *operation != Operation::Nop);
        matches!(last, Some(Operation::Call(_) | Operation::CallRegister(_)))
    }

    fn adrp_pair(&mut self, index: u32, operation: Operation) -> Option<(Register, Value)> {
        let Operation::Adrp(register, page) = operation else { return None };
        if !self.context.shares_page(page) {
            return None;
        }
        let (target, scale, is_access) = self.use_behind(index, register, page)?;
        let number = self.number_of(index, page.0);
        let from = self.facts.sets.of(vec![number]);
        self.facts.uses.insert(index + 1, PageUse { target, from, scale, is_access });
        Some((register, if is_access { Value::Unknown } else { Value::Address(target.0) }))
    }

    fn step(&mut self, index: u32, operation: Operation, registers: &mut Registers) {
        match operation {
            Operation::Adr(register, target) => registers.set(register, Value::Address(target.0)),
            Operation::Adrp(register, page) if self.context.shares_page(page) => {
                let number = self.number_of(index, page.0);
                let from = self.facts.sets.of(vec![number]);
                registers.set(register, Value::Page { page: page.0, from });
            }
            Operation::Adrp(register, page) => registers.set(register, Value::Address(page.0)),
            Operation::AddImmediate(to, source, number) => {
                let value = match registers.get(source) {
                    Value::Page { page, from } if number < 4096 => {
                        self.complete(index, page, from, number, 0, false);
                        Value::Address(page.wrapping_add(number))
                    }
                    Value::Address(address) => Value::Address(address.wrapping_add(number)),
                    other => {
                        self.not_understood(other);
                        Value::computed_of(std::iter::once(other))
                    }
                };
                registers.set(to, value);
            }
            Operation::Access(base, offset, access) => {
                match registers.get(base) {
                    Value::Page { page, from } if offset < 4096 => {
                        self.complete(index, page, from, offset, access.scale, true);
                    }
                    other => self.not_understood(other),
                }
                if let Some(register) = access.stores {
                    self.not_understood(registers.get(register));
                }
                if let Some(register) = access.loads {
                    registers.set(register, Value::Unknown);
                }
            }
            Operation::IndexedLoad(to, base, size, is_signed) => {
                self.read(index, registers);
                let value = match registers.get(base) {
                    Value::Address(table) if size < 8 => Value::Entry { table, size, is_signed },
                    _ => Value::Unknown,
                };
                registers.set(to, value);
            }
            Operation::AddRegister(to, first, second, shift, _) => {
                self.read(index, registers);
                let value = match (registers.get(first), registers.get(second)) {
                    (Value::Address(base), Value::Entry { table, size, is_signed }) => {
                        Value::Sum { base, table, size, is_signed, shift }
                    }
                    (Value::Entry { table, size, is_signed }, Value::Address(base)) if shift == 0 => {
                        Value::Sum { base, table, size, is_signed, shift }
                    }
                    operands => Value::computed_of(<[Value; 2]>::from(operands).into_iter()),
                };
                registers.set(to, value);
            }
            Operation::Move(to, source) => registers.set(to, registers.get(source)),
            _ => self.other(index, operation, registers),
        }
    }

    fn other(&mut self, index: u32, operation: Operation, registers: &mut Registers) {
        self.read(index, registers);
        let word = self.words[index as usize];
        if word >> 25 & 0xf == 0b0010 {
            // Scalable vectors. Only the first field can be a general register that is written; forgetting what any
            // register holds would make a computed jump look like one to a pointer.
            let register = Register::at(word, 0);
            if registers.get(register) != Value::Unknown {
                registers.set(register, Value::Computed);
            }
            return;
        }
        let used = uses(word);
        let is_arithmetic = matches!(word >> 25 & 0xf, 0b1000 | 0b1001 | 0b0101 | 0b1101);
        let is_selection = word & 0x1fe0_0000 == 0x1a80_0000;
        let value = match operation {
            Operation::LoadLiteral(..) => Value::Unknown,
            _ if is_selection => Value::selected_of(registers.chosen(used.reads)),
            _ if is_arithmetic => Value::computed_of(registers.chosen(used.reads)),
            _ => Value::Unknown,
        };
        registers.set_chosen(used.writes, value);
        registers.lose_chosen(used.may_write);
    }

    /// What reads a raw page in another way than completing an address is not understood.
    fn read(&mut self, index: u32, registers: &Registers) {
        let reads = uses(self.words[index as usize]).reads;
        let pages: Vec<Value> = registers.chosen(reads).filter(|value| value.pages().is_some()).collect();
        pages.into_iter().for_each(|value| self.not_understood(value));
    }

    fn not_understood(&mut self, value: Value) {
        if let Some(from) = value.pages() {
            let members = self.facts.sets.members(from).iter();
            self.facts.unresolved.extend(members);
        }
    }

    fn complete(&mut self, index: u32, page: u64, from: PageSet, offset: u64, scale: u8, is_access: bool) {
        let target = Address(page.wrapping_add(offset));
        self.facts.uses.insert(index, PageUse { target, from, scale, is_access });
    }

    fn jump(&mut self, index: u32, register: Register, registers: &Registers) {
        self.read(index, registers);
        match registers.get(register) {
            Value::Sum { base, table, size, is_signed, shift } => {
                let (base, table) = (Address(base), Address(table));
                let dispatch = Dispatch { base, table, size, is_signed, shift };
                if !self.facts.dispatches.contains(&(index, dispatch)) {
                    self.facts.dispatches.push((index, dispatch));
                }
                for (_, target) in dispatch.targets(self.context, self.function) {
                    self.steps = self.steps.saturating_sub(1);
                    let at = (target.distance_from(self.function.start) / WORD) as u32;
                    if !std::mem::replace(&mut self.facts.is_joined[at as usize], true) {
                        self.has_new_joins = true;
                    }
                    self.enter(at, registers);
                }
            }
            Value::Number | Value::Computed | Value::Entry { .. } => {
                self.facts.unexplained_jump.get_or_insert(index);
            }
            Value::Address(target) if self.function.contains(&Address(target)) => {
                let at = ((target - self.function.start.0) / WORD) as u32;
                if !std::mem::replace(&mut self.facts.is_joined[at as usize], true) {
                    self.has_new_joins = true;
                }
                self.enter(at, registers);
            }
            // A pointer: where it leads outside is its own matter; inside, there is an entry for it.
            _ => {
                for index in self.entered.clone() {
                    self.steps = self.steps.saturating_sub(1);
                    self.enter(index, registers);
                }
            }
        }
    }
}
