//! Profiles of every version and processor, written here field by field; the same with damage.

use std::path::Path;

use proptest::prelude::*;

use super::super::llvm_names::name_hash;
use crate::cursor::ByteOrder;
use crate::{Companion, Companions, Event, Evidence, Reading, read_bytes};

/// How to write a profile.
#[derive(Clone, Debug)]
struct Writer {
    version: u32,
    order: ByteOrder,
    wide: bool,
    byte_coverage: bool,
    build_id: Vec<u8>,
    padding: u64,
    bytes: Vec<u8>,
}

/// Name, time of the first call (0: never), and what its counters hold.
type Function = (String, u64, Vec<u64>);

impl Writer {
    fn number(&mut self, number: u64, bytes: usize) {
        match self.order {
            ByteOrder::Little => self.bytes.extend(&number.to_le_bytes()[..bytes]),
            ByteOrder::Big => self.bytes.extend(&number.to_be_bytes()[8 - bytes..]),
        }
    }

    fn pointer(&mut self, number: u64) {
        self.number(number, if self.wide { 8 } else { 4 });
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    /// Bytes of a function's counters in memory: in a run with bytes, each function's start on eight.
    fn counter_bytes(&self, counters: &[u64]) -> u64 {
        let count = counters.len() as u64;
        if self.byte_coverage { (8 + count).next_multiple_of(8) } else { 8 + 8 * count }
    }

    fn profile(mut self, functions: &[Function]) -> Vec<u8> {
        let record = match (self.wide, self.version) {
            (true, 8) => 48,
            (true, _) => 64,
            (false, 8) => 40,
            (false, _) => 48,
        };
        let names: Vec<&str> = functions.iter().map(|(name, ..)| name.as_str()).collect();
        let names = [
            &[0x80 | names.join("\x01").len() as u8 & 0x7f],
            &[(names.join("\x01").len() >> 7) as u8][..],
            &[0],
            names.join("\x01").as_bytes(),
        ]
        .concat();
        let counters: u64 = functions.iter().map(|(.., counters)| self.counter_bytes(counters)).sum();
        let delta = functions.len() as u64 * record + self.padding;
        self.header(functions.len() as u64, counters, names.len() as u64, delta);
        self.records(functions, record, delta);
        self.bytes.extend(vec![0; self.padding as usize]);
        self.counters(functions);
        self.bytes.extend(names);
        self.align();
        self.bytes
    }

    fn header(&mut self, records: u64, counter_bytes: u64, names: u64, delta: u64) {
        let (magic, flags) = (if self.wide { b'r' } else { b'R' }, 1 << 63 | 1 << 56);
        self.number(u64::from_be_bytes([0xff, b'l', b'p', b'r', b'o', b'f', magic, 0x81]), 8);
        self.number(u64::from(self.version) | flags | u64::from(self.byte_coverage) << 60, 8);
        let build_id = self.build_id.clone();
        let id_bytes = if build_id.is_empty() { 0 } else { 8 + build_id.len().next_multiple_of(8) as u64 };
        let counters = if self.byte_coverage { counter_bytes } else { counter_bytes / 8 };
        for field in [id_bytes, records, self.padding, counters, 0] {
            self.number(field, 8);
        }
        let delta = if self.wide { delta } else { delta & 0xffff_ffff };
        let fields: &[u64] = match self.version {
            8 => &[names, delta, 0x4000, 1],
            9 => &[0, 0, names, delta, 0, 0x4000, 1],
            _ => &[0, 0, names, delta, 0, 0x4000, 0, 0, 2],
        };
        fields.iter().for_each(|&field| self.number(field, 8));
        if !build_id.is_empty() {
            self.number(build_id.len() as u64, 8);
            self.bytes.extend(&build_id);
            self.align();
        }
    }

    fn records(&mut self, functions: &[Function], record: u64, delta: u64) {
        let mut offset = 0u64;
        for (number, (name, _, counters)) in functions.iter().enumerate() {
            let start = self.bytes.len();
            self.number(name_hash(name.as_bytes()), 8);
            self.number(77, 8);
            self.pointer(delta.wrapping_add(offset).wrapping_sub(number as u64 * record));
            if self.version >= 9 {
                self.pointer(0);
            }
            self.pointer(0x1000 + number as u64);
            self.pointer(0);
            let slot = if self.byte_coverage { 8 } else { 1 };
            self.number(slot + counters.len() as u64, 4);
            self.bytes.resize(start + record as usize, 0);
            offset += self.counter_bytes(counters);
        }
    }

    fn counters(&mut self, functions: &[Function]) {
        for (_, tick, counters) in functions {
            let start = self.bytes.len();
            let never = if self.byte_coverage { u64::MAX } else { 0 };
            self.number(if *tick == 0 { never } else { *tick }, 8);
            for &counter in counters {
                match self.byte_coverage {
                    true => self.number(if counter > 0 { 0 } else { 0xff }, 1),
                    false => self.number(counter, 8),
                }
            }
            let length = self.counter_bytes(counters) as usize;
            self.bytes.resize(start + length, 0xff);
        }
    }
}

fn read(bytes: &[u8]) -> reorder_base::error::Result<Reading> {
    read_bytes(bytes, Path::new("run.profraw"), &Companions::default())
}

prop_compose! {
    fn writers()(
        version in 8u32..=10,
        big: bool,
        wide: bool,
        byte_coverage: bool,
        padding in (0u64..3).prop_map(|words| words * 8),
        build_id in proptest::collection::vec(any::<u8>(), 0..21),
    ) -> Writer {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        Writer { version, order, wide, byte_coverage, build_id, padding, bytes: Vec::new() }
    }
}

prop_compose! {
    /// Each with a name and a time of its own.
    fn functions()(
        functions in proptest::collection::vec((any::<bool>(), proptest::collection::vec(0u64..9, 1..6)), 1..20),
        times in Just((1u64..=20).collect::<Vec<_>>()).prop_shuffle(),
    ) -> Vec<Function> {
        let named = |(number, (ran, counters)): (usize, (bool, Vec<u64>))| {
            (format!("function_{number}"), if ran { times[number] } else { 0 }, counters)
        };
        functions.into_iter().enumerate().map(named).collect()
    }
}

/// Names and times of those that ran, in order.
fn expected(functions: &[Function]) -> Vec<(String, u64)> {
    let mut ran: Vec<_> = functions
        .iter()
        .filter(|(_, tick, _)| *tick > 0)
        .map(|(name, tick, _)| (name.clone(), *tick))
        .collect();
    ran.sort_by_key(|(_, tick)| *tick);
    ran
}

fn found(events: &[Event]) -> Vec<(String, u64)> {
    let of = |event: &Event| (event.location.to_string(), event.tick.unwrap_or(0));
    events.iter().map(of).collect()
}

proptest! {
    #[test]
    fn functions_stand_in_the_order_of_their_times(writer in writers(), functions in functions()) {
        let build_id = Some(writer.build_id.clone()).filter(|build_id| !build_id.is_empty());
        let coverage = writer.byte_coverage;
        let reading = read(&writer.profile(&functions)).unwrap();
        let trace = &reading.traces[0];
        prop_assert_eq!(found(&trace.events), expected(&functions));
        prop_assert_eq!((trace.evidence, trace.run), (Evidence::Exact, 1));
        prop_assert_eq!(&trace.image.build_id, &build_id);
        prop_assert!(trace.events.iter().all(|event| event.count.is_none() == coverage));
        prop_assert_eq!(reading.notes.is_empty(), !trace.events.is_empty());
    }

    #[test]
    fn a_cut_costs_what_it_cuts(writer in writers(), functions in functions(), cut in 0.0..1.0f64) {
        let mut functions = functions;
        functions[0].1 = 21;
        let whole = writer.profile(&functions);
        let mut file = [whole.as_slice(), &whole].concat();
        file.truncate(whole.len() + (cut * whole.len() as f64) as usize);
        let reading = read(&file).unwrap();
        prop_assert_eq!(found(&reading.traces[0].events), expected(&functions));
        if let Some(second) = reading.traces.get(1) {
            // What is cut are the names, or the zeros after them.
            prop_assert_eq!(second.run, 2);
            prop_assert_eq!(second.events.len(), reading.traces[0].events.len());
        } else {
            prop_assert_eq!(reading.notes.is_empty(), file.len() == whole.len());
        }
    }

    #[test]
    fn damage_never_leads_out_of_the_file(
        writer in writers(),
        functions in functions(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        length in any::<prop::sample::Index>(),
        cut: bool,
    ) {
        let mut file = writer.profile(&functions);
        for (place, byte) in changes {
            let place = place.index(file.len());
            file[place] = byte;
        }
        if cut {
            file.truncate(length.index(file.len()).max(1));
        }
        check(&file, &Companions::default());
    }

    #[test]
    fn damaged_companions_are_errors_or_notes(
        pair in 0usize..3,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        length in any::<prop::sample::Index>(),
        cut: bool,
    ) {
        let (profile, companion) = [
            ("correlate-debug-info.profraw", "correlate-debug-info.debug"),
            ("correlate-binary.profraw", "correlate-binary.debug"),
            ("macho-dsym-synthetic.profraw", "macho-dsym-dwarf"),
        ][pair];
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/profiles/llvm_raw");
        let profile = std::fs::read(folder.join(profile)).unwrap();
        let mut bytes = std::fs::read(folder.join(companion)).unwrap();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if cut {
            bytes.truncate(length.index(bytes.len()));
        }
        check(&profile, &Companions::from(vec![Companion { path: companion.into(), bytes }]));
    }
}

/// That reading ends, stays in the file and gives no more than there are records.
fn check(file: &[u8], companions: &Companions) {
    match read_bytes(file, Path::new("run.profraw"), companions) {
        Ok(reading) => {
            let inside = |offset: Option<u64>| offset.is_none_or(|offset| offset <= file.len() as u64);
            assert!(reading.notes.iter().all(|note| inside(note.offset)), "{:?}", reading.notes);
            let events: usize = reading.traces.iter().map(|trace| trace.events.len()).sum();
            assert!(events <= file.len());
        }
        Err(error) => assert!(error.offset.is_some_and(|offset| offset <= file.len() as u64), "{error}"),
    }
}

#[test]
fn images_without_build_id_are_told_apart_by_their_functions() {
    let writer = |order| Writer {
        version: 10,
        order,
        wide: true,
        byte_coverage: false,
        build_id: Vec::new(),
        padding: 0,
        bytes: Vec::new(),
    };
    let profile = |name: &str| writer(ByteOrder::Little).profile(&[(name.to_owned(), 1, vec![1])]);
    let file =
        [profile("one"), profile("other"), profile("one"), profile("other"), profile("third")].concat();
    let runs: Vec<u32> = read(&file).unwrap().traces.iter().map(|trace| trace.run).collect();
    assert_eq!(runs, [1, 1, 2, 2, 2]);
}

#[test]
fn a_profile_of_another_processor_leaves_the_image_readable() {
    use super::super::llvm_correlate::{Correlation, Wanted};
    use super::{ByteOrder, RecordVersion, encoding::Encoding};
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/profiles/llvm_raw");
    let companions = Companions::open(&[folder.join("correlate-binary.debug")]).unwrap();
    let version = std::fs::read(folder.join("correlate-binary.profraw")).unwrap()[8].into();
    let counters = companions.llvm_images.of(&companions)[0].counters.clone().unwrap();
    let find = |order| {
        let version = RecordVersion { encoding: Encoding { order, pointer_bytes: 8 }, version };
        let counter_bytes = counters.end - counters.start;
        let wanted =
            Wanted { correlation: Correlation::Sections, version, build_ids: &[], counter_bytes, offset: 0 };
        wanted.find(&companions).map(|(_, functions)| functions.functions.len())
    };
    let error = find(ByteOrder::Big).unwrap_err();
    assert!(error.to_string().contains("another processor"), "{error}");
    assert!(find(ByteOrder::Little).unwrap() > 0);
}
