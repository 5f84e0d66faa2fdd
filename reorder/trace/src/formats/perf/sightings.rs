//! Sightings of code, in the order of time, to traces: one for each program, image and kind of event.

use std::collections::{BTreeMap, BTreeSet};

use super::images::{Images, OpenImage, Spot, spot};
use super::processes::{Mapping, Process, Processes};
use crate::formats::first_seen::FirstSeen;
use crate::{Companions, Event, Evidence, Location, Name, Note, Reading, Trace};
use reorder_base::address::RuntimeAddress;
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;

/// What an event of the recorder means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A probe at the start of a function.
    Entry,
    /// The first touch of a page of code.
    Page,
    /// A sample, by the number of the event that was sampled.
    Sample(u32),
}

impl Kind {
    fn evidence(self) -> Evidence {
        match self {
            Self::Entry => Evidence::Exact,
            Self::Page => Evidence::Pages,
            Self::Sample(_) => Evidence::Sampled,
        }
    }
}

/// Code that ran.
pub(super) struct Sighting {
    pub(super) process: u32,
    pub(super) address: u64,
    pub(super) time: Option<u64>,
    pub(super) kind: Kind,
    /// The file that it lies in, if the recording says so beside its mappings.
    pub(super) image: Option<u32>,
    /// Whether the address is an offset in that file instead of one in memory.
    pub(super) may_be_offset: bool,
    /// What the recording itself calls the function.
    pub(super) name: Option<Name>,
    /// Whether the address is where a call returns to.
    pub(super) is_caller: bool,
}

impl Sighting {
    /// What was mapped at the address `inside`. Where the recording names the file, another file there shows that the
    /// address is none of memory.
    fn mapping(&self, processes: &Processes, inside: u64) -> Option<Mapping> {
        let mapped = processes.find(self.process, inside);
        let agrees = self.image.is_none() || mapped.is_some_and(|mapping| mapping.image == self.image);
        let whole_file = Mapping::whole_file(self.image);
        if agrees { mapped } else { self.may_be_offset.then_some(whole_file) }
    }
}

/// All of them so far.
#[derive(Default)]
pub(super) struct Sightings {
    groups: BTreeMap<(u32, Option<u32>, Kind), Group>,
    /// Sightings in the kernel.
    pub(super) in_kernel: u64,
    /// Page faults that were no fetch of code.
    pub(super) data_faults: u64,
    /// Sightings outside of all files.
    pub(super) outside: u64,
}

struct Group {
    process: u32,
    name: Option<Name>,
    started: Option<u64>,
    seen: BTreeSet<u64>,
    first: Vec<(Sighting, Option<Mapping>)>,
}

impl Sightings {
    /// Adds what was seen; without a mapping it is kept only if the recording names its function or file.
    pub(super) fn add(&mut self, mut sighting: Sighting, processes: &mut Processes) {
        // The call is before the address that it returns to, perhaps at the end of another function.
        let inside = sighting.address.wrapping_sub(u64::from(sighting.is_caller));
        let mapping = sighting.mapping(processes, inside);
        let image = mapping.map_or(sighting.image, |mapping| mapping.image);
        if image.is_none() && (sighting.name.is_none() || mapping.is_some()) {
            self.outside += 1;
            return;
        }
        sighting.address = inside;
        let process = processes.get(sighting.process);
        let group = self
            .groups
            .entry((process.program, image, sighting.kind))
            .or_insert_with(|| Group::of(process, &sighting));
        if group.seen.insert(inside) {
            group.first.push((sighting, mapping));
        }
    }

