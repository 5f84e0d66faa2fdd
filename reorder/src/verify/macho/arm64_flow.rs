//! Both images of an atom executed side by side, as far as page addresses in registers go.
//!
//! `ADRP` gives a page, and only the instructions that add the lowest twelve bits make an address of it. Where something on
//! the page moved, the new page and the new low bits must give the new address, for every use that control can reach.
//! The state says in which registers the two images hold different things and why: a page and its counterpart, or the
//! middle of a pair that the linker had shortened and that is a pair again. Anything else that reads such a register is a
//! difference, so a use that is not understood refutes.
//!
//! In: one atom; out: its first difference. Cost: linear in the atom times the few rounds that loops need.

use super::super::report::Difference;
use super::arm64::{Form, IMMEDIATE, NOP, effects, form, is_add, page_offset, register};
use super::arm64_atom::AtomPair;

/// Number of an entry in [`Flow::values`] per register; 0 where both images hold corresponding values.
type State = [u32; 32];

const SAME: u32 = 0;
/// Set where other paths bring a value that is the same in both images.
const MAYBE: u32 = 1 << 31;
/// Paths bring different pages.
const SEVERAL: u32 = 1;
/// What a call does not preserve: x0 to x18 and the link register.
const LOST_BY_CALL: std::ops::RangeInclusive<usize> = 0..=18;
const LINK: usize = 30;

/// What the two images hold in one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Same,
    Several,
    /// A page on which something moved, and what the new image has instead.
    Page {
        old: u64,
        new: u64,
    },
    /// The old image has the address, the new one its page: `ADR` became `ADRP`.
    Ahead {
        target: u64,
        page: u64,
    },
    /// The new image has the page of an address that the old one will form at once: `NOP` became `ADRP`.
    Early {
        page: u64,
    },
}

/// What instructions did with a value.
#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    /// Some made an address of it,
    completes: bool,
    /// of a place in `__text`.
    names_text: bool,
    /// The first that read it for anything else.
    read: Option<usize>,
}

/// Checks `atom`.
pub(super) fn check(atom: &AtomPair<'_>) -> Option<Difference> {
    let mut flow = Flow::new(atom);
    flow.propagate();
    flow.judge()
}

/// The source of `MOV` between two 64-bit registers, which is `ORR` with the zero register.
fn moved_register(word: u32) -> Option<usize> {
    let is_move = word & 0xffe0_ffe0 == 0xaa00_03e0 && register(word, 0) != 31 && register(word, 16) != 31;
    is_move.then(|| register(word, 16))
}

struct Flow<'a> {
    atom: &'a AtomPair<'a>,
    values: Vec<Value>,
    /// What instructions did with the value.
    uses: Vec<Uses>,
    /// Where the value comes from, for messages.
    origins: Vec<usize>,
    /// First words of the blocks, ascending.
    blocks: Vec<u32>,
    states: Vec<Option<State>>,
}

impl<'a> Flow<'a> {
    fn new(atom: &'a AtomPair<'a>) -> Self {
        let mut starts = vec![false; atom.len() + 1];
        starts[0] = true;
        for index in 0..atom.len() {
            let word = atom.words(index).0;
            let kind = atom.form(index);
            if let Some(target) = own_target(atom, kind, index) {
                starts[target] = true;
            }
            if kind.is_jump() && kind != Form::Call || effects(word).ends {
                starts[index + 1] = true;
            }
        }
        let blocks: Vec<u32> =
            (0..atom.len()).filter(|&index| starts[index]).map(|index| index as u32).collect();
        let states = vec![None; blocks.len()];
        let values = vec![Value::Same, Value::Several];
        Self { atom, values, uses: vec![Uses::default(); 2], origins: vec![0; 2], blocks, states }
    }

    fn end_of(&self, block: usize) -> usize {
        self.blocks.get(block + 1).map_or(self.atom.len(), |&next| next as usize)
    }

