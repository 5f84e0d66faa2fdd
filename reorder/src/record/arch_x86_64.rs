//! What the recorder must know about the processor: the breakpoint, the program counter, the call convention of
//! the system.

use std::mem::offset_of;

use nix::sys::ptrace;
use nix::unistd::Pid;

/// `int3`, the only breakpoint of one byte; after it the program counter stands one byte further.
pub(super) const BREAKPOINT: u8 = 0xcc;

/// `mmap`.
const MMAP: u64 = 9;
const CLONE: u64 = 56;
const FORK: u64 = 57;
const VFORK: u64 = 58;
const CLONE3: u64 = 435;

/// Where the program counter lies in the area that `PTRACE_PEEKUSER` reads; the registers stand at its start.
const PROGRAM_COUNTER: usize = offset_of!(libc::user, regs) + offset_of!(libc::user_regs_struct, rip);

/// The address at which a stopped task goes on.
pub(super) fn program_counter(task: Pid) -> nix::Result<u64> {
    ptrace::read_user(task, PROGRAM_COUNTER as ptrace::AddressType).map(|counter| counter as u64)
}

/// Makes a stopped task go on at `address`.
pub(super) fn set_program_counter(task: Pid, address: u64) -> nix::Result<()> {
    ptrace::write_user(task, PROGRAM_COUNTER as ptrace::AddressType, address as libc::c_long)
}

/// A successful mapping of a file into executable memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodeMapping {
    /// First byte in memory.
    pub(super) start: u64,
    /// Bytes.
    pub(super) length: u64,
    /// First byte in the file.
    pub(super) offset: u64,
    /// The file.
    pub(super) descriptor: i32,
}

/// What a task that stopped at a system call's end has mapped, if it was a file's code.
pub(super) fn finished_code_mapping(task: Pid) -> nix::Result<Option<CodeMapping>> {
    let registers = ptrace::getregs(task)?;
    let descriptor = registers.r8 as i32;
    // At the call's beginning the result register holds an error number, which no mapping has.
    let succeeded = (registers.rax as i64) > 0;
    let executable = registers.rdx & libc::PROT_EXEC as u64 != 0;
    let is_code = registers.orig_rax == MMAP && succeeded && executable && descriptor >= 0;
    Ok(is_code.then_some(CodeMapping {
        start: registers.rax,
        length: registers.rsi,
        offset: registers.r9,
        descriptor,
    }))
}

/// Whether the child that a task is just making shares its memory; nothing when the call does not tell.
///
/// `read_word` reads the task's memory.
pub(super) fn child_shares_memory(
    task: Pid,
    read_word: impl FnOnce(u64) -> Option<u64>,
) -> nix::Result<Option<bool>> {
    let registers = ptrace::getregs(task)?;
    let flags = match registers.orig_rax {
        FORK => Some(0),
        VFORK => Some(libc::CLONE_VM as u64),
        CLONE => Some(registers.rdi),
        // The first member of its argument structure.
        CLONE3 => read_word(registers.rdi),
        _ => None,
    };
    Ok(flags.map(|flags| flags & libc::CLONE_VM as u64 != 0))
}
