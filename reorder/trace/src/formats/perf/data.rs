//! `perf.data`: records by `linux-perf-data`, after the checks of [`super::container`].

use std::io::Cursor as Reader;

use linux_perf_data::linux_perf_event_reader::{PerfEventType, SoftwareCounterType};
use linux_perf_data::{AttributeDescription, Endianness, PerfFile, PerfFileReader, PerfFileRecord};

use super::images::Images;
use super::processes::{Mapping, Processes};
use super::records::{self, Map, Probe, Record, Sample};
use super::sightings::{Kind, Sighting, Sightings};
use super::{Meaning, container, interpret_event};
use crate::cursor::ByteOrder;
use crate::{Input, Note, Reading};
use reorder_base::error::{Error, Result};

/// Whether it is a recording of perf, of either byte order.
pub(crate) fn accepts(bytes: &[u8]) -> bool {
    container::byte_order(bytes).is_some()
}

/// A trace for each program, image and kind of event.
///
/// # Errors
/// Attributes that make no sense, and files without a sample in user code.
pub(crate) fn read(input: &Input<'_>) -> Result<Reading> {
    let container = container::prepare(input.bytes)?;
    let reader = Reader::new(container.bytes.as_ref());
    let parsed = if container.is_pipe {
        PerfFileReader::parse_pipe(reader)
    } else {
        PerfFileReader::parse_file(reader)
    };
    let PerfFileReader { mut perf_file, mut record_iter } = parsed.map_err(|error| unreadable(&error))?;
    let mut recording = Recording::new(&perf_file, input.bytes.len(), container.notes);
    loop {
        match record_iter.next_record(&mut perf_file) {
            Ok(Some(PerfFileRecord::EventRecord { attr_index, record })) => {
                let body = record.data.as_slice();
                let read = records::read(
                    record.record_type,
                    record.misc,
                    &body,
                    recording.order,
                    &record.parse_info,
                );
                recording.add(attr_index, record.timestamp(), read);
            }
            Ok(Some(PerfFileRecord::UserRecord(_))) => {}
            Ok(None) => break,
            Err(error) => {
                recording.notes.push(Note::new(format!("the recording breaks off: {error}")));
                break;
            }
        }
    }
    recording.into_reading(input)
}

fn unreadable(error: &linux_perf_data::Error) -> Error {
    Error::malformed(0, format!("perf.data: {error}"))
        .with_hint("record again: perf record -e cpu-clock:u -F 9999 -g -o perf.data -- PROGRAM ARGUMENTS")
}

struct Recording {
    order: ByteOrder,
    /// What each event means.
    meanings: Vec<Meaning>,
    /// Which of them are tracepoints.
    tracepoints: Vec<bool>,
    processes: Processes,
    images: Images,
    sightings: Sightings,
    lost: u64,
    returns: u64,
    damaged: u64,
    first_damage: Option<String>,
    notes: Vec<Note>,
}

impl Recording {
    fn new(file: &PerfFile, size: usize, notes: Vec<Note>) -> Self {
        let order = match file.endian() {
            Endianness::LittleEndian => ByteOrder::Little,
            Endianness::BigEndian => ByteOrder::Big,
        };
        let mut images = Images::default();
        // The map is unordered; each path has one build-id, so the order of insertion does not matter.
        let mut build_ids: Vec<_> = file.build_ids().unwrap_or_default().into_values().collect();
        build_ids.sort_by(|first, second| first.path.cmp(&second.path));
        for image in build_ids {
            images.note_build_id(&image.path, image.build_id);
        }
        let meanings = file.event_attributes().iter().enumerate();
        Self {
            order,
            meanings: meanings.map(|(number, event)| meaning(event, number as u32)).collect(),
            tracepoints: file.event_attributes().iter().map(is_tracepoint).collect(),
            processes: Processes::new(size),
            images,
            sightings: Sightings::default(),
            lost: 0,
            returns: 0,
            damaged: 0,
            first_damage: None,
            notes,
        }
    }

    fn add(&mut self, event: usize, time: Option<u64>, record: Result<Record>) {
        match record {
            Ok(Record::Map(map)) => self.map(map),
            Ok(Record::Name { process, name, is_execution: true }) => {
                self.processes.execute(process, name, time)
            }
            Ok(Record::Name { process, name, .. }) => self.processes.get(process).name = Some(name),
            Ok(Record::Fork { child, parent }) => self.processes.fork(child, parent, time),
            Ok(Record::Lost(count)) => self.lost = self.lost.saturating_add(count),
            Ok(Record::Sample(sample)) => self.sample(event, time, sample),
            Ok(Record::Other) => {}
            Err(error) => {
                self.damaged += 1;
                self.first_damage.get_or_insert_with(|| records::damaged(&error));
            }
        }
    }

