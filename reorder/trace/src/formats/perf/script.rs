//! What `perf script` prints: samples with their call chains, and mappings if it was asked for them.
//!
//! With mappings (`--show-mmap-events`) addresses become those of the image, as for the recording itself; without,
//! perf's own symbols are all that is known, and they are mangled only with `--no-demangle`.

use std::collections::BTreeMap;

use super::images::Images;
use super::processes::{Mapping, Processes};
use super::records::Probe;
use super::script_line::{Frame, Line, Map, Sample, parse};
use super::sightings::{Kind, Sighting, Sightings};
use super::{Meaning, interpret_event};
use crate::{Input, Name, Note, Reading};
use reorder_base::error::{Error, Result};

/// Whether the first lines are perf's, with a sample or a mapping among them.
pub(crate) fn accepts(bytes: &[u8]) -> bool {
    const LOOKED_AT: usize = 8;
    let beginning = &bytes[..bytes.len().min(16 << 10)];
    let mut lines = beginning.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let mut has_time = false;
    let are_all = lines.by_ref().take(LOOKED_AT).all(|line| match parse(line) {
        Some(Line::Sample(_) | Line::Map(_) | Line::Execution { .. } | Line::Fork { .. }) => {
            has_time = true;
            true
        }
        Some(Line::Empty | Line::Other | Line::Lost(_)) => true,
        Some(Line::Frame(_)) => has_time,
        None => false,
    });
    are_all && has_time
}

/// A trace for each program, image and kind of event.
///
/// # Errors
/// Not a single sample in user code.
pub(crate) fn read(input: &Input<'_>) -> Result<Reading> {
    let mut script = Script::new(input.bytes.len());
    let mut offset = 0u64;
    for line in input.bytes.split(|&byte| byte == b'\n') {
        script.add(offset, line);
        offset += line.len() as u64 + 1;
    }
    script.into_reading(input)
}

struct Script<'text> {
    processes: Processes,
    images: Images,
    sightings: Sightings,
    /// The numbers of sampled events by name.
    events: BTreeMap<&'text str, u32>,
    /// The sample whose frames are being read, innermost first.
    current: Option<Sample<'text>>,
    has_mappings: bool,
    has_demangled: bool,
    has_faults_without_address: bool,
    returns: u64,
    lost: u64,
    odd: u64,
    first_odd: Option<u64>,
}

/// What is known of a frame beside its line.
struct Place {
    name: Option<Name>,
    is_caller: bool,
    may_be_offset: bool,
}

impl<'text> Script<'text> {
    fn new(size: usize) -> Self {
        Self {
            processes: Processes::new(size),
            images: Images::default(),
            sightings: Sightings::default(),
            events: BTreeMap::new(),
            current: None,
            has_mappings: false,
            has_demangled: false,
            has_faults_without_address: false,
            returns: 0,
            lost: 0,
            odd: 0,
            first_odd: None,
        }
    }

    fn add(&mut self, offset: u64, line: &'text [u8]) {
        let parsed = parse(line);
        if let (Some(Line::Frame(frame)), Some(sample)) = (&parsed, &mut self.current) {
            sample.frames.push(*frame);
            return;
        }
        self.finish_sample();
        match parsed {
            Some(Line::Sample(sample)) => self.current = Some(sample),
            Some(Line::Map(map)) => self.map(map),
            Some(Line::Execution { process, name, time }) => {
                self.processes.execute(process, name.into(), Some(time))
            }
            Some(Line::Fork { child, parent, time }) => self.processes.fork(child, parent, Some(time)),
            Some(Line::Lost(count)) => self.lost = self.lost.saturating_add(count),
            Some(Line::Empty | Line::Other) => {}
            Some(Line::Frame(_)) | None => {
                self.odd += 1;
                self.first_odd.get_or_insert(offset);
            }
        }
    }

    fn map(&mut self, map: Map<'text>) {
        self.has_mappings = true;
        if let Some(build_id) = &map.build_id {
            self.images.note_build_id(map.path, build_id.clone());
        }
        let image = self.images.number(map.path, map.build_id);
        let end = map.start.saturating_add(map.size);
        self.processes.map(map.process, Mapping { start: map.start, end, offset: map.offset, image });
    }