    /// The number of a value: few atoms have more than a handful.
    fn number(&mut self, value: Value, origin: usize) -> u32 {
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
    /// A block that nothing is seen to branch to is a landing pad or the target of a computed jump: it starts with what
    /// any of the atom's calls and computed jumps may bring there. The outer loop ends because a state only ever rises,
    /// by at most three steps in each register.
    fn propagate(&mut self) {
        self.states[0] = Some([SAME; 32]);
        let mut open = vec![0];
        let mut unreached = Vec::new();
        let mut unseen: Option<State> = None;
        let mut next_entry = 0;
        loop {
            while let Some(block) = open.pop() {
                self.follow(block, &mut open, &mut unseen);
            }
            // In address order; one that is reached by then has its state.
            while self.states.get(next_entry).is_some_and(Option::is_some) {
                next_entry += 1;
            }
            let brought = unseen.unwrap_or([SAME; 32]);
            if next_entry < self.blocks.len() {
                self.states[next_entry] = Some(brought);
                unreached.push(next_entry);
                open.push(next_entry);
                continue;
            }
            open.extend(unreached.iter().filter(|&&block| Self::join(&mut self.states[block], &brought)));
            if open.is_empty() {
                return;
            }
        }
    }

    /// Executes a block and adds its end to the states of its successors; those that changed are `open` again.
    fn follow(&mut self, block: usize, open: &mut Vec<usize>, unseen: &mut Option<State>) {
        let Some(mut state) = self.states[block] else { return };
        let end = self.end_of(block);
        for index in self.blocks[block] as usize..end {
            let _ = self.step(index, &mut state);
            if self.atom.form(index) == Form::Call || is_computed(self.atom.words(index).0) {
                let _ = Self::join(unseen, &state);
            }
        }
        let Some(last) = end.checked_sub(1) else { return };
        let word = self.atom.words(last).0;
        let target = own_target(self.atom, self.atom.form(last), last);
        let target = target.and_then(|start| self.blocks.binary_search(&(start as u32)).ok());
        let next = (!effects(word).ends && block + 1 < self.blocks.len()).then_some(block + 1);
        for successor in target.into_iter().chain(next) {
            if Self::join(&mut self.states[successor], &state) {
                open.push(successor);
            }
        }
    }

    /// Adds a path to what is known of a place; whether that changed what is known there.
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
                // Kept, or paths that disagree would change the state without end.
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
                    return Some(self.atom.difference(index, expected));
                }
            }
            let is_open = |number: &u32| {
                matches!(self.values[(*number & !MAYBE) as usize], Value::Ahead { .. } | Value::Early { .. })
            };
            if state.iter().any(is_open) {
                return Some(self.atom.difference(end - 1, "the second half of an address in front of this"));
            }
        }
        let misread = self.uses.iter().find_map(|uses| uses.read.filter(|_| uses.names_text));
        if let Some(index) = misread {
            return Some(self.atom.difference(index, "no use of a page whose functions moved"));
        }
        let unused = (2..self.values.len()).find(|&number| !self.uses[number].completes);
        unused.map(|number| {
            self.atom
                .difference(self.origins[number], "a page whose use is known, or one on which nothing moved")
        })
    }

    /// Executes one word of both images; the error says what was expected. The state is right in any case.
    fn step(&mut self, index: usize, state: &mut State) -> Result<(), String> {
        let (old, new) = self.atom.words(index);
        let (from, to) = self.atom.addresses(index);
        let kind = self.atom.form(index);
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
            return match is_complete && self.atom.pair.follows(kind.target(old, from), found) {
                true => Ok(()),
                false => Err(format!("the rest of {}", self.atom.pair.expected(kind.target(old, from)))),
            };
        }
        if let Some(source) = moved_register(old).filter(|_| old == new) {
            // A page that is kept in another register; halves of addresses stay where they are.
            let is_whole = |value| matches!(value, Value::Same | Value::Several | Value::Page { .. });
            let (kept, lost) = (self.value(state, source), self.value(state, destination));
            if is_whole(kept) && is_whole(lost) {
                state[destination] = state[source];
                return Ok(());
            }
        }
        if is_move(old) && old == new {
            // A copy of a page is one.
            let is_open = |value| matches!(value, Value::Ahead { .. } | Value::Early { .. });
            let is_cut = is_open(self.value(state, destination));
            state[destination] = state[register(old, 16)];
            return match is_cut || is_open(self.value(state, destination)) {
                true => Err("the second half of an address in front of this".to_owned()),
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
            // A store of the page itself is a use that nothing explains.
            if is_store(old) && destination == base {
                effects.reads |= 1 << base;
            }
        } else if kind == Form::Plain {
            if old != new {
                verdict = Err(format!("{old:#010x}"));
            }
        } else if !self.atom.corresponds(kind, index) {
            verdict = Err(format!("a reference to {}", self.atom.pair.expected(kind.target(old, from))));
        }
        for number in 0..31 {
            if effects.reads & 1 << number != 0 && state[number] != SAME {
                let value = (state[number] & !MAYBE) as usize;
                match self.values[value] {
                    // The same number in both images: sound unless the page is named for functions, too.
                    Value::Page { old, new } if old == new => {
                        self.uses[value].read.get_or_insert(index);
                    }
                    _ => verdict = verdict.and(Err("no use of a page whose functions moved".to_owned())),
                }
            }
            if effects.writes & 1 << number != 0 || effects.is_call && is_lost(number) {
                // The half of an address that is overwritten was never completed.
                let is_open = matches!(self.value(state, number), Value::Ahead { .. } | Value::Early { .. });
                if is_open {
                    verdict = verdict.and(Err("the second half of an address in front of this".to_owned()));
                }
                state[number] = SAME;
            }
        }
        verdict
    }

    fn value(&self, state: &State, register: usize) -> Value {
        self.values[(state[register] & !MAYBE) as usize]
    }

    /// `ADRP` in the old image.
    fn step_page(&mut self, index: usize, state: &mut State, target: u64) -> Result<(), String> {
        let (old, new) = self.atom.words(index);
        let kind = Form::Adrp;
        let destination = register(old, 0);
        let found = kind.target(new, self.atom.addresses(index).1);
        let is_open = matches!(self.value(state, destination), Value::Ahead { .. } | Value::Early { .. });
        let is_tracked = self.atom.pages.contains(target) && destination != 31;
        state[destination] = match is_tracked {
            true => self.number(Value::Page { old: target, new: found }, index),
            false => SAME,
        };
        match (old ^ new) & !kind.field() == 0 && !is_open && (is_tracked || found == target) {
            true => Ok(()),
            false => Err(format!("ADRP to {target:#x}")),
        }
    }

    /// `NOP` in the old image and something else in the new one: half of an address that had been shortened.
    fn step_filled(&mut self, index: usize, state: &mut State, new: u32) -> Result<(), String> {
        let destination = register(new, 0);
        let unexplained = Err(format!("{NOP:#010x}"));
        if form(new) == Form::Adrp && destination != 31 {
            let page = Form::Adrp.target(new, self.atom.addresses(index).1);
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
        match number & MAYBE == 0 && self.atom.pair.follows(target, found) {
            true => Ok(()),
            false => Err(format!("the rest of {}", self.atom.pair.expected(target))),
        }
    }

    /// Low bits added to a page.
    fn step_use(&mut self, old: u32, new: u32, low: u64, number: u32) -> Result<(), String> {
        let Value::Page { old: old_page, new: new_page } = self.values[(number & !MAYBE) as usize] else {
            return Err("no use of several pages or of half an address".to_owned());
        };
        self.uses[(number & !MAYBE) as usize].completes = true;
        let target = old_page.wrapping_add(low);
        self.uses[(number & !MAYBE) as usize].names_text |=
            self.atom.pair.old.text().range().contains(&target);
        let found = new_page.wrapping_add(page_offset(new).unwrap_or(0));
        let is_same_form = (old ^ new) & !IMMEDIATE == 0;
        let is_sound = number & MAYBE == 0 || old == new;
        match is_same_form && is_sound && self.atom.pair.follows(target, found) {
            true => Ok(()),
            false => Err(format!("the low bits of {}", self.atom.pair.expected(target))),
        }
    }
}

