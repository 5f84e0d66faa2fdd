//! Events find their functions in a real image: the running test itself.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::{
    Companions, Event, ImageIdentity, Location, Reading, Step, Touched, Trace, read_bytes, read_files,
    resolve, statistics,
};
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::hint::Hint;
use reorder_image::code_digest::FunctionDigests;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::{FunctionIndex, FunctionTable};

/// Calls `check` with the functions and the identity of this test program.
fn with_own_image(check: impl FnOnce(&FunctionTable<'_>, &ImageIdentity)) {
    let path = std::env::current_exe().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let file = ElfFile::parse(&bytes).unwrap();
    check(&ElfFunctions::collect(&file).unwrap().table, &ImageIdentity::of(&path, file.build_id()));
}

/// The first functions that have a start and a name of their own.
fn distinct(functions: &FunctionTable<'_>, count: usize) -> Vec<(FunctionIndex, Event)> {
    functions
        .iter()
        .filter(|(index, function)| functions.starting_at(function.start) == Some(*index))
        .filter_map(|(index, function)| {
            let name = functions.names_at(function.start).next()?;
            let event = Event {
                name: Some(name.into()),
                size: Some(function.size()),
                ..Event::at(Location::Image(function.start))
            };
            // What an optimiser adds does not tell it from others either.
            let is_like = |other: &[u8]| crate::root_name(other) == crate::root_name(name);
            (functions.names().iter().filter(|(_, other)| is_like(other)).count() == 1)
                .then_some((index, event))
        })
        .take(count)
        .collect()
}

fn trace(image: ImageIdentity, events: Vec<Event>) -> Trace {
    Trace { image, weight: 2, events, ..Trace::default() }
}

#[test]
fn addresses_decide_in_the_same_build_and_repetitions_vanish() {
    with_own_image(|functions, identity| {
        let known = distinct(functions, 3);
        let mut events: Vec<Event> = known.iter().rev().map(|(_, event)| event.clone()).collect();
        events.iter_mut().for_each(|event| event.name = None);
        events.push(events[0].clone());
        events.push(Event::at(Location::Image(Address(1))));
        let resolved = resolve(&[trace(identity.clone(), events)], functions, identity).unwrap();
        let expected: Vec<_> = known.iter().rev().map(|(index, _)| *index).collect();
        assert_eq!(resolved.traces[0].functions, expected);
        assert_eq!(resolved.traces[0].weight, 2);
        assert_eq!((resolved.coverage.found_by(Step::Address), resolved.coverage.unknown), (4, 1));
        assert_eq!(resolved.coverage.missing[0].name, "0x1");
    });
}

/// Functions without names are found again by their code, wherever they are in another build.
#[test]
fn code_decides_in_another_build_where_there_are_no_names() {
    with_own_image(|functions, identity| {
        let digests = FunctionDigests::of_all(functions);
        let is_alone = |digest| digests.iter().filter(|(_, other)| *other == digest).count() == 1;
        let known: Vec<_> = digests.iter().filter(|(_, digest)| is_alone(*digest)).take(3).collect();
        let event = |(index, digest): &(FunctionIndex, _)| Event {
            size: Some(functions.get(*index).size()),
            digest: Some(*digest),
            ..Event::at(Location::Image(Address(1)))
        };
        let mut events: Vec<Event> = known.iter().map(event).collect();
        let repeated = digests.iter().find(|(_, digest)| !is_alone(*digest)).unwrap();
        events.push(event(&repeated));
        let image = ImageIdentity { build_id: Some(vec![1, 2, 3]), ..identity.clone() };
        let resolved = resolve(&[trace(image, events)], functions, identity).unwrap();
        let expected: Vec<FunctionIndex> = known.iter().map(|(index, _)| *index).collect();
        assert_eq!(resolved.traces[0].functions, expected);
        assert_eq!(resolved.coverage.found_by(Step::CodeAndCalled), 3);
        assert_eq!(resolved.coverage.ambiguous, 1, "two functions of one code cannot be told apart");
    });
}

/// A list of no image: where an address and a name contradict each other, the list is of another build.
#[test]
fn a_name_that_contradicts_its_address_decides() {
    with_own_image(|functions, identity| {
        let known = distinct(functions, 2);
        let mut event = known[0].1.clone();
        event.location = known[1].1.location.clone();
        event.size = None;
        let resolved = resolve(&[trace(ImageIdentity::default(), vec![event.clone()])], functions, identity);
        assert_eq!(resolved.unwrap().traces[0].functions, [known[0].0]);
        // The same build: a name may be an alias that the symbol table no longer has.
        if identity.build_id.is_some() {
            let resolved = resolve(&[trace(identity.clone(), vec![event])], functions, identity);
            assert_eq!(resolved.unwrap().traces[0].functions, [known[1].0]);
        }
    });
}

/// Any address falls into some function: without names, sizes or build-ids it does not identify the image.
#[test]
fn addresses_of_a_stranger_are_not_believed() {
    with_own_image(|functions, identity| {
        let known = distinct(functions, 4);
        let inside = |event: &Event| match event.location {
            Location::Image(address) => Event::at(Location::Inside(address)),
            _ => unreachable!("made of addresses"),
        };
        let events: Vec<Event> = known.iter().map(|(_, event)| inside(event)).collect();
        let of = |path: PathBuf, events: &[Event]| {
            let image = ImageIdentity { path: Some(path), build_id: None };
            resolve(&[trace(image, events.to_vec())], functions, identity)
        };
        assert!(of("/usr/lib/libother.so".into(), &events).is_err());
        // A namesake elsewhere may be a copy, and so may a stranger with the same names at the same addresses.
        let namesake = Path::new("/copy").join(identity.path.as_ref().unwrap().file_name().unwrap());
        assert_eq!(of(namesake, &events).unwrap().coverage.found_by(Step::Address), 4);
        let named: Vec<Event> = known.iter().map(|(_, event)| event.clone()).collect();
        assert_eq!(of("/renamed".into(), &named).unwrap().coverage.found_by(Step::Address), 4);
        let mut contradicted = named.clone();
        contradicted[0].name = Some("another".into());
        assert!(of("/renamed".into(), &contradicted).is_err());
    });
}

#[test]
fn names_decide_between_builds() {
    with_own_image(|functions, identity| {
        let known = distinct(functions, 2);
        let other_build = ImageIdentity { build_id: Some(vec![1, 2, 3]), ..identity.clone() };
        let mut events: Vec<Event> = known.iter().map(|(_, event)| event.clone()).collect();
        // A stale address that would find the wrong function if it were believed.
        events[0].location = events[1].location.clone();
        events[1].name = Some([events[1].symbol().unwrap(), b".llvm.77"].concat().into());
        let resolved = resolve(&[trace(other_build.clone(), events.clone())], functions, identity).unwrap();
        assert_eq!(resolved.traces[0].functions, [known[0].0, known[1].0]);
        assert_eq!(
            (resolved.coverage.found_by(Step::Name), resolved.coverage.found_by(Step::Suffix)),
            (1, 1)
        );

        events.iter_mut().for_each(|event| event.name = None);
        let error = resolve(&[trace(other_build, events)], functions, identity).unwrap_err();
        assert!(matches!(error.hint, Some(Hint::RecordAgain { .. })), "{}", error.message);
    });
}

#[test]
fn traces_of_other_images_are_left_out_and_told() {
    with_own_image(|functions, identity| {
        let known = distinct(functions, 1);
        let events = vec![known[0].1.clone()];
        let stranger =
            ImageIdentity { path: Some(PathBuf::from("/usr/bin/stranger")), build_id: Some(vec![1, 2, 3]) };
        let traces = [trace(stranger.clone(), events.clone()), trace(identity.clone(), events.clone())];
        let resolved = resolve(&traces, functions, identity).unwrap();
        assert_eq!(resolved.coverage.other_images["/usr/bin/stranger"], 1);
        assert_eq!(resolved.traces.len(), 1);
        let error = resolve(&traces[..1], functions, identity).unwrap_err();
        assert!(error.message.contains("other images"), "{}", error.message);
    });
}

#[test]
fn a_size_that_changed_makes_an_address_stale() {
    with_own_image(|functions, identity| {
        let mut event = distinct(functions, 1).remove(0).1;
        event.size = event.size.map(|size| size + 1);
        event.name = None;
        let error = resolve(&[trace(identity.clone(), vec![event])], functions, identity).unwrap_err();
        assert!(error.message.starts_with("none of 1 events"), "{}", error.message);
    });
}

fn read(bytes: &[u8]) -> Result<Reading> {
    read_bytes(bytes, Path::new("list"), &Companions::default())
}

#[test]
fn lists_hold_names_addresses_and_lines_of_nm() {
    let text = b"# a comment\nmain\nmain+0x12\n0x1040\n0000000000001060 T helper\n1080 20 t sized\n\n";
    let events = read(text).unwrap().traces.remove(0).events;
    let expected = [
        Event::at(Location::Name("main".into())),
        Event::at(Location::Image(Address(0x1040))),
        Event { name: Some("helper".into()), ..Event::at(Location::Image(Address(0x1060))) },
        Event { name: Some("sized".into()), size: Some(0x20), ..Event::at(Location::Image(Address(0x1080))) },
    ];
    assert_eq!(events, expected);
    let notes = read(b"main\nno such thing\n").unwrap().notes;
    assert_eq!(
        (notes.len(), notes[0].offset, notes[0].file.as_deref()),
        (1, Some(5), Some(Path::new("list")))
    );
    let error = read(b"\nno such thing\n").unwrap_err();
    assert_eq!((error.offset, error.file.as_deref()), (Some(1), Some(Path::new("list"))));
}

#[test]
fn directories_stand_for_their_traces_in_order() {
    let directory = tempfile::tempdir().unwrap();
    for (name, symbol) in [("b.trace", "second"), ("a.trace", "first"), ("notes", "not a trace at all")] {
        std::fs::write(directory.path().join(name), symbol).unwrap();
    }
    let read_directory = || read_files(&[directory.path().to_path_buf()], &Companions::default());
    let traces = read_directory().unwrap().traces;
    let symbols: Vec<_> = traces.iter().map(|trace| trace.events[0].symbol().unwrap()).collect();
    assert_eq!(symbols, [&b"first"[..], b"second"]);
    std::fs::write(directory.path().join("a.trace"), [0x81, b'r', b'f', 0]).unwrap();
    let reading = read_directory().unwrap();
    assert_eq!(reading.traces.len(), 1, "what is readable is kept");
    assert!(reading.notes[0].message.contains("unknown trace format"), "{:?}", reading.notes);
    std::fs::remove_file(directory.path().join("b.trace")).unwrap();
    assert!(read_directory().unwrap_err().message.contains("unknown trace format"));
}

#[test]
fn a_list_of_paths_stands_for_them() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for (name, symbol) in [("b", "second"), ("a", "first")] {
        std::fs::write(at(name), symbol).unwrap();
    }
    let list = format!("# runs\n{}\n\n  {}\r\n", at("b").display(), at("a").display());
    std::fs::write(at("list"), list).unwrap();
    let argument = |name: &str| PathBuf::from(format!("@{}", at(name).display()));
    let reading = read_files(&[argument("list")], &Companions::default()).unwrap();
    let symbols: Vec<_> = reading.traces.iter().map(|trace| trace.events[0].symbol().unwrap()).collect();
    assert_eq!(symbols, [&b"second"[..], b"first"]);
    let error = read_files(&[argument("missing")], &Companions::default()).unwrap_err();
    assert_eq!(error.file, Some(at("missing")), "{error}");
}

