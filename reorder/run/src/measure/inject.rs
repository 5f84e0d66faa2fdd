//! System calls that a stopped process is made to perform.

use nix::sys::ptrace;
use nix::unistd::Pid;

use reorder_base::error::{Error, ErrorKind, Result};
use reorder_system::arch;
use reorder_system::stops::Stop;
use reorder_system::waiting::{Peeked, peek};

/// Makes the program call `madvise` on `[start, length]`; whether that succeeded. Signals that come meanwhile are `held`
/// back for the caller to send again.
pub(super) fn advise(
    pid: Pid,
    [start, length]: [u64; 2],
    advice: libc::c_int,
    held: &mut Vec<i32>,
) -> Result<bool> {
    let arguments = [start, length, u64::from(advice.cast_unsigned()), 0];
    let result = inject(pid, libc::SYS_madvise.cast_unsigned(), arguments, held);
    result.map(|result| result == 0).map_err(|error| {
        Error::new(ErrorKind::Io(error.into()), "the running program cannot be made to call the system")
    })
}

/// Makes a stopped process perform one system call and restores its state in every case except its end; the
/// call's result.
fn inject(pid: Pid, number: u64, arguments: [u64; 4], held: &mut Vec<i32>) -> nix::Result<u64> {
    let saved = arch::registers(pid)?;
    let place = arch::program_counter(&saved) as ptrace::AddressType;
    let word = ptrace::read(pid, place)?;
    let registers = arch::calling(&saved, number, arguments);
    ptrace::write(pid, place, word & !arch::SYSTEM_CALL_MASK | arch::SYSTEM_CALL)?;
    let called = arch::set_registers(pid, &registers).and_then(|()| step(pid, held));
    let result = called.and_then(|()| arch::registers(pid)).map(|registers| arch::result(&registers));
    ptrace::write(pid, place, word)?;
    arch::set_registers(pid, &saved)?;
    result
}

/// Lets the process perform one instruction. A signal stops it before that, and is taken away for now.
fn step(pid: Pid, held: &mut Vec<i32>) -> nix::Result<()> {
    loop {
        ptrace::step(pid, None)?;
        match peek(pid)? {
            // It is reaped by the wait for its end.
            Peeked::Ended => return Err(nix::Error::ESRCH),
            Peeked::Stopped(Stop::Signal(libc::SIGTRAP)) => return Ok(()),
            Peeked::Stopped(Stop::Signal(signal)) => held.push(signal),
            Peeked::Stopped(_) => return Err(nix::Error::ESRCH),
        }
    }
}
