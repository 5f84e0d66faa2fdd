//! `perf_event_open`: the system's own counters and samples of one process, through plain system calls.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::unistd::Pid;

/// The attributes of an event in their first published form (`PERF_ATTR_SIZE_VER0`), which every kernel takes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    breakpoint_address: u64,
}

const SOFTWARE: u32 = 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const SAMPLE_TASK: u64 = 1 << 1;
const SAMPLE_ADDRESS: u64 = 1 << 3;
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// A software event of the kernel: `enum perf_sw_ids`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum SoftwareEvent {
    /// Nanoseconds on a processor.
    TaskClock = 1,
    /// All page faults.
    PageFaults = 2,
    /// Switches to another task.
    ContextSwitches = 3,
    /// Faults that needed no read.
    MinorFaults = 5,
    /// Faults that waited for a read.
    MajorFaults = 6,
}

/// What of a process is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Also what happens while the kernel works for it; needs `kernel.perf_event_paranoid` of at most 1, or root.
    Everything,
    /// Only its own instructions.
    UserMode,
}

/// Opens a counter of `event` in process `pid` and all that it will start.
pub fn open_counter(event: SoftwareEvent, pid: Pid, scope: Scope) -> io::Result<OwnedFd> {
    let attributes =
        Attributes { config: event as u64, flags: INHERIT | flags(scope), ..Attributes::default() };
    open(attributes, pid, -1)
}

/// Opens a stream of all `event`s of process `pid`, of all its threads, on one processor: task and address of each.
pub(crate) fn open_samples(
    event: SoftwareEvent,
    pid: Pid,
    processor: i32,
    scope: Scope,
) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        config: event as u64,
        flags: INHERIT | flags(scope),
        sample_period: 1,
        sample_type: SAMPLE_TASK | SAMPLE_ADDRESS,
        ..Attributes::default()
    };
    open(attributes, pid, processor)
}

fn flags(scope: Scope) -> u64 {
    match scope {
        Scope::Everything => EXCLUDE_HYPERVISOR,
        Scope::UserMode => EXCLUDE_HYPERVISOR | EXCLUDE_KERNEL,
    }
}

fn open(attributes: Attributes, pid: Pid, processor: i32) -> io::Result<OwnedFd> {
    let attributes = Attributes { kind: SOFTWARE, size: size_of::<Attributes>() as u32, ..attributes };
    let group: libc::c_int = -1;
    // SAFETY: the attributes are a live value of the size that they state; the call only reads them.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(&attributes),
            pid.as_raw(),
            processor,
            group,
            CLOSE_ON_EXEC,
        )
    };
    match i32::try_from(descriptor) {
        // SAFETY: the kernel has just made this descriptor, and no other value owns it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The count so far, of processes that have ended, too.
pub fn count(counter: &OwnedFd) -> io::Result<u64> {
    let mut value = [0; size_of::<u64>()];
    // SAFETY: the buffer is a live array, and its length is given.
    let read = unsafe { libc::read(counter.as_raw_fd(), value.as_mut_ptr().cast(), value.len()) };
    match usize::try_from(read) {
        Ok(read) if read == value.len() => Ok(u64::from_ne_bytes(value)),
        _ => Err(io::Error::last_os_error()),
    }
}
