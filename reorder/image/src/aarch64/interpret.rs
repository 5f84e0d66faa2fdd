//! What single instructions do to the registers of a [`Round`].

use super::compare::{compared_after, known_after};
use super::ending::{Following, comes_back};
use super::flow::{PageUse, Round};
use super::tables::Dispatch;
use super::value::{Entries, PageSet, Registers, Value};
use crate::decode::aarch64::{NOP, Operation, Register, WORD, uses};
use crate::decoded_atom::{CodeSum, MAX_PATCHABLE_BYTES};
use reorder_base::address::Address;

impl Round<'_, '_> {
    pub(super) fn interpret(&mut self, first: u32, mut registers: Registers) {
        let mut index = first;
        let mut compared = None;
        // The call directly before.
        let mut called = None;
        loop {
            if index as usize >= self.code.words.len() {
                if called.is_none_or(|call| self.returns_at_end(call)) {
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
                    called = None;
                    self.read(index, &registers);
                    self.leave(target, &registers);
                    let word = self.code.words[index as usize];
                    match compared.and_then(|compared| known_after(word, compared)) {
                        Some(known) if known.where_taken => {
                            let mut there = registers.clone();
                            there.bound(known.register, known.limit);
                            self.enter_address(target, &there);
                        }
                        known => {
                            self.enter_address(target, &registers);
                            if let Some(known) = known {
                                registers.bound(known.register, known.limit);
                            }
                        }
                    }
                }
                Operation::BranchRegister(register) => return self.jump(index, register, &registers),
                Operation::Return | Operation::Trap | Operation::Invalid => return,
                operation @ Operation::Call(target) => {
                    self.take_away(target, &registers);
                    self.call(&mut registers);
                    called = Some(operation);
                }
                Operation::Nop if called.is_some() => {}
                Operation::CallRegister(register) => {
                    self.read(index, &registers);
                    match registers.get(register) {
                        Value::Sum { base, entries, shift } => {
                            let call = Dispatch::new(base, entries, shift);
                            if !self.facts.calls.contains(&call) {
                                self.facts.calls.push(call);
                            }
                            self.facts.unexplained.add(index, Some(base));
                        }
                        // A switch never calls its cases: the number may come from anywhere.
                        Value::Offset(_) | Value::Computed | Value::Entry(_) => {
                            self.facts.unexplained.add(index, None);
                        }
                        _ => {}
                    }
                    self.call(&mut registers);
                    called = Some(Operation::CallRegister(register));
                }
                operation => {
                    called = None;
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
            compared = compared_after(self.code.words[index as usize], compared);
            index += 1;
        }
    }

    /// Whether a call that is the last instruction returns, so that control runs into what follows.
    fn returns_at_end(&self, call: Operation) -> bool {
        match (self.following, call) {
            (Following::Rest, _) => true,
            (Following::Either, Operation::Call(target)) => comes_back(self.context, target),
            _ => false,
        }
    }

    fn adrp_pair(&mut self, index: u32, operation: Operation) -> Option<(Register, Value)> {
        let Operation::Adrp(register, page) = operation else { return None };
        if !self.context.shares_page(page) {
            return None;
        }
        let (target, scale, is_access) = self.use_after(index, register, page)?;
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
                    Value::Address(address) => {
                        self.add_to_code(Value::Address(address), Value::Number, 0);
                        Value::Address(address.wrapping_add(number))
                    }
                    other => {
                        self.add_to_code(other, Value::Number, 0);
                        self.not_understood(other);
                        Value::computed_of(std::iter::once(other))
                    }
                };
                registers.set(to, value);
            }
            Operation::Access(base, offset, access) => {
                let slot = match registers.get(base) {
                    Value::Page { page, .. } | Value::Address(page) => {
                        Some(Address(page.wrapping_add(offset)))
                    }
                    _ => None,
                };
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
                    let slot = slot.filter(|_| access.scale == 3);
                    registers.set(register, slot.map_or(Value::Unknown, |slot| self.loaded(slot)));
                }
            }
            Operation::IndexedLoad(to, base, size, is_signed) => {
                self.take(index, registers);
                let word = self.code.words[index as usize];
                // An unscaled index counts bytes.
                let counts_entries = size == 1 || word >> 12 & 1 == 1;
                let most = match registers.get(Register::at(word, 16)) {
                    Value::Below(most) if counts_entries => most,
                    _ => u32::MAX,
                };
                self.add_to_code(registers.get(base), Value::Number, 0);
                let value = match registers.get(base) {
                    Value::Address(table) if size < 8 => {
                        Value::Entry(Entries { table, size, is_signed, most })
                    }
                    _ => Value::Unknown,
                };
                registers.set(to, value);
            }
            Operation::AddRegister(to, first, second, shift, extension) => {
                self.take(index, registers);
                let (first, second) = (registers.get(first), registers.get(second).extended(extension));
                self.add_to_code(first, second, shift);
                self.add_to_code(second, first, 0);
                registers.set(to, Value::sum_of(first, second, shift));
            }
            Operation::Move(to, source) => registers.set(to, registers.get(source)),
            _ => self.other(index, operation, registers),
        }
    }

    fn other(&mut self, index: u32, operation: Operation, registers: &mut Registers) {
        self.take(index, registers);
        let word = self.code.words[index as usize];
        if word >> 25 & 0xf == 0b0010 {
            // Scalable vectors. Only the first field can be a general register that is written; forgetting all registers
            // would make a computed jump look like one to a pointer.
            let register = Register::at(word, 0);
            if registers.get(register) != Value::Unknown {
                registers.set(register, Value::Computed);
            }
            return;
        }
        // MOV of a register, 32 bits: keeps the bound from a comparison.
        if word & 0xffe0_ffe0 == 0x2a00_03e0
            && let below @ Value::Below(_) = registers.get(Register::at(word, 16))
        {
            return registers.set(Register::at(word, 0), below);
        }
        for &bit in summands(word) {
            self.add_to_code(registers.get(Register::at(word, bit)), Value::Number, 0);
        }
        let used = uses(word);
        let is_arithmetic = matches!(word >> 25 & 0xf, 0b1000 | 0b1001 | 0b0101 | 0b1101);
        let is_selection = word & 0x1fe0_0000 == 0x1a80_0000;
        let value = match operation {
            Operation::LoadLiteral(_, place) if word >> 30 == 1 => self.loaded(place),
            Operation::LoadLiteral(..) => Value::Unknown,
            // The C library mangles pointers by an exclusive or with a secret; distances are never mangled.
            _ if is_unmasking(word, registers) => Value::Unknown,
            _ if is_selection => Value::selected_of(registers.chosen(used.reads)),
            _ if is_arithmetic => Value::computed_of(registers.chosen(used.reads)),
            _ => Value::Unknown,
        };
        registers.set_chosen(used.writes, value);
        registers.lose_chosen(used.may_write);
    }

    /// What a load of the eight bytes at `place` gives.
    fn loaded(&self, place: Address) -> Value {
        self.context.loaded_at(place).map_or(Value::Unknown, |target| Value::Loaded(target.0))
    }

    /// `number`, shifted, is added to `base`: if `base` is the address of a function, the sum may lead to another one.
    fn add_to_code(&mut self, base: Value, number: Value, shift: u8) {
        let Some(base) = base.address().map(Address) else { return };
        if !self.enters_function(base) || number.address().is_some() {
            return;
        }
        self.facts.sums.insert(CodeSum { base, shift });
    }

    /// Whether a function starts at `place`, or only no-operations separate `place` from its start, as at the entry of a
    /// patchable function whose symbol was stripped.
    fn enters_function(&self, place: Address) -> bool {
        let starts = &self.context.starts;
        let Some(next) = starts.get(starts.partition_point(|start| *start < place)) else { return false };
        let room = next.distance_from(place);
        let is_filler = |bytes: &[u8]| bytes.chunks(WORD as usize).all(|word| word == NOP.to_le_bytes());
        room == 0
            || room <= MAX_PATCHABLE_BYTES && self.context.image.bytes_at(place, room).is_some_and(is_filler)
    }

    /// An instruction that reads a raw page without completing an address is understood only if the page stays the same.
    fn read(&mut self, index: u32, registers: &Registers) {
        let reads = uses(self.code.words[index as usize]).reads;
        for from in registers.chosen(reads).filter_map(Value::pages) {
            let members = self.facts.sets.members(from).iter();
            self.facts.read.extend(members);
        }
    }

    /// An instruction that stores a page, moves it to a vector or adds it: the address may be completed there unseen.
    fn take(&mut self, index: u32, registers: &Registers) {
        self.read(index, registers);
        let reads = uses(self.code.words[index as usize]).reads;
        let pages = registers.chosen(reads).filter(|value| matches!(value, Value::Page { .. }));
        pages.for_each(|value| self.not_understood(value));
    }

    pub(super) fn not_understood(&mut self, value: Value) {
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
            Value::Sum { base, entries, shift } => {
                let dispatch = Dispatch::new(base, entries, shift);
                let is_same = |known: &(u32, Dispatch)| {
                    known.0 == index && Dispatch { most: dispatch.most, ..known.1 } == dispatch
                };
                // Where paths meet, the larger bound holds.
                match self.facts.dispatches.iter_mut().find(|known| is_same(known)) {
                    Some((_, known)) => known.most = known.most.max(dispatch.most),
                    None => self.facts.dispatches.push((index, dispatch)),
                }
                for target in dispatch.entered(self.context, self.function) {
                    self.steps = self.steps.saturating_sub(1);
                    let at = (target.distance_from(self.function.start) / WORD) as u32;
                    if !std::mem::replace(&mut self.facts.is_joined[at as usize], true) {
                        self.has_new_joins = true;
                    }
                    self.enter(at, registers);
                }
            }
            Value::Offset(base) => self.facts.unexplained.add(index, Some(base)),
            Value::Number | Value::Below(_) | Value::Computed | Value::Entry(_) => {
                self.facts.unexplained.add(index, None);
            }
            Value::Address(target) if self.function.contains(&Address(target)) => {
                let at = ((target - self.function.start.0) / WORD) as u32;
                if !std::mem::replace(&mut self.facts.is_joined[at as usize], true) {
                    self.has_new_joins = true;
                }
                self.enter(at, registers);
            }
            // A pointer: its targets outside the function do not matter here; those inside are entries.
            _ => self.enter_everywhere(registers),
        }
    }
}

/// The positions of the source registers of `SUB` and multiply-add, 64 bits, whose sums are tracked.
fn summands(word: u32) -> &'static [u32] {
    match word {
        _ if Register::at(word, 0) == Register::NONE => &[],
        _ if word & 0xdf80_0000 == 0xd100_0000 => &[5],
        _ if word & 0xdf00_0000 == 0xcb00_0000 => &[5, 16],
        _ if word & 0xffe0_0000 == 0x9b00_0000 => &[5, 16, 10],
        _ => &[],
    }
}

/// `EOR` of registers, 64 bits, of two values from elsewhere.
fn is_unmasking(word: u32, registers: &Registers) -> bool {
    let operands = [5, 16].map(|bit| registers.get(Register::at(word, bit)));
    let came_from_elsewhere = |value: &Value| matches!(value, Value::Unknown | Value::Loaded(_));
    word & 0xff20_0000 == 0xca00_0000 && operands.iter().all(came_from_elsewhere)
}
