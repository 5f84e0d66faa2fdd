//! Page faults of one run with their addresses, from the kernel's samples.
//!
//! The kernel writes each fault into a ring in memory, one ring a processor, because events that children inherit may
//! not share one. A ring is read at the end only: if it was too small, the faults are unknown.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use nix::unistd::Pid;

use crate::PAGE_BYTES;
use crate::perf_event::{Scope, SoftwareEvent, open_samples};

/// Faults on all processors.
#[derive(Debug)]
pub struct FaultSamples {
    rings: Vec<Ring>,
    scope: Scope,
}

/// Faults of a process, and of those that it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledFaults {
    /// The addresses that the process itself faulted at, in no order.
    pub own: Vec<u64>,
    /// Faults of other processes.
    pub others: usize,
}

impl FaultSamples {
    /// Starts to watch a stopped process for `event`, a kind of fault; `None` where the system forbids it.
    pub fn open(pid: Pid, event: SoftwareEvent) -> Option<Self> {
        let processors = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
        let processors = parse_list(&processors)?;
        [Scope::Everything, Scope::UserMode].into_iter().find_map(|scope| {
            let ring = |&processor: &i32| {
                let event = open_samples(event, pid, processor, scope).ok()?;
                Ring::map(event)
            };
            Some(Self { rings: processors.iter().map(ring).collect::<Option<_>>()?, scope })
        })
    }

    /// What is watched.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The faults so far, those of `pid` as its own; `None` when some were lost.
    pub fn faults_of(&self, pid: Pid) -> Option<SampledFaults> {
        let mut faults = SampledFaults::default();
        for ring in &self.rings {
            for fault in parse_records(&ring.read())? {
                match i64::from(fault.process) == i64::from(pid.as_raw()) {
                    true => faults.own.push(fault.address),
                    false => faults.others += 1,
                }
            }
        }
        Some(faults)
    }

    /// The pages of process `pid` that faulted, by their address; `None` when some were lost.
    pub fn pages_of(&self, pid: Pid) -> Option<BTreeSet<u64>> {
        let faults = self.faults_of(pid)?;
        Some(faults.own.into_iter().map(|address| address / PAGE_BYTES * PAGE_BYTES).collect())
    }
}

/// A list of processors such as `0-3,5`; `None` for anything else.
fn parse_list(list: &str) -> Option<Vec<i32>> {
    /// More than any kernel is built for.
    const MAX_PROCESSORS: i32 = 8192;
    let mut processors = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (i32, i32) = (first.parse().ok()?, last.parse().ok()?);
        if first < 0 || last >= MAX_PROCESSORS {
            return None;
        }
        processors.extend(first..=last);
    }
    Some(processors)
}

/// Pages of a ring: 512 KiB, which the default `kernel.perf_event_mlock_kb` allows all users for each processor. Each fault
/// takes 24 bytes, so it holds twenty thousand.
const RING_PAGES: usize = 128;
/// Where the first page says how much was written: `data_head` of `struct perf_event_mmap_page`.
const HEAD_OFFSET: usize = 1024;

/// One mapped ring.
#[derive(Debug)]
struct Ring {
    mapping: MmapRaw,
    _event: File,
}

impl Ring {
    fn map(event: OwnedFd) -> Option<Self> {
        let event = File::from(event);
        let mapping = MmapOptions::new().len((RING_PAGES + 1) * PAGE_BYTES as usize).map_raw(&event).ok()?;
        Some(Self { mapping, _event: event })
    }

    /// All bytes written so far. The kernel stops when the ring is full and is not read, and reports losses as soon as
    /// there is room: hence either the ring is full or no fault was lost.
    fn read(&self) -> Vec<u8> {
        let base = self.mapping.as_ptr();
        // SAFETY: the mapping is longer than a page, the place is aligned for 64 bits, and the kernel writes it as a
        // whole.
        let head = unsafe { &*base.add(HEAD_OFFSET).cast::<AtomicU64>() }.load(Ordering::Acquire);
        fence(Ordering::Acquire);
        let length = usize::try_from(head).unwrap_or(usize::MAX).min(RING_PAGES * PAGE_BYTES as usize);
        // SAFETY: the data begin at the second page and are as long as the ring; the mapping
        // can be written, which tells the kernel not to write over bytes that are not marked as read, and none ever are.
        // So the bytes before `head` do not change any more, although the process and its children may still fault.
        unsafe { std::slice::from_raw_parts(base.add(PAGE_BYTES as usize), length) }.to_vec()
    }
}

/// A page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    process: u32,
    address: u64,
}

const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
/// The header that every record has: its kind, flags and size.
const HEADER_BYTES: usize = 8;
/// A sample with task and address.
const SAMPLE_BYTES: usize = HEADER_BYTES + 16;
/// With less room than that something may have been lost.
const MAX_RECORD: usize = 64;

/// The faults in a ring's bytes; `None` when it says that some are missing, or is so full that it could not say so.
fn parse_records(bytes: &[u8]) -> Option<Vec<Fault>> {
    let is_full = bytes.len() + MAX_RECORD > RING_PAGES * PAGE_BYTES as usize;
    let mut faults = Vec::new();
    let mut rest = bytes;
    while let Some(header) = rest.first_chunk::<HEADER_BYTES>() {
        let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        if size < HEADER_BYTES || size > rest.len() {
            return None;
        }
        let (record, following) = rest.split_at(size);
        match kind {
            RECORD_LOST => return None,
            RECORD_SAMPLE => {
                let body = record.get(HEADER_BYTES..SAMPLE_BYTES)?;
                faults.push(Fault {
                    process: u32::from_ne_bytes(body[..4].try_into().ok()?),
                    address: u64::from_ne_bytes(body[8..16].try_into().ok()?),
                });
            }
            _ => {}
        }
        rest = following;
    }
    (!is_full).then_some(faults)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(process: u32, address: u64) -> Vec<u8> {
        let mut record = RECORD_SAMPLE.to_ne_bytes().to_vec();
        record.extend([0, 0]);
        record.extend((SAMPLE_BYTES as u16).to_ne_bytes());
        record.extend(process.to_ne_bytes());
        record.extend(0_u32.to_ne_bytes());
        record.extend(address.to_ne_bytes());
        record
    }

    #[test]
    fn records_are_faults_unless_some_are_lost() {
        let two = [sample(1, 0x1234), sample(2, 0x5678)].concat();
        let expected = vec![Fault { process: 1, address: 0x1234 }, Fault { process: 2, address: 0x5678 }];
        assert_eq!(parse_records(&two), Some(expected));
        let mut lost = sample(1, 0);
        lost[..4].copy_from_slice(&RECORD_LOST.to_ne_bytes());
        assert_eq!(parse_records(&lost), None);
        let full = sample(1, 7).repeat(RING_PAGES * PAGE_BYTES as usize / SAMPLE_BYTES);
        assert_eq!(parse_records(&full), None);
        assert_eq!((parse_list("0-2,5\n"), parse_list("x")), (Some(vec![0, 1, 2, 5]), None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(faults) = parse_records(&bytes) {
                prop_assert!(faults.len() * SAMPLE_BYTES <= bytes.len());
            }
        }

        #[test]
        fn whole_records_are_found(addresses in prop::collection::vec(any::<u64>(), 0..50)) {
            let bytes: Vec<u8> = addresses.iter().flat_map(|address| sample(3, *address)).collect();
            let found: Vec<u64> = parse_records(&bytes).expect("whole").iter().map(|fault| fault.address).collect();
            prop_assert_eq!(found, addresses);
        }
    }
}
