//! Writes the reference graph of an image as text, for experiments.
//!
//! Arguments: the image, and `--fingerprints` for their hashes. Lines on stdout: `f INDEX SIZE ALIGNMENT START NAME` for each function, `o NODE START END` for
//! each data object (their nodes follow the functions), `e SOURCE KIND TARGET` for each reference in the order of its
//! position, `g INDEX FILE SCOPE` for each function's origin (numbers, `-` where unknown), `h INDEX HASH…` for each function's content. The time that extraction took goes to stderr.

#![allow(clippy::print_stderr, reason = "a script's figures are its output")]

use std::env;
use std::error::Error;
use std::io::{BufWriter, Write, stdout};
use std::path::Path;
use std::time::Instant;

use layout_algos::problem::{NodeId, ReferenceKind};
use reorder_image::elf::analysis::blocks::{ORDINARY_ALIGNMENT, alignment};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::origins::Origins;
use reorder_image::references::{FingerprintOptions, Fingerprints, References};
use reorder_system::mapped::map_image;

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args_os().nth(1).ok_or("usage: reference_dump IMAGE")?;
    let bytes = map_image(Path::new(&path))?;
    let started = Instant::now();
    let file = ElfFile::parse(&bytes)?;
    let functions = ElfFunctions::collect(&file)?;
    let parsed = Instant::now();
    let references = References::extract(&file, &functions.table)?;
    eprintln!(
        "{} functions, {} objects, {} references; parsed in {:?}, extracted in {:?}",
        functions.table.len(),
        references.objects.len(),
        references.graph.reference_count(),
        parsed - started,
        parsed.elapsed()
    );
    let mut output = BufWriter::new(stdout().lock());
    for (index, function) in functions.table.iter() {
        let (size, alignment) = (function.size(), alignment(function.start, ORDINARY_ALIGNMENT));
        let name = functions.table.display_name(index);
        writeln!(output, "f {} {size} {alignment} {} {name}", index.0, function.start)?;
    }
    for (number, object) in references.objects.iter().enumerate() {
        writeln!(output, "o {} {} {}", functions.table.len() + number, object.start, object.end)?;
    }
    for source in 0..references.graph.node_count() {
        for reference in references.graph.of(NodeId(source as u32)) {
            let kind = match reference.kind {
                ReferenceKind::Call => "call",
                ReferenceKind::Jump => "jump",
                ReferenceKind::CodeAddress => "code",
                ReferenceKind::DataAddress => "data",
                ReferenceKind::Pointer => "pointer",
            };
            writeln!(output, "e {source} {kind} {}", reference.target.0)?;
        }
    }
    let origins = Origins::collect(&functions);
    let number = |origin: Option<u32>| origin.map_or_else(|| "-".to_string(), |number| number.to_string());
    for (index, (file, scope)) in origins.files.iter().zip(&origins.scopes).enumerate() {
        writeln!(output, "g {index} {} {}", number(*file), number(*scope))?;
    }
    if env::args_os().any(|argument| argument == "--fingerprints") {
        let started = Instant::now();
        let fingerprints = Fingerprints::extract(&file, &functions.table, FingerprintOptions::default())?;
        eprintln!("{} hashes in {:?}", fingerprints.windows.items().len(), started.elapsed());
        for (index, hashes) in fingerprints.windows.iter().enumerate() {
            write!(output, "h {index}")?;
            for hash in hashes {
                write!(output, " {hash:x}")?;
            }
            writeln!(output)?;
        }
    }
    output.flush()?;
    Ok(())
}