#[test]
fn statistics_count_what_traces_share_and_touch() {
    let event = |address, size, nanoseconds| Event {
        size: Some(size),
        nanoseconds: Some(nanoseconds),
        ..Event::at(Location::Image(Address(address)))
    };
    let image = ImageIdentity { path: Some(PathBuf::from("/image")), build_id: None };
    let first =
        trace(image.clone(), vec![event(0x1ff0, 0x20, 5), event(0x1000, 0x10, 9), event(0x1000, 0x10, 9)]);
    let second = trace(image, vec![event(0x1000, 0x10, 3), event(0x5000, 0x2001, 4)]);
    let list = trace(ImageIdentity::default(), vec![Event::at(Location::Name("main".into()))]);
    let statistics = statistics(&[first, second, list]);

    let first = &statistics.traces[0];
    assert_eq!((first.events, first.distinct_functions, first.shared_functions), (3, 2, 1));
    assert_eq!(first.touched, Some(Touched { bytes: 0x30, pages: 2 }));
    assert_eq!(first.span_nanoseconds, Some(9));
    assert_eq!(statistics.traces[1].touched, Some(Touched { bytes: 0x2011, pages: 4 }));
    assert_eq!((statistics.traces[2].touched, statistics.traces[2].span_nanoseconds), (None, None));

    let together = &statistics.images[0];
    assert_eq!((together.traces, together.distinct_functions, together.common_functions), (2, 3, 1));
    assert_eq!(together.touched, Some(Touched { bytes: 0x2031, pages: 5 }));
    assert_eq!(statistics.images[1].image, "unnamed image");
}

