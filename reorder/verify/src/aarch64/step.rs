//! Executes one word of both images: the registers after it, and whether the step was sound.

use super::code_pair::CodePair;
use super::effects::effects;
use super::flow::{Flow, MAYBE, SAME, State, Value};
use super::form::{Form, IMMEDIATE, NOP, form, is_add, page_offset, register};

/// What a call does not preserve: x0 to x18 and the link register.
const LOST_BY_CALL: std::ops::RangeInclusive<usize> = 0..=18;
const LINK: usize = 30;

impl Flow<'_> {
    /// Executes one word of both images; the error says what was expected. The state is updated in both cases.
    pub(super) fn step(&mut self, index: usize, state: &mut State) -> Result<(), String> {
        let (old, new) = self.code.words(index);
        let (from, to) = self.code.addresses(index);
        let kind = self.code.form(index);
        if kind == Form::Plain && form(old) != Form::Plain {
            return if old == new { Ok(()) } else { Err(format!("{old:#010x}")) };
        }
        let destination = register(old, 0);
        let base = register(old, 5);
        if kind == Form::Adrp {
            return self.step_page(index, state, kind.target(old, from));
        }
        if kind == Form::Adr
            && (form(new) == Form::Adrp && register(new, 0) == destination && destination != 31)
        {
            let (target, page) = (kind.target(old, from), Form::Adrp.target(new, to));
            state[destination] = self.number(Value::Ahead { target, page }, index);
            return Ok(());
        }
        if old == NOP && new != NOP {
            return self.step_filled(index, state, new);
        }
        if matches!(kind, Form::Adr | Form::Literal)
            && let Value::Early { page } = self.value(state, destination)
        {
            let completes = match kind {
                Form::Adr => is_add(new),
                _ => paired_load(old).is_some_and(|load| new & !IMMEDIATE == load),
            };
            let is_complete = completes && register(new, 0) == destination && register(new, 5) == destination;
            let number = state[destination] & !MAYBE;
            self.uses[number as usize].completes = true;
            state[destination] = SAME;
            let found = page.wrapping_add(page_offset(new).unwrap_or(0));
            return match is_complete && self.code.images.follows(kind.target(old, from), found) {
                true => Ok(()),
                false => Err(format!("the rest of {}", self.code.images.expected(kind.target(old, from)))),
            };
        }
        if let Some(source) = moved_register(old).filter(|_| old == new) {
            // A page may be copied to another register; halves of addresses may not.
            let is_open = |value| matches!(value, Value::Ahead { .. } | Value::Early { .. });
            let is_cut = is_open(self.value(state, destination));
            state[destination] = state[source];
            return match is_cut || is_open(self.value(state, destination)) {
                true => Err("the second half of an address before this".to_owned()),
                false => Ok(()),
            };
        }
        let mut verdict = Ok(());
        let mut effects = effects(old);
        if let Some(low) = page_offset(old)
            && state[base] != SAME
        {
            verdict = self.step_use(old, new, low, state[base]);
            effects.reads &= !(1 << base);
            // A store of the page itself is a use that is not understood.
            if is_store(old) && destination == base {
                effects.reads |= 1 << base;
            }
        } else if kind == Form::Plain {
            if old != new {
                verdict = Err(format!("{old:#010x}"));
            }
        } else if let Some(reason) = self.leaves_with_page(kind, index, state) {
            verdict = Err(reason);
        } else if !self.code.corresponds(kind, index) {
            verdict = Err(format!("a reference to {}", self.code.images.expected(kind.target(old, from))));
        }
        for number in 0..31 {
            if effects.reads & 1 << number != 0 && state[number] != SAME {
                let value = (state[number] & !MAYBE) as usize;
                match self.values[value] {
                    // The page is the same in both images: sound unless it is also used to address functions.
                    Value::Page { old, new } if old == new => {
                        self.uses[value].read.get_or_insert(index);
                    }
                    _ => verdict = verdict.and(Err("no use of a page whose functions moved".to_owned())),
                }
            }
            if effects.writes & 1 << number != 0 || effects.is_call && is_lost(number) {
                // A half address that is overwritten here was never completed.
                let is_open = matches!(self.value(state, number), Value::Ahead { .. } | Value::Early { .. });
                if is_open {
                    verdict = verdict.and(Err("the second half of an address before this".to_owned()));
                }
                state[number] = SAME;
            }
        }
        verdict
    }

    /// What is wrong with a jump to another piece of code, if anything. The target may use registers: a page that differs in
    /// the new image would be completed there as if it were the same. Only an unconditional jump may be a tail call, after
    /// which only callee-saved registers matter.
    fn leaves_with_page(&self, kind: Form, index: usize, state: &State) -> Option<String> {
        let leaves = kind.is_jump() && kind != Form::Call && own_target(self.code, kind, index).is_none();
        if !leaves
            || !self.code.images.is_text(kind.target(self.code.words(index).0, self.code.addresses(index).0))
        {
            return None;
        }
        let kept = if kind == Form::Branch { 19..=28 } else { 0..=30 };
        let is_taken = kept.into_iter().any(|number| match self.value(state, number) {
            Value::Same => false,
            Value::Page { old, new } => old != new,
            Value::Several | Value::Ahead { .. } | Value::Early { .. } => true,
        });
        is_taken.then(|| "no page whose functions moved in a register where control leaves".to_owned())
    }

    fn value(&self, state: &State, register: usize) -> Value {
        self.values[(state[register] & !MAYBE) as usize]
    }

    /// `ADRP` in the old image.
    fn step_page(&mut self, index: usize, state: &mut State, target: u64) -> Result<(), String> {
        let (old, new) = self.code.words(index);
        let kind = Form::Adrp;
        let destination = register(old, 0);
        let found = kind.target(new, self.code.addresses(index).1);
        let is_open = matches!(self.value(state, destination), Value::Ahead { .. } | Value::Early { .. });
        let is_tracked = self.code.pages.contains(target) && destination != 31;
        state[destination] = match is_tracked {
            true => self.number(Value::Page { old: target, new: found }, index),
            false => SAME,
        };
        match (old ^ new) & !kind.field() == 0 && !is_open && (is_tracked || found == target) {
            true => Ok(()),
            false => Err(format!("ADRP to {target:#x}")),
        }
    }

    /// `NOP` in the old image and another word in the new one: half of an address pair that the linker had shortened.
    fn step_filled(&mut self, index: usize, state: &mut State, new: u32) -> Result<(), String> {
        let destination = register(new, 0);
        let unexplained = Err(format!("{NOP:#010x}"));
        if form(new) == Form::Adrp && destination != 31 {
            let page = Form::Adrp.target(new, self.code.addresses(index).1);
            state[destination] = self.number(Value::Early { page }, index);
            return Ok(());
        }
        if !is_add(new) || register(new, 5) != destination {
            return unexplained;
        }
        let number = state[destination];
        let Value::Ahead { target, page } = self.values[(number & !MAYBE) as usize] else {
            return unexplained;
        };
        self.uses[(number & !MAYBE) as usize].completes = true;
        state[destination] = SAME;
        let found = page.wrapping_add(page_offset(new).unwrap_or(0));
        match number & MAYBE == 0 && self.code.images.follows(target, found) {
            true => Ok(()),
            false => Err(format!("the rest of {}", self.code.images.expected(target))),
        }
    }

    /// Low bits added to a page.
    fn step_use(&mut self, old: u32, new: u32, low: u64, number: u32) -> Result<(), String> {
        let Value::Page { old: old_page, new: new_page } = self.values[(number & !MAYBE) as usize] else {
            return Err("no use of several pages or of half an address".to_owned());
        };
        self.uses[(number & !MAYBE) as usize].completes = true;
        let target = old_page.wrapping_add(low);
        self.uses[(number & !MAYBE) as usize].names_text |= self.code.images.is_text(target);
        let found = new_page.wrapping_add(page_offset(new).unwrap_or(0));
        let is_same_form = (old ^ new) & !IMMEDIATE == 0;
        let is_sound = number & MAYBE == 0 || old == new;
        match is_same_form && is_sound && self.code.images.follows(target, found) {
            true => Ok(()),
            false => Err(format!("the low bits of {}", self.code.images.expected(target))),
        }
    }
}

