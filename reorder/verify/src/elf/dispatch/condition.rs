//! What is known on both sides of a conditional jump.

use iced_x86::{ConditionCode, Mnemonic};

use super::interval::{Interval, mask};
use super::state::{Comparison, State};
use super::value::Value;

/// Whether anything is known of the flags.
pub(super) fn holds(state: &State) -> bool {
    state.comparison.is_some()
}

/// The condition that holds where `condition` does not.
pub(super) fn opposite(condition: ConditionCode) -> ConditionCode {
    match condition {
        ConditionCode::o => ConditionCode::no,
        ConditionCode::no => ConditionCode::o,
        ConditionCode::b => ConditionCode::ae,
        ConditionCode::ae => ConditionCode::b,
        ConditionCode::e => ConditionCode::ne,
        ConditionCode::ne => ConditionCode::e,
        ConditionCode::be => ConditionCode::a,
        ConditionCode::a => ConditionCode::be,
        ConditionCode::s => ConditionCode::ns,
        ConditionCode::ns => ConditionCode::s,
        ConditionCode::p => ConditionCode::np,
        ConditionCode::np => ConditionCode::p,
        ConditionCode::l => ConditionCode::ge,
        ConditionCode::ge => ConditionCode::l,
        ConditionCode::le => ConditionCode::g,
        ConditionCode::g => ConditionCode::le,
        ConditionCode::None => ConditionCode::None,
    }
}

/// The condition for exchanged operands.
fn mirrored(condition: ConditionCode) -> ConditionCode {
    match condition {
        ConditionCode::b => ConditionCode::a,
        ConditionCode::a => ConditionCode::b,
        ConditionCode::ae => ConditionCode::be,
        ConditionCode::be => ConditionCode::ae,
        ConditionCode::l => ConditionCode::g,
        ConditionCode::g => ConditionCode::l,
        ConditionCode::ge => ConditionCode::le,
        ConditionCode::le => ConditionCode::ge,
        ConditionCode::e | ConditionCode::ne => condition,
        _ => ConditionCode::None,
    }
}

/// Whether an instruction moves one operand into the other if a condition holds.
pub(super) fn is_conditional_move(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Cmova
            | Mnemonic::Cmovae
            | Mnemonic::Cmovb
            | Mnemonic::Cmovbe
            | Mnemonic::Cmove
            | Mnemonic::Cmovg
            | Mnemonic::Cmovge
            | Mnemonic::Cmovl
            | Mnemonic::Cmovle
            | Mnemonic::Cmovne
            | Mnemonic::Cmovno
            | Mnemonic::Cmovnp
            | Mnemonic::Cmovns
            | Mnemonic::Cmovo
            | Mnemonic::Cmovp
            | Mnemonic::Cmovs
    )
}

/// Whether an instruction stores a condition as a number.
pub(super) fn is_set(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Seta
            | Mnemonic::Setae
            | Mnemonic::Setb
            | Mnemonic::Setbe
            | Mnemonic::Sete
            | Mnemonic::Setg
            | Mnemonic::Setge
            | Mnemonic::Setl
            | Mnemonic::Setle
            | Mnemonic::Setne
            | Mnemonic::Setno
            | Mnemonic::Setnp
            | Mnemonic::Setns
            | Mnemonic::Seto
            | Mnemonic::Setp
            | Mnemonic::Sets
    )
}

/// Learns that `condition` holds; `false` when it never does.
pub(super) fn learn(state: &mut State, condition: ConditionCode) -> bool {
    let Some(comparison) = state.comparison else { return true };
    if let Some(bits) = comparison.zero_of {
        return learn_zero(state, &comparison, bits, condition);
    }
    let Comparison { left, right, bits, .. } = comparison;
    learn_side(state, left, right, bits, condition)
        && learn_side(state, right, left, bits, mirrored(condition))
}

/// Learns whether the tested bits of the left value are zero.
fn learn_zero(state: &mut State, comparison: &Comparison, tested: u64, condition: ConditionCode) -> bool {
    let Value::Symbol(symbol) = comparison.left else { return true };
    let bits = comparison.bits;
    let low = !tested & mask(bits);
    let is_upper_part = low.wrapping_add(1).is_power_of_two() || low == 0;
    match condition {
        ConditionCode::e if is_upper_part => state.learn(symbol, Interval::new(0, low, bits)),
        ConditionCode::ne if low == 0 => state.learn(symbol, Interval::new(1, mask(bits), bits)),
        _ => true,
    }
}

fn learn_side(state: &mut State, side: Value, other: Value, bits: u8, condition: ConditionCode) -> bool {
    let other = state.bounds(other);
    if other.most > mask(bits) {
        return true;
    }
    let Some(interval) = satisfying(condition, (other.least, other.most), bits) else { return false };
    match side {
        Value::Symbol(symbol) if !interval.is_full() => state.learn(symbol, interval),
        _ => match side.as_constant() {
            Some(constant) if !interval.is_full() => {
                Interval::single(constant, bits).meet(interval).is_some()
            }
            _ => true,
        },
    }
}

/// The numbers for which the condition holds against some number from `least` to `most`; `None` when there are none.
fn satisfying(condition: ConditionCode, (least, most): (u64, u64), bits: u8) -> Option<Interval> {
    let all = mask(bits);
    let (lowest, highest) = (all / 2 + 1, all / 2);
    // Signed numbers have the order of unsigned ones within either half.
    let is_one_half = (least <= highest) == (most <= highest);
    let run = |first: u64, last: u64| Some(Interval::new(first, last, bits));
    match condition {
        ConditionCode::b => most.checked_sub(1).and_then(|last| run(0, last)),
        ConditionCode::be => run(0, most),
        ConditionCode::a if least == all => None,
        ConditionCode::a => run(least + 1, all),
        ConditionCode::ae => run(least, all),
        ConditionCode::e => run(least, most),
        ConditionCode::ne if least == most => run(least.wrapping_add(1), least.wrapping_sub(1)),
        ConditionCode::l | ConditionCode::le | ConditionCode::g | ConditionCode::ge if !is_one_half => {
            Some(Interval::full(bits))
        }
        ConditionCode::l if most == lowest => None,
        ConditionCode::l => run(lowest, most.wrapping_sub(1)),
        ConditionCode::le => run(lowest, most),
        ConditionCode::g if least == highest => None,
        ConditionCode::g => run(least.wrapping_add(1), highest),
        ConditionCode::ge => run(least, highest),
        // The sign, where the other number is zero.
        ConditionCode::s if most == 0 => run(lowest, all),
        ConditionCode::ns if most == 0 => run(0, highest),
        _ => Some(Interval::full(bits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_has_its_numbers() {
        let at = |condition, bounds| satisfying(condition, bounds, 8).map(Interval::bounds);
        assert_eq!(at(ConditionCode::a, (7, 7)), Some((8, 255)));
        assert_eq!(at(ConditionCode::be, (7, 7)), Some((0, 7)));
        assert_eq!(at(ConditionCode::b, (0, 0)), None);
        assert_eq!(at(ConditionCode::ge, (0, 0)), Some((0, 127)));
        assert_eq!(at(ConditionCode::s, (0, 0)), Some((128, 255)));
        // Signed numbers up to seven pass the end of the circle.
        assert_eq!(satisfying(ConditionCode::le, (7, 7), 8), Some(Interval::new(128, 7, 8)));
    }
}
