//! The memory models compared with this system's kernel, page by page.
//!
//! A program whose functions take a page each calls them in an order that the test chooses. Which of these pages fault,
//! and which are read into the page cache with them, must be exactly what a model says. What cannot be tested here (pages
//! of 16 KiB, and read-ahead without being root) is named on stderr.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use layout_algos::score::{FaultModel, Span};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_layout::memory::PRESETS;
use reorder_run::measure::agreement::{RealPages, real_pages};
use reorder_run::measure::{MeasureRequest, Reach, StartKind};
use tempfile::TempDir;

const PAGE: u64 = 4096;
/// Functions of a page each. The outer ones are never called: they keep the windows of startup code away.
const FUNCTIONS: usize = 384;
/// The functions that may be called, and those of which pages are compared: no window of others reaches them.
const CALLED: std::ops::Range<usize> = 128..256;
const COMPARED: std::ops::Range<usize> = 64..320;

/// The program, at a fixed address: blocks of fault-around are aligned in the process.
struct Program {
    _directory: TempDir,
    path: PathBuf,
    /// Where in the file the page of each function begins.
    places: Vec<u64>,
}

impl Program {
    fn build() -> Self {
        let mut source = String::from("#include <stdlib.h>\n");
        for number in 0..FUNCTIONS {
            source.push_str(&format!(
                "__attribute__((noinline, aligned({PAGE}))) int page_{number:03}(int x) {{ return x * 31 + {number}; }}\n"
            ));
        }
        source.push_str("int (*const pages[])(int) = {");
        (0..FUNCTIONS).for_each(|number| source.push_str(&format!("page_{number:03},")));
        source.push_str(
            "};\nint main(int count, char **numbers) {\n    int sum = 0;\n    \
             for (int i = 1; i < count; i++) sum += pages[atoi(numbers[i])](i);\n    return sum == 1;\n}\n",
        );
        // Next to the test program: the system's temporary directory may be a file system in memory.
        let directory = TempDir::new_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let (text, path) = (directory.path().join("pages.c"), directory.path().join("pages"));
        fs::write(&text, source).unwrap();
        let flags = ["-O1", "-no-pie", "-fno-pie", "-fno-reorder-functions", "-fno-toplevel-reorder", "-o"];
        let built = Command::new("gcc").args(flags).arg(&path).arg(&text).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let bytes = fs::read(&path).unwrap();
        let file = ElfFile::parse(&bytes).unwrap();
        let functions = ElfFunctions::collect(&file).unwrap().table;
        let mut named: Vec<(&[u8], u64)> = functions
            .names()
            .iter()
            .filter(|(_, name)| name.starts_with(b"page_"))
            .map(|(address, name)| (*name, file.offset_of(*address, 1).unwrap().0))
            .collect();
        named.sort_unstable();
        let places: Vec<u64> = named.into_iter().map(|(_, place)| place).collect();
        assert_eq!(places.len(), FUNCTIONS);
        assert!(places.windows(2).all(|pair| pair[1] == pair[0] + PAGE), "one page each, in order");
        Self { _directory: directory, path, places }
    }

    fn start(&self, calls: &[usize], start: StartKind, reach: Reach) -> RealPages {
        let arguments = calls.iter().map(|call| OsString::from(call.to_string())).collect();
        let request =
            MeasureRequest { old: self.path.clone(), arguments, start, ..MeasureRequest::default() };
        real_pages(&request, reach).unwrap()
    }

    /// Brings the file into memory in units of a page: since Linux 6.18 a fault maps all of a larger unit.
    fn load_page_by_page(&self) {
        let file = fs::File::open(&self.path).unwrap();
        file.sync_data().unwrap();
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM).unwrap();
        let mut page = [0; PAGE as usize];
        for place in (0..file.metadata().unwrap().len()).step_by(PAGE as usize) {
            file.read_at(&mut page, place).unwrap();
        }
    }

    /// Of places in the file, those of compared functions, as numbers of functions.
    fn compared(&self, places: &BTreeSet<u64>) -> BTreeSet<usize> {
        let number =
            |place: &u64| self.places.binary_search(place).ok().filter(|number| COMPARED.contains(number));
        places.iter().filter_map(number).collect()
    }

    /// The functions at whose call `model` has a fault.
    fn faults(&self, model: FaultModel, calls: &[usize], bias: u64) -> BTreeSet<usize> {
        let spans = calls.iter().map(|&call| {
            let start = self.places[call] + bias;
            Span { start, end: start + 16 }
        });
        let curve = model.faults(spans);
        let before = std::iter::once(0).chain(curve.after_each().iter().copied());
        let faulting = calls.iter().zip(before.zip(curve.after_each()));
        faulting.filter(|(_, (before, after))| before < after).map(|(call, _)| *call).collect()
    }
}

fn model(name: &str) -> FaultModel {
    PRESETS.iter().find(|preset| preset.name == name).unwrap().memory.model()
}

