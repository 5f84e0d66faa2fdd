//! The verifier notices a stored distance that went stale, even where the writer overlooked it.

use std::fs;
use std::process::Command;
use std::time::Duration;

use end_to_end::{process, workspace};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::FunctionIndex;
use reorder_layout::{LayoutRequest, Room, Strategy, lay_out};
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::Arrangement;
use reorder_relocate::apply::elf::apply;
use reorder_verify::{Difference, VerifyOptions, VerifyReport, verify};

/// The distances of the fixture: two functions that follow each other at 16 bytes, and the end of the table.
const DISTANCES: [u8; 12] = [16, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0];

/// The writer pins the functions that the distances lead to. So the image is permuted without the distances, which are put
/// back into both files: the output is now one of a writer that knows nothing of such jumps.
#[test]
fn distances_from_loaded_addresses_must_not_go_stale() {
    let whole = built("gcc", "loaded_bases");
    let report = report_of_unaware(&whole, &DISTANCES, &[0; DISTANCES.len()], 2);
    let is_stale = |place: &str| place.contains("which a jump may add to");
    assert!(report.differences.iter().any(|difference| is_stale(&difference.place)), "{report:#?}");
}

/// The same for the symbol of an array that follows a jump table: without the symbol, the writer takes the array's words for entries,
/// because the comparison before the jump admits eight indices.
#[test]
fn words_of_a_variable_after_a_table_must_not_follow_code() {
    let whole = built_with("gcc", "mask_exceeds_table", &["-DCOMPARED"]);
    let file = object::File::parse(whole.as_slice()).unwrap();
    let numbers = file.symbol_by_name("numbers").unwrap();
    let section = u16::try_from(numbers.section_index().unwrap().0).unwrap();
    // What follows the name in the symbol table: kind, visibility, section, value and size.
    let symbol_of = |kind: u8| {
        let place = [numbers.address(), numbers.size()].map(u64::to_le_bytes).concat();
        [&[kind, 0][..], &section.to_le_bytes(), &place].concat()
    };
    let [variable, label] = [object::elf::STT_OBJECT, object::elf::STT_NOTYPE].map(|kind| symbol_of(kind.0));
    let report = report_of_unaware(&whole, &variable, &label, 1);
    let is_changed = |difference: &Difference| {
        difference.place.contains("of the table") && difference.expected.contains("no change")
    };
    assert!(report.differences.iter().any(is_changed), "{report:#?}");
}

/// The same for code that takes 16 bytes off its own address and calls the sum: the instruction that does so is put back.
#[test]
fn own_addresses_less_a_constant_must_not_go_stale() {
    const ADD: [u8; 4] = [0x48, 0x83, 0xc0, 0xf0];
    const LONG_NOP: [u8; 4] = [0x0f, 0x1f, 0x40, 0x77];
    const SUB: u32 = 0xd100_4108;
    /// `mov x9, x17`, which nothing else here contains.
    const MOV: u32 = 0xaa11_03e9;
    let host = report_of_unaware(&built("gcc", CASE), &ADD, &LONG_NOP, 1);
    let arm_image = built("aarch64-linux-gnu-gcc", CASE);
    let arm = report_of_unaware(&arm_image, &SUB.to_le_bytes(), &MOV.to_le_bytes(), 1);
    for report in [host, arm] {
        let is_stale = |place: &str| place.contains("with -16 added");
        assert!(report.differences.iter().any(|difference| is_stale(&difference.place)), "{report:#?}");
    }
}

/// The same for a table of four distances that code names twice, whose words a thunk calls; three other words follow it.
#[test]
fn distances_past_a_name_must_not_go_stale() {
    for compiler in ["gcc", "aarch64-linux-gnu-gcc"] {
        let whole = built_with(compiler, "distances_past_a_name", &["-DTHUNK"]);
        let after = [9_u32, 8, 7].map(u32::to_le_bytes).concat();
        let &[end] = places_of(&whole, &after).as_slice() else {
            panic!("the words after the table stand elsewhere, too")
        };
        let report = report_of_unaware(&whole, &whole[end - 16..end], &[0; 16], 1);
        let is_stale = |place: &str| place.contains("to a function as the word next to it does");
        assert!(report.differences.iter().any(|difference| is_stale(&difference.place)), "{report:#?}");
    }
}

