//! Raw profiles of LLVM: those kept in `tests/profiles/llvm_raw`.

use end_to_end::profiles::{DEMO_A, DEMO_B, names, read_sample};
use reorder::hints;
use reorder_trace::{Evidence, Location, Reading};

fn sample(name: &str) -> Reading {
    read_sample(&format!("llvm_raw/{name}"), &[]).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn with_companion(name: &str, companion: &str) -> reorder_base::error::Result<Reading> {
    read_sample(&format!("llvm_raw/{name}"), &[&format!("llvm_raw/{companion}")])
}

#[test]
fn one_run_of_any_version_and_machine() {
    for name in [
        "v10-a",
        "v10-block-coverage",
        "v10-names-plain",
        "v10-32bit",
        "v10-be64-synthetic",
        "v10-be32-synthetic",
        "v10-clang19",
    ] {
        let reading = sample(&format!("{name}.profraw"));
        let [trace] = reading.traces.as_slice() else { panic!("{name}: {} traces", reading.traces.len()) };
        assert_eq!(names(trace), DEMO_A, "{name}");
        assert_eq!(trace.evidence, Evidence::Exact);
        assert_eq!(trace.image.build_id.as_ref().unwrap().len(), 20);
        let ticks: Vec<_> = trace.events.iter().map(|event| event.tick.unwrap()).collect();
        assert_eq!(ticks, [1, 2, 3, 4, 5, 6, 7, 8], "{name}");
        assert!(reading.notes.is_empty(), "{name}: {:?}", reading.notes);
    }
    assert_eq!(names(&sample("v10-b.profraw").traces[0]), DEMO_B);
}

#[test]
fn counts_and_local_names_are_as_in_the_profile() {
    let trace = &sample("v10-a.profraw").traces[0];
    assert_eq!(trace.events[1].location, Location::Name("demo.c;parse_args".into()));
    // Once each by four functions, three times by `draw_frame`; the largest edge of `main` is its loop's.
    let counts: Vec<_> = trace.events.iter().map(|event| event.count.unwrap()).collect();
    assert_eq!(counts, [2, 1, 7, 1, 1, 1, 3, 1]);
    let blocks = &sample("v10-block-coverage.profraw").traces[0];
    assert!(blocks.events.iter().all(|event| event.count.is_none()));
}

#[test]
fn rust_programs_of_three_compilers() {
    let expected = [
        "main",
        "lang_start28_$u7b$$u7b$closure",
        "__rust_begin_short_backtrace",
        "5rdemo4main",
        "load_config",
        "drop_in_place$LT$std..env..Args",
        "init_ui",
        "generic",
        "init_net",
        "generic",
    ];
    for (name, separator) in
        [("v8-rust.profraw", b':'), ("v9-rust.profraw", b';'), ("v10-rust.profraw", b';')]
    {
        let trace = &sample(name).traces[0];
        let mut found = names(trace);
        if name.starts_with("v8") {
            assert!(found.remove(1).contains("lang_start17h"), "{found:?}");
        }
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{name}: {found} is not {expected}");
        }
        let local = trace.events.iter().find(|event| event.symbol().unwrap().starts_with(b"rdemo.")).unwrap();
        assert!(local.symbol().unwrap().contains(&separator), "{name}: {local:?}");
    }
}

#[test]
fn virtual_tables_are_passed_over() {
    let reading = sample("v10-vtable.profraw");
    let expected = "main _Z4callP4Basei _ZN2D21fEi _ZN2D11fEi _ZN12_GLOBAL__N_14Anon1fEi _Z4tmplIiET_S0_ \
                    _Z4tmplIlET_S0_ _ZL4stati";
    assert_eq!(names(&reading.traces[0]).join(" "), expected);
    let local = reading.traces[0].events[4].symbol().unwrap();
    assert_eq!(String::from_utf8_lossy(local), "vt.cpp;_ZN12_GLOBAL__N_14Anon1fEi");
    assert!(reading.notes.is_empty());
}

#[test]
fn values_that_continuous_mode_leaves_out_are_not_needed() {
    let reading = sample("v10-continuous.profraw");
    assert_eq!(names(&reading.traces[0]), DEMO_B);
    assert!(reading.notes[0].message.contains("continuous mode"), "{:?}", reading.notes);
}

