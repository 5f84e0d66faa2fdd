use proptest::prelude::*;

use super::{Export, ExportValue, encode, parse};

fn export(name: &str, flags: u64, value: ExportValue) -> Export {
    Export { name: name.into(), flags, value }
}

fn round_trip(mut exports: Vec<Export>) {
    let encoded = encode(&exports);
    assert_eq!(encoded.len() % 8, 0);
    exports.sort_by(|left, right| left.name.cmp(&right.name));
    assert_eq!(parse(&encoded).expect("what was written can be read"), exports);
}

#[test]
fn nothing_and_one_and_prefixes() {
    round_trip(vec![]);
    round_trip(vec![export("_main", 0, ExportValue::Offset(0x4000))]);
    round_trip(vec![
        export("_ab", 4, ExportValue::Offset(1)),
        export("_abc", 0, ExportValue::Offset(0)),
        export("_a", 1, ExportValue::Offset(u64::MAX)),
        export("", 0, ExportValue::Offset(2)),
        export("_zz", 2, ExportValue::Absolute(77)),
    ]);
}

#[test]
fn other_libraries_and_resolvers() {
    round_trip(vec![
        export("_same", 8, ExportValue::Reexport(b"\x02\0".to_vec())),
        export("_renamed", 8, ExportValue::Reexport(b"\x81\x01_other\0".to_vec())),
        export("_chosen", 0x10, ExportValue::StubAndResolver { stub: 0x1234, resolver: 0x56_789a }),
    ]);
}

#[test]
fn ten_thousand_names() {
    let name = |number: u64| format!("_{}{number}", ["alpha", "alphabet", "beta"][number as usize % 3]);
    round_trip(
        (0..10_000).map(|number| export(&name(number), 0, ExportValue::Offset(number * 52))).collect(),
    );
}

#[test]
fn circles_and_unknown_flags_are_errors() {
    assert!(parse(&[0, 1, b'a', 0, 0]).is_err(), "a circle");
    assert!(parse(&[0, 2, b'a', 0, 8, b'b', 0, 8, 2, 0, 1, 0]).is_err(), "a shared node");
    assert!(parse(&[0, 1, 0, 4, 0, 0]).is_ok(), "linkers write edges without a name");
    assert!(parse(&[2, 0x20, 1, 0]).is_err(), "flags of the future");
    assert!(parse(&[3, 0, 1, 1, 0]).is_err(), "more than the flags tell");
    assert!(parse(&[0, 1, b'a', 0, 9]).is_err(), "a node outside");
}

fn any_export() -> impl Strategy<Value = Export> {
    let value = prop_oneof![
        (any::<u64>(), 0u64..2).prop_map(|(value, kind)| (kind, ExportValue::Offset(value))),
        any::<u64>().prop_map(|value| (6, ExportValue::Absolute(value))),
        (0u8..100).prop_map(|library| (8, ExportValue::Reexport(vec![library, b'x', 0]))),
        (any::<u64>(), any::<u64>())
            .prop_map(|(stub, resolver)| (0x10, ExportValue::StubAndResolver { stub, resolver })),
    ];
    ("[ab_]{0,6}", value).prop_map(|(name, (flags, value))| export(&name, flags, value))
}

proptest! {
    #[test]
    fn any_exports_survive(exports in prop::collection::vec(any_export(), 0..40)) {
        let mut unique = exports;
        unique.sort_by(|left, right| left.name.cmp(&right.name));
        unique.dedup_by(|later, first| later.name == first.name);
        round_trip(unique);
    }

    #[test]
    fn damage_is_survived(
        exports in prop::collection::vec(any_export(), 1..40),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode(&exports);
        for (place, byte) in edits {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(exports) = parse(&bytes) {
            prop_assert!(exports.len() <= bytes.len());
        }
    }
}