    fn finish_sample(&mut self) {
        let Some(sample) = self.current.take() else { return };
        let next = self.events.len() as u32;
        let number = *self.events.entry(sample.event).or_insert(next);
        let (kind, name) = match (interpret_event(sample.event, number), sample.probe) {
            (Meaning::Return, _) | (_, Some(Probe::Return)) => {
                self.returns += 1;
                return;
            }
            (Meaning::Code(Kind::Sample(_), _), Some(Probe::Here)) => {
                (Kind::Entry, sample.event.rsplit_once(':').map(|(_, event)| event.into()))
            }
            (Meaning::Code(kind, name), _) => (kind, name),
        };
        let process = self.processes.get(sample.process);
        process.name.get_or_insert_with(|| sample.command.into());
        let (kind, frames) = match self.code_of_fault(kind, number, &sample) {
            Some(code) => code,
            None => {
                self.sightings.data_faults += 1;
                return;
            }
        };
        for (index, frame) in frames.iter().enumerate().rev() {
            let is_callee = index == 0;
            let kind = if kind == Kind::Entry && !is_callee { Kind::Sample(number) } else { kind };
            let name = if is_callee { name.clone() } else { None };
            // For call chains newer versions of perf print offsets in files.
            let may_be_offset = sample.on_line == 0 || index > 0;
            self.see(&sample, *frame, kind, Place { name, is_caller: !is_callee, may_be_offset });
        }
    }

    /// The kind and the frames of a sample. A page fault loses the address that it is about, which is on the sample's own
    /// line before the instruction if perf printed it. `None` for an access to data.
    fn code_of_fault<'sample>(
        &mut self,
        kind: Kind,
        number: u32,
        sample: &'sample Sample<'text>,
    ) -> Option<(Kind, &'sample [Frame<'text>])> {
        let frames = sample.frames.as_slice();
        if kind != Kind::Page {
            return Some((kind, frames));
        }
        match frames {
            [fault, rest @ ..] if !rest.is_empty() && sample.on_line > 0 => {
                (rest.first()?.address == fault.address).then_some((kind, rest))
            }
            _ => {
                self.has_faults_without_address = true;
                Some((Kind::Sample(number), frames))
            }
        }
    }

    fn see(&mut self, sample: &Sample<'text>, frame: Frame<'text>, kind: Kind, place: Place) {
        const KERNEL_HALF: u64 = 1 << 63;
        if frame.address & KERNEL_HALF != 0 {
            self.sightings.in_kernel += 1;
            return;
        }
        // Inlined functions have no code of their own: perf repeats the address of the function around them.
        if frame.file == Some(b"inlined") {
            return;
        }
        let image = frame.file.and_then(|file| self.images.number(file, None));
        if image.is_none() && frame.file.is_some() && !self.has_mappings {
            self.sightings.outside += 1;
            return;
        }
        self.has_demangled |=
            frame.symbol.is_some_and(|symbol| symbol.contains(&b'(') || symbol.contains(&b' '));
        let sighting = Sighting {
            process: sample.process,
            address: frame.address,
            time: Some(sample.time),
            kind,
            image,
            may_be_offset: place.may_be_offset,
            name: place.name.or_else(|| frame.symbol.map(Into::into)),
            is_caller: place.is_caller,
        };
        self.sightings.add(sighting, &mut self.processes);
    }

    fn into_reading(mut self, input: &Input<'_>) -> Result<Reading> {
        self.finish_sample();
        let mut notes = Vec::new();
        if let Some(offset) = self.first_odd {
            notes.push(Note::at(
                offset,
                format!("{} lines are not perf script's and were left out", self.odd),
            ));
        }
        if self.lost > 0 {
            notes.push(Note::new(format!("perf lost {} records: the order has gaps", self.lost)));
        }
        if self.returns > 0 {
            notes.push(Note::new(format!("{} returns of functions were left out", self.returns)));
        }
        if !self.has_mappings {
            notes.push(
                Note::new("the text has no mappings: functions are known by perf's names for them alone")
                    .with_hint("give perf.data itself, or print it by: perf script --ns --show-mmap-events --show-task-events"),
            );
        }
        if self.has_faults_without_address {
            notes.push(
                Note::new("page faults without their addresses: whether they fetched code is not known")
                    .with_hint("print them by: perf script --ns -F +addr"),
            );
        }
        if self.has_demangled && !self.has_mappings {
            notes.push(
                Note::new("names are demangled, which no symbol is")
                    .with_hint("print them by: perf script --no-demangle"),
            );
        }
        let mut reading = self.sightings.into_reading(&self.images, input.companions).map_err(|error| {
            let error = self
                .first_odd
                .map_or(error, |offset| Error::malformed(offset, "lines that perf script does not print"));
            error.with_hint(
                "print by: perf script --ns -F comm,pid,tid,time,event,ip,sym,symoff,dso --show-mmap-events",
            )
        })?;
        reading.notes.splice(0..0, notes);
        Ok(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::damage::survives;

    #[test]
    fn damage_is_told_or_survived() {
        let seeds: [&[u8]; 3] = [
            include_bytes!("../../../../../tests/profiles/sampling/perf-page-faults.script.txt"),
            include_bytes!("../../../../../tests/profiles/sampling/perf-uprobes.script.txt"),
            include_bytes!("../../../../../tests/profiles/sampling/perf-cpu-clock.mmap.txt"),
        ];
        for seed in seeds {
            survives("perf script", seed);
        }
    }
}
