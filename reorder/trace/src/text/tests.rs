//! Written traces are read back; damage is reported with its place and never panics.

use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;

use layout_algos::sample::{Identity, Priority};

use super::{read, write, write_all};
use crate::{
    Draw, Event, Evidence, ImageIdentity, Location, Name, NameHash, Reading, RecordedBlock, RecordedBlocks,
    Strata, Trace,
};
use reorder_base::address::{Address, RuntimeAddress};
use reorder_image::code_digest::{CodeDigest, FunctionDigest};

fn event() -> impl Strategy<Value = Event> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..12);
    let location = prop_oneof![
        any::<u64>().prop_map(|address| Location::Image(Address(address))),
        any::<u64>().prop_map(|address| Location::Inside(Address(address))),
        any::<u64>().prop_map(|address| Location::Runtime(RuntimeAddress(address))),
        any::<u64>().prop_map(|hash| Location::NameHash(NameHash::Md5(hash))),
        any::<u32>().prop_map(|id| Location::NameHash(NameHash::GccProfileId(id))),
        bytes().prop_map(|name| Location::Name(name.into()))
    ];
    let block = (any::<u32>(), 1u32.., any::<u64>()).prop_map(|(offset, size, nanoseconds)| RecordedBlock {
        offset: offset.min(u32::MAX - size),
        size,
        nanoseconds,
    });
    let blocks = (any::<u64>(), proptest::collection::vec(block, 1..5))
        .prop_map(|(digest, blocks)| Arc::new(RecordedBlocks { digest: CodeDigest(digest), blocks }));
    let columns = any::<[Option<u64>; 4]>();
    let digest = any::<Option<(u64, u64)>>().prop_map(|digest| {
        digest.map(|(own, with_called)| FunctionDigest {
            own: CodeDigest(own),
            with_called: CodeDigest(with_called),
        })
    });
    (location, proptest::option::of(bytes()), columns, proptest::option::of(blocks), digest).prop_map(
        |(location, name, [size, nanoseconds, count, tick], blocks, digest)| {
            let name = if matches!(location, Location::Name(_)) { None } else { name.map(Name::from) };
            Event { location, name, size, nanoseconds, count, tick, blocks, digest }
        },
    )
}

fn trace() -> impl Strategy<Value = Trace> {
    let word = || proptest::collection::vec(any::<u8>(), 1..12);
    (
        any::<Option<u32>>(),
        any::<u64>(),
        proptest::option::of(word()),
        proptest::collection::vec(word(), 0..4),
        proptest::collection::vec(event(), 0..20),
    )
        .prop_map(|(process, weight, build_id, command, events)| Trace {
            image: ImageIdentity { path: Some(PathBuf::from("/a b/\n\u{e9}\\x")), build_id },
            run: 3,
            process,
            command,
            weight,
            evidence: Evidence::Sampled,
            left_running: process.unwrap_or(0),
            events,
            source: None,
            position: 0,
            identity: process.map(|process| Identity(u128::from(process) << 64 | 7)),
            draw: process.map(|process| {
                let identity = Identity(u128::from(process) << 64 | 7);
                let strata = if process % 2 == 0 { Strata::Image } else { Strata::Command };
                Draw { capacity: 5, strata, seed: 3, threshold: Priority::of(3, identity, weight) }
            }),
        })
}