/// Orders of calls: forth, back, in leaps, dense at one place, and single ones far from each other.
fn orders() -> Vec<Vec<usize>> {
    let leaps = |step: usize, count: usize| -> Vec<usize> {
        (0..count).map(|index| CALLED.start + index * step % CALLED.len()).collect()
    };
    vec![
        leaps(1, 40),
        leaps(1, 128).into_iter().rev().collect(),
        leaps(37, 60),
        leaps(53, 20),
        vec![200, 201, 199, 130, 255, 128],
        vec![190],
    ]
}

#[test]
fn pages_of_4_kib_fault_once_each() {
    let program = Program::build();
    for calls in orders() {
        let expected = program.faults(model("linux-4k"), &calls, 0);
        let real = program.start(&calls, StartKind::Cold, Reach::OnePage);
        assert_eq!(program.compared(&real.mapped), expected, "page table, {calls:?}");
        assert_eq!(program.compared(&real.cached.unwrap()), expected, "page cache, {calls:?}");
        assert_eq!(program.compared(&real.faulted.unwrap()), expected, "faults, {calls:?}");
    }
}

#[test]
fn faults_of_a_warm_start_map_aligned_64_kib() {
    let program = Program::build();
    let bytes = fs::read(&program.path).unwrap();
    let file = ElfFile::parse(&bytes).unwrap();
    let text = file.segments.iter().find(|segment| segment.is_load() && segment.is_executable()).unwrap();
    let bias = text.address.0 - text.offset.0;
    program.load_page_by_page();
    for calls in orders() {
        let expected = program.faults(model("linux-4k-faultaround-64k"), &calls, bias);
        let real = program.start(&calls, StartKind::Warm, Reach::AsUsual);
        assert_eq!(program.compared(&real.faulted.unwrap()), expected, "{calls:?}");
        let blocks: BTreeSet<u64> =
            expected.iter().map(|&call| (program.places[call] + bias) >> 16).collect();
        let mapped = COMPARED.filter(|&number| blocks.contains(&((program.places[number] + bias) >> 16)));
        assert_eq!(program.compared(&real.mapped), mapped.collect(), "{calls:?}");
    }
}

/// The read-ahead of the disk under a file, restored when dropped.
struct ReadAhead {
    setting: PathBuf,
    before: String,
}

impl ReadAhead {
    /// `None` without root privileges.
    fn set(path: &Path, kibibytes: u64) -> Option<Self> {
        let device = fs::metadata(path).unwrap().dev();
        let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let setting = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
        let before = fs::read_to_string(&setting).ok()?;
        fs::write(&setting, kibibytes.to_string()).ok()?;
        Some(Self { setting, before })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        fs::write(&self.setting, &self.before).unwrap();
    }
}

#[test]
fn cold_faults_read_128_kib() {
    let program = Program::build();
    let Some(_setting) = ReadAhead::set(&program.path, 128) else {
        eprintln!(
            "unchecked: linux-readahead-128k and linux-6.17-readahead-128k need root, to set read_ahead_kb"
        );
        return;
    };
    // One of the two models describes this kernel, in all orders; the other does not.
    let names = ["linux-readahead-128k", "linux-6.17-readahead-128k"];
    let disagreements = names.map(|name| {
        let FaultModel::ReadAround { window, before, .. } = model(name) else {
            panic!("{name} reads around")
        };
        let disagrees = |calls: &Vec<usize>| {
            let faulting = program.faults(model(name), calls, 0);
            let window_of = |call: usize| {
                let first = call - (before / PAGE) as usize;
                first..first + (window / PAGE) as usize
            };
            let expected: BTreeSet<usize> =
                faulting.into_iter().flat_map(window_of).filter(|number| COMPARED.contains(number)).collect();
            let real = program.start(calls, StartKind::Cold, Reach::AsUsual);
            let cached = program.compared(&real.cached.unwrap());
            (cached != expected).then(|| format!("{name}, {calls:?}: {cached:?} instead of {expected:?}"))
        };
        orders().iter().filter_map(disagrees).collect::<Vec<String>>()
    });
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for (name, disagreements) in names.iter().zip(&disagreements) {
        eprintln!(
            "{name}: {} of {} orders read otherwise by Linux {release}",
            disagreements.len(),
            orders().len()
        );
    }
    let fitting = disagreements.iter().filter(|disagreements| disagreements.is_empty()).count();
    assert_eq!(fitting, 1, "{}", disagreements.concat().join("\n"));
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    assert_eq!(disagreements[1].is_empty(), version >= (6, 17), "Linux {release}");
}

#[test]
fn what_cannot_be_tried_here_is_named() {
    for preset in PRESETS {
        if preset.name.ends_with("16k") {
            eprintln!("unchecked: {} needs pages of 16 KiB, this kernel has {PAGE} bytes", preset.name);
            assert!(preset.source.contains("not checked"), "{}: {}", preset.name, preset.source);
        } else {
            assert!(preset.source.contains("checked"), "{}: {}", preset.name, preset.source);
        }
    }
}