/// The same for distances from a function whose address code keeps on the stack, passes on or loads, as it does the table's.
#[test]
fn distances_from_an_address_out_of_sight_must_not_go_stale() {
    let fixtures: [(&str, &[&str]); 7] = [
        ("spilled_sums", &[]),
        ("sums_out_of_sight", &["-DPASSED", "-DPOINTER"]),
        ("sums_out_of_sight", &["-DRETURNED"]),
        ("sums_out_of_sight", &["-DARGUMENTS", "-DPOINTER", "-fno-pie", "-no-pie"]),
        ("sums_out_of_sight", &["-DNAMELESS"]),
        ("sums_out_of_sight", &["-DNAMELESS", "-DFIXED", "-fno-pie", "-no-pie"]),
        ("sums_out_of_sight", &["-DNAMELESS", "-DAFTER_BYTES"]),
    ];
    for compiler in ["gcc", "aarch64-linux-gnu-gcc"] {
        for (fixture, flags) in fixtures {
            let whole = built_with(compiler, fixture, flags);
            let symbols = object::File::parse(&*whole).unwrap();
            let address =
                |name: &str| symbols.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap().address();
            let distance = |name: &str| (address(name).wrapping_sub(address("first"))).to_le_bytes();
            let distances = ["first", "second", "third", "fourth"].map(distance).concat();
            let report = report_of_unaware(&whole, &distances[8..], &[0; 24], 1);
            let is_stale = |place: &str| place.starts_with("the word at");
            assert!(
                report.differences.iter().any(|difference| is_stale(&difference.place)),
                "{compiler} {fixture} {flags:?}: {report:#?}"
            );
        }
    }
}

/// Words that lead to one function and to the linker's stubs, which look like a function, are no table.
#[test]
fn a_distance_to_the_stubs_is_no_evidence() {
    let mut whole = built_with("gcc", "sums_out_of_sight", &["-DPASSED", "-DPOINTER"]);
    let file = object::File::parse(&*whole).unwrap();
    let address = |name: &str| file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap().address();
    let first = address("first");
    let stubs = file.section_by_name(".plt").unwrap().address();
    let distances = ["first", "second", "third", "fourth"].map(|name| address(name).wrapping_sub(first));
    let &[table] = places_of(&whole, &distances.map(u64::to_le_bytes).concat()).as_slice() else {
        panic!("the table stands elsewhere, too")
    };
    let words = [0, stubs.wrapping_sub(first), distances[1], u64::MAX / 3].map(u64::to_le_bytes).concat();
    put(&mut whole, &[table], &words);
    for seed in 1..5 {
        let report = verify(&whole, &permuted_by(&whole, seed), VerifyOptions::default()).unwrap();
        assert!(report.is_proven(), "{report:#?}");
    }
}