/// The word of the atom to which the jump at `index` leads.
fn own_target(atom: &AtomPair<'_>, kind: Form, index: usize) -> Option<usize> {
    if !kind.is_jump() {
        return None;
    }
    let (start, target) = (atom.range.old_start.0, kind.target(atom.words(index).0, atom.addresses(index).0));
    let word = target.checked_sub(start)? as usize / 4;
    (word < atom.len()).then_some(word)
}

/// Whether `word` jumps or calls where a register says: `BR`, `BLR` and their authenticated forms.
fn is_computed(word: u32) -> bool {
    word & 0xfec0_0000 == 0xd600_0000
}

fn is_lost(number: usize) -> bool {
    LOST_BY_CALL.contains(&number) || number == LINK
}

/// Whether `word` copies a general register into another.
fn is_move(word: u32) -> bool {
    word & 0xffe0_ffe0 == 0xaa00_03e0 && register(word, 0) != 31 && register(word, 16) != 31
}

/// Whether a load or store with a scaled offset stores a general register.
fn is_store(word: u32) -> bool {
    word & 0x3f00_0000 == 0x3900_0000 && word & 3 << 22 == 0
}

/// The load with a base register and no offset that reads what this load at a distance reads, into the same register,
/// which is also the base. Only for general registers.
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
