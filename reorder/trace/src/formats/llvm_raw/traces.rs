//! Executed functions of one profile to a trace: names by hash, addresses by the image.

use std::collections::HashSet;
use std::sync::Arc;

use super::RecordVersion;
use super::advice::without_timestamps;
use super::functions::{Counters, Executed, Function, Scan};
use super::profile::Profile;
use crate::formats::llvm_correlate::{CorrelatedFunctions, Correlation, Wanted};
use crate::formats::llvm_images::InstrumentedImage;
use crate::formats::llvm_names::NameTable;
use crate::{Event, Evidence, ImageIdentity, Input, Location, Name, NameHash, Note, Trace};
use reorder_base::address::Address;
use reorder_base::error::Result;

/// The trace of one profile.
///
/// # Errors
/// A profile whose records are in a companion that is not there.
pub(super) fn trace(
    profile: &Profile<'_>,
    run: u32,
    input: &Input<'_>,
    notes: &mut Vec<Note>,
) -> Result<Trace> {
    let source = Source::of(profile, input)?;
    let counters = Counters::new(profile.counters, profile.encoding, profile.flags);
    let scan = match &source {
        Source::Profile { .. } => {
            counters.scan(profile.records().enumerate().map(|(number, record)| Function {
                name_hash: record.name_hash,
                counters: profile.layout.counter_offset(&record, number, profile.counters_delta),
                counter_count: record.counter_count,
            }))
        }
        Source::Image { functions, .. } => {
            counters.scan(functions.functions.iter().map(|function| Function {
                name_hash: function.name_hash,
                counters: Some(function.counters),
                counter_count: function.counter_count,
            }))
        }
    };
    source.remark(profile, notes);
    remark(profile, &scan, notes);
    let evidence = if scan.has_time { Evidence::Exact } else { Evidence::Counts };
    if !scan.has_time {
        push_once(notes, without_timestamps(profile.flags));
    }
    let events = source.events(profile, &scan);
    let nameless = events.iter().filter(|event| event.symbol().is_none()).count();
    if nameless > 0 {
        let message = format!(
            "functions whose names are missing: {nameless} of {} that ran; they are known by hash",
            events.len()
        );
        notes.push(Note::at(profile.names.offset.max(profile.offset), message));
    }
    Ok(Trace { image: source.identity(profile), run, weight: 1, evidence, events, ..Trace::default() })
}

/// Where names and addresses come from.
enum Source<'input> {
    /// The profile itself, and its image if it is among the companions.
    Profile { names: Arc<NameTable>, image: Option<&'input InstrumentedImage> },
    /// The image only.
    Image { image: &'input InstrumentedImage, functions: Arc<CorrelatedFunctions> },
}

impl<'input> Source<'input> {
    fn of(profile: &Profile<'_>, input: &Input<'input>) -> Result<Self> {
        let companions = input.companions;
        if profile.is_correlated() {
            let in_debug_info = profile.flags.is_in_debug_info();
            let wanted = Wanted {
                correlation: if in_debug_info { Correlation::DebugInfo } else { Correlation::Sections },
                version: RecordVersion { encoding: profile.encoding, version: profile.version },
                build_ids: &profile.build_ids,
                counter_bytes: profile.counters.bytes.len() as u64,
                offset: profile.offset,
            };
            let (image, functions) = wanted.find(companions)?;
            return Ok(Self::Image { image, functions });
        }
        let images = companions.llvm_images.of(companions);
        Ok(Self::Profile {
            names: companions.llvm_names.read(profile.names.bytes),
            image: images.iter().find(|image| image.has_one_of(&profile.build_ids)),
        })
    }

    fn identity(&self, profile: &Profile<'_>) -> ImageIdentity {
        match self {
            Self::Image { image, .. } | Self::Profile { image: Some(image), .. } => image.identity.clone(),
            Self::Profile { image: None, .. } => {
                ImageIdentity { path: None, build_id: profile.build_ids.first().map(|id| id.to_vec()) }
            }
        }
    }

    fn remark(&self, profile: &Profile<'_>, notes: &mut Vec<Note>) {
        match self {
            Self::Profile { names, .. } => notes.extend(names.damage(profile.names.offset)),
            Self::Image { image, functions } => {
                functions.remarks.iter().for_each(|remark| push_once(notes, Note::new(remark.clone())));
                if profile.build_ids.is_empty() {
                    let message = format!(
                        "the profile has no build-id: that it belongs to {} is known by the size of its counters only",
                        image.name()
                    );
                    notes.push(Note::at(profile.offset, message));
                }
            }
        }
    }

    /// Each function once.
    fn events(&self, profile: &Profile<'_>, scan: &Scan) -> Vec<Event> {
        let mut known = HashSet::with_capacity(scan.executed.len());
        scan.executed
            .iter()
            .filter_map(|executed| {
                let (address, name) = self.describe(profile, executed);
                known
                    .insert((executed.name_hash, address))
                    .then(|| event(executed, address, name, scan.has_time))
            })
            .collect()
    }

    fn describe(&self, profile: &Profile<'_>, executed: &Executed) -> (Option<Address>, Option<Name>) {
        match self {
            Self::Profile { names, image } => {
                let address = image.and_then(|image| image_address(profile, image, executed.number));
                (address, names.get(executed.name_hash))
            }
            Self::Image { functions, .. } => {
                let function = functions.functions.get(executed.number);
                function.map_or((None, None), |function| (function.address, function.name.clone()))
            }
        }
    }
}

/// The address in its image that a record has as a run-time address: the image's names tell where it was loaded.
/// Something else's code, which a linker may put in a function's place, is no address of the image.
fn image_address(profile: &Profile<'_>, image: &InstrumentedImage, number: usize) -> Option<Address> {
    let function = profile.record(number)?.1.function;
    let bias = profile.names_delta.wrapping_sub(image.names()?.0);
    let address = Address(profile.encoding.address(function.wrapping_sub(bias)));
    (function != 0 && image.has_code_at(address)).then_some(address)
}

fn event(executed: &Executed, address: Option<Address>, name: Option<Name>, has_time: bool) -> Event {
    let (location, name) = match (address, name) {
        (Some(address), name) => (Location::Image(address), name),
        (None, Some(name)) => (Location::Name(name), None),
        (None, None) => (Location::NameHash(NameHash::Md5(executed.name_hash)), None),
    };
    Event { name, count: executed.count, tick: has_time.then_some(executed.tick), ..Event::at(location) }
}

/// What of the counters is not to be believed.
fn remark(profile: &Profile<'_>, scan: &Scan, notes: &mut Vec<Note>) {
    if let Some((number, reason)) = scan.rejected.first {
        let offset = profile.record(number).map_or(profile.offset, |(offset, _)| offset);
        let message = format!(
            "functions left out because of their counters: {}; of the first, {reason}",
            scan.rejected.count
        );
        notes.push(Note::at(offset, message));
    }
    if scan.equal_ticks > 0 {
        let message = format!(
            "functions with the timestamp of another one: {}; they stand in the order of their hashes",
            scan.equal_ticks
        );
        notes.push(Note::at(profile.counters.offset, message));
    }
}

/// Adds the notes that concern the whole file once.
fn push_once(notes: &mut Vec<Note>, note: Note) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}