/// Lines of all formats, whole and broken.
fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"# reorder trace 1".to_vec()),
        "# [a-z-]{0,10}:? [ -~]{0,10}".prop_map(String::into_bytes),
        "(-|[0-9]{1,22})[\t ](-|0x[0-9a-f]{1,18})[\t ](-|[0-9]{1,22})[\t ][!-~]{0,8}"
            .prop_map(String::into_bytes),
        "0x[0-9a-f+]{0,18}".prop_map(String::into_bytes),
        "[0-9a-f]{1,18} ([0-9a-f]{1,18} )?[TtWi] [!-~]{1,8}".prop_map(String::into_bytes),
        "[!-~]{1,12}(\\+0x[0-9a-f]{0,4})?".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..20),
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_traces_or_an_error_inside_the_file(
        lines in proptest::collection::vec(line(), 0..12),
        has_signature in any::<bool>(),
    ) {
        let mut bytes = lines.join(&b'\n');
        if has_signature {
            bytes.splice(0..0, *b"# reorder trace 1\n");
        }
        match read_bytes(&bytes, Path::new("list"), &Companions::default()) {
            Ok(Reading { traces, .. }) => {
                let events: usize = traces.iter().map(|trace| trace.events.len()).sum();
                // A line has one event, one with commas between names as many as there are names.
                let bound = bytes.split(|&byte| byte == b'\n' || byte == b',').count();
                prop_assert!(events <= bound, "{events} events where {bound} fit");
                prop_assert_eq!(statistics(&traces).traces.len(), traces.len());
            }
            Err(error) => {
                prop_assert!(error.offset.is_some_and(|offset| offset <= bytes.len() as u64));
                prop_assert_eq!(error.file.as_deref(), Some(Path::new("list")));
            }
        }
    }
}
