//! Simulated faults of real images against counts by hand.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::{ImageNames, Placement, Simulation, simulate, touched_pages};
use crate::memory::default_for_elf;
use reorder_base::address::Address;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_report::Format;
use reorder_report::{Width, render};
use reorder_trace::{ExecutedBlock, ExecutedBlocks, ResolvedTrace, ResolvedTraces};
use reorder_verify::recover_moves;

/// `near` and `pair` are next to each other, `far` of the same size as `pair` is at least 64 KiB away. No unwind
/// entries, so that only the symbols give their addresses.
const SOURCE: &str = "
__asm__(\".text\\n.p2align 12\\n\"
    \".type near,@function\\n near: .skip 16,0x90\\n .size near,16\\n\"
    \".type pair,@function\\n pair: .skip 16,0x90\\n .size pair,16\\n\"
    \".type between,@function\\n between: .skip 0x20000,0x90\\n .size between,0x20000\\n\"
    \".type far,@function\\n far: .skip 16,0x90\\n .size far,16\\n\");
int main(void) { return 0; }
";

fn build(directory: &Path) -> Vec<u8> {
    std::fs::write(directory.join("program.c"), SOURCE).expect("writable");
    let status = Command::new("cc")
        .current_dir(directory)
        .args(["program.c", "-o", "program"])
        .status()
        .expect("the compiler starts");
    assert!(status.success());
    std::fs::read(directory.join("program")).expect("readable")
}

fn names(new: Option<&str>) -> ImageNames {
    ImageNames { old: "old".to_owned(), new: new.map(str::to_owned) }
}

fn traces(all: &[(u64, &[FunctionIndex])]) -> ResolvedTraces {
    let trace = |&(weight, functions): &(u64, &[FunctionIndex])| ResolvedTrace {
        weight,
        label: format!("weight {weight}"),
        functions: functions.to_vec(),
        nanoseconds: (0..functions.len() as u64).map(|index| index * 1000).collect(),
        ..ResolvedTrace::default()
    };
    ResolvedTraces { traces: all.iter().map(trace).collect(), ..ResolvedTraces::default() }
}

fn find(functions: &FunctionTable<'_>, name: &str) -> FunctionIndex {
    let mut found = functions.iter().map(|(index, _)| index);
    found.find(|&index| functions.display_name(index) == name).expect("the function is there")
}

/// The image with the addresses of two symbols exchanged.
fn with_exchanged(bytes: &[u8], functions: &ElfFunctions<'_>, one: &[u8], other: &[u8]) -> Vec<u8> {
    let symbol = |name: &[u8]| functions.symbols.iter().find(|symbol| symbol.name == name).expect("a symbol");
    let (one, other) = (symbol(one), symbol(other));
    let mut new = bytes.to_vec();
    for (field, value) in [(one.value_field, other.value), (other.value_field, one.value)] {
        new[field.0 as usize..][..8].copy_from_slice(&value.0.to_le_bytes());
    }
    new
}

fn faults_of(simulation: &Simulation) -> Vec<(u64, u64, Option<u64>)> {
    simulation.totals.iter().map(|total| (total.lower_bound_faults, total.faults, total.new_faults)).collect()
}

#[test]
fn bringing_functions_together_saves_the_second_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let bytes = build(directory.path());
    let file = ElfFile::parse(&bytes).expect("an ELF image");
    let functions = ElfFunctions::collect(&file).expect("well-formed tables");
    let ran = ["near", "far"].map(|name| find(&functions.table, name));
    let new = with_exchanged(&bytes, &functions, b"pair", b"far");
    let moves = recover_moves(&bytes, &new).expect("only symbols moved");
    let traces = traces(&[(1, &ran), (3, &ran[..1])]);
    let simulation = simulate(
        names(Some("new")),
        &functions.table,
        &traces,
        None,
        Some(&Placement::moved(&moves)),
        &default_for_elf(),
    );
    // Once both functions, three times the first one: 2 + 3 faults become 1 + 3 under every model.
    assert_eq!(faults_of(&simulation), [(4, 5, Some(4)); 4]);
    assert_eq!(simulation.totals[0].fewer_percent.map(f64::round), Some(20.0));
    let text = render(&simulation, Format::Text, Width::UNLIMITED).expect("text renders");
    assert!(text.contains("20.0 %") && text.contains("total of 4 weighted runs"), "{text}");
}

