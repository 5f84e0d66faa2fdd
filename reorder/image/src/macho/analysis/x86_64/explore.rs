//! Finds all code of one atom: what its entries reach, and what that reaches through jump tables in the atom.
//!
//! Tables in the atom move with it; they matter here only because they lead to code. A table is assumed wherever the atom
//! takes the address of bytes that control does not reach and that begin with the distance to a place in the atom. It ends
//! where an entry leads elsewhere, where other content begins, or where the target of an entry turns out not to be code.
//! An extent that is too short leaves code unreached, hence unexplained; one that is too long contradicts itself.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use super::walk::{Arrival, Byte, Trouble, Walk};
use crate::decode::padding::filler_length;
use reorder_base::address::Address;

/// Bytes of a table's entry.
const ENTRY: usize = 4;
/// How often an atom is walked again because a table turned out to be shorter than assumed.
const MAX_ROUNDS: usize = 64;
/// No new walk after this many bytes: large functions have many tables, but all of them are found in one walk.
const MAX_BYTES: usize = 64 << 20;

/// The atom to explore.
pub(super) struct Atom<'context, 'data> {
    pub(super) bytes: &'data [u8],
    pub(super) start: Address,
    /// Offsets where control arrives.
    pub(super) entries: &'context [usize],
    /// Offsets of the ranges that the linker lists as data, sorted.
    pub(super) listed: &'context [Range<usize>],
}

/// What the walks have shown about tables, by offset.
#[derive(Default)]
struct Lessons {
    bases: BTreeSet<usize>,
    /// Where tables end.
    bounds: BTreeSet<usize>,
}

enum Failure {
    /// New facts were found: walk again.
    Again,
    Final(usize),
}

/// Walks the atom until all is consistent; gives the first byte that is neither code, a table nor padding.
///
/// # Errors
/// The offset of a contradiction.
pub(super) fn explore<'data>(atom: &Atom<'_, 'data>) -> Result<(Walk<'data>, Option<usize>), usize> {
    let mut lessons = Lessons::default();
    for round in 1..=MAX_ROUNDS {
        match walk_once(atom, &mut lessons) {
            Ok(walk) => {
                let unexplained = unexplained(atom.bytes, &walk);
                return Ok((walk, unexplained));
            }
            Err(Failure::Final(offset)) => return Err(offset),
            Err(Failure::Again) if round * atom.bytes.len() > MAX_BYTES => break,
            Err(Failure::Again) => {}
        }
    }
    Err(0)
}

fn walk_once<'data>(atom: &Atom<'_, 'data>, lessons: &mut Lessons) -> Result<Walk<'data>, Failure> {
    let mut walk = Walk::new(atom.bytes, atom.start);
    for range in atom.listed {
        walk.mark(range.clone(), Byte::Listed);
    }
    let mut pending: Vec<Arrival> =
        atom.entries.iter().rev().map(|&offset| Arrival { offset, entry: None }).collect();
    for &base in &lessons.bases {
        walk.mark(base..(base + ENTRY).min(atom.bytes.len()), Byte::Table);
    }
    let known = lessons.bases.len();
    let mut fresh: Vec<usize> = lessons.bases.iter().copied().collect();
    // In order, and only after everything else: false entries come last, and then contradict what is known.
    let mut table_entries = VecDeque::new();
    // The cause of the trouble may be a table that is only found later: after a call that never returns.
    let mut first_trouble = None;
    loop {
        while let Some(arrival) = pending.pop() {
            if let Err(trouble) = walk.follow(arrival, &mut pending) {
                first_trouble.get_or_insert((trouble, arrival.entry));
            }
        }
        let mut is_contradicted = false;
        for offset in std::mem::take(&mut walk.taken) {
            // Its target may be misread until the table is known, so contradictions there do not count.
            if lessons.bases.contains(&offset) || entry_offset(atom, offset, offset).is_none() {
                continue;
            }
            match walk.state(offset) {
                Byte::Unknown | Byte::Listed => {}
                Byte::First | Byte::Inner if !walk.has_register_jump => continue,
                Byte::First | Byte::Inner | Byte::Table => is_contradicted = true,
            }
            lessons.bases.insert(offset);
            fresh.push(offset);
        }
        if is_contradicted {
            return Err(Failure::Again);
        }
        for base in std::mem::take(&mut fresh) {
            add_table(atom, lessons, &mut walk, base, &mut table_entries);
        }
        match (table_entries.pop_front(), first_trouble) {
            (Some(entry), _) => pending.push(entry),
            (None, None) => return Ok(walk),
            // With the facts known now there may be no trouble.
            (None, Some(_)) if lessons.bases.len() > known => return Err(Failure::Again),
            (None, Some((trouble, entry))) => return Err(lessons.learn(atom, trouble, entry)),
        }
    }
}

