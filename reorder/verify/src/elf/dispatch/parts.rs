//! Registers that hold the lowest bits of another register on each of two ways: they still do where the ways meet, so a comparison
//! of one bounds the other. Compilers extend an index before a loop and compare it in its own width inside.

use super::interval::mask;
use super::state::{FRAME_POINTER, REGISTERS, STACK_POINTER, State};
use super::value::Value;

/// That a register holds the lowest bits of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The other one.
    pub(super) whole: usize,
    pub(super) bits: u8,
}

/// For each register that `differs` between the two states: which register it is a part of in both. That one is no part itself.
pub(super) fn parts(states: (&State, &State), differs: impl Fn(usize) -> bool) -> [Option<Part>; REGISTERS] {
    let mut all = [const { Vec::new() }; REGISTERS];
    for number in (0..REGISTERS).filter(|&number| number != STACK_POINTER && differs(number)) {
        let wholes = (0..REGISTERS).filter(|&whole| whole != number && differs(whole));
        all[number] = wholes.filter_map(|whole| part(states, number, whole)).collect();
    }
    let is_whole = |number: usize| all[number].is_empty();
    std::array::from_fn(|number| all[number].iter().copied().find(|part| is_whole(part.whole)))
}

/// Whether the register `number` holds the lowest bits of the register `whole` in both states.
fn part((one, other): (&State, &State), number: usize, whole: usize) -> Option<Part> {
    let bits_in = |state: &State| match (state.registers[number], state.registers[whole]) {
        (Value::Symbol(part), Value::Symbol(whole)) => {
            let is_part = part.root == whole.root
                && part.bits <= whole.bits
                && part.add & mask(part.bits) == whole.add & mask(part.bits);
            is_part.then_some((part.bits, part.bits == whole.bits))
        }
        _ => None,
    };
    let ((bits, is_equal), (bits_there, is_equal_there)) = (bits_in(one)?, bits_in(other)?);
    let is_part = !(is_equal && is_equal_there) || rank(whole) < rank(number);
    (bits == bits_there && is_part).then_some(Part { whole, bits })
}

/// Of registers that hold the same number, the one with the lowest rank is the whole one. Registers that calls preserve come first,
/// because they keep the number longest.
fn rank(number: usize) -> (u8, usize) {
    /// RBX and R12 to R15, which calls preserve.
    const PRESERVED: [usize; 5] = [3, 12, 13, 14, 15];
    let class = match number {
        STACK_POINTER => 0,
        FRAME_POINTER => 1,
        _ if PRESERVED.contains(&number) => 2,
        _ => 3,
    };
    (class, number)
}

#[cfg(test)]
mod tests {
    use super::super::value::{Root, Symbol};
    use super::*;

    fn with(root: u32, registers: &[(usize, u64, u8)]) -> State {
        let mut state = State::unknown();
        for &(number, add, bits) in registers {
            state.set_register(number, Value::Symbol(Symbol { root: Root(root), add, bits }));
        }
        state
    }

    fn wholes(one: &[(usize, u64, u8)], other: &[(usize, u64, u8)]) -> Vec<(usize, usize)> {
        let (one, other) = (with(40, one), with(41, other));
        let found = parts((&one, &other), |number| one.registers[number] != other.registers[number]);
        found.iter().enumerate().filter_map(|(number, part)| Some((number, part.as_ref()?.whole))).collect()
    }

    #[test]
    fn a_part_has_the_widest_register_as_its_whole() {
        let chain = [(3, 0, 16), (5, 0, 32), (6, 0, 64)];
        assert_eq!(wholes(&chain, &chain), [(3, 6), (5, 6)]);
        // The upper bits of what was added do not matter to it.
        assert_eq!(wholes(&[(3, 2, 16), (5, 0x1_0002, 32)], &[(3, 7, 16), (5, 7, 32)]), [(3, 5)]);
        assert_eq!(wholes(&[(3, 2, 16), (5, 3, 32)], &[(3, 7, 16), (5, 7, 32)]), []);
        // Another width on the other way.
        assert_eq!(wholes(&[(3, 0, 16), (5, 0, 32)], &[(3, 0, 8), (5, 0, 32)]), []);
    }

    #[test]
    fn of_equal_registers_one_that_calls_preserve_is_the_whole() {
        assert_eq!(wholes(&[(0, 0, 64), (3, 0, 64)], &[(0, 8, 64), (3, 8, 64)]), [(0, 3)]);
        assert_eq!(wholes(&[(3, 0, 64), (4, 0, 64)], &[(3, 8, 64), (4, 8, 64)]), [(3, 4)]);
    }
}