    fn map(&mut self, map: Map) {
        let end = map.start.saturating_add(map.size);
        let image = self.images.number(&map.path, map.build_id);
        self.processes.map(map.process, Mapping { start: map.start, end, offset: map.offset, image });
    }

    fn sample(&mut self, event: usize, time: Option<u64>, sample: Sample) {
        let (kind, name) = match self.meanings.get(event) {
            Some(Meaning::Code(kind, name)) => (*kind, name.clone()),
            Some(Meaning::Return) => {
                self.returns += 1;
                return;
            }
            None => return,
        };
        // The user of `perf probe` may name its probes.
        let kind = match (self.tracepoints.get(event), sample.probe) {
            (Some(true), Some(Probe::Return)) => {
                self.returns += 1;
                return;
            }
            (Some(true), Some(Probe::Here)) => Kind::Entry,
            _ => kind,
        };
        let Some(process) = sample.process else { return };
        self.sightings.in_kernel += u64::from(sample.is_in_kernel);
        if kind == Kind::Page && sample.data.is_some() && sample.data != sample.instruction {
            self.sightings.data_faults += u64::from(!sample.is_in_kernel);
            return;
        }
        // Callers of a probed function are known only to have been entered by then.
        let kind_of_callers = if kind == Kind::Entry { Kind::Sample(event as u32) } else { kind };
        let own = usize::from(sample.callers.first() == sample.instruction.as_ref());
        let callers = sample.callers.get(own..).unwrap_or_default();
        for (index, &address) in callers.iter().enumerate().rev() {
            let is_caller = index + own > 0;
            let sighting = Sighting {
                process,
                address,
                time,
                kind: kind_of_callers,
                image: None,
                may_be_offset: false,
                name: None,
                is_caller,
            };
            self.sightings.add(sighting, &mut self.processes);
        }
        if let Some(address) = sample.instruction {
            let sighting = Sighting {
                process,
                address,
                time,
                kind,
                image: None,
                may_be_offset: false,
                name,
                is_caller: false,
            };
            self.sightings.add(sighting, &mut self.processes);
        }
    }

    fn into_reading(mut self, input: &Input<'_>) -> Result<Reading> {
        let mut tell = |count: u64, text: String| {
            if count > 0 {
                self.notes.push(Note::new(text));
            }
        };
        tell(
            self.lost,
            format!(
                "perf lost {} records: the order has gaps; record with a larger buffer (-m 64M)",
                self.lost
            ),
        );
        tell(
            self.returns,
            format!("{} returns of functions were left out: only entries have an order", self.returns),
        );
        tell(self.damaged, format!("{} {}", self.damaged, self.first_damage.take().unwrap_or_default()));
        let shortened = self.processes.without_mappings;
        tell(
            shortened,
            format!(
                "{shortened} processes were forked with too many mappings to keep; their samples are left out"
            ),
        );
        let mut reading = self.sightings.into_reading(&self.images, input.companions)?;
        reading.notes.splice(0..0, self.notes);
        Ok(reading)
    }
}

/// Page faults by their number, even if their name has options; else by the event's name, which files without features
/// lack.
fn meaning(event: &AttributeDescription, number: u32) -> Meaning {
    match (event.name(), &event.attr.type_) {
        (
            _,
            PerfEventType::Software(
                SoftwareCounterType::PageFaults
                | SoftwareCounterType::PageFaultsMin
                | SoftwareCounterType::PageFaultsMaj,
            ),
        ) => Meaning::Code(Kind::Page, None),
        (Some(name), _) => interpret_event(name, number),
        (None, PerfEventType::Tracepoint(_)) => Meaning::Code(Kind::Entry, None),
        (None, _) => Meaning::Code(Kind::Sample(number), None),
    }
}

fn is_tracepoint(event: &AttributeDescription) -> bool {
    matches!(event.attr.type_, PerfEventType::Tracepoint(_))
}

#[cfg(test)]
mod tests {
    use super::super::super::damage::survives;

    #[test]
    fn damage_is_told_or_survived() {
        let seeds: [&[u8]; 2] = [
            include_bytes!("../../../../../tests/profiles/sampling/perf-cpu-clock.data"),
            include_bytes!("../../../../../tests/profiles/sampling/perf-uprobes.data"),
        ];
        for seed in seeds {
            survives("perf.data", seed);
        }
    }
}
