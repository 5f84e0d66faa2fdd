//! What `reorder doctor` says about an image: what is there, what is missing, and the flag that adds it.

use std::path::Path;

use serde::Serialize;

use crate::cli::inspect_macho;
use crate::cli::refusal;
use crate::hints;
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::FunctionTable;
use reorder_image::macho::is_macho;
use reorder_relocate::debug::has_debug;
use reorder_system::mapped::map_image;

/// One thing that was checked.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) passed: bool,
    pub(super) found: String,
    /// What to do: the next command, or flags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) hints: Vec<String>,
}

impl Check {
    /// Nothing is missing.
    pub(super) fn fine(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, passed: true, found: found.into(), hints: Vec::new() }
    }

    /// Something is missing.
    pub(super) fn failed(name: &'static str, found: impl Into<String>) -> Self {
        Self { passed: false, ..Self::fine(name, found) }
    }

    /// Adds a hint.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

/// How each build system takes an option of the linker: name, text before and text after the option.
const BUILDS: [(&str, &str, &str); 4] = [
    ("gcc, clang", "", ""),
    ("configure, make", "LDFLAGS=", ""),
    ("CMake", "-DCMAKE_EXE_LINKER_FLAGS=", ""),
    ("cargo", "RUSTFLAGS='-C link-arg=", "'"),
];

/// The option that keeps relocations, for all linkers that can.
const KEEP_RELOCATIONS: &str = "-Wl,--emit-relocs";

/// All checks of the image at `path`.
pub(super) fn image_checks(path: &Path) -> Vec<Check> {
    look_at(path).unwrap_or_else(|error| {
        let check = Check::failed("read the image", error.to_string());
        vec![match error.hint {
            Some(hint) => check.hint(hints::text(&hint)),
            None => check,
        }]
    })
}

fn look_at(path: &Path) -> Result<Vec<Check>> {
    let bytes = map_image(path)?;
    if is_macho(&bytes) {
        let report = inspect_macho::inspect(path.display().to_string(), &bytes, None, 0)?;
        let next = format!("reorder inspect {}", path.display());
        let name = "move its functions";
        return Ok(vec![match report.is_movable {
            true => Check::fine(name, "a Mach-O image that can be moved").hint(next),
            false => Check::failed(name, "a Mach-O image that is refused").hint(next),
        }]);
    }
    let file = ElfFile::parse(&bytes)?;
    let functions = ElfFunctions::collect(&file)?;
    let linker = linker_of(&file);
    let analysis = match Analysis::new(&file, &functions) {
        Ok(analysis) => analysis,
        Err(Error { kind: ErrorKind::Refused(refusal), .. }) => {
            let check = Check::failed("move its functions", refusal.to_string());
            return Ok(vec![check.hint(refusal::cure(&refusal)), linked_by(linker)]);
        }
        Err(error) => return Err(error),
    };
    let mut checks = vec![movable(path, &functions.table, &analysis), linked_by(linker)];
    if analysis.code.is_fixed_address {
        checks.push(relocations(&analysis, linker));
    }
    checks.push(names(&functions));
    if has_debug(&file) {
        checks.push(Check::fine(
            "debug information",
            "is updated; --debug map, drop or keep-stale choose otherwise",
        ));
    }
    Ok(checks)
}

fn movable(path: &Path, functions: &FunctionTable<'_>, analysis: &Analysis<'_>) -> Check {
    let movable = functions.iter().filter(|(_, function)| analysis.pin_at(function.start).is_none()).count();
    let check =
        Check::fine("move its functions", format!("{movable} of {} functions can move", functions.len()));
    match movable == functions.len() {
        true => check,
        false => check.hint(format!("reorder inspect {} shows why the others stay", path.display())),
    }
}

fn linked_by(linker: Linker) -> Check {
    Check::fine("linker", linker.name())
}

/// A program at a fixed address holds addresses of functions as constants, which only relocations distinguish from numbers.
fn relocations(analysis: &Analysis<'_>, linker: Linker) -> Check {
    let name = "relocations of a program at a fixed address";
    match analysis.kept_relocations {
        Some(kept) if kept.is_ignored => {
            Check::failed(name, "damaged, or of another program: they are ignored").hint("link again")
        }
        Some(_) => Check::fine(name, "kept by the linker"),
        None => {
            let check = Check::failed(name, "none: what a constant may be the address of stays")
                .hint("link it position-independent (-fPIE -pie), which needs no relocations; or keep them:");
            if linker == Linker::Wild {
                return check.hint("wild keeps none: use another linker");
            }
            BUILDS.iter().fold(check, |check, (build, before, after)| {
                check.hint(format!("{build}: {before}{KEEP_RELOCATIONS}{after}"))
            })
        }
    }
}

fn names(functions: &ElfFunctions<'_>) -> Check {
    let name = "names of functions";
    match functions.symbols.iter().next() {
        Some(_) => Check::fine(name, "in the symbol table: order files and profiles by name can be used"),
        None => Check::fine(
            name,
            "stripped: traces by address, such as those of record, serve apply; order files \
                                   and profiles by name need the image before strip",
        ),
    }
}

/// The linker of an image, as far as its marks tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linker {
    Lld,
    Mold,
    Gold,
    Wild,
    /// GNU ld leaves no mark; the others write a word into `.comment`, or a note.
    Unmarked,
}

impl Linker {
    fn name(self) -> &'static str {
        match self {
            Self::Lld => "lld: orders by --symbol-ordering-file (reorder order)",
            Self::Mold => "mold: takes no order, so use reorder apply or reorder-ld",
            Self::Gold => "gold: orders by --section-ordering-file, or by our plugin",
            Self::Wild => "wild: takes no order, so use reorder apply",
            Self::Unmarked => {
                "unknown, perhaps GNU ld, which leaves no mark; it orders by a script (reorder order --linker bfd)"
            }
        }
    }
}

fn linker_of(file: &ElfFile<'_>) -> Linker {
    let comment = file.section(b".comment").map(|section| file.section_bytes(section)).unwrap_or_default();
    let says = |word: &str| memchr::memmem::find(comment, word.as_bytes()).is_some();
    match () {
        () if says("LLD ") => Linker::Lld,
        () if says("mold ") => Linker::Mold,
        () if says("Linker: Wild") => Linker::Wild,
        () if file.section(b".note.gnu.gold-version").is_some() => Linker::Gold,
        () => Linker::Unmarked,
    }
}
