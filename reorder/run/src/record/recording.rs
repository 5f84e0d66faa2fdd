//! What has been seen of one executed program and the processes it forked.
//!
//! A family is everything that descends from one `exec` without a further `exec`. Its members share one record:
//! the first execution of a function in any of them is the first execution.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Instant;

use nix::unistd::Pid;

use super::code::Place;
use super::executed::Executed;
use super::image::TracedImage;
use super::memory::ProgramMark;
use reorder_trace::{Event, Evidence, Location, Name, Trace};

/// First executions of one family.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) process: Pid,
    pub(super) executed: Executed,
    /// The mark in memory that identifies the family.
    mark: Option<ProgramMark>,
    started: Instant,
    /// Nanoseconds that earlier passes took up to their last event: what is new comes after it.
    elapsed_before: u64,
    /// Members that went on when the recording ended.
    left_running: BTreeSet<Pid>,
    /// Parallel to the session's images; `None` for images that no member has mapped.
    images: Vec<Option<ImageRecording>>,
    /// How often in a row, over all passes and members, watched calls and jumps led to known functions, by image and place.
    pub(super) known_targets: BTreeMap<(usize, Place), u32>,
}

/// Which first execution a hit was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct First {
    /// The function's.
    pub(super) of_function: bool,
    /// The place's.
    pub(super) of_place: bool,
}

/// First executions in one image.
#[derive(Debug)]
struct ImageRecording {
    /// By function start.
    seen: Vec<bool>,
    /// Function start and nanoseconds since `exec`, in order.
    events: Vec<(u32, u64)>,
    /// Places inside of functions and their starts, if these are recorded.
    seen_places: HashSet<Place>,
    /// By function start: offset and nanoseconds since `exec`, in order.
    blocks: BTreeMap<u32, Vec<(u32, u64)>>,
    /// Functions in which not all blocks could be watched.
    given_up: BTreeSet<u32>,
}

impl Recording {
    /// The record of what `process` is about to execute.
    pub(super) fn new(process: Pid, executed: Executed) -> Self {
        Self {
            process,
            executed,
            mark: None,
            started: Instant::now(),
            elapsed_before: 0,
            left_running: BTreeSet::new(),
            images: Vec::new(),
            known_targets: BTreeMap::new(),
        }
    }

    /// The same record in the next pass, in which what `process` is about to execute adds what is new.
    pub(super) fn continued(self, process: Pid, executed: Executed) -> Self {
        let events = self.images.iter().flatten().flat_map(|image| {
            let blocks = image.blocks.values().filter_map(|executed| executed.last());
            image.events.last().into_iter().chain(blocks)
        });
        let elapsed_before = events.map(|(_, nanoseconds)| *nanoseconds).max().unwrap_or(0);
        Self { process, executed, mark: None, started: Instant::now(), elapsed_before, ..self.ended() }
    }

    /// The same record after its pass: what that left running does not count.
    pub(super) fn ended(self) -> Self {
        Self { left_running: BTreeSet::new(), ..self }
    }

    /// The mark in memory that tells members from other processes.
    pub(super) fn set_mark(&mut self, mark: Option<ProgramMark>) {
        self.mark = mark;
    }

    /// Whether memory with `mark` belongs to a member.
    pub(super) fn is_of(&self, mark: ProgramMark) -> bool {
        self.mark == Some(mark)
    }

    /// Starts the clock: planting breakpoints is not the program's time.
    pub(super) fn start_clock(&mut self) {
        self.started = Instant::now();
    }

    /// The member `process` goes on unrecorded.
    pub(super) fn leaves(&mut self, process: Pid) {
        self.left_running.insert(process);
    }

    /// Some member has mapped `image`.
    pub(super) fn add_image(&mut self, index: usize, image: &TracedImage) {
        if self.images.len() <= index {
            self.images.resize_with(index + 1, || None);
        }
        self.images[index].get_or_insert_with(|| ImageRecording {
            seen: vec![false; image.starts.len()],
            events: Vec::new(),
            seen_places: HashSet::new(),
            blocks: BTreeMap::new(),
            given_up: BTreeSet::new(),
        });
    }

