//! The reference graph of stripped images, compared with the relocations that the linker kept in the same link, and with
//! the graph after functions moved.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so where it stands")]

mod oracle;
#[path = "../kept_relocations/toolchain.rs"]
mod toolchain;

use std::collections::BTreeSet;
use std::process::Command;

use layout_algos::problem::{NodeId, ReferenceKind};
use oracle::kept_relocations;
use reorder_base::address::Address;
use reorder_base::tool_versions::llvm;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_image::origins::Origins;
use reorder_image::references::{FingerprintOptions, Fingerprints, References};
use reorder_layout::{LayoutRequest, Room, Strategy, lay_out};
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::Arrangement;
use reorder_relocate::apply::elf::apply;
use toolchain::{Built, LINKERS, Scratch, run};

const PROGRAM: &str = include_str!("program.c");

const FORMS: [&[&str]; 4] = [
    &["-O2", "-fPIE", "-pie", "-ffunction-sections"],
    &["-O0", "-fPIE", "-pie", "-ffunction-sections"],
    &["-O2", "-fPIC", "-shared", "-ffunction-sections"],
    &["-O2", "-fno-pie", "-no-pie", "-ffunction-sections"],
];

/// The program in every form by every toolchain, each with a name.
fn for_each_program(mut check: impl FnMut(&str, &Scratch, Built)) {
    let scratch = Scratch::new();
    for compiler in ["gcc", &llvm("clang")] {
        for linker in LINKERS {
            for options in FORMS {
                let built = scratch.build(compiler, linker, PROGRAM, options);
                check(&format!("{compiler} {linker} {options:?}"), &scratch, built);
            }
        }
    }
}

/// The same image without symbols and without the linker's relocations.
fn stripped(image: &Built) -> Vec<u8> {
    let path = image.path.with_extension("stripped");
    let status = Command::new("strip").arg("--strip-all").arg("-o").args([&path, &image.path]).status();
    assert!(status.unwrap().success());
    let bytes = std::fs::read(path).unwrap();
    let file = ElfFile::parse(&bytes).unwrap();
    assert!(file.section(b".symtab").is_none() && file.section(b".rela.text").is_none());
    bytes
}

/// The name of a node in any variant of the image: a function's name or an object's address.
fn node_name(references: &References, functions: &FunctionTable<'_>, node: NodeId) -> String {
    match node.index().checked_sub(functions.len()) {
        None => functions.display_name(FunctionIndex(node.0)),
        Some(object) => format!("data@{}", references.objects[object].start),
    }
}

/// All references, by names, in order.
fn named_references(image: &[u8]) -> BTreeSet<(String, Vec<(ReferenceKind, String)>)> {
    let file = ElfFile::parse(image).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap().table;
    let references = References::extract(&file, &functions).unwrap();
    let name = |node| node_name(&references, &functions, node);
    (0..references.graph.node_count())
        .map(|node| {
            let node = NodeId(node as u32);
            let targets = references.graph.of(node).iter();
            (name(node), targets.map(|reference| (reference.kind, name(reference.target))).collect())
        })
        .collect()
}

/// What `function` reaches without calls: depth first, in the order of positions.
fn functions_that_data_leads_to(
    references: &References,
    functions: &FunctionTable<'_>,
    function: NodeId,
) -> Vec<NodeId> {
    let mut found = Vec::new();
    let objects = references.graph.of(function).iter();
    let objects = objects.filter(|reference| reference.kind == ReferenceKind::DataAddress);
    let mut open: Vec<NodeId> = objects.rev().map(|reference| reference.target).collect();
    while let Some(node) = open.pop() {
        if node.index() < functions.len() {
            found.push(node);
            continue;
        }
        for reference in references.graph.of(node).iter().rev() {
            assert_eq!(reference.kind, ReferenceKind::Pointer);
            open.push(reference.target);
        }
    }
    found
}

