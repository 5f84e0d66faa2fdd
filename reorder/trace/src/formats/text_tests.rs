//! Text formats with damaged and cut files: traces, or an error at a place inside the file.

use std::path::Path;

use proptest::prelude::*;

use super::{FORMATS, Format, detect};
use crate::{Companions, Input};

const STORED: [(&str, &str); 3] = [
    ("callgrind.out", "callgrind"),
    ("valgrind-blocks.txt", "valgrind blocks"),
    ("qemu-blocks.txt", "QEMU blocks"),
];

fn stored(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/profiles/emulators").join(name))
        .unwrap()
}

fn format(name: &str) -> &'static Format {
    FORMATS.iter().find(|format| format.name == name).unwrap()
}

fn read(format: &Format, bytes: &[u8]) {
    let companions = Companions::default();
    match (format.read)(&Input { bytes, path: Path::new("input"), companions: &companions }) {
        Ok(reading) => assert!(reading.traces.iter().all(|trace| trace.events.len() <= bytes.len())),
        Err(error) => assert!(error.offset.unwrap() <= bytes.len() as u64, "{error}"),
    }
}

#[test]
fn stored_files_are_known_by_their_contents() {
    for (file, name) in STORED {
        assert_eq!(detect(&stored(file)).unwrap().name, name);
    }
}

proptest! {
    #[test]
    fn damaged_files_are_read_or_refused(
        (file, name) in prop::sample::select(STORED.to_vec()),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..30),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = stored(file);
        for (index, value) in damage {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(end.index(bytes.len()) + 1);
        read(format(name), &bytes);
    }

    #[test]
    fn damaged_recordings_of_uftrace_are_read_or_refused(
        records in prop::collection::vec(any::<u8>(), 0..400),
        tasks in "(TASK|SESS|FORK|DLOP) timestamp=[0-9]{1,3}\\.[0-9]{9} (tid|pid)=[0-9]{1,2} (pid|ppid|sid)=[0-9]{1,3}\n{0,40}",
        map in "[0-9a-f]{1,16}-[0-9a-f]{1,16} r-xp 0 0 0 /[a-z]{0,5}( build-id:[0-9a-f]{0,9})?",
        symbols in "# path name: /[a-z]{0,5}\n([0-9a-f]{1,16} [TtP] [a-z]{1,4}\n){0,5}",
    ) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let info = b"Ftrace!\0\x04\0\0\0\x28\0\x01\x02";
        let session = "SESS timestamp=0.000000001 pid=1 sid=5 exename=\"/a\"\n";
        // Some records have the fixed bits, so that more than detection of damage is reached.
        let mut records = records;
        records.chunks_exact_mut(16).step_by(2).for_each(|record| record[8] = record[8] & 0xc0 | 0x28);
        for (name, bytes) in [
            ("info", &info[..]),
            ("1.dat", &records),
            ("task.txt", format!("{session}{tasks}").as_bytes()),
            ("sid-5.map", map.as_bytes()),
            ("a.sym", symbols.as_bytes()),
        ] {
            std::fs::write(at(name), bytes).unwrap();
        }
        let (path, companions) = (at("info"), Companions::default());
        if let Err(error) = (format("uftrace directory").read)(&Input { bytes: info, path: &path, companions: &companions }) {
            prop_assert!(error.offset.unwrap() <= info.len() as u64);
        }
    }
}
