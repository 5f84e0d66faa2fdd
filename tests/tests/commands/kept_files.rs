//! Outputs do not destroy inputs: order files, traces, lists, maps, and the only copy of an image.

use std::fs;
use std::path::Path;
use std::time::Duration;

use end_to_end::process::{self, Outcome, shell};
use end_to_end::workspace::{reorder, root};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

fn run(directory: &Path, arguments: &[&str]) -> Outcome {
    process::run(reorder().args(arguments).current_dir(directory), LIMIT).unwrap()
}

/// The fixture `plain`-like program without special properties.
fn program(flags: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let source = root().join("tests/fixtures/plain_program/main.c");
    let image = directory.path().join("program");
    let line = format!("gcc -O2 -fPIE -pie {flags} '{}' -o '{}'", source.display(), image.display());
    shell(&line, LIMIT).unwrap();
    directory
}

#[test]
fn no_output_takes_the_place_of_what_is_read() {
    let scratch = program("");
    let directory = scratch.path();
    let trace = "# reorder trace 1\n# image: program\n# columns: nanoseconds address size name\n- - - main\n";
    fs::create_dir(directory.join("traces")).unwrap();
    for (name, text) in [("traces/one.trace", trace), ("names", "main\n"), ("list", "names\n"), ("map", "")] {
        fs::write(directory.join(name), text).unwrap();
    }
    fs::hard_link(directory.join("program"), directory.join("twin")).unwrap();
    let kept = ["program", "traces/one.trace", "names", "list", "map"];
    let read = || kept.map(|name| fs::read(directory.join(name)).unwrap());
    let before = read();
    for (arguments, reason) in [
        (&["order", "program", "-t", "traces", "-o", "program"] as &[&str], "would replace the image"),
        (&["order", "program", "-t", "traces", "-o", "./twin"], "would replace the image"),
        (&["order", "program", "-t", "traces", "-o", "traces/one.trace"], "would replace a trace file"),
        (&["order", "program", "-t", "@list", "-o", "list"], "would replace a list of traces"),
        (&["order", "program", "-t", "@list", "-o", "names"], "would replace a trace file"),
        (
            &["order", "program", "-t", "traces", "--link-map", "map", "-o", "map"],
            "would replace the link map",
        ),
        (
            &["order", "program", "-t", "traces", "--companion", "map", "-o", "map"],
            "would replace a companion",
        ),
        (&["apply", "program", "-t", "traces", "-o", "traces/one.trace"], "would replace a trace file"),
        (&["apply", "program", "-t", "@list", "-o", "list"], "would replace a list of traces"),
        (&["apply", "program", "--order", "names", "-o", "names"], "would replace the order file"),
        (
            &["apply", "program", "-t", "traces", "-o", "new", "--map", "traces/one.trace"],
            "would replace a trace file",
        ),
        (
            &["apply", "program", "-t", "traces", "-o", "new", "--map", "twin"],
            "the map would replace an image",
        ),
        (
            &["apply", "program", "-t", "traces", "-o", "new", "--map", "./new"],
            "the map would replace another output",
        ),
        (
            &["traces", "convert", "--to", "list", "-o", "traces/one.trace", "traces"],
            "would replace a trace file",
        ),
    ] {
        let outcome = run(directory, arguments);
        assert!(!outcome.success() && outcome.stderr_text().contains(reason), "{arguments:?}: {outcome}");
        assert!(read() == before && !directory.join("new").exists(), "{arguments:?}");
    }
}

#[test]
fn the_only_copy_needs_a_map_that_restores_it() {
    let scratch = program("-g");
    let directory = scratch.path();
    let old = fs::read(directory.join("program")).unwrap();
    let apply = |more: &[&str]| {
        run(
            directory,
            &[&["apply", "program", "--strategy", "random", "--seed", "5", "--map", "map"], more].concat(),
        )
    };
    let refused = apply(&["--in-place"]);
    assert!(!refused.success() && refused.stderr_text().contains("--debug keep-stale"), "{refused}");
    assert!(fs::read(directory.join("program")).unwrap() == old && !directory.join("map").exists());
    let elsewhere = apply(&["-o", "new", "--format", "json"]);
    assert!(
        elsewhere.success() && elsewhere.stderr_text().contains("cannot restore the input"),
        "{elsewhere}"
    );
    assert!(elsewhere.stdout_text().contains("cannot restore the input"), "{elsewhere}");
    let in_place = apply(&["--in-place", "--debug", "keep-stale"]);
    assert!(in_place.success() && !in_place.stderr_text().contains("cannot restore"), "{in_place}");
    assert!(fs::read(directory.join("program")).unwrap() != old);
    let back = run(directory, &["apply", "program", "--order", "map", "--debug", "keep-stale", "--in-place"]);
    assert!(back.success(), "{back}");
    assert!(fs::read(directory.join("program")).unwrap() == old);
}