/// Run, build-id's first byte and functions of each trace.
fn runs(reading: &Reading) -> Vec<(u32, u8, String)> {
    let of = |trace: &reorder_trace::Trace| {
        (trace.run, trace.image.build_id.as_ref().unwrap()[0], names(trace).join(" "))
    };
    reading.traces.iter().map(of).collect()
}

#[test]
fn each_run_and_image_of_a_file_is_a_trace() {
    let expected =
        |functions: [(u32, u8, &str); 3]| functions.map(|(run, id, names)| (run, id, names.to_owned()));
    let (plugin, program, library) = (0x18, 0x41, 0x7e);
    let plugin_functions = "plug_ctor plug_entry";
    let three = sample("v10-three-modules.profraw");
    assert_eq!(
        runs(&three),
        expected([(1, plugin, plugin_functions), (1, program, "main before cb"), (1, library, "lib1_a")])
    );
    let forked = sample("v10-fork.profraw");
    assert_eq!(
        runs(&forked)[..3],
        expected([
            (1, plugin, plugin_functions),
            (1, program, "main before cb child_only"),
            (1, library, "lib1_a")
        ])
    );
    assert_eq!(
        runs(&forked)[3..],
        expected([
            (2, plugin, plugin_functions),
            (2, program, "main before cb parent_late"),
            (2, library, "lib1_a")
        ])
    );
    for (name, second) in
        [("v10-concat-ab.profraw", &DEMO_B[..]), ("damaged/zero-padded-second.profraw", &DEMO_A)]
    {
        let reading = sample(name);
        assert_eq!(reading.traces.iter().map(|trace| trace.run).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(names(&reading.traces[0]), DEMO_A);
        assert_eq!(names(&reading.traces[1]), second, "{name}");
        assert!(reading.notes.is_empty());
    }
}

#[test]
fn profiles_without_timestamps_count_and_say_how_to_get_them() {
    let by_count = [
        "util_log",
        "draw_frame",
        "main",
        "load_config",
        "init_network",
        "init_ui",
        "shutdown_all",
        "parse_args",
    ];
    let by_place = [
        "util_log",
        "load_config",
        "init_network",
        "init_ui",
        "draw_frame",
        "shutdown_all",
        "main",
        "parse_args",
    ];
    for (name, message, expected) in [
        ("v10-no-temporal.profraw", "no timestamps", by_count),
        ("v10-entry-coverage-bogus.profraw", "-pgo-function-entry-coverage", by_place),
    ] {
        let reading = sample(name);
        let [trace] = reading.traces.as_slice() else { panic!("{name}") };
        assert_eq!((trace.evidence, names(trace)), (Evidence::Counts, expected.map(str::to_owned).to_vec()));
        assert!(trace.events.iter().all(|event| event.tick.is_none()));
        let [note] = reading.notes.as_slice() else { panic!("{:?}", reading.notes) };
        assert!(note.message.contains(message), "{note}");
        let hint = hints::text(note.hint.as_ref().unwrap());
        assert!(hint.contains("clang -fprofile-generate -ftemporal-profile"), "{hint}");
        assert!(hint.contains("-Cllvm-args=-pgo-temporal-instrumentation"), "{hint}");
    }
    assert_eq!(sample("v8-clang14-no-temporal.profraw").traces[0].evidence, Evidence::Counts);
}

#[test]
fn correlated_profiles_need_the_companion_of_their_build() {
    let profiles = ["correlate-debug-info", "correlate-binary", "macho-dsym"];
    let file = |profile: &str| match profile {
        "macho-dsym" => ("macho-dsym-synthetic.profraw".to_owned(), "macho-dsym-dwarf".to_owned()),
        _ => (format!("{profile}.profraw"), format!("{profile}.debug")),
    };
    for profile in profiles {
        let (trace_file, companion) = file(profile);
        let reading = with_companion(&trace_file, &companion).unwrap();
        let expected = if profile == "macho-dsym" {
            vec!["main", "beta", "local_one", "alpha"]
        } else {
            DEMO_A.to_vec()
        };
        assert_eq!(names(&reading.traces[0]), expected);
        assert_eq!(reading.traces[0].image.path.as_ref().unwrap().file_name().unwrap(), companion.as_str());

        let alone = read_sample(&format!("llvm_raw/{trace_file}"), &[]).unwrap_err();
        assert!(alone.message.contains("no image is given as a companion"), "{alone}");
        assert!(hints::text(alone.hint.as_ref().unwrap()).contains("--companion FILE"));
        for other in profiles.iter().filter(|other| **other != profile) {
            let error = with_companion(&trace_file, &file(other).1).unwrap_err();
            let reason = if profile == "macho-dsym" { "bytes of counters" } else { "is another build" };
            assert!(error.message.contains(reason), "{error}");
        }
    }
    let unproven = with_companion("macho-dsym-synthetic.profraw", "macho-dsym-dwarf").unwrap();
    assert!(unproven.notes[0].message.contains("no build-id"), "{:?}", unproven.notes);
}

#[test]
fn correlated_functions_have_their_addresses() {
    let addresses = |profile: &str, companion| -> Vec<Option<u64>> {
        let reading = with_companion(profile, companion).unwrap();
        let address = |event: &reorder_trace::Event| match event.location {
            Location::Image(address) => Some(address.0),
            _ => None,
        };
        reading.traces[0].events.iter().map(address).collect()
    };
    let dsym = addresses("macho-dsym-synthetic.profraw", "macho-dsym-dwarf");
    assert_eq!(dsym, [0x1_0000_069c, 0x1_0000_0638, 0x1_0000_0664, 0x1_0000_0600].map(Some));
    let debug_info = addresses("correlate-debug-info.profraw", "correlate-debug-info.debug");
    assert!(debug_info.iter().all(Option::is_some), "{debug_info:x?}");
}

#[test]
fn damage_costs_no_more_than_it_must() {
    let without_log: Vec<&str> = DEMO_A.into_iter().filter(|name| *name != "util_log").collect();
    let cases: [(&str, &[&str], &str); 8] = [
        ("counterptr-before-section", &without_log, "do not lie in the section"),
        ("counterptr-unaligned", &without_log, "not aligned"),
        ("zero-counters", &without_log, "there are none"),
        ("cut-before-value-tail", &DEMO_A, "values after the names are missing"),
        ("duplicate-timestamp", &DEMO_A, "timestamp of another"),
        ("misaligned-second", &DEMO_A, "not aligned to 8 bytes"),
        ("trailing-garbage", &DEMO_A, "something else than a profile"),
        ("trailing-zeros", &DEMO_A, ""),
    ];
    for (name, functions, message) in cases {
        let reading = sample(&format!("damaged/{name}.profraw"));
        let [trace] = reading.traces.as_slice() else { panic!("{name}") };
        assert_eq!(names(trace), functions, "{name}");
        let messages: Vec<_> = reading.notes.iter().map(ToString::to_string).collect();
        assert_eq!(messages.len(), usize::from(!message.is_empty()), "{name}: {messages:?}");
        assert!(messages.iter().all(|found| found.contains(message)), "{name}: {messages:?}");
    }
}

#[test]
fn functions_without_names_go_by_hash() {
    for (name, hashes) in [("bad-zlib", 8), ("cut-in-names", 8), ("unknown-nameref", 1)] {
        let reading = sample(&format!("damaged/{name}.profraw"));
        let events = &reading.traces[0].events;
        let by_hash = events.iter().filter(|event| matches!(event.location, Location::NameHash(_))).count();
        assert_eq!((events.len(), by_hash), (8, hashes), "{name}");
        assert!(reading.notes.iter().any(|note| note.message.contains(&format!("{hashes} of 8"))), "{name}");
    }
}

#[test]
fn what_is_of_no_use_is_refused_with_words() {
    for (name, offset, message) in [
        ("cut-in-data", 0xa0, "ends in the records"),
        ("empty", 0, "the file is empty"),
        ("huge-numdata", 0xa0, "1152921504606846976 records"),
        ("version-11", 8, "raw profile version 11; versions 8 to 10 are read"),
    ] {
        let error = read_sample(&format!("llvm_raw/damaged/{name}.profraw"), &[]).unwrap_err();
        assert_eq!(error.offset, Some(offset), "{name}");
        assert!(error.message.contains(message), "{name}: {error}");
        assert!(error.hint.is_some(), "{name}");
    }
}
