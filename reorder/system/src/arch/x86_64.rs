//! x86-64: breakpoints, registers and the call convention of the system.

use std::mem::offset_of;

use nix::sys::ptrace;
use nix::unistd::Pid;

use super::CodeMapping;
use reorder_base::processor::Processor;

/// The processor whose code runs here.
pub const PROCESSOR: Option<Processor> = Some(Processor::X86_64);

/// A breakpoint, or what it replaces.
pub type Instruction = [u8; 1];

/// `int3`, the only breakpoint of one byte; after it the program counter is one byte further.
pub const BREAKPOINT: Instruction = [0xcc];

/// Whether code itself begins with a breakpoint.
pub fn is_breakpoint(code: Instruction) -> bool {
    code == BREAKPOINT
}

/// Whether an instruction may begin at `address`: at any.
pub fn is_aligned(_address: u64) -> bool {
    true
}

/// `mmap`.
const MMAP: u64 = 9;
const CLONE: u64 = 56;
const FORK: u64 = 57;
const VFORK: u64 = 58;
const CLONE3: u64 = 435;

/// The offset of the program counter in the area that `PTRACE_PEEKUSER` reads; it starts with the registers.
const PROGRAM_COUNTER: usize = offset_of!(libc::user, regs) + offset_of!(libc::user_regs_struct, rip);

/// The address of the breakpoint that stopped a task with SIGTRAP, if it was one.
pub fn breakpoint_hit(task: Pid) -> nix::Result<Option<u64>> {
    if ptrace::getsiginfo(task)?.si_code != libc::SI_KERNEL {
        return Ok(None);
    }
    possible_hit(task).map(Some)
}

/// Where a task may just have executed a breakpoint whose signal is not reported.
pub fn possible_hit(task: Pid) -> nix::Result<u64> {
    let counter = ptrace::read_user(task, PROGRAM_COUNTER as ptrace::AddressType)?;
    Ok(counter.cast_unsigned().wrapping_sub(BREAKPOINT.len() as u64))
}

/// Whether the task stops there only after it has executed a breakpoint.
pub const IS_PAST_BREAKPOINT: bool = true;

/// Makes a task go on at `address`, where it hit a breakpoint.
pub fn go_on_at(task: Pid, address: u64) -> nix::Result<()> {
    ptrace::write_user(task, PROGRAM_COUNTER as ptrace::AddressType, address.cast_signed())
}

/// What a task that stopped at a system call's end has mapped, if it was a file's code.
pub fn finished_code_mapping(task: Pid) -> nix::Result<Option<CodeMapping>> {
    let registers = ptrace::getregs(task)?;
    let descriptor = registers.r8 as i32;
    // At the call's beginning the result register holds an error number, which no mapping has.
    let succeeded = registers.rax.cast_signed() > 0;
    let executable = registers.rdx & libc::PROT_EXEC as u64 != 0;
    let is_code = registers.orig_rax == MMAP && succeeded && executable && descriptor >= 0;
    Ok(is_code.then_some(CodeMapping {
        start: registers.rax,
        length: registers.rsi,
        offset: registers.r9,
        descriptor,
    }))
}

/// The descriptor that a task reads from which stopped at the beginning or end of a system call, if it does.
pub fn descriptor_of_read(task: Pid) -> nix::Result<Option<i32>> {
    let registers = ptrace::getregs(task)?;
    let reads = [libc::SYS_read, libc::SYS_readv].map(i64::cast_unsigned).contains(&registers.orig_rax);
    Ok(reads.then_some(registers.rdi as i32))
}

/// Whether the child that a task is just making shares its memory; `None` when the call does not tell.
///
/// `read_word` reads the task's memory.
pub fn child_shares_memory(
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

/// All general registers of a stopped task.
pub type Registers = libc::user_regs_struct;

/// Reads them.
pub fn registers(task: Pid) -> nix::Result<Registers> {
    ptrace::getregs(task)
}

/// Writes them.
pub fn set_registers(task: Pid, registers: &Registers) -> nix::Result<()> {
    ptrace::setregs(task, *registers)
}

/// `syscall`, as the low end of a little-endian word.
pub const SYSTEM_CALL: i64 = 0x050f;
/// The bits of [`SYSTEM_CALL`] in that word.
pub const SYSTEM_CALL_MASK: i64 = 0xffff;

/// `registers` ready to perform system call `number`.
pub fn calling(registers: &Registers, number: u64, arguments: [u64; 4]) -> Registers {
    let mut registers = *registers;
    registers.rax = number;
    // Not inside a system call, or the kernel might restart the interrupted one.
    registers.orig_rax = u64::MAX;
    [registers.rdi, registers.rsi, registers.rdx, registers.r10] = arguments;
    registers
}

/// The address of the next instruction.
pub fn program_counter(registers: &Registers) -> u64 {
    registers.rip
}

/// `registers` with the next instruction at `place`.
pub fn at(registers: &Registers, place: u64) -> Registers {
    Registers { rip: place, ..*registers }
}

/// The first arguments of a function that is about to be called, if they are numbers or pointers.
pub fn arguments(registers: &Registers) -> [u64; 6] {
    [registers.rdi, registers.rsi, registers.rdx, registers.rcx, registers.r8, registers.r9]
}

/// The stack pointer.
pub fn stack_pointer(registers: &Registers) -> u64 {
    registers.rsp
}

/// The result of the system call.
pub fn result(registers: &Registers) -> u64 {
    registers.rax
}