    /// A member reached a place of an image for the first time, or again. A function whose middle is reached first is
    /// executed then.
    pub(super) fn hit(&mut self, image: usize, place: Place) -> First {
        let Some(Some(recording)) = self.images.get_mut(image) else {
            return First { of_function: false, of_place: false };
        };
        let now = self.elapsed_before.saturating_add(self.started.elapsed().as_nanos() as u64);
        // Starts that were learned since are not in it yet.
        if recording.seen.len() <= place.start {
            recording.seen.resize(place.start + 1, false);
        }
        let of_function = !std::mem::replace(&mut recording.seen[place.start], true);
        if of_function {
            recording.events.push((place.start as u32, now));
        }
        let of_place = recording.seen_places.insert(place);
        if of_place {
            recording.blocks.entry(place.start as u32).or_default().push((place.offset, now));
        }
        First { of_function, of_place }
    }

    /// Whether some member has reached the place.
    pub(super) fn has_seen(&self, image: usize, place: Place) -> bool {
        matches!(self.images.get(image), Some(Some(recording)) if recording.seen_places.contains(&place))
    }

    /// Whether some member has executed the function at start number `start`.
    pub(super) fn has_executed(&self, image: usize, start: usize) -> bool {
        let recording = self.images.get(image).and_then(Option::as_ref);
        recording.is_some_and(|recording| recording.seen.get(start) == Some(&true))
    }

    /// The functions of an image that ran, by start number, and the places in them that did, in no order.
    pub(super) fn executed(&self, image: usize) -> (Vec<usize>, Vec<Place>) {
        let Some(recording) = self.images.get(image).and_then(Option::as_ref) else {
            return Default::default();
        };
        let starts = recording.events.iter().map(|(start, _)| *start as usize).collect();
        (starts, recording.seen_places.iter().copied().collect())
    }

    /// Not all blocks of the function at start number `start` could be watched: which of them ran is not known.
    pub(super) fn give_up(&mut self, image: usize, start: usize) {
        if let Some(Some(recording)) = self.images.get_mut(image) {
            recording.given_up.insert(start as u32);
        }
    }

    /// One trace for each image with events, in the order of `images`; with the image's position there.
    pub(super) fn into_traces(
        self,
        run: u32,
        images: &[TracedImage],
        command: &[Vec<u8>],
    ) -> Vec<(usize, Trace)> {
        let process = u32::try_from(self.process.as_raw()).ok();
        let left_running = self.left_running.len() as u32;
        let recorded = self.images.into_iter().zip(images).enumerate();
        recorded
            .filter_map(|(index, (recording, image))| {
                let recording = recording?;
                let event = |event: &(u32, u64)| to_event(image, &recording, *event);
                let events: Vec<Event> = recording.events.iter().map(event).collect();
                let trace = Trace {
                    image: image.identity.clone(),
                    run,
                    process,
                    command: command.to_vec(),
                    weight: 1,
                    evidence: Evidence::Exact,
                    left_running,
                    events,
                    source: None,
                    position: 0,
                    identity: None,
                    draw: None,
                };
                (!trace.events.is_empty()).then_some((index, trace))
            })
            .collect()
    }
}

fn to_event(image: &TracedImage, recording: &ImageRecording, (start, nanoseconds): (u32, u64)) -> Event {
    let executed = recording.blocks.get(&start).filter(|_| !recording.given_up.contains(&start));
    let blocks = executed.and_then(|executed| Some(image.known_code(start as usize)?.blocks(executed)));
    let start = &image.starts[start as usize];
    Event {
        location: Location::Image(start.address),
        name: start.name.as_deref().map(Name::from),
        size: Some(start.size),
        nanoseconds: Some(nanoseconds),
        count: None,
        tick: None,
        blocks: blocks.filter(|recorded| !recorded.blocks.is_empty()),
        digest: None,
    }
}