impl Lessons {
    fn learn(&mut self, atom: &Atom<'_, '_>, trouble: Trouble, entry: Option<usize>) -> Failure {
        let (Trouble::Invalid(place) | Trouble::Data(place)) = trouble;
        let is_listed = atom.listed.iter().any(|range| range.contains(&place));
        // The path began at an entry that is false. Or the entry is right, and the table that the path met is shorter.
        let bound = match (entry, trouble) {
            (Some(entry), _) => entry,
            (None, Trouble::Data(place)) if !is_listed && !self.bases.contains(&place) => place,
            _ => return Failure::Final(place),
        };
        match !self.bases.contains(&bound) && self.bounds.insert(bound) {
            true => Failure::Again,
            false => Failure::Final(place),
        }
    }
}

/// Marks the words of the table at `base` and adds their targets to `entries`.
fn add_table(
    atom: &Atom<'_, '_>,
    lessons: &Lessons,
    walk: &mut Walk<'_>,
    base: usize,
    entries: &mut VecDeque<Arrival>,
) {
    let next = |places: &BTreeSet<usize>| places.range(base + 1..).next().copied().unwrap_or(usize::MAX);
    let listed = atom.listed.iter().find(|range| range.contains(&base)).map_or(usize::MAX, |range| range.end);
    let limit = next(&lessons.bases).min(next(&lessons.bounds)).min(listed).min(atom.bytes.len());
    let mut place = base;
    while place + ENTRY <= limit {
        let is_free = |state: &Byte| match state {
            Byte::Unknown => true,
            Byte::Listed => listed != usize::MAX,
            Byte::Table => place == base,
            Byte::First | Byte::Inner => false,
        };
        if !walk.states()[place..place + ENTRY].iter().all(is_free) {
            break;
        }
        let Some(offset) = entry_target(atom, walk, base, place) else { break };
        walk.mark(place..place + ENTRY, Byte::Table);
        entries.push_back(Arrival { offset, entry: Some(place) });
        place += ENTRY;
    }
}

/// The target of the entry at `place`, if it can be an entry: its target is neither data nor inside an instruction.
fn entry_target(atom: &Atom<'_, '_>, walk: &Walk<'_>, base: usize, place: usize) -> Option<usize> {
    let offset = entry_offset(atom, base, place)?;
    matches!(walk.state(offset), Byte::Unknown | Byte::First).then_some(offset)
}

/// The place in the atom that the word at `place` leads to.
fn entry_offset(atom: &Atom<'_, '_>, base: usize, place: usize) -> Option<usize> {
    let word = atom.bytes.get(place..place + ENTRY)?;
    let distance = i64::from(i32::from_le_bytes(word.try_into().ok()?));
    let offset = usize::try_from(base as i64 + distance).ok()?;
    (offset != base && offset < atom.bytes.len()).then_some(offset)
}

/// The first byte that is neither code, a table nor padding.
fn unexplained(bytes: &[u8], walk: &Walk<'_>) -> Option<usize> {
    let is_known = |state: &Byte| !matches!(state, Byte::Unknown | Byte::Listed);
    let mut position = 0;
    while position < bytes.len() {
        let rest = &walk.states()[position..];
        let known = rest.iter().position(|state| !is_known(state)).unwrap_or(rest.len());
        let gap = rest[known..].iter().position(is_known).unwrap_or(rest.len() - known);
        let start = position + known;
        let filler = filler_length(&bytes[start..start + gap]);
        if filler < gap {
            return Some(start + filler);
        }
        position = start + gap;
    }
    None
}
