//! Places in memory that hold the lowest bits of a register on each of two ways: they still do where the ways meet. Compilers keep
//! an index in a register, spill an extended copy of it before a loop, and inside compare the register and read the copy:
//!
//! ```text
//!       movzbl %dil, %eax
//!       mov %rax, 128(%rsp)
//! loop: cmp $249, %dil            ; on one way %edi was loaded again after a call, so its upper half is zero
//!       ja other
//!       mov 128(%rsp), %rax       ; 249 at most
//! ```

use super::interval::mask;
use super::parts::Part;
use super::state::{Place, REGISTERS, State};
use super::value::{Symbol, Value};

/// A place, and the register whose lowest bits it holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpilledPart {
    pub(super) place: Place,
    pub(super) part: Part,
}

/// The places that hold the lowest bits of a register in both states, where that register `differs` between them and is no part
/// of another one.
pub(super) fn spilled_parts(
    states: (&State, &State),
    parts: &[Option<Part>; REGISTERS],
    differs: impl Fn(usize) -> bool,
) -> Vec<SpilledPart> {
    let (before, other) = states;
    let wholes: Vec<usize> =
        (0..REGISTERS).filter(|&number| differs(number) && parts[number].is_none()).collect();
    // If a register that does not differ has the name of the place, the place keeps it.
    let is_kept = |value: Value| {
        (0..REGISTERS).any(|number| !differs(number) && before.registers[number].root() == value.root())
    };
    let spilled = before.cells.iter().filter_map(|cell| {
        let right = other.load(cell.place)?;
        if cell.value == right && is_kept(right) {
            return None;
        }
        let bits_of = |whole: &usize| {
            let bits = part_of(cell.value, before.registers[*whole])?;
            (part_of(right, other.registers[*whole]) == Some(bits)).then_some(bits)
        };
        let part = wholes.iter().find_map(|whole| Some(Part { whole: *whole, bits: bits_of(whole)? }))?;
        Some(SpilledPart { place: cell.place, part })
    });
    spilled.collect()
}

/// How many of the lowest bits of `whole` are `value`, if it consists of these alone.
fn part_of(value: Value, whole: Value) -> Option<u8> {
    let (Value::Symbol(part), Value::Symbol(whole)) = (value, whole) else { return None };
    let has_sum = |symbol: Symbol| symbol.add & mask(part.bits);
    let is_part = part.root == whole.root && part.bits <= whole.bits && has_sum(part) == has_sum(whole);
    is_part.then_some(part.bits)
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::super::interval::Interval;
    use super::super::state::STACK;
    use super::super::step::step;
    use super::super::value::Root;
    use super::*;

    const PLACE: usize = 7;
    const SLOT: Place = Place { root: Some(STACK), displacement: 8, size: 8 };

    /// A register and a slot with the lowest bits of one number.
    fn with(root: u32, in_register: u8, in_slot: u8) -> State {
        let low = |bits: u8| Value::Symbol(Symbol { root: Root(root), add: 0, bits });
        let mut state = State::unknown();
        state.set_register(1, low(in_register));
        state.remember(SLOT, low(in_slot));
        state
    }

    /// The largest number in the slot if the lowest byte of the register is not above 9.
    fn most_if_compared(state: &State) -> u64 {
        let mut state = state.clone();
        let Value::Symbol(register) = state.register(1) else { panic!("the register has a name") };
        assert!(state.learn(Symbol { bits: 8, ..register }, Interval::new(0, 9, 8)));
        state.load(SLOT).map_or(u64::MAX, |value| state.bounds(value).most)
    }

    #[test]
    fn a_comparison_of_a_register_bounds_its_spilled_part() {
        let mut state = with(40, 64, 8);
        assert!(state.join(&with(40, 32, 8), PLACE, false));
        assert_eq!(most_if_compared(&state), 9);
        // Further ways, with the same names and with others, change nothing.
        let again = state.clone();
        for way in [with(40, 64, 8), with(41, 32, 8), again] {
            assert!(!state.join(&way, PLACE, true));
        }
        assert_eq!(most_if_compared(&state), 9);
    }

    #[test]
    fn what_is_no_part_on_one_way_is_none_afterwards() {
        for wrong in [with(41, 32, 16), with(42, 8, 32)] {
            let mut state = with(40, 64, 8);
            state.join(&wrong, PLACE, false);
            assert!(most_if_compared(&state) > 9);
        }
        let mut state = with(40, 64, 8);
        let mut wrong = with(41, 32, 8);
        wrong.set_register(1, Value::Symbol(Symbol { root: Root(43), add: 0, bits: 32 }));
        state.join(&wrong, PLACE, false);
        state.join(&with(40, 32, 8), PLACE, false);
        assert!(most_if_compared(&state) > 9);
    }

    /// Only the compared place itself is known to be unchanged.
    #[test]
    fn a_store_through_a_pointer_may_change_a_spilled_part() {
        let mut state = with(40, 64, 8);
        state.share_from(Some(i64::MIN));
        let mut run = |code: &[u8]| {
            let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
            step(&mut state, &instruction, PLACE, &mut InstructionInfoFactory::new());
        };
        // cmp cl, 9; mov [rdx], rax
        run(&[0x80, 0xf9, 9]);
        run(&[0x48, 0x89, 0x02]);
        assert_eq!(state.load(SLOT), None);
    }

    #[test]
    fn a_name_that_another_register_keeps_stays() {
        let both = |in_register| {
            let mut state = with(40, in_register, 8);
            state.set_register(3, Value::Symbol(Symbol { root: Root(40), add: 0, bits: 64 }));
            state
        };
        let mut state = both(64);
        state.join(&both(32), PLACE, false);
        assert_eq!(state.load(SLOT).and_then(Value::root), Some(Root(40)));
    }
}
