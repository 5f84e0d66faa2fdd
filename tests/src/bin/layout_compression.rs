//! Writes a program of `scripts/layout/corpus` as `reorder apply` would in three layouts, to be compressed, and prints
//! what these layouts and other links of the program cost its runs.
//!
//! Arguments: `DIRECTORY OUT`. Files in OUT: `link-order`, `page-only`, `compression-aware`, and the links with lld's
//! sorts by content from `DIRECTORY/peers`. Lines on stdout: name, then pages of the training and of the held-out
//! runs at 4 KiB, then at 16 KiB. The time for each part goes to stderr.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a script's table is its output")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{env, fs};

use end_to_end::layout_corpus::{Corpus, StartSet};
use end_to_end::layout_positions;
use layout_algos::control::Control;
use layout_algos::problem::{LayoutProblem, Trace};
use layout_algos::score::{FaultModel, Span};
use layout_algos::solve::{Auto, CompressionAware};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::blocks::{ORDINARY_ALIGNMENT, alignment};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_image::references::{FingerprintOptions, Fingerprints, References};
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::Arrangement;
use reorder_relocate::apply::elf::apply;
use reorder_system::mapped::map_image;

/// Links of `scripts/layout/peers` that sort by content.
const PEERS: [&str; 2] = ["lld-bp-compress", "lld-compress"];

/// How much more new runs may cost, in thousandths.
const BUDGET_PERMILLE: u32 = 20;

/// How far deflate looks back.
const REACH: u64 = 32 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [directory, out] = arguments.as_slice() else { return Err("arguments: DIRECTORY OUT".into()) };
    fs::create_dir_all(out)?;
    let corpus = Corpus::read(directory)?;
    let bytes = map_image(&directory.join("image"))?;
    let file = ElfFile::parse(&bytes)?;
    let functions = ElfFunctions::collect(&file)?;
    let problem = problem(&corpus, &file, &functions.table)?;

    let started = Instant::now();
    let page_only = Auto::default().choose(&problem, &Control::default());
    let improving = Instant::now();
    let unseen = page_only.unseen;
    let aware = CompressionAware { budget_permille: BUDGET_PERMILLE, reach: REACH, unseen };
    let compression_aware = aware.choose(&problem, &page_only.order, &[], &Control::default()).order;
    eprintln!("page-only in {:?}, compression-aware in {:?}", improving - started, improving.elapsed());

    print_pages(&corpus, "link-order", &corpus.spans);
    fs::write(out.join("link-order"), &*bytes)?;
    for (name, order) in [("page-only", &page_only.order), ("compression-aware", &compression_aware)] {
        let order: Vec<FunctionIndex> = order.iter().map(|function| FunctionIndex(function.0)).collect();
        let options = RelocateOptions { keep_build_id: true, ..RelocateOptions::default() };
        let analysis = Analysis::new(&file, &functions)?;
        let applied = apply(&file, &functions, analysis, Arrangement::Order(&order), options)?;
        fs::write(out.join(name), &applied.bytes)?;
        let moved = functions.table.iter().map(|(_, function)| {
            let start = applied.map.map(function.start).0;
            Span { start, end: start + function.size() }
        });
        print_pages(&corpus, name, &moved.collect::<Vec<_>>());
    }
    print_peers(&corpus, out)
}

fn problem(
    corpus: &Corpus,
    file: &ElfFile<'_>,
    functions: &FunctionTable<'_>,
) -> Result<LayoutProblem, Box<dyn Error>> {
    let sizes = functions.iter().map(|(_, function)| function.size()).collect();
    let alignments =
        functions.iter().map(|(_, function)| alignment(function.start, ORDINARY_ALIGNMENT) as u32).collect();
    let traces: Vec<Trace> = corpus.train.starts.iter().map(|start| Trace::of(1, &start.functions)).collect();
    let references = References::extract(file, functions)?;
    let started = Instant::now();
    let fingerprints = Fingerprints::extract(file, functions, FingerprintOptions::default())?;
    eprintln!("{} functions, fingerprints in {:?}", functions.len(), started.elapsed());
    let origin = functions.iter().map(|(_, function)| function.start.0).min().unwrap_or(0);
    Ok(LayoutProblem::new(sizes, &traces)?
        .with_alignments(alignments)?
        .with_references(references.graph)?
        .with_fingerprints(fingerprints.windows)?
        .with_text(origin, Vec::new())?)
}

fn print_peers(corpus: &Corpus, out: &Path) -> Result<(), Box<dyn Error>> {
    for name in PEERS {
        let path = corpus.directory.join("peers").join(name);
        if path.exists() {
            print_pages(corpus, name, &layout_positions::positions(corpus, &path)?.spans);
            fs::copy(&path, out.join(name))?;
        }
    }
    Ok(())
}

fn print_pages(corpus: &Corpus, name: &str, spans: &[Span]) {
    let pages = |set: &StartSet, size: u64| -> u64 {
        let model = FaultModel::Pages { size };
        let of_start = |functions: &Vec<u32>| {
            model.faults(functions.iter().map(|&function| spans[function as usize])).total()
        };
        set.starts.iter().map(|start| of_start(&start.functions)).sum()
    };
    let sets = [&corpus.train, &corpus.held_out];
    let cells = [4096, 16384].map(|size| sets.map(|set| pages(set, size).to_string()).join("\t"));
    println!("{name}\t{}", cells.join("\t"));
}
