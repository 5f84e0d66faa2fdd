//! Where in a whole process page faults happen: in which files, and in what.
//!
//! ```text
//! run ─> faults by address (the kernel's events, else the page table) + what is mapped where ─> by file and kind
//! ```
//!
//! Guarantees: each fault of the process counts once. Places that are no longer mapped when the process ends, and faults of
//! processes that it started, are kinds of their own.

mod regions;
mod report;
mod series;

use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::tracee;
use regions::{Region, regions};
use reorder_base::address::RuntimeAddress;
use reorder_system::fault_samples::FaultSamples;
use reorder_system::perf_event::Scope;
pub(super) use series::{Names, ProcessSeries};

/// What is at the address of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Executable sections of an image.
    Text,
    /// Names and symbols that the loader looks up: `.dynstr`, `.dynsym`, their hash tables and versions.
    Names,
    /// Relocations that the loader applies.
    Relocations,
    /// Other sections that are only read, and headers.
    ReadOnlyData,
    /// Sections that the loader or the program writes, zeros included.
    WrittenData,
    /// Files that are no images, such as locales.
    OtherFiles,
    /// The heap, stacks, and other memory without a file.
    HeapAndStack,
    /// Pages of the kernel.
    Kernel,
    /// No longer mapped when the process ended.
    Unmapped,
    /// In processes that this one started.
    OtherProcesses,
}

/// How the faults are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultSource {
    /// By the kernel's events.
    Events,
    /// By the kernel's events, without those that happen while the kernel works for the process.
    UserEvents,
    /// Unknown; instead, the pages in the page table at the end, including neighbours that faults brought in.
    PageTable,
}

/// Faults of one side, medians over the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultCounts {
    /// Those that waited for the disk; absent in warm runs, and where only page tables are seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major: Option<f64>,
    /// All.
    pub all: f64,
}

/// Faults in one place, of one program or of two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceFaults<P> {
    /// The place.
    pub place: P,
    /// Of the program, or of the old one.
    pub old: FaultCounts,
    /// Of the new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<FaultCounts>,
}

/// Where faults happen, as `measure` writes it and `report` reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessFaults {
    /// How they are known.
    pub source: FaultSource,
    /// Runs of each program.
    pub runs: usize,
    /// All of them.
    pub total: PlaceFaults<String>,
    /// By kind, those without faults left out.
    pub kinds: Vec<PlaceFaults<FaultKind>>,
    /// By file, the one with the most first.
    pub files: Vec<PlaceFaults<String>>,
}

/// The faults of one run, not classified yet.
#[derive(Clone, Debug)]
pub(super) struct RunFaults {
    source: FaultSource,
    addresses: Vec<RuntimeAddress>,
    of_others: usize,
    regions: Vec<Region>,
}

impl RunFaults {
    /// Of a process that is about to end; `None` when it cannot be inspected.
    pub(super) fn of(pid: Pid, samples: Option<&FaultSamples>) -> Option<Self> {
        let regions = regions(pid)?;
        let sampled = samples.and_then(|samples| Some((samples.scope(), samples.faults_of(pid)?)));
        match sampled {
            Some((scope, faults)) => {
                let source = match scope {
                    Scope::Everything => FaultSource::Events,
                    Scope::UserMode => FaultSource::UserEvents,
                };
                let addresses = faults.own.into_iter().map(RuntimeAddress).collect();
                Some(Self { source, addresses, of_others: faults.others, regions })
            }
            None => {
                let pages =
                    |region: &Region| tracee::pages_between(pid, region.range.start.0, region.range.end.0);
                let addresses = regions.iter().filter_map(pages).flatten().map(RuntimeAddress).collect();
                Some(Self { source: FaultSource::PageTable, addresses, of_others: 0, regions })
            }
        }
    }
}
