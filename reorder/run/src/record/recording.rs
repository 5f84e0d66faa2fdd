//! What has been seen of one executed program and the processes it forked.
//!
//! A family is everything that descends from one `exec` without a further `exec`. Its members share one record:
//! the first execution of a function in any of them is the first execution.

use std::collections::BTreeSet;
use std::time::Instant;

use nix::unistd::Pid;

use super::image::TracedImage;
use super::memory::ProgramMark;
use reorder_trace::{Event, Evidence, Location, Name, Trace};

/// First executions of one family.
#[derive(Debug)]
pub(super) struct Recording {
    process: Pid,
    /// The mark in memory that identifies the family.
    mark: Option<ProgramMark>,
    started: Instant,
    /// Members that went on when the recording ended.
    left_running: BTreeSet<Pid>,
    /// Parallel to the session's images; `None` for images that no member has mapped.
    images: Vec<Option<ImageRecording>>,
}

/// First executions in one image.
#[derive(Debug)]
struct ImageRecording {
    /// By function start.
    seen: Vec<bool>,
    /// Function start and nanoseconds since `exec`, in order.
    events: Vec<(u32, u64)>,
}

impl Recording {
    /// The record of the program that `process` is about to execute.
    pub(super) fn new(process: Pid, mark: Option<ProgramMark>) -> Self {
        Self { process, mark, started: Instant::now(), left_running: BTreeSet::new(), images: Vec::new() }
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
        });
    }

    /// A member reached function start `start` of an image; returns whether it is the first.
    pub(super) fn hit(&mut self, image: usize, start: usize) -> bool {
        let Some(Some(recording)) = self.images.get_mut(image) else { return false };
        let is_first = !std::mem::replace(&mut recording.seen[start], true);
        if is_first {
            recording.events.push((start as u32, self.started.elapsed().as_nanos() as u64));
        }
        is_first
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
                let events: Vec<Event> =
                    recording?.events.iter().map(|event| to_event(image, *event)).collect();
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

fn to_event(image: &TracedImage, (start, nanoseconds): (u32, u64)) -> Event {
    let start = &image.starts[start as usize];
    Event {
        location: Location::Image(start.address),
        name: start.name.as_deref().map(Name::from),
        size: Some(start.size),
        nanoseconds: Some(nanoseconds),
        count: None,
        tick: None,
        blocks: None,
    }
}
