//! Unwind entries sorted by the new addresses of their functions: the program catches what it throws, the verifier finds the old
//! order again where many functions are alike, and no changed byte of the tables goes unseen.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use end_to_end::process::{self, shell};
use end_to_end::workspace::reorder;
use gimli::{BaseAddresses, EhFrame, LittleEndian, UnwindSection};
use object::{Object as _, ObjectSection as _};
use reorder_verify::{VerifyOptions, verify};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

/// Families of functions whose code is the same but for what they call; nothing calls most of the families. `leaf0` is called through
/// a number in data whose place is odd, which pins it.
const SOURCE: &str = r#"
#include <cstdio>
#include <stdexcept>
#define ALONE __attribute__((used, noinline)) static int
#define FAMILY(n) \
  ALONE leaf##n(int x) { asm volatile(""); return x + 1; } \
  ALONE other##n(int x) { asm volatile(""); return x + 1; } \
  ALONE middle##n(int x) { return leaf##n(x) * other##n(x + 1); } \
  ALONE both##n(int x) { if (x > 50) throw std::runtime_error("large"); return middle##n(x) + leaf##n(x) * 3; }
FAMILY(0) FAMILY(1) FAMILY(2) FAMILY(3) FAMILY(4) FAMILY(5) FAMILY(6) FAMILY(7)
int (*table[])(int) = { both2, leaf5 };
int main() {
  for (int x = 0; x < 100; x += 30) {
    try { std::printf("%d %d\n", both1(x), table[x / 30 % 2](x)); }
    catch (const std::exception &error) { std::printf("caught %s\n", error.what()); }
  }
}
"#;

struct Program {
    directory: TempDir,
}

impl Program {
    /// Compiles the program with `flags`, without symbols.
    fn build(flags: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = Self { directory };
        fs::write(program.path("program.cpp"), SOURCE).unwrap();
        program.shell(&format!("g++ -O1 -s {flags} program.cpp -o program"));
        program
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn shell(&self, script: &str) -> String {
        shell(&format!("cd '{}' && {script}", self.directory.path().display()), LIMIT).unwrap()
    }

    /// Runs `reorder` with these words in the folder; files are named relative to it.
    fn reorder(&self, words: &str) {
        let mut command = reorder();
        command.args(words.split(' ')).current_dir(self.directory.path());
        let outcome = process::run(&mut command, LIMIT).unwrap();
        assert!(outcome.success(), "{words}: {outcome}");
    }

    /// The starts of functions in the order of their unwind entries, those after one common entry in a row.
    fn starts(&self, name: &str) -> Vec<Vec<u64>> {
        let bytes = fs::read(self.path(name)).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let section = file.section_by_name(".eh_frame").unwrap();
        let frames = EhFrame::new(section.data().unwrap(), LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(section.address());
        let mut entries = frames.entries(&bases);
        let mut starts = vec![Vec::new()];
        while let Some(entry) = entries.next().unwrap() {
            match entry {
                gimli::CieOrFde::Cie(_) => starts.push(Vec::new()),
                gimli::CieOrFde::Fde(entry) => {
                    let entry = entry.parse(EhFrame::cie_from_offset).unwrap();
                    starts.last_mut().unwrap().push(entry.initial_address());
                }
            }
        }
        starts
    }
}

#[test]
fn the_program_works_and_the_old_order_is_found_again() {
    for flags in ["", "-no-pie -fno-pie", "-static-pie", "-ffunction-sections -fuse-ld=gold"] {
        let program = Program::build(flags);
        let expected = program.shell("./program");
        assert!(expected.contains("caught large"), "{expected}");
        for seed in 1..=8 {
            program.reorder(&format!(
                "apply program --strategy random --seed {seed} --sort-unwind-entries -o sorted --map map"
            ));
            assert!(program.starts("sorted").iter().all(|run| run.is_sorted()), "{flags} {seed}");
            assert_eq!(program.shell("./sorted"), expected, "{flags} {seed}");
            program.reorder("verify program sorted");
            program.reorder("apply sorted --order map -o back");
            program.reorder("apply program --order map -o again");
            program.shell("cmp program back && cmp sorted again && rm sorted back again map");
        }
    }
}

#[test]
fn without_the_option_entries_keep_their_order() {
    let program = Program::build("");
    program.reorder("apply program --strategy random --seed 1 -o moved");
    assert!(program.starts("moved").iter().any(|run| !run.is_sorted()));
}

/// Each byte of both tables changed, one at a time: none of it is proven.
#[test]
fn a_changed_byte_of_the_tables_is_found() {
    let program = Program::build("");
    program.reorder("apply program --strategy random --seed 5 --sort-unwind-entries -o sorted");
    let old = fs::read(program.path("program")).unwrap();
    let new = fs::read(program.path("sorted")).unwrap();
    let is_proven = |new: &[u8]| verify(&old, new, VerifyOptions::default()).unwrap().is_proven();
    assert!(is_proven(&new));
    let file = object::File::parse(&*new).unwrap();
    for name in [".eh_frame", ".eh_frame_hdr"] {
        let (start, size) = file.section_by_name(name).unwrap().file_range().unwrap();
        for at in start..start + size {
            for change in [1, 0x80] {
                let mut changed = new.clone();
                changed[at as usize] ^= change;
                assert!(!is_proven(&changed), "{name}, byte {:#x} of {size:#x}", at - start);
            }
        }
    }
}
