//! Compiles and links the programs of `tests/macho/fixtures`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::macho_oracle::Linked;
use crate::macho_tools::{cxx_flags, runtime, zig_compiler};
use crate::process::shell;
use crate::workspace;

const LIMIT: Duration = Duration::from_secs(300);

/// How an image is compiled and linked.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// `arm64` or `x86_64`.
    pub architecture: &'static str,
    /// The oldest macOS the image runs on: from 13.0 on fixups are chained and initialisers are offsets.
    pub version: &'static str,
    /// Flags of the compiler.
    pub compile: &'static str,
    /// Flags of the linker.
    pub link: &'static str,
    /// How the linker treats undefined symbols: as errors by default.
    pub undefined: &'static str,
}

/// Chained fixups.
pub const CHAINED: Build =
    Build { architecture: "arm64", version: "13.0", compile: "-O2", link: "", undefined: "" };
/// Fixups as opcodes.
pub const OPCODES: Build = Build { version: "12.0", ..CHAINED };

impl Build {
    /// Adds flags of the compiler.
    pub const fn compiled(self, compile: &'static str) -> Self {
        Self { compile, ..self }
    }

    /// Adds flags of the linker.
    pub const fn linked(self, link: &'static str) -> Self {
        Self { link, ..self }
    }

    /// Sets the architecture.
    pub const fn on(self, architecture: &'static str) -> Self {
        Self { architecture, ..self }
    }
}

/// A linked fixture, with the folder of its objects.
#[derive(Debug)]
pub struct Fixture {
    /// How it is linked again.
    pub linked: Linked,
    /// The image.
    pub image: PathBuf,
    /// Removed with this value.
    _directory: TempDir,
}

/// Compiles `sources`, each a file of the fixtures with flags of its own, and links them.
///
/// # Panics
/// When the compiler or the linker fails.
pub fn build(sources: &[(&str, &str)], build: Build) -> Fixture {
    let directory = tempfile::tempdir().expect("a scratch folder");
    for (number, (source, flags)) in sources.iter().enumerate() {
        compile(directory.path(), number, source, flags, build);
    }
    finish(directory, build)
}

/// The program of three units with many functions of the same shapes.
pub fn program(how: Build) -> Fixture {
    let units = [
        ("program/main.c", ""),
        ("program/unit.c", "-DUNIT=1"),
        ("program/unit.c", "-DUNIT=2"),
        ("program/unit.c", "-DUNIT=3"),
    ];
    build(&units, how)
}

/// The program of three units as Zig's own linker makes it in `directory`: without a list of function starts.
///
/// # Panics
/// When the compiler or the linker fails.
pub fn zig(directory: &Path) -> PathBuf {
    let (compiler, sources) = (zig_compiler(), fixture_path("program"));
    let sources = sources.display();
    let line = format!(
        "cd '{}' && {compiler} -O2 -c '{sources}/main.c' -o main.o && \
         for unit in 1 2 3; do {compiler} -O2 -DUNIT=$unit -c '{sources}/unit.c' -o $unit.o || exit; done && \
         {compiler} main.o [123].o -o zig",
        directory.display()
    );
    shell(&line, LIMIT).unwrap_or_else(|error| panic!("{error}"));
    directory.join("zig")
}

/// The Rust program, with the standard library as rustup ships it.
///
/// # Panics
/// When rustc, its standard library for arm64 macOS or the linker is missing or fails.
pub fn rust(how: Build) -> Fixture {
    let library = "d=$(rustc --print target-libdir --target aarch64-apple-darwin) && ls \"$d\"/libstd-*.rlib";
    shell(library, LIMIT).unwrap_or_else(|error| {
        panic!(
            "the standard library for arm64 macOS is missing: rustup target add aarch64-apple-darwin\n{error}"
        )
    });
    let directory = tempfile::tempdir().expect("a scratch folder");
    let source = fixture_path("rust.rs");
    // rustc calls this as its linker; it keeps the objects, which rustc removes afterwards.
    let script = format!(
        "cd '{}' && mkdir kept && printf '%s\\n' '#!/bin/bash' 'for word; do' \
         '  case $word in *.o | *.rlib) cp \"$word\" kept; printf \"%s \" \"kept/$(basename \"$word\")\" >> objects ;; esac' \
         'done' 'while [ $# -gt 0 ]; do [ \"$1\" != -o ] || touch \"$2\"; shift; done' > linker && chmod +x linker && \
         MACOSX_DEPLOYMENT_TARGET={} SDKROOT=/ rustc --edition 2024 --target aarch64-apple-darwin -O \
         -C linker=\"$PWD/linker\" -C linker-flavor=ld64.lld '{}' -o rust",
        directory.path().display(),
        how.version,
        source.display(),
    );
    shell(&script, LIMIT).unwrap_or_else(|error| panic!("{error}"));
    // The standard library refers to more symbols than its program uses.
    finish(directory, Build { undefined: "-undefined dynamic_lookup", ..how })
}

/// One fixture of assembly, for arm64 only.
pub fn assembly(name: &str, how: Build) -> Fixture {
    build(&[(&format!("assembly/{name}.s"), "")], how)
}

/// A file of the fixtures.
pub fn fixture_path(name: &str) -> PathBuf {
    workspace::root().join("tests/macho/fixtures").join(name)
}

fn compile(directory: &Path, number: usize, source: &str, flags: &str, build: Build) {
    let Build { architecture, version, compile, .. } = build;
    let (compiler, language) = match source.ends_with(".cpp") {
        true => ("clang++$LLVM", cxx_flags()),
        false => ("clang$LLVM", String::new()),
    };
    let source = fixture_path(source);
    // Assembly needs no optimisation.
    let compile = if source.extension().is_some_and(|end| end == "s") { "" } else { compile };
    let line = format!(
        "cd '{}' && {compiler} --target={architecture}-apple-macos{version} {language} {compile} {flags} \
         -c '{}' -o {number}.o",
        directory.display(),
        source.display(),
    );
    shell(&line, LIMIT).unwrap_or_else(|error| panic!("{error}"));
}

/// Links the objects in `directory`.
fn finish(directory: TempDir, build: Build) -> Fixture {
    let Build { architecture, version, link, undefined, .. } = build;
    let libraries = runtime().join(architecture);
    let line = format!(
        "ld64.lld$LLVM -w -arch {architecture} -platform_version macos {version} {version} {link} {undefined} \
         $(cat objects 2>/dev/null || echo *.o) '{libraries}/libSystem.B.dylib' '{libraries}/libc++.1.dylib'",
        libraries = libraries.display(),
    );
    let architecture = build.architecture;
    let linked = Linked { directory: directory.path().to_owned(), architecture, line };
    let image = linked.image();
    Fixture { linked, image, _directory: directory }
}
