//! What is written is read back; what is broken is told with its place and never panics.

use std::path::PathBuf;

use proptest::prelude::*;

use layout_algos::sample::{Identity, Priority};

use super::{read, write};
use crate::address::{Address, RuntimeAddress};
use crate::trace::{Draw, Event, Evidence, ImageIdentity, Location, Name, NameHash, Strata, Trace};

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
    (location, proptest::option::of(bytes()), any::<[Option<u64>; 4]>()).prop_map(
        |(location, name, [size, nanoseconds, count, tick])| {
            let name = if matches!(location, Location::Name(_)) { None } else { name.map(Name::from) };
            Event { location, name, size, nanoseconds, count, tick }
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
        prop_assert_eq!(read(text.as_bytes()).unwrap(), vec![first, second]);
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
fn samples_that_nobody_drew_are_refused() {
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
