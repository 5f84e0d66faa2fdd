//! Orders of Mach-O images that are not possible in full: too little room for unwind information, too many pinned functions.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use end_to_end::macho_tools::run;
use end_to_end::process::{Outcome, shell};
use end_to_end::workspace;
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::unwind_info::UnwindInfo;
use reorder_relocate::address_map::AddressMap;
use reorder_relocate::macho::finish::finish;
use reorder_relocate::macho::unwind::unwind_size;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

struct Image {
    directory: TempDir,
}

impl Image {
    /// A library of `source`, in C or, with the extension `s`, in assembly.
    fn new(extension: &str, source: &str) -> Self {
        let image = Self { directory: tempfile::tempdir().unwrap() };
        std::fs::write(image.path(&format!("unit.{extension}")), source).unwrap();
        let line = format!(
            "cd '{}' && clang$LLVM --target=arm64-apple-macos13 -O1 -c unit.{extension} -o unit.o && \
             ld64.lld$LLVM -arch arm64 -platform_version macos 13 13 -dylib -undefined dynamic_lookup unit.o -o image",
            image.directory.path().display()
        );
        shell(&line, LIMIT).unwrap();
        image
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Applies an order of symbols.
    fn apply(&self, front: &[String], flags: &[&str]) -> Outcome {
        std::fs::write(self.path("order"), front.join("\n")).unwrap();
        let _ = std::fs::remove_file(self.path("new")); // the first time there is none
        let mut command = workspace::reorder();
        command.arg("apply").arg(self.path("image")).arg("--order").arg(self.path("order"));
        run(command.arg("-o").arg(self.path("new")).args(flags))
    }

    fn unwind(&self, name: &str) -> UnwindInfo {
        let bytes = std::fs::read(self.path(name)).unwrap();
        UnwindInfo::parse(&MachOFile::parse(&bytes).unwrap()).unwrap().unwrap()
    }

    /// Leaves exactly as much room for unwind information as the unmoved image needs.
    fn without_slack(self) -> Self {
        let old = std::fs::read(self.path("image")).unwrap();
        let file = MachOFile::parse(&old).unwrap();
        let map = AddressMap::default();
        let least = unwind_size(&self.unwind("image"), &map).unwrap() as usize;
        let section = *file.section(b"__TEXT", b"__unwind_info").unwrap();
        let mut bytes = finish(&file, &map, old.clone()).unwrap().bytes;
        let size = section.header_offset + 40;
        bytes[size..size + 8].copy_from_slice(&(least as u64).to_le_bytes());
        // Bytes outside of the tables that are not zeros.
        bytes[section.offset + least..section.offset + section.size as usize].fill(0xff);
        std::fs::write(self.path("image"), bytes).unwrap();
        self
    }
}

/// `leaf` functions unwind without a frame, `framed` ones with one; `words` gives their order.
fn functions(words: &[(&str, usize)]) -> String {
    let mut source = "int outside(int);\n".to_owned();
    for (kind, number) in words {
        let value = match *kind {
            "leaf" => format!("n * {}", number + 3),
            _ => format!("outside(n) + {number}"),
        };
        writeln!(source, "__attribute__((noinline)) int {kind}{number}(int n) {{ return {value}; }}")
            .unwrap();
    }
    source
}

/// The names of the linker for these.
fn symbols(words: impl IntoIterator<Item = (&'static str, usize)>) -> Vec<String> {
    words.into_iter().map(|(kind, number)| format!("_{kind}{number}")).collect()
}

const EACH: usize = 60;

/// First all leaves, then leaves and frames in turn, then all frames.
fn mixed() -> Image {
    let leaves = (0..EACH).map(|number| ("leaf", number));
    let turns = (EACH..2 * EACH).flat_map(|number| [("leaf", number), ("framed", number)]);
    let framed = (0..EACH).map(|number| ("framed", number));
    let words: Vec<_> = leaves.chain(turns).chain(framed).collect();
    Image::new("c", &functions(&words)).without_slack()
}

#[test]
fn unseen_functions_are_gathered_to_save_unwind_pages() {
    let image = mixed();
    let front = symbols((0..10).flat_map(|number| [("leaf", number), ("framed", number)]));
    let outcome = image.apply(&front, &[]);
    assert!(outcome.success() && outcome.stderr.is_empty(), "{outcome}");
    let (old, new) = (image.unwind("image"), image.unwind("new"));
    assert!(new.entries.len() < old.entries.len(), "{} entries", new.entries.len());
    // The beginning has the requested order: its functions unwind in turn.
    let encodings: Vec<u32> = new.entries.iter().map(|entry| entry.encoding).take(20).collect();
    assert!(encodings.windows(3).all(|three| three[0] == three[2] && three[0] != three[1]), "{encodings:x?}");
}

#[test]
fn fewer_functions_are_placed_if_gathering_is_not_enough() {
    let image = mixed();
    let front = symbols((0..2 * EACH).flat_map(|number| [("leaf", number), ("framed", number)]));
    let outcome = image.apply(&front, &[]);
    let said = outcome.stderr_text();
    assert!(outcome.success() && said.contains("functions are placed first"), "{outcome}");

    // Two entries, one for each kind: a function of the second kind before the first entry needs a third.
    let words: Vec<_> = (0..EACH).map(|number| ("leaf", number)).collect();
    let words = [words, (0..EACH).map(|number| ("framed", number)).collect()].concat();
    let image = Image::new("c", &functions(&words)).without_slack();
    let outcome = image.apply(&symbols([("framed", 7)]), &[]);
    assert!(!outcome.success() && outcome.stderr_text().contains("(M14)"), "{outcome}");
    assert!(!image.path("new").exists());
}

/// A function whose address cannot be changed, because it adds an argument to it; and one that can be moved.
const COMPUTED: &str = "\
.globl _computed\n.p2align 2\n_computed:\n adr x9, _computed\n add x9, x9, x0\n br x9\n\
.globl _plain\n_plain:\n mov w0, #1\n ret\n\
.subsections_via_symbols\n";

/// In a section of Swift, a word in no known record that refers to a function.
const SWIFT: &str = "\
.globl _described\n.p2align 2\n_described:\n mov w0, #2\n ret\n\
.globl _plain\n_plain:\n mov w0, #1\n ret\n\
.section __TEXT,__swift5_later\n.p2align 2\n.long 7\n.long _described - .\n\
.subsections_via_symbols\n";

#[test]
fn too_much_that_has_to_stay_is_refused_unless_it_is_allowed() {
    for (source, pinned, code, allowed) in [
        (COMPUTED, "_computed", "(M18)", ["--most-pinned", "100"].as_slice()),
        (SWIFT, "_described", "(M19)", &["--allow-swift-pins"]),
        (SWIFT, "_described", "(M19)", &["--most-pinned", "100"]),
    ] {
        let image = Image::new("s", source);
        let front = ["_plain".to_owned(), pinned.to_owned()];
        let outcome = image.apply(&front, &[]);
        let said = outcome.stderr_text();
        assert!(!outcome.success() && said.contains(code) && said.contains("hint"), "{pinned}: {outcome}");
        assert!(!image.path("new").exists());
        let outcome = image.apply(&front, allowed);
        assert!(outcome.success(), "{outcome}");
        let outcome = image.apply(&front[..1], &[]);
        assert!(outcome.success(), "what moves is not refused: {outcome}");
    }
}
