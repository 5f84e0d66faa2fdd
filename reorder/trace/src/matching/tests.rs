//! Each spelling finds its function, and only where no other function could be meant.

use std::path::Path;
use std::process::Command;

use super::spelling::{readable, rust_path};
use super::{Found, HashIndex, LikelyNames, LoadAddress, NameIndex, PageOffsets, Spelling, Step, root_name};
use crate::NameHash;
use reorder_base::address::RuntimeAddress;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::FunctionTable;

#[test]
fn roots_lose_only_what_a_build_adds() {
    for (name, root) in [
        ("helper.llvm.8123", "helper"),
        ("helper.__uniq.12.llvm.5", "helper"),
        ("helper.lto_priv.0", "helper"),
        ("helper.cold", "helper.cold"),
        ("helper.part.0", "helper.part.0"),
        ("helper.constprop.0.isra.1", "helper"),
        ("helper.Tgm", "helper"),
        (".llvm.5", ".llvm.5"),
        ("helper.llvm.", "helper.llvm."),
    ] {
        assert_eq!(root_name(name.as_bytes()), root.as_bytes());
    }
}

/// Two sources with names as different tool chains leave them; `helper` is in both.
const FIRST: &str = r#"
static int __attribute__((noinline)) helper(int value) { return value + 1; }
int cloned(int value) __asm__("cloned.constprop.0");
int cloned(int value) { return helper(value); }
int promoted(int value) __asm__("promoted.llvm.81729");
int promoted(int value) { return helper(value) * 3; }
int twice_one(int value) __asm__("twice.isra.0");
int twice_one(int value) { return value * 5; }
int twice_two(int value) __asm__("twice.constprop.1");
int twice_two(int value) { return value * 7; }
int objective(int value) __asm__("_objective");
int objective(int value) { return value * 9; }
int rust(int value) __asm__("_ZN7example4work17h0123456789abcdefE");
int rust(int value) { return value * 11; }
int rust_new(int value) __asm__("_RNvCs1234_7example5other");
int rust_new(int value) { return value * 13; }
int renamed_to(int value) __asm__("_ZN3app6Engine3runEil");
int renamed_to(int value) { return value * 15; }
static int __attribute__((noinline)) other_local(int value) { return value * 17; }
int main(int count, char **words) { return helper(count) + other_local(count); }
"#;
const SECOND: &str = "static int __attribute__((noinline)) helper(int value) { return value - 1; }\n\
    int other(int value) { return helper(value); }\n";

fn build(directory: &Path) -> Vec<u8> {
    std::fs::write(directory.join("first.c"), FIRST).unwrap();
    std::fs::write(directory.join("second.c"), SECOND).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.current_dir(directory).args(["-O1", "-w", "first.c", "second.c", "-o", "program"]);
    assert!(compiler.status().expect("gcc is installed").success());
    std::fs::read(directory.join("program")).unwrap()
}

fn with_program(check: impl FnOnce(&FunctionTable<'_>, &NameIndex<'_>)) {
    let directory = tempfile::tempdir().unwrap();
    let bytes = build(directory.path());
    let file = ElfFile::parse(&bytes).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap().table;
    check(&functions, &NameIndex::new(&functions));
}

#[test]
fn each_spelling_is_found_by_its_step() {
    with_program(|functions, names| {
        let find = |name: &str| {
            let is_underscored = ["_objective", "_main"].contains(&name);
            names.find(name.as_bytes(), if is_underscored { Spelling::MachO } else { Spelling::Plain })
        };
        let expect = |name: &str, symbol: &str, step: Step| match find(name) {
            Found::Function(function, by) => {
                assert_eq!((functions.display_name(function).as_str(), by), (symbol, step), "{name}");
            }
            other => panic!("{name}: {other:?}"),
        };
        expect("main", "main", Step::Name);
        expect("\u{1}main", "main", Step::Name);
        expect("anything.c;main", "main", Step::Name);
        expect("cloned", "cloned.constprop.0", Step::Suffix);
        expect("promoted.llvm.5", "promoted.llvm.81729", Step::Suffix);
        expect("promoted.__uniq.7.llvm.5", "promoted.llvm.81729", Step::Suffix);
        expect("_objective", "_objective", Step::Name);
        expect("_main", "main", Step::Underscore);
        expect("first.c;helper", "helper", Step::SourceFile);
        expect("/elsewhere/second.c;helper", "helper", Step::SourceFile);
        expect("second.c:helper", "helper", Step::SourceFile);
        expect(
            "_ZN7example4work17hffffffffffffffffE",
            "_ZN7example4work17h0123456789abcdefE",
            Step::RustPath,
        );
        expect("_RNvCsabcd_7example4work", "_ZN7example4work17h0123456789abcdefE", Step::RustPath);
        expect("_ZN7example5other17h0123456789abcdefE", "_RNvCs1234_7example5other", Step::RustPath);
        expect("elsewhere.c;other_local", "other_local", Step::OtherFile);
        let of = |name: &str| names.find(name.as_bytes(), Spelling::Plain);
        assert_eq!(of("_main"), Found::Nowhere, "in ELF it is another function");
        assert_ne!(of("first.c;helper"), of("second.c;helper"));
        for ambiguous in ["helper", "twice"] {
            assert_eq!(of(ambiguous), Found::Ambiguous, "{ambiguous}");
        }
        for unknown in ["mai", "main.cold", "-[Foo main]", "app::main", "", ";", ":", "_"] {
            assert_eq!(of(unknown), Found::Nowhere, "{unknown}");
        }
    });
}