/// The function whose symbol in the unstripped image is `name`.
fn function_called(functions: &FunctionTable<'_>, name: &str) -> NodeId {
    let mut all = functions.iter().map(|(index, _)| index);
    let index = all.find(|index| functions.display_name(*index) == name);
    NodeId(index.unwrap_or_else(|| panic!("no function {name}")).0)
}

#[test]
fn references_in_a_stripped_image_are_its_relocations() {
    for_each_program(|case, _, image| {
        let file = ElfFile::parse(&image.bytes).unwrap();
        let functions = ElfFunctions::collect(&file).unwrap().table;
        let bytes = stripped(&image);
        let stripped_file = ElfFile::parse(&bytes).unwrap();
        // The graph of the stripped image's contents, over functions with the same numbers.
        let unnamed = ElfFunctions::collect(&stripped_file).unwrap().table;
        let references = References::extract(&stripped_file, &unnamed).unwrap();
        let node_at = |address: Address| -> Option<NodeId> {
            if let Some(function) = unnamed.containing(address) {
                return Some(NodeId(function.0));
            }
            let object = references
                .objects
                .iter()
                .position(|object| object.start <= address && address < object.end)?;
            Some(NodeId((unnamed.len() + object) as u32))
        };
        let to_unnamed = |function: FunctionIndex| node_at(functions.get(function).start).unwrap();
        let kept = kept_relocations(&file, &functions);
        let mut explained = BTreeSet::new();
        let mut checked = 0;
        for relocation in kept {
            let target = to_unnamed(relocation.function);
            // Words without references to them belong to no object.
            let Some(source) = node_at(relocation.place).filter(|source| *source != target) else { continue };
            let is_found = references.graph.of(source).iter().any(|reference| reference.target == target);
            assert!(is_found, "{case}: {relocation:?} to {}", functions.display_name(relocation.function));
            explained.insert((source, target));
            checked += 1;
        }
        assert!(checked >= 15, "{case}: {checked}");
        for source in ["main", "through_table", "sorted", "continued", "in_table_one"] {
            let source = to_unnamed(FunctionIndex(function_called(&functions, source).0));
            for reference in references.graph.of(source) {
                let is_function = reference.target.index() < unnamed.len();
                assert!(
                    !is_function || explained.contains(&(source, reference.target)),
                    "{case}: {source:?} {reference:?}"
                );
            }
        }
    });
}

#[test]
fn references_through_data_have_source_order() {
    for_each_program(|case, _, image| {
        let file = ElfFile::parse(&image.bytes).unwrap();
        let functions = ElfFunctions::collect(&file).unwrap().table;
        let references = References::extract(&file, &functions).unwrap();
        let node = |name: &str| function_called(&functions, name);
        let reached = |source: &str| -> Vec<String> {
            let found = functions_that_data_leads_to(&references, &functions, node(source));
            found.into_iter().map(|function| node_name(&references, &functions, function)).collect()
        };
        assert_eq!(reached("through_table"), ["in_table_one", "in_table_two", "exported"], "{case}");
        assert_eq!(reached("through_distances"), ["relative_one", "relative_two"], "{case}");
        assert_eq!(reached("through_methods"), ["in_structure", "after_two_tables"], "{case}");
        assert_eq!(reached("through_variable"), ["addressed"], "{case}");
        let kind_of = |source: &str, target: &str| {
            let target = node(target);
            let mut all = references.graph.of(node(source)).iter();
            all.find(|reference| reference.target == target).map(|reference| reference.kind)
        };
        assert_eq!(kind_of("sorted", "compare"), Some(ReferenceKind::CodeAddress), "{case}");
        assert_eq!(kind_of("main", "through_table"), Some(ReferenceKind::Call), "{case}");
        if !case.contains("-O0") {
            assert_eq!(kind_of("continued", "exported"), Some(ReferenceKind::Jump), "{case}");
        }
        let calls: Vec<String> = references
            .graph
            .of(node("main"))
            .iter()
            .filter(|reference| reference.kind == ReferenceKind::Call)
            .map(|reference| node_name(&references, &functions, reference.target))
            .filter(|name| name.starts_with("through") || name == "sorted")
            .collect();
        assert_eq!(calls.len(), 5, "{case}: {calls:?}");
    });
}

