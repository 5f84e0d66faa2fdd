//! Damaged files never panic; ids as GCC computes them; the same file in the other byte order gives the same trace.

use std::path::Path;

use proptest::prelude::*;

use super::gcc_profile_id;
use crate::formats::damage;
use crate::{Companions, Location, NameHash, read_bytes};

const FORMAT: &str = "GCC .gcda";

proptest! {
    #[test]
    fn damaged_files_never_panic(bytes in damage::damaged(damage::sample("gcov/gcc12-a.gcda"))) {
        damage::check(FORMAT, &bytes, Path::new("x.gcda"))?;
    }

    #[test]
    fn damaged_files_of_older_versions_never_panic(
        bytes in damage::damaged(damage::sample("gcov/gcc11-a.gcda")),
    ) {
        damage::check(FORMAT, &bytes, Path::new("x.gcda"))?;
    }

    #[test]
    fn damaged_names_never_panic(
        notes in damage::damaged(damage::sample("gcov/gcc12.gcno")),
        older in damage::damaged(damage::sample("gcov/gcc11.gcno")),
    ) {
        let directory = tempfile::tempdir().unwrap();
        for (data, notes) in [("gcov/gcc12-a.gcda", notes), ("gcov/gcc11-a.gcda", older)] {
            let path = directory.path().join("x.gcda");
            std::fs::write(path.with_extension("gcno"), notes).unwrap();
            let reading = read_bytes(&damage::sample(data), &path, &Companions::default()).unwrap();
            prop_assert_eq!(reading.traces[0].events.len(), 8);
        }
    }
}

#[test]
fn every_cut_keeps_the_ranks_before_it() {
    let whole = damage::sample("gcov/gcc12-a.gcda");
    let mut before = 0;
    for length in 8..whole.len() {
        let reading = read_bytes(&whole[..length], Path::new("x.gcda"), &Companions::default());
        let traces = reading.map(|reading| reading.traces).unwrap_or_default();
        let ordered = traces.iter().filter(|trace| trace.evidence.is_ordered());
        let events: usize = ordered.map(|trace| trace.events.len()).sum();
        assert!(events >= before, "{events} events in {length} bytes, {before} in fewer");
        before = events;
    }
    assert_eq!(before, 8);
}

#[test]
fn both_byte_orders_give_the_same() {
    let little = damage::sample("gcov/gcc11-a.gcda");
    let big: Vec<u8> = little.chunks(4).flat_map(|word| word.iter().rev().copied()).collect();
    let read = |bytes: &[u8]| read_bytes(bytes, Path::new("x.gcda"), &Companions::default()).unwrap().traces;
    assert_eq!(read(&big), read(&little));
}

#[test]
fn ids_are_those_of_the_compiler() {
    let bytes = damage::sample("gcov/gcc12-a.gcda");
    let reading = read_bytes(&bytes, Path::new("x.gcda"), &Companions::default()).unwrap();
    let ids: Vec<u32> = reading.traces[0]
        .events
        .iter()
        .map(|event| match event.location {
            Location::NameHash(NameHash::GccProfileId(id)) => id,
            ref other => panic!("{other}"),
        })
        .collect();
    let local = Some((b"demo.c".as_slice(), b"demo".as_slice()));
    let expected = [("main", None), ("parse_args", local), ("util_log", None), ("load_config", None)];
    let expected = expected.map(|(name, local)| gcc_profile_id(name.as_bytes(), local));
    assert_eq!(ids[..4], expected);
}

#[test]
fn a_missing_end_is_told() {
    for name in ["gcov/gcc12-a.gcda", "gcov/gcc11-a.gcda"] {
        let whole = damage::sample(name);
        let notes =
            |bytes: &[u8]| read_bytes(bytes, Path::new("x.gcda"), &Companions::default()).unwrap().notes;
        let end = whole.len() - 4;
        assert_eq!(whole[end..], [0; 4], "{name}");
        let is_damage = |note: &crate::Note| note.message.contains("functions stand before");
        assert!(!notes(&whole).iter().any(is_damage), "{name}");
        let told = notes(&whole[..end]);
        let note = told.iter().find(|note| is_damage(note)).unwrap();
        assert_eq!(note.offset, Some(end as u64), "{name}");
    }
}
