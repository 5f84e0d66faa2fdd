//! Places in memory that hold the same number on each of two ways: they still do where the ways meet, so they get one name
//! there, and a comparison of one bounds the others. Compilers spill an index twice, in two widths, and compare one of them.

use super::join::MAX_SHARED;
use super::state::{Place, State};
use super::value::{Root, Symbol, Value};

/// Places that hold one number.
#[derive(Debug)]
pub(super) struct Shared {
    /// Their common name.
    pub(super) root: Root,
    pub(super) places: Vec<Place>,
    /// The number on either way.
    pub(super) left: Value,
    pub(super) right: Value,
}

/// The groups of places whose values differ between the two states, with names from `first` on. Places that have a name already
/// (`is_named`) are left out.
pub(super) fn shared(
    (before, other): (&State, &State),
    first: u32,
    is_named: impl Fn(Place) -> bool,
) -> Vec<Shared> {
    let mut groups: Vec<Shared> = Vec::new();
    for cell in before.cells.iter().filter(|cell| !is_named(cell.place)) {
        let Some(right) = other.load(cell.place).filter(|&right| right != cell.value) else { continue };
        // Two numbers with equal bounds and no name need not be the same number.
        if !is_certain(cell.value) || !is_certain(right) {
            continue;
        }
        match groups.iter_mut().find(|group| (group.left, group.right) == (cell.value, right)) {
            Some(group) => group.places.push(cell.place),
            None => {
                groups.push(Shared { root: Root(0), places: vec![cell.place], left: cell.value, right });
            }
        }
    }
    groups.retain(|group| group.places.len() > 1);
    let own = first..first.saturating_add(MAX_SHARED as u32);
    let held = before.used_names();
    let mut taken: Vec<Root> = Vec::new();
    groups.retain_mut(|group| {
        let kept = match group.left {
            Value::Symbol(Symbol { root, add: 0, bits: 64 }) if own.contains(&root.0) => Some(root),
            _ => None,
        };
        let free = || own.clone().map(Root).find(|root| !held.contains(root) && !taken.contains(root));
        let root = kept.filter(|root| !taken.contains(root)).or_else(free);
        group.root = root.unwrap_or(group.root);
        taken.extend(root);
        root.is_some()
    });
    groups
}

/// Whether two equal values are the same number.
fn is_certain(value: Value) -> bool {
    matches!(value, Value::Symbol(_)) || value.as_constant().is_some()
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::super::state::STACK;
    use super::super::step::step;
    use super::super::value::Bounds;
    use super::*;

    const PLACE: usize = 7;

    fn place(displacement: u64) -> Place {
        Place { root: Some(STACK), displacement, size: 8 }
    }

    fn with(cells: &[(u64, Value)]) -> State {
        let mut state = State::unknown();
        cells.iter().for_each(|&(displacement, value)| state.remember(place(displacement), value));
        state
    }

    fn named(root: u32) -> Value {
        Value::Symbol(Symbol { root: Root(root), add: 3, bits: 8 })
    }

    #[test]
    fn copies_stay_copies_where_ways_meet() {
        let mut state =
            with(&[(8, Value::constant(15)), (16, Value::constant(15)), (24, Value::constant(15))]);
        let other = with(&[(8, named(40)), (16, named(40)), (24, named(41))]);
        assert!(state.join(&other, PLACE, false));
        let [one, two, three] = [8, 16, 24].map(|at| state.load(place(at)).expect("it is remembered"));
        assert!(one.root().is_some() && one == two && three.root().is_none());
        // The bounds are those of both ways.
        assert_eq!(state.bounds(one), Bounds { least: 0, most: 255, is_compared: false });
        // Nothing new changes nothing; one of them alone is no longer a copy.
        assert!(!state.join(&other, PLACE, true));
        assert!(state.join(&with(&[(8, named(40)), (16, named(41)), (24, named(41))]), PLACE, true));
        assert_eq!(state.load(place(8)).and_then(Value::root), None);
    }

    /// On the first way to a loop, an index that is spilled twice is often a constant.
    #[test]
    fn copies_of_a_constant_stay_copies_when_one_is_compared() {
        let byte = Place { size: 1, ..place(8) };
        let mut state = with(&[(16, Value::constant(15)), (24, Value::constant(2))]);
        state.remember(byte, Value::constant(15));
        // cmp byte [rsp + 8], 7
        let comparison = Decoder::new(64, &[0x80, 0x7c, 0x24, 8, 7], DecoderOptions::NONE).decode();
        step(&mut state, &comparison, PLACE, &mut InstructionInfoFactory::new());
        let held = |place: Place| state.load(place).and_then(Value::root);
        assert!(held(byte).is_some() && held(byte) == held(place(16)) && held(place(24)).is_none());
    }

    #[test]
    fn equal_bounds_are_not_the_same_number() {
        let number = Value::Number(Bounds { least: 0, most: 7, is_compared: true });
        let mut state = with(&[(8, number), (16, number)]);
        state.join(&with(&[(8, named(40)), (16, named(40))]), PLACE, false);
        assert!([8, 16].iter().all(|&at| state.load(place(at)).and_then(Value::root).is_none()));
    }

    #[test]
    fn a_name_is_not_given_to_two_groups() {
        let constant = Value::constant;
        let mut state = with(&[(8, constant(1)), (16, constant(1)), (24, constant(2)), (32, constant(2))]);
        let other = with(&[(8, named(40)), (16, named(40)), (24, named(40)), (32, named(40))]);
        state.join(&other, PLACE, false);
        let [one, two, three, four] = [8, 16, 24, 32].map(|at| state.load(place(at)).and_then(Value::root));
        assert!(one.is_some() && one == two && three.is_some() && three == four && one != three);
    }
}
