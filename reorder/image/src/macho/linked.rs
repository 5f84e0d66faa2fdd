//! Small images for tests, made by clang and ld64.lld.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::path::Path;
use std::process::Command;

use reorder_base::tool_versions::llvm;

/// A library linked of `source`, which is assembly or C as `extension` says, with more arguments for each tool.
///
/// # Panics
/// When a tool is missing or rejects the source.
#[must_use]
pub fn library(
    architecture: &str,
    extension: &str,
    source: &str,
    compiler: &[&str],
    linker: &[&str],
) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let file = format!("source.{extension}");
    std::fs::write(directory.path().join(&file), source).unwrap();
    let target = format!("--target={architecture}-apple-macos12");
    let arguments = [&target, "-c", &file, "-o", "object.o"].into_iter();
    run(directory.path(), &llvm("clang"), arguments.chain(compiler.iter().copied()));
    let arguments = ["-arch", architecture, "-platform_version", "macos", "12", "12", "-dylib", "-undefined"];
    let arguments = arguments.into_iter().chain(["dynamic_lookup", "object.o", "-o", "library"]);
    run(directory.path(), &llvm("ld64.lld"), arguments.chain(linker.iter().copied()));
    std::fs::read(directory.path().join("library")).unwrap()
}

fn run<'a>(directory: &Path, tool: &str, arguments: impl Iterator<Item = &'a str>) {
    let output = Command::new(tool).args(arguments).current_dir(directory).output();
    let output = output.unwrap_or_else(|error| panic!("the test needs {tool}: {error}"));
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
}