    /// The traces, with notes.
    ///
    /// # Errors
    /// Not a single sighting was in user code.
    pub(super) fn into_reading(self, images: &Images, companions: &Companions) -> Result<Reading> {
        let mut notes = self.notes();
        if self.groups.is_empty() {
            let reasons: Vec<String> = notes.iter().map(|note| note.message.clone()).collect();
            let message = ["no sample in the code of a program".to_owned()].into_iter().chain(reasons);
            return Err(Error::malformed(0, message.collect::<Vec<_>>().join("; "))
                .with_hint("record again: perf record -e cpu-clock:u -F 9999 -g -- PROGRAM ARGUMENTS"));
        }
        let used: BTreeSet<Option<u32>> = self.groups.keys().map(|(_, image, _)| *image).collect();
        let mut open = BTreeMap::new();
        for number in used.into_iter().flatten() {
            open.insert(number, OpenImage::find(images.identity(number), companions, &mut notes));
        }
        let mut traces = Vec::new();
        let mut unplaced = 0;
        let mut by_image: Vec<_> = self.groups.into_iter().collect();
        // Parsed once for all of its programs.
        by_image.sort_by_key(|((program, image, kind), _)| (*image, *program, *kind));
        for chunk in by_image.chunk_by_mut(|((_, first, _), _), ((_, second, _), _)| first == second) {
            let Some(((_, image, _), _)) = chunk.first() else { continue };
            let open = image.and_then(|image| open.get(&image));
            let parsed = open.and_then(OpenImage::parse);
            if let (Some(open), None) = (open, &parsed) {
                notes.push(untranslated(open));
            }
            let identity = open.map(OpenImage::identity).unwrap_or_default();
            for ((program, image, kind), group) in chunk {
                let events = std::mem::take(&mut group.first);
                let trace = Trace {
                    image: identity.clone(),
                    process: Some(group.process),
                    command: group.name.iter().map(|name| name.to_vec()).collect(),
                    weight: 1,
                    evidence: kind.evidence(),
                    events: events_of(
                        events,
                        group.started,
                        |mapping, address| spot(parsed.as_ref(), mapping, address),
                        &mut unplaced,
                    ),
                    ..Trace::default()
                };
                traces.push(((*program, *image, *kind), trace));
            }
        }
        if unplaced > 0 {
            notes.push(Note::new(format!(
                "{unplaced} addresses have no place in their image and were left out"
            )));
        }
        traces.sort_by_key(|(key, _)| *key);
        Ok(Reading { traces: traces.into_iter().map(|(_, trace)| trace).collect(), notes })
    }

    fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        let mut tell = |count: u64, what: &str| {
            if count > 0 {
                notes.push(Note::new(format!("{count} {what}")));
            }
        };
        tell(self.in_kernel, "addresses in the kernel were left out");
        tell(self.data_faults, "page faults were accesses to data, not to code, and were left out");
        tell(
            self.outside,
            "addresses in no mapped file (generated code, vdso, broken call chains) were left out",
        );
        let evidence: BTreeSet<Kind> = self.groups.keys().map(|(_, _, kind)| *kind).collect();
        if evidence.iter().any(|kind| matches!(kind, Kind::Sample(_))) {
            notes.push(
                Note::new("samples miss short functions: the order is that of the first samples")
                    .with_hint(Hint::Record { what: "every first call", otherwise: None }),
            );
        }
        notes
    }
}

impl Group {
    fn of(process: &Process, first: &Sighting) -> Self {
        let started = process.started.filter(|time| *time > 0).or(first.time);
        Self {
            process: process.id,
            name: process.name.clone(),
            started,
            seen: BTreeSet::new(),
            first: Vec::new(),
        }
    }
}

fn untranslated(image: &OpenImage<'_>) -> Note {
    Note::new(format!(
        "{} cannot be read any more: functions without a name in the recording are known by their places in memory \
         only, and those sampled several times are listed several times",
        image.identity()
    ))
    .with_hint(Hint::companion("give the recorded image", "IMAGE"))
}

/// Each function once, at its first sighting; what no symbol covers, each address once.
fn events_of(
    sightings: Vec<(Sighting, Option<Mapping>)>,
    started: Option<u64>,
    spot: impl Fn(Mapping, u64) -> Option<Spot>,
    unplaced: &mut u64,
) -> Vec<Event> {
    let mut functions = BTreeSet::new();
    let mut first = FirstSeen::default();
    for (sighting, mapping) in sightings {
        let time = |event| Event {
            tick: sighting.time,
            nanoseconds: sighting.time.zip(started).and_then(|(time, start)| time.checked_sub(start)),
            ..event
        };
        let event = match mapping.and_then(|mapping| spot(mapping, sighting.address)) {
            Some(Spot::Image { address, function }) => {
                let start = function.as_ref().map(|(start, _)| *start);
                if start.is_some_and(|start| !functions.insert(start)) {
                    continue;
                }
                let is_start = sighting.kind == Kind::Entry && start.is_none_or(|start| start == address);
                let location = if is_start { Location::Image(address) } else { Location::Inside(address) };
                let name = function.map(|(_, name)| name).or(sighting.name);
                Event { name, ..Event::at(location) }
            }
            Some(Spot::Memory(address)) => match sighting.name {
                Some(name) => Event::at(Location::Name(name)),
                None => Event::at(Location::Runtime(address)),
            },
            // In none of the image's segments: only a name is left.
            None => match sighting.name {
                Some(name) => Event::at(Location::Name(name)),
                None if mapping.is_none() => Event::at(Location::Runtime(RuntimeAddress(sighting.address))),
                None => {
                    *unplaced += 1;
                    continue;
                }
            },
        };
        first.add(time(event));
    }
    first.into_events()
}
