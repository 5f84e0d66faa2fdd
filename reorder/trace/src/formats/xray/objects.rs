//! Assigns companions to the objects of a log.
//!
//! Object 0 is the program. Libraries follow in the order in which they were loaded, which the log does not state; the order
//! of the companions is used instead.

use std::collections::BTreeMap;

use super::map::Map;
use super::records::Entry;
use crate::{Companions, Note};
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;

/// Maps by object number.
pub(super) struct Objects<'data> {
    maps: BTreeMap<u32, Map<'data>>,
}

impl<'data> Objects<'data> {
    /// # Errors
    /// No companion fits any object.
    pub(super) fn find(
        entries: &[Entry],
        companions: &'data Companions,
        notes: &mut Vec<Note>,
    ) -> Result<Self> {
        let (mut programs, mut libraries) = (Vec::new(), Vec::new());
        for image in companions.images() {
            let path = image.identity.to_string();
            match Map::of(image) {
                Some(Ok(map)) if map.is_program => programs.push(map),
                Some(Ok(map)) => libraries.push(map),
                Some(Err(error)) => notes.push(Note {
                    file: None,
                    offset: None,
                    message: format!("{path}: {error}"),
                    hint: error.hint.clone(),
                }),
                None => notes.push(Note::new(format!("{path} was built without -fxray-instrument"))),
            }
        }
        let mut highest: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
        for entry in entries {
            let (function, count) = highest.entry(entry.object).or_default();
            *function = entry.function.max(*function);
            *count += 1;
        }
        let mut found = Self { maps: BTreeMap::new() };
        let mut misfits = Vec::new();
        let mut libraries = libraries.into_iter().map(Some).collect::<Vec<_>>();
        for (&object, &(function, _)) in &highest {
            let map = match object.checked_sub(1) {
                None => take_fitting(&mut programs, function, &mut misfits),
                Some(place) => libraries
                    .get_mut(place as usize)
                    .and_then(Option::take)
                    .filter(|map| fits(map, function, &mut misfits)),
            };
            if let Some(map) = map {
                notes.extend(map.doubt.clone().map(Note::new));
                if object > 0 {
                    notes.push(Note::new(format!(
                        "object {object} is taken to be {}: libraries count in the order in which they are given",
                        map.path()
                    )));
                }
                found.maps.insert(object, map);
            }
        }
        if found.maps.is_empty() {
            let reasons = if misfits.is_empty() { misfits } else { vec![misfits.join("; ")] };
            let what =
                "the log knows functions by number only; their addresses are in the instrumented program";
            let message = [vec![what.to_owned()], reasons].concat().join("; ");
            let mut error = Error::usage(message)
                .with_hint(Hint::companion("give the program that wrote the log", "INSTRUMENTED_PROGRAM"));
            error.offset = Some(0);
            return Err(error);
        }
        found.tell_unknown(&highest, misfits, notes);
        Ok(found)
    }

    pub(super) fn get(&self, object: u32) -> Option<&Map<'data>> {
        self.maps.get(&object)
    }

    fn tell_unknown(&self, highest: &BTreeMap<u32, (u32, u64)>, misfits: Vec<String>, notes: &mut Vec<Note>) {
        notes.extend(misfits.into_iter().map(Note::new));
        for (object, (_, count)) in highest.iter().filter(|(object, _)| !self.maps.contains_key(object)) {
            let (what, hint) = match object {
                0 => ("the program".to_owned(), Hint::companion("give it", "INSTRUMENTED_PROGRAM")),
                _ => (format!("object {object}, a shared library"), all_libraries()),
            };
            notes.push(
                Note::new(format!(
                    "{count} functions of {what} were left out, because no companion is known to be it"
                ))
                .with_hint(hint),
            );
        }
    }
}

fn all_libraries() -> Hint {
    let request = "give all instrumented libraries in the order in which they are loaded";
    Hint::companions(request, ["PROGRAM", "FIRST.so", "SECOND.so"].map(str::to_owned).to_vec())
}

fn take_fitting<'data>(
    programs: &mut Vec<Map<'data>>,
    function: u32,
    misfits: &mut Vec<String>,
) -> Option<Map<'data>> {
    let index = programs.iter().position(|map| fits(map, function, misfits))?;
    Some(programs.swap_remove(index))
}

fn fits(map: &Map<'_>, function: u32, misfits: &mut Vec<String>) -> bool {
    let fits = function <= map.count();
    if !fits {
        misfits.push(format!(
            "{} has {} instrumented functions and the log has number {function}: it is another build",
            map.path(),
            map.count()
        ));
    }
    fits
}
