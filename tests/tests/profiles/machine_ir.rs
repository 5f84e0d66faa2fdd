//! Profiles of machine code: the sample, and the message without its map.

use std::fs;

use end_to_end::profiles::{DEMO_A, names, read_sample, sample};
use reorder::hints;
use reorder_trace::{Companions, Evidence, read_files};

#[test]
fn the_map_beside_the_profile_is_found() {
    let reading = read_sample("machine_ir/mip-synthetic.mipraw", &[]).unwrap();
    let [trace] = reading.traces.as_slice() else { panic!("{} traces", reading.traces.len()) };
    assert_eq!(names(trace), DEMO_A, "never_called is not among them");
    assert_eq!(trace.evidence, Evidence::Exact);
    let ticks: Vec<_> = trace.events.iter().filter_map(|event| event.tick).collect();
    assert_eq!(ticks, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(reading.notes.is_empty());
}

#[test]
fn a_map_given_as_companion_is_used_and_its_lack_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("elsewhere.mipraw");
    fs::copy(sample("machine_ir/mip-synthetic.mipraw"), &path).unwrap();
    let map = sample("machine_ir/mip-synthetic.mipmap");
    let companions = Companions::open(std::slice::from_ref(&map)).unwrap();
    let reading = read_files(std::slice::from_ref(&path), &companions).unwrap();
    assert_eq!(names(&reading.traces[0]), DEMO_A);

    let error = read_files(&[path], &Companions::default()).unwrap_err();
    assert!(hints::text(error.hint.as_ref().unwrap()).contains("--dump-section=__llvm_mipmap"), "{error}");
    let error = read_files(&[map], &Companions::default()).unwrap_err();
    assert!(error.to_string().contains("a map of functions"), "{error}");
}
