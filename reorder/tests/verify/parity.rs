//! Links with unaligned functions, some of which move from even to odd addresses: the verifier must report only that.

use crate::proof::report;
use crate::relinked::Relinked;
use reorder_verify::Check;

/// One byte of code that moves with `sorted` from the middle to the beginning.
const ODD: &str =
    "__asm__(\".section .text.sorted,\\\"ax\\\"\\n .type odd,@function\\nodd: .cfi_startproc\\n ret\\n\"
    \" .cfi_endproc\\n .size odd,1\\n .text\");";

/// Targets of a table, `.init_array` and an instruction.
const TAKEN: [(&str, Check); 6] = [
    ("triple", Check::LoaderPointers),
    ("fivefold", Check::LoaderPointers),
    ("hand_over", Check::LoaderPointers),
    ("checked", Check::LoaderPointers),
    ("prepare", Check::LoaderPointers),
    ("compare", Check::Functions),
];
/// Further exports of a shared object.
const EXPORTED: [(&str, Check); 6] = [
    ("pick", Check::Symbols),
    ("interpret", Check::Symbols),
    ("sorted", Check::Symbols),
    ("triple", Check::Symbols),
    ("hand_over", Check::Symbols),
    ("checked", Check::Symbols),
];

#[test]
fn what_something_takes_the_address_of_must_not_become_odd() {
    let mut found = [0; 3];
    for (options, exported) in [
        (&[][..], &[][..]),
        (&["-Wl,-z,pack-relative-relocs"], &[]),
        (&["-shared", "-Wl,-Bsymbolic"], &EXPORTED),
    ] {
        let options = [&["-falign-functions=1", "-falign-jumps=1", "-falign-loops=1"], options].concat();
        let pair = Relinked::build_with(&options, ODD);
        let forward = pair.symbols.iter().map(|(name, old, new)| (name.as_str(), *old, *new));
        let backward = forward.clone().map(|(name, old, new)| (name, new, old));
        let both: [(_, _, Vec<_>); 2] =
            [(&pair.old, &pair.new, forward.collect()), (&pair.new, &pair.old, backward.collect())];
        for (before, after, symbols) in both {
            let report = report(before, after);
            let differs = |address: u64, check: Check| {
                let place = format!("the function at {address:#x}, whose address is taken");
                report.differences.iter().any(|found| found.check == check && found.place == place)
            };
            for &(name, check) in TAKEN.iter().chain(exported) {
                let &(_, old, new) = symbols.iter().find(|symbol| symbol.0 == name).unwrap();
                let is_wrong = old % 2 == 0 && new % 2 == 1;
                assert_eq!(differs(old, check), is_wrong, "{options:?} {name}: {:#?}", report.differences);
                found[match check {
                    Check::LoaderPointers => 0,
                    Check::Functions => 1,
                    _ => 2,
                }] += usize::from(is_wrong);
            }
            let others = report.differences.iter().filter(|found| !found.place.contains("address is taken"));
            assert_eq!(others.count(), 0, "{options:?}: {:#?}", report.differences);
        }
    }
    assert!(found.iter().all(|&count| count > 0), "nothing became odd: {found:?}");
}
