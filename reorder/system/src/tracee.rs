//! What a tracer asks of a stopped task, by requests that `nix` does not wrap.

use std::ptr::{from_mut, without_provenance_mut};

use nix::errno::Errno;
use nix::unistd::Pid;

/// Bytes of the system's set of signals.
pub const SIGNAL_SET_BYTES: usize = 8;

/// Sends `signal` to a process; unlike `nix`, also real-time signals.
///
/// # Errors
/// The process is gone, or belongs to another user.
pub fn send_signal(process: Pid, signal: i32) -> nix::Result<()> {
    // SAFETY: the call takes plain numbers.
    Errno::result(unsafe { libc::kill(process.as_raw(), signal) }).map(drop)
}

/// The system call that a task is stopped at; nothing on Linux before 5.3, which does not tell.
///
/// # Errors
/// When the task is gone or not stopped.
pub fn system_call(task: Pid) -> nix::Result<Option<SystemCall>> {
    let mut call = SystemCall::default();
    match request(GET_SYSTEM_CALL, task, size_of::<SystemCall>(), &mut call) {
        Err(Errno::EIO) => Ok(None),
        result => result.map(|_| Some(call)),
    }
}

/// From `linux/ptrace.h`; not all C libraries name them.
const GET_SIGNAL_MASK: libc::c_uint = 0x420a;
const SET_SIGNAL_MASK: libc::c_uint = 0x420b;
const GET_SYSTEM_CALL: libc::c_uint = 0x420e;

/// The signals that a stopped task blocks, a bit each.
///
/// # Errors
/// When the task is gone or not stopped.
pub fn signal_mask(task: Pid) -> nix::Result<u64> {
    let mut mask = 0_u64;
    request(GET_SIGNAL_MASK, task, SIGNAL_SET_BYTES, &mut mask)?;
    Ok(mask)
}

/// Blocks the signals of `mask` for a stopped task, and no others.
///
/// # Errors
/// When the task is gone or not stopped.
pub fn set_signal_mask(task: Pid, mut mask: u64) -> nix::Result<()> {
    request(SET_SIGNAL_MASK, task, SIGNAL_SET_BYTES, &mut mask).map(drop)
}

/// A request that takes a size and reads or writes at most so many bytes at `data`.
fn request<Data>(
    request: libc::c_uint,
    task: Pid,
    size: usize,
    data: &mut Data,
) -> nix::Result<libc::c_long> {
    debug_assert!(size <= size_of::<Data>());
    let size = without_provenance_mut::<libc::c_void>(size);
    // SAFETY: the system reads or writes at most `size` bytes at `data`, which is a live value at least as large, in which
    // any bytes are valid. The C libraries differ in the type of the request.
    let result =
        unsafe { libc::ptrace(request as _, task.as_raw(), size, from_mut(data).cast::<libc::c_void>()) };
    Errno::result(result)
}

/// `struct ptrace_syscall_info` with the part for a call's beginning: ptrace(2), PTRACE_GET_SYSCALL_INFO.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct SystemCall {
    /// 1 at a call's beginning.
    pub kind: u8,
    _padding: [u8; 3],
    architecture: u32,
    _instruction_pointer: u64,
    _stack_pointer: u64,
    /// Which call.
    pub number: u64,
    /// As the task passes them.
    pub arguments: [u64; 6],
}