/// The same for two distances to functions that swapped their places, where nothing else moved: the words lead to the ends of
/// the functions before them, and from a string that code names before the table into functions, but the string is no table.
#[test]
fn distances_to_functions_that_swapped_must_not_go_stale() {
    for (flags, filler) in [("-fPIE -pie", 0), ("-fno-pie -no-pie", 0), ("-fno-pie -no-pie", 512)] {
        let scratch = tempfile::tempdir().unwrap();
        let named = if flags.contains("no-pie") { "mov $string, %eax" } else { "lea string(%rip), %rax" };
        let functions: String = ["before", "one", "between", "two", "after"]
            .map(|name| {
                format!(
                    ".p2align 5\n.globl {name}\n.type {name},@function\n{name}: .cfi_startproc\n mov ${},%eax\n .fill 26,1,0x90\n \
                     ret\n.cfi_endproc\n.size {name}, . - {name}\n",
                    name.len()
                )
            })
            .concat();
        let source = format!(
            ".text\n{functions}.globl main\n.type main,@function\nmain: .cfi_startproc\n lea table(%rip), %rcx\n {named}\n xor %eax, %eax\n \
             ret\n.cfi_endproc\n.size main, . - main\n.section .rodata\n.p2align 4\nstring: .asciz \"0123456789abcde\"\n.fill {filler}\n\
             table: .long 0x1d1d1d1d, 0x2d2d2d2d\n.quad 0x1122334455667788\n.section .note.GNU-stack,\"\",@progbits\n"
        );
        fs::write(scratch.path().join("program.s"), source).unwrap();
        let build = format!("cd '{}' && gcc {flags} program.s -o image", scratch.path().display());
        process::shell(&build, Duration::from_secs(120)).unwrap();
        let old = fs::read(scratch.path().join("image")).unwrap();
        let file = ElfFile::parse(&old).unwrap();
        let functions = ElfFunctions::collect(&file).unwrap();
        let find = |name: &str| {
            let named =
                functions.table.iter().find(|(index, _)| functions.table.display_name(*index) == name);
            named.unwrap().0
        };
        let (one, two) = (find("one"), find("two"));
        let swapped = functions.table.iter().map(|(index, _)| match index {
            index if index == one => two,
            index if index == two => one,
            index => index,
        });
        let order: Vec<FunctionIndex> = swapped.collect();
        let analysis = Analysis::new(&file, &functions).unwrap();
        let new = apply(&file, &functions, analysis, Arrangement::Order(&order), RelocateOptions::default());
        let mut new = new.unwrap().bytes;
        let mut whole = old.clone();
        let marks: Vec<u8> = [0x1d1d_1d1d_u32, 0x2d2d_2d2d].map(u32::to_le_bytes).concat();
        let &[table] = places_of(&whole, &marks).as_slice() else {
            panic!("the table stands elsewhere, too")
        };
        let symbols = object::File::parse(&*old).unwrap();
        let address = symbols.symbols().find(|symbol| symbol.name() == Ok("table")).unwrap().address();
        let distance =
            |function| (functions.table.get(function).start.0.wrapping_sub(address) as u32).to_le_bytes();
        let words = [distance(one), distance(two)].concat();
        put(&mut whole, &[table], &words);
        put(&mut new, &[table], &words);
        let report = verify(&whole, &new, VerifyOptions::default()).unwrap();
        let is_stale = |place: &str| place.contains("to a function as the word next to it does");
        assert!(
            report.differences.iter().any(|difference| is_stale(&difference.place)),
            "{flags} {filler}: {report:#?}"
        );
    }
}

/// The fixture whose code takes a constant off its own address.
const CASE: &str = "own_address_less_a_constant";

/// The program of a fixture.
fn built(compiler: &str, fixture: &str) -> Vec<u8> {
    built_with(compiler, fixture, &[])
}

fn built_with(compiler: &str, fixture: &str, flags: &[&str]) -> Vec<u8> {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let mut command = Command::new(compiler);
    command.args(["-O1", "-fPIE", "-pie", &format!("{fixture}/main.c"), "ballast.c", "-o"]).arg(&image);
    command.args(flags).current_dir(workspace::root().join("tests/fixtures"));
    let built = process::run(&mut command, Duration::from_secs(120)).unwrap();
    assert!(built.success(), "{built}");
    fs::read(&image).unwrap()
}

/// What the verifier says of an output whose writer knew nothing of the bytes `fact`, which stand `count` times in the image:
/// while it wrote, `harmless` stood there.
fn report_of_unaware(whole: &[u8], fact: &[u8], harmless: &[u8], count: usize) -> VerifyReport {
    let places = places_of(whole, fact);
    assert_eq!(places.len(), count, "the bytes stand elsewhere, too");
    let mut old = whole.to_vec();
    put(&mut old, &places, harmless);
    let mut new = permuted(&old);
    assert!(verify(&old, &new, VerifyOptions::default()).unwrap().is_proven());

    // Code has moved, data has not.
    let code = places_of(&new, harmless);
    put(&mut new, if code.len() == count { &code } else { &places }, fact);
    verify(whole, &new, VerifyOptions::default()).unwrap()
}

fn places_of(image: &[u8], wanted: &[u8]) -> Vec<usize> {
    image.windows(wanted.len()).enumerate().filter(|(_, at)| *at == wanted).map(|it| it.0).collect()
}

fn put(image: &mut [u8], places: &[usize], bytes: &[u8]) {
    places.iter().for_each(|&place| image[place..place + bytes.len()].copy_from_slice(bytes));
}

fn permuted(old: &[u8]) -> Vec<u8> {
    permuted_by(old, 1)
}

/// The image with its functions in random order.
fn permuted_by(old: &[u8], seed: u64) -> Vec<u8> {
    let file = ElfFile::parse(old).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap();
    let analysis = Analysis::new(&file, &functions).unwrap();
    let request = LayoutRequest::of(Strategy::Random, seed);
    let order = lay_out(&file, &functions.table, &[], Room::Linker, &request).unwrap().order;
    apply(&file, &functions, analysis, Arrangement::Order(&order), RelocateOptions::default()).unwrap().bytes
}