/// The word of the code to which the jump at `index` leads.
pub(super) fn own_target(code: &CodePair<'_>, kind: Form, index: usize) -> Option<usize> {
    if !kind.is_jump() {
        return None;
    }
    let (start, target) = (code.range.old_start.0, kind.target(code.words(index).0, code.addresses(index).0));
    let word = target.checked_sub(start)? as usize / 4;
    (word < code.len()).then_some(word)
}

/// Whether `word` jumps to the address in a register: `BR` and its authenticated forms.
pub(super) fn is_computed_jump(word: u32) -> bool {
    word & 0xfee0_0000 == 0xd600_0000
}

fn is_lost(number: usize) -> bool {
    LOST_BY_CALL.contains(&number) || number == LINK
}

/// The source of `MOV` between two 64-bit registers, which is `ORR` with the zero register.
fn moved_register(word: u32) -> Option<usize> {
    let is_move = word & 0xffe0_ffe0 == 0xaa00_03e0 && register(word, 0) != 31 && register(word, 16) != 31;
    is_move.then(|| register(word, 16))
}

/// Whether a load or store with a scaled offset stores a general register.
fn is_store(word: u32) -> bool {
    word & 0x3f00_0000 == 0x3900_0000 && word & 3 << 22 == 0
}

/// The load through a base register without an offset that replaces this PC-relative load: into the same register, which is
/// also the base. Only for general registers.
fn paired_load(word: u32) -> Option<u32> {
    let number = word & 31;
    let load = match word >> 24 {
        0x18 => 0xb940_0000,
        0x58 => 0xf940_0000,
        0x98 => 0xb980_0000,
        _ => return None,
    };
    (number != 31).then_some(load | number << 5 | number)
}
