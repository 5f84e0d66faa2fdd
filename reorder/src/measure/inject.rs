//! System calls that a stopped process is made to perform.

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::error::{Error, ErrorKind, Result};

/// Makes the program call `madvise` on `[start, length]`; whether that succeeded.
pub(super) fn advise(pid: Pid, [start, length]: [u64; 2], advice: libc::c_int) -> Result<bool> {
    let arguments = [start, length, u64::from(advice.cast_unsigned())];
    inject(pid, libc::SYS_madvise.cast_unsigned(), arguments).map(|result| result == Some(0)).map_err(
        |error| {
            Error::new(ErrorKind::Io(error.into()), "the running program cannot be made to call the system")
        },
    )
}

/// The bytes of the `syscall` instruction, as the low end of a little-endian word.
const SYSCALL_INSTRUCTION: i64 = 0x050f;
const SYSCALL_MASK: i64 = 0xffff;

/// Makes a stopped process perform one system call and puts it back as it was; its result, or `None` when the
/// process ended or stopped for another reason.
fn inject(pid: Pid, number: u64, arguments: [u64; 3]) -> nix::Result<Option<u64>> {
    let saved = ptrace::getregs(pid)?;
    let place = saved.rip as ptrace::AddressType;
    let word = ptrace::read(pid, place)?;
    let mut registers = saved;
    registers.rax = number;
    // Not inside a system call, or the kernel might restart the interrupted one.
    registers.orig_rax = u64::MAX;
    [registers.rdi, registers.rsi, registers.rdx] = arguments;
    ptrace::write(pid, place, word & !SYSCALL_MASK | SYSCALL_INSTRUCTION)?;
    ptrace::setregs(pid, registers)?;
    ptrace::step(pid, None)?;
    let stopped = matches!(waitpid(pid, None)?, WaitStatus::Stopped(_, Signal::SIGTRAP));
    if !stopped {
        return Ok(None);
    }
    let result = ptrace::getregs(pid)?.rax;
    ptrace::write(pid, place, word)?;
    ptrace::setregs(pid, saved)?;
    Ok(Some(result))
}