#[test]
fn namesakes_are_told_apart_by_their_size() {
    let places: [(u64, u64, &[u8]); 5] = [
        (0x1000, 16, b"helper"),
        (0x1010, 32, b"helper"),
        (0x1030, 48, b"same"),
        (0x1060, 48, b"same"),
        (0x1090, 8, b"f"),
    ];
    let functions = FunctionTable::from_named_ranges(
        places.map(|(start, size, name)| (reorder_base::address::Address(start), size, name)),
    );
    let names = NameIndex::new(&functions);
    assert_eq!(names.find(b"helper", Spelling::Plain), Found::Ambiguous);
    let second = functions.starting_at(reorder_base::address::Address(0x1010)).unwrap();
    assert_eq!(names.find_sized(b"helper", 32, &functions), Found::Function(second, Step::Size));
    for (name, size) in [(&b"helper"[..], 33), (b"same", 48)] {
        assert_eq!(names.find_sized(name, size, &functions), Found::Ambiguous);
    }
}

#[test]
fn hashes_are_found_with_and_without_the_source_file() {
    with_program(|functions, names| {
        let hashes = HashIndex::new(functions, names);
        // From `md5sum`: the first eight bytes, least significant first.
        for (name, symbol, hash) in [
            ("main", "main", 0xdb95_6436_e78d_d5fa),
            ("promoted", "promoted.llvm.81729", 0xbbcf_c702_627d_e51f),
            ("second.c;helper", "helper", 0x6a01_423b_be3e_ebe7),
        ] {
            match hashes.find(NameHash::Md5(hash)) {
                Found::Function(function, Step::Hash) => assert_eq!(functions.display_name(function), symbol),
                other => panic!("{name}: {other:?}"),
            }
        }
        assert_eq!(hashes.find(NameHash::Md5(1)), Found::Nowhere);
    });
}

#[test]
fn load_addresses_are_deduced_from_function_starts() {
    let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let file = ElfFile::parse(&bytes).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap().table;
    let offsets = PageOffsets::of(&functions);
    let loaded = |bias: u64| -> Vec<RuntimeAddress> {
        functions.iter().step_by(97).take(40).map(|(_, it)| RuntimeAddress(it.start.0 + bias)).collect()
    };
    let deduced = LoadAddress::deduce(&loaded(0x7f12_3456_7000), &offsets, &functions).unwrap();
    let first = loaded(0)[0];
    assert_eq!(deduced.stated(RuntimeAddress(first.0 + 0x7f12_3456_7000)).0, first.0);
    // Not a multiple of a page from any function: no load address explains it.
    let nonsense: Vec<_> = (0..40).map(|number| RuntimeAddress(0x1000 + number * 0x0f00_0001)).collect();
    assert_eq!(LoadAddress::deduce(&nonsense, &offsets, &functions), None);
    assert_eq!(
        LoadAddress::deduce(&loaded(0x1000)[..3], &offsets, &functions),
        None,
        "three agree by chance"
    );
}

#[test]
fn renamed_functions_get_a_guess_among_what_is_not_found() {
    with_program(|functions, names| {
        let mut is_found = vec![false; functions.len()];
        let likely = LikelyNames::new(functions, names, &is_found);
        assert_eq!(likely.of("_ZN3app6Engine3runEi").as_deref(), Some("_ZN3app6Engine3runEil"));
        assert_eq!(likely.of("completely_different_thing"), None);
        is_found.fill(true);
        assert_eq!(LikelyNames::new(functions, names, &is_found).of("_ZN3app6Engine3runEi"), None);
    });
}

#[test]
fn the_spelling_of_a_trace_is_that_of_nearly_all_names() {
    let of = |names: &[&str]| Spelling::of(names.iter().map(|name| name.as_bytes()));
    assert_eq!(of(&["_main", "__ZN3app3runEv", "-[View draw:]", "_start"]), Spelling::MachO);
    assert_eq!(of(&["main", "_ZN3app3runEv", "_RNvC3app3run", "_start"]), Spelling::Plain);
    assert_eq!(of(&["_ZN3app3runEv", "_ZN3app4stopEv"]), Spelling::Plain);
    assert_eq!(of(&[]), Spelling::Plain);
}

#[test]
fn names_of_c_are_not_those_of_types() {
    for (name, shown) in [
        (&b"a"[..], "a"),
        (b"i", "i"),
        (b"Zebra", "Zebra"),
        (b"_start", "_start"),
        (b"_ZN2ns5parseEi", "ns::parse(int)"),
        (b"__ZN2ns5parseEi", "ns::parse(int)"),
        (b"file.c;helper", "helper"),
    ] {
        assert_eq!(readable(name), shown);
    }
}

/// Each substitution doubles the one before: 60 levels would be more text than any memory holds.
#[test]
fn names_that_expand_without_end_stay_as_they_are() {
    let mut name = "_Z1fSt4pairIiiE".to_owned();
    for level in 0..60 {
        let reference = if level == 0 { "S_".to_owned() } else { format!("S{}_", base_36(level - 1)) };
        name.push_str(&format!("St4pairI{reference}{reference}E"));
    }
    assert!(readable(name.as_bytes()).len() <= 4 << 10);
    assert_eq!(rust_path(&vec![b'_'; 1 << 20]), None);
}

fn base_36(number: u32) -> String {
    let digit = |value: u32| char::from_digit(value, 36).unwrap().to_ascii_uppercase();
    if number < 36 {
        digit(number).to_string()
    } else {
        format!("{}{}", digit(number / 36), digit(number % 36))
    }
}