#[test]
fn moved_functions_keep_their_references_and_fingerprints() {
    let scratch = Scratch::new();
    for linker in LINKERS {
        let image = scratch.build("gcc", linker, PROGRAM, FORMS[0]);
        let expected = run(&image.path);
        let file = ElfFile::parse(&image.bytes).unwrap();
        let functions = ElfFunctions::collect(&file).unwrap();
        let analysis = Analysis::new(&file, &functions).unwrap();
        let layout =
            lay_out(&file, &functions.table, &[], Room::Linker, &LayoutRequest::of(Strategy::Random, 7))
                .unwrap();
        let arrangement = Arrangement::Order(&layout.order);
        let moved = apply(&file, &functions, analysis, arrangement, RelocateOptions::default()).unwrap();
        assert_ne!(moved.bytes, image.bytes);
        assert_eq!(run(&scratch.write("moved", &moved.bytes)), expected);

        assert_eq!(named_references(&moved.bytes), named_references(&image.bytes), "{linker}");
        let moved_file = ElfFile::parse(&moved.bytes).unwrap();
        let moved_functions = ElfFunctions::collect(&moved_file).unwrap();
        for window in [2, 4, 8] {
            let options = FingerprintOptions { window, sampling: 1 };
            let before = Fingerprints::extract(&file, &functions.table, options).unwrap();
            let after = Fingerprints::extract(&moved_file, &moved_functions.table, options).unwrap();
            assert_eq!(
                (before.windows.len(), before.bodies.len()),
                (functions.table.len(), functions.table.len())
            );
            for (index, _) in functions.table.iter() {
                let name = functions.table.display_name(index);
                let now = function_called(&moved_functions.table, &name).index();
                let index = index.0 as usize;
                assert_eq!(before.bodies[index], after.bodies[now], "{linker}: {name}");
                assert_eq!(before.windows.row(index), after.windows.row(now), "{linker}: {name}");
            }
        }
    }
}

#[test]
fn functions_of_one_file_have_one_origin_while_symbols_tell() {
    for_each_program(|case, _, image| {
        let file = ElfFile::parse(&image.bytes).unwrap();
        let functions = ElfFunctions::collect(&file).unwrap();
        let origins = Origins::collect(&functions);
        let of = |name: &str| origins.files[function_called(&functions.table, name).index()];
        assert!(of("leaf").is_some(), "{case}");
        for name in ["addressed", "relative_two", "continued", "exported"] {
            assert_eq!(of(name), of("leaf"), "{case}: {name}");
        }
        if !case.contains("-shared") {
            assert_ne!(of("_start"), of("leaf"), "{case}");
        }

        let bytes = stripped(&image);
        let file = ElfFile::parse(&bytes).unwrap();
        let origins = Origins::collect(&ElfFunctions::collect(&file).unwrap());
        assert!(origins.files.iter().all(Option::is_none), "{case}");
    });
    let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let file = ElfFile::parse(&bytes).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap();
    let scopes = Origins::collect(&functions).scopes;
    let known = scopes.iter().flatten().count();
    assert!(10 * known > 8 * functions.table.len(), "{known} of {}", functions.table.len());
}

#[test]
fn any_number_of_threads_gives_the_same() {
    let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let file = ElfFile::parse(&bytes).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap().table;
    let extract = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let references = References::extract(&file, &functions).unwrap();
            let fingerprints =
                Fingerprints::extract(&file, &functions, FingerprintOptions::default()).unwrap();
            (references.graph, references.objects, fingerprints)
        })
    };
    let alone = extract(1);
    assert!(alone.0.reference_count() > functions.len(), "{}", alone.0.reference_count());
    assert!(extract(3) == alone);
}