#[test]
fn faults_of_a_whole_program_are_its_pages() {
    let own = std::env::current_exe().expect("this test");
    let bytes = std::fs::read(own).expect("readable");
    let file = ElfFile::parse(&bytes).expect("an ELF image");
    let functions = ElfFunctions::collect(&file).expect("well-formed tables").table;
    let every_fifth: Vec<FunctionIndex> = functions.iter().map(|(index, _)| index).step_by(5).collect();
    let simulation =
        simulate(names(None), &functions, &traces(&[(1, &every_fifth)]), None, None, &default_for_elf());
    for (index, size) in [(0, 4096u64), (3, 16384), (1, 65536)] {
        let pages: BTreeSet<u64> = every_fifth
            .iter()
            .map(|&index| functions.get(index))
            .flat_map(|function| function.start.0 / size..=(function.end.0 - 1) / size)
            .collect();
        assert_eq!(simulation.totals[index].faults, pages.len() as u64, "{}", simulation.totals[index].model);
    }
    let total = &simulation.totals[0];
    assert!(total.curve.is_sorted_by_key(|point| point.faults));
    assert_eq!(
        total.curve.last().map(|point| (point.functions_percent, point.faults)),
        Some((100, total.faults))
    );
    let last = simulation.traces[0].models[0].curve.last().and_then(|point| point.nanoseconds);
    assert_eq!(last, Some((every_fifth.len() as u64 - 1) * 1000));
    assert!(simulation.totals.iter().all(|total| total.lower_bound_faults <= total.faults));
}

#[test]
fn an_image_compared_with_itself_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let bytes = build(directory.path());
    let file = ElfFile::parse(&bytes).expect("an ELF image");
    let functions = ElfFunctions::collect(&file).expect("well-formed tables").table;
    let all: Vec<FunctionIndex> = functions.iter().map(|(index, _)| index).collect();
    let moves = recover_moves(&bytes, &bytes).expect("the same image");
    let simulation = simulate(
        names(Some("same")),
        &functions,
        &traces(&[(2, &all)]),
        None,
        Some(&Placement::moved(&moves)),
        &default_for_elf(),
    );
    for total in &simulation.totals {
        assert_eq!((Some(total.faults), total.fewer_percent), (total.new_faults, Some(0.0)));
        assert!(total.faults > 0);
    }
    let json = render(&simulation, Format::Json, Width::UNLIMITED).expect("JSON renders");
    let value: serde_json::Value = serde_json::from_str(&json).expect("valid JSON");
    assert_eq!(value["totals"][0]["faults"], simulation.totals[0].faults);
    assert_eq!(value["command"], "simulate");
}

#[test]
fn code_outside_of_functions_counts_before_all_blocks_in_both_images() {
    let directory = tempfile::tempdir().expect("a directory");
    let bytes = build(directory.path());
    let file = ElfFile::parse(&bytes).expect("an ELF image");
    let functions = ElfFunctions::collect(&file).expect("well-formed tables").table;
    let moves = recover_moves(&bytes, &bytes).expect("the same image");
    let ran = ["near", "far"].map(|name| find(&functions, name));
    let mut traces = traces(&[(1, &ran)]);
    traces.traces[0].blocks = vec![None; 2];
    let block = |function| ExecutedBlock { function, offset: 0, size: 16 };
    let init = file.sections.iter().find(|section| section.name == b".init").expect("what the loader calls");
    let executed = ExecutedBlocks {
        traces: vec![ran.map(block).to_vec()],
        nanoseconds: vec![vec![0, 1000]],
        outside: vec![vec![init.address]],
        ..ExecutedBlocks::default()
    };
    let (placement, models) = (Placement::moved(&moves), default_for_elf());
    let images = (names(Some("same")), &functions, &traces);
    let simulation = simulate(images.0, images.1, images.2, Some(&executed), Some(&placement), &models[..1]);
    let total = &simulation.totals[0];
    // `near` begins a page of its own, and `far` is on another.
    assert_eq!((total.faults, total.new_faults, total.copies), (3, Some(3), None));
    let points: Vec<(u64, u64)> = [9, 19]
        .map(|point| &total.curve[point])
        .iter()
        .map(|point| (point.functions_percent, point.faults))
        .collect();
    assert_eq!(points, [(50, 2), (100, 3)]);
    let pages = touched_pages(&functions, &traces.traces[0], Some((&executed, 0)), Some(&placement), 4096);
    let without: Vec<Address> = pages.iter().filter(|(_, on)| on.is_empty()).map(|(page, _)| *page).collect();
    assert_eq!((pages.len(), without), (3, vec![Address(init.address.0 / 4096 * 4096)]));
}