proptest! {
    #[test]
    fn written_traces_read_back(first in trace(), second in trace()) {
        let text = write(&first) + &write(&second);
        let whole = Reading { traces: vec![first, second], notes: Vec::new() };
        prop_assert_eq!(read(text.as_bytes()).unwrap(), whole.clone());
        prop_assert_eq!(read(write_all(&whole.traces).as_bytes()).unwrap(), whole);
    }

    #[test]
    fn damaged_traces_never_panic(trace in trace(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = write(&trace).into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        // A damaged byte may well give another valid trace; it must give an answer with its place.
        for input in [&bytes[..], &bytes[..at]] {
            if let Err(error) = read(input) {
                prop_assert!(error.offset.is_some_and(|offset| offset <= input.len() as u64));
            }
        }
    }
}

#[test]
fn errors_name_line_and_offset() {
    let text = "# reorder trace 1\n# run: 1\n5\t0x10\t3\tmain\n5 nonsense\n";
    let error = read(text.as_bytes()).unwrap_err();
    assert_eq!(error.offset, Some(41));
    assert!(error.message.starts_with("line 4:"), "{}", error.message);
}

#[test]
fn samples_that_no_merge_drew_are_refused() {
    let read = |headers: &str| read(format!("# reorder trace 1\n{headers}- 0x10 - -\n").as_bytes());
    let identity = "# identity: 00000000000000000000000000000001\n";
    for (headers, fault) in [
        ("# sample: 5 0 -\n".to_owned(), "no identity"),
        (format!("{identity}# sample: 0 0 -\n"), "cannot have kept"),
        (format!("{identity}# sample: 5 0 00000000000000000000000000000001\n"), "cannot have kept"),
        (
            format!("{identity}# weight: 0\n# sample: 5 0 ffffffffffffffffffffffffffffffff\n"),
            "cannot have kept",
        ),
    ] {
        let error = read(&headers).unwrap_err();
        assert!(error.message.contains(fault), "{headers}: {error}");
    }
    assert!(read(&format!("{identity}# sample: 5 0 ffffffffffffffffffffffffffffffff\n")).is_ok());
}

#[test]
fn other_versions_are_told_apart() {
    let error = read(b"# reorder trace 2\n").unwrap_err();
    assert!(error.message.contains("version"), "{}", error.message);
}

fn some_blocks(count: u32) -> Arc<RecordedBlocks> {
    let block = |number: u32| RecordedBlock {
        offset: 20 * number,
        size: 5 + number,
        nanoseconds: 1000 + u64::from(number),
    };
    Arc::new(RecordedBlocks { digest: CodeDigest(7), blocks: (0..count).map(block).collect() })
}

/// Three recordings with names of many lengths, and one without events.
fn recordings() -> [Trace; 4] {
    [["main", "a_function_with_a_long_name", "f"], ["main", "g", "h"], ["_start", "main", "x y"], [""; 3]]
        .map(|names| {
            let named = names.into_iter().filter(|name| !name.is_empty()).enumerate();
            let event = |(place, name): (usize, &str)| Event {
                location: Location::Image(Address(0x1000 + 16 * place as u64)),
                name: Some(Name::from(name.as_bytes().to_vec())),
                size: Some(16),
                nanoseconds: Some(1000 + place as u64),
                count: None,
                tick: None,
                digest: None,
                blocks: (place != 1).then(|| some_blocks(place as u32 + 1)),
            };
            Trace { run: 1, weight: 10, events: named.map(event).collect(), ..Trace::default() }
        })
}

/// Checks every prefix of `text`, which holds `whole`; gives the lengths at which only whole traces are left, without notes.
fn silent_cuts(text: &str, whole: &[Trace]) -> Vec<usize> {
    assert_eq!(read(text.as_bytes()).unwrap(), Reading { traces: whole.to_vec(), notes: Vec::new() });
    let is_silent = |at: &usize| {
        let Ok(Reading { traces, notes }) = read(&text.as_bytes()[..*at]) else { return false };
        for (trace, whole) in traces.iter().zip(whole) {
            assert!(trace.evidence == Evidence::Cut || trace == whole, "cut at {at}: {trace:?}");
            assert!(trace.evidence == Evidence::Exact || !notes.is_empty(), "cut at {at}: {trace:?}");
            let kept = trace.events.len().saturating_sub(1);
            assert!(whole.events.starts_with(&trace.events[..kept]), "cut at {at}: {trace:?}");
            if let Some(last) = trace.events.last() {
                // Its blocks are in the next line.
                let whole = &whole.events[kept];
                let without = Event { blocks: None, ..whole.clone() };
                assert!(*last == *whole || *last == without, "cut at {at}: {trace:?}");
            }
        }
        traces.iter().any(|trace| !trace.events.is_empty()) && notes.is_empty()
    };
    (0..text.len()).filter(is_silent).collect()
}

#[test]
fn no_cut_passes_for_a_whole_recording() {
    let [first, second, third, empty] = recordings();
    assert_eq!(silent_cuts(&write(&first), std::slice::from_ref(&first)), [0; 0]);
    let together = [first.clone(), empty, second.clone(), third.clone()];
    assert_eq!(silent_cuts(&write_all(&together), &together), [0; 0]);
    // Concatenated files are independent: the first is whole without the second.
    let concatenated = write(&first) + &write_all(&[second.clone(), third.clone()]);
    assert_eq!(silent_cuts(&concatenated, &[first.clone(), second, third]), [write(&first).len()]);
}

#[test]
fn what_does_not_say_its_length_is_not_called_exact() {
    let uncounted: String = write(&recordings()[0])
        .lines()
        .filter(|line| !line.contains("# events") && !line.contains('+'))
        .fold(String::new(), |text, line| text + line + "\n");
    let reading = read(uncounted.as_bytes()).unwrap();
    assert_eq!((reading.traces[0].evidence, reading.traces[0].events.len()), (Evidence::Listed, 3));
    assert!(reading.notes[0].message.contains("does not say how many"), "{:?}", reading.notes);
}

#[test]
fn lost_and_added_events_are_noted() {
    let text = write(&recordings()[0]);
    let grown = text.clone() + "- 0x9000 - -\n";
    let shrunk: String =
        text.lines().filter(|line| !line.contains("long_name")).map(|line| format!("{line}\n")).collect();
    for (text, events) in [(grown, 4), (shrunk, 2)] {
        let reading = read(text.as_bytes()).unwrap();
        assert_eq!((reading.traces[0].evidence, reading.traces[0].events.len()), (Evidence::Cut, events));
        assert!(reading.notes[0].message.contains("was written with 3"), "{:?}", reading.notes);
    }
}

#[test]
fn a_missing_trace_of_several_is_noted() {
    let text = write_all(&recordings());
    let middle = text.match_indices("# reorder trace").nth(1).unwrap().0;
    let reading = read(&text.as_bytes()[middle..]).unwrap();
    assert_eq!(reading.traces.len(), 3);
    assert!(reading.notes[0].message.contains("traces before this one are missing"), "{:?}", reading.notes);
}

#[test]
fn blocks_follow_their_function() {
    let [first, ..] = recordings();
    let text = write(&first);
    assert!(text.contains("# blocks: 4\n"), "{text}");
    assert!(text.contains("\tmain\n#+ 0000000000000007 0x0+5@1000\n"), "{text}");
    assert!(text.contains("\tf\n#+ 0000000000000007 0x0+5@1000 0x14+6@1001 0x28+7@1002\n"), "{text}");
    assert!(!write(&Trace::default()).contains("blocks"));
}

#[test]
fn lost_and_added_blocks_are_noted() {
    let text = write(&recordings()[0]);
    let lines = |wanted: &dyn Fn(&str) -> bool| -> String {
        text.lines().filter(|line| wanted(line)).map(|line| format!("{line}\n")).collect()
    };
    let shrunk = lines(&|line| !line.ends_with("0x0+5@1000"));
    let uncounted = lines(&|line| !line.starts_with("# blocks"));
    let last_lost = lines(&|line| !line.ends_with("@1002"));
    for (text, stated) in [(shrunk, 4), (uncounted, 0), (last_lost, 4)] {
        let reading = read(text.as_bytes()).unwrap();
        assert_eq!((reading.traces[0].evidence, reading.traces[0].events.len()), (Evidence::Cut, 3));
        let message = &reading.notes[0].message;
        assert!(message.contains(&format!("was written with {stated}: it is cut")), "{message}");
    }
}

#[test]
fn blocks_that_cannot_be_are_refused() {
    let read = |line: &str| {
        let text = format!("# reorder trace 1\n# events: 1\n# blocks: 1\n- 0x10 5 f\n{line}\n");
        read(text.as_bytes())
    };
    assert!(read("#+ 0000000000000007 0x0+5@9").is_ok_and(|reading| reading.notes.is_empty()));
    for line in [
        "#+",
        "#+ 0000000000000007",
        "#+ 07 0x0+5@9",
        "#+ 0000000000000007 0+5@9",
        "#+ 0000000000000007 0x0+0@9",
        "#+ 0000000000000007 0x0+5",
        "#+ 0000000000000007 0xffffffff+5@9",
        "#+ 0000000000000007 0x0+5@9\n#+ 0000000000000007 0x0+5@9",
    ] {
        let error = read(line).unwrap_err();
        assert!(error.message.contains("not basic blocks"), "{line}: {error}");
    }
    let early = super::read(b"# reorder trace 1\n#+ 0000000000000007 0x0+5@9\n- 0x10 5 f\n");
    assert!(early.is_err());
}
