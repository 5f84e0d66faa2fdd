//! System calls that a stopped task of the program is made to perform, and what it is about to call itself.
//!
//! Other threads may run meanwhile, so no code is written: the task uses the system call instruction that the system
//! itself has put into each program (vdso(7)). It stops at the beginning and the end of the call as if traced there, by
//! stops that force no signal on it, and then its state is restored.

use std::fs;

use nix::sys::ptrace;
use nix::unistd::Pid;

use super::failure::{Failure, Served};
use super::memory::ProcessMemory;
use reorder_base::error::Error;
use reorder_base::hint::Hint;
use reorder_base::numbers::hexadecimal;
use reorder_system::arch;
use reorder_system::stops::{self, Resume, Stop};
use reorder_system::tracee::{SIGNAL_SET_BYTES, send_signal, set_signal_mask, signal_mask, system_call};
use reorder_system::waiting::{Peeked, peek};

/// `struct sigaction` of the system, on both processors: handler, flags, restorer, mask.
const ACTION_BYTES: usize = 32;
/// Up to 128 bytes below the stack pointer are in use (System V ABI, x86-64: the red zone).
const BELOW_STACK: u64 = 512;
const TRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);

/// Gives `task` the SIGTRAP handler at `handler` again, with flags, restorer and mask as they still are; whether it did. It
/// does not for a handler of one signal (`SA_RESETHAND`), which the system removes itself.
///
/// # Errors
/// When the system call cannot be made: then the program would go on without its handler.
pub(super) fn set_trap_handler(task: Pid, memory: &ProcessMemory, handler: u64) -> Served<bool> {
    let registers = arch::registers(task)?;
    let place = arch::stack_pointer(&registers).wrapping_sub(BELOW_STACK) & !15;
    let mut former = [0; ACTION_BYTES];
    memory.read(place, &mut former)?;
    let set = exchange_handler(task, memory, place, handler);
    memory.write(place, &former)?;
    set
}

/// Reads the action to `place`, and sets it with `handler`.
fn exchange_handler(task: Pid, memory: &ProcessMemory, place: u64, handler: u64) -> Served<bool> {
    let signal = libc::SIGTRAP as u64;
    let number = libc::SYS_rt_sigaction.cast_unsigned();
    call(task, memory, number, [signal, 0, place, SIGNAL_SET_BYTES as u64])?;
    let flags = memory.word(place + size_of_val(&handler) as u64).unwrap_or_default();
    if flags & u64::from(libc::SA_RESETHAND.cast_unsigned()) != 0 {
        return Ok(false);
    }
    memory.write(place, &handler.to_le_bytes())?;
    call(task, memory, number, [signal, place, 0, SIGNAL_SET_BYTES as u64])?;
    Ok(true)
}

/// Makes a stopped task perform one system call that succeeds.
fn call(task: Pid, memory: &ProcessMemory, number: u64, arguments: [u64; 4]) -> Served {
    let place = instruction(task, memory).ok_or_else(impossible)?;
    let saved = arch::registers(task)?;
    let mask = signal_mask(task)?;
    // No other signal may come in between.
    set_signal_mask(task, u64::MAX)?;
    let called = arch::set_registers(task, &arch::at(&arch::calling(&saved, number, arguments), place))
        .map_err(Failure::from)
        .and_then(|()| run_call(task));
    let result = called.and_then(|()| Ok(arch::result(&arch::registers(task)?)));
    arch::set_registers(task, &saved)?;
    set_signal_mask(task, mask)?;
    match result? {
        0 => Ok(()),
        _ => Err(impossible().into()),
    }
}

/// To the beginning of the call and to its end.
fn run_call(task: Pid) -> Served {
    let mut left = 2;
    let mut is_asked_to_stop = false;
    let mut held = None;
    while left > 0 {
        stops::resume(task, Resume::ToSystemCall, 0)?;
        match peek(task)? {
            Peeked::Stopped(Stop::SystemCall) => left -= 1,
            Peeked::Stopped(Stop::Attached) => is_asked_to_stop = true,
            // The one signal that cannot be blocked and does not end it.
            Peeked::Stopped(Stop::Signal(signal)) => held = Some(signal),
            Peeked::Stopped(_) => {}
            // It is reaped by the wait for its end.
            Peeked::Ended => return Err(Failure::Gone),
        }
    }
    if is_asked_to_stop {
        ptrace::interrupt(task)?;
    }
    if let Some(signal) = held {
        // Fails only when the process is gone, which the next wait reports.
        let _ = send_signal(task, signal);
    }
    Ok(())
}

fn impossible() -> Error {
    Error::usage(
        "a breakpoint removed the program's own handler of SIGTRAP, and the handler cannot be restored",
    )
    .with_hint(Hint::OtherRecorder {
        advice: "record with another recorder whose traces can be read, such as perf".to_owned(),
    })
}

/// The address of a system call instruction.
fn instruction(task: Pid, memory: &ProcessMemory) -> Option<u64> {
    let mappings = fs::read_to_string(format!("/proc/{task}/maps")).ok()?;
    let line = mappings.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let (start, end) = (hexadecimal(start.as_bytes())?, hexadecimal(end.as_bytes())?);
    /// It has one or two pages on all systems.
    const MAX_BYTES: u64 = 1 << 16;
    let mut code = vec![0; usize::try_from(end.checked_sub(start)?.min(MAX_BYTES)).ok()?];
    memory.read(start, &mut code).ok()?;
    let is_call = |window: &[u8]| {
        let word = window.first_chunk().map(|word| i64::from(u32::from_le_bytes(*word)));
        word.is_some_and(|word| word & arch::SYSTEM_CALL_MASK == arch::SYSTEM_CALL)
    };
    let mut places = code.windows(4).zip(start..);
    places.find(|(window, place)| is_call(window) && arch::is_aligned(*place)).map(|(_, place)| place)
}

/// Makes the SIGTRAP that is about to be delivered to `task` pending and blocked again; the task stays stopped.
pub(super) fn let_trap_wait(task: Pid) -> Served {
    block_trap(task)?;
    // The system queues a signal that is blocked by now again with all its information, before it delivers another one.
    ptrace::interrupt(task)?;
    stops::resume(task, Resume::Freely, libc::SIGTRAP)?;
    match peek(task)? {
        Peeked::Stopped(_) => Ok(()),
        Peeked::Ended => Err(Failure::Gone),
    }
}

/// Blocks SIGTRAP for a stopped task.
pub(super) fn block_trap(task: Pid) -> Served {
    set_signal_mask(task, signal_mask(task)? | TRAP_BIT)?;
    Ok(())
}

/// Whether a stopped task blocks it.
pub(super) fn blocks_trap(task: Pid) -> nix::Result<bool> {
    Ok(signal_mask(task)? & TRAP_BIT != 0)
}

/// Where the action stands that a task, stopped at a system call, is about to set for SIGTRAP.
pub(super) fn changed_trap_action(task: Pid) -> nix::Result<Option<u64>> {
    const BEGINS: u8 = 1;
    // Linux before 5.3 does not tell.
    let Some(call) = system_call(task)? else { return Ok(None) };
    let [signal, action, ..] = call.arguments;
    let is_change = call.kind == BEGINS
        && call.number == libc::SYS_rt_sigaction.cast_unsigned()
        && signal == libc::SIGTRAP as u64
        && action != 0;
    Ok(is_change.then_some(action))
}
