//! AArch64: breakpoints, registers and the call convention of the system.
//!
//! Why breakpoints work in each place:
//! - On a landing pad of branch target identification: `BRK` is among the instructions that indirect branches into
//!   guarded memory may lead to (Arm ARM, "PSTATE.BTYPE": BRK, BTI, HLT, PACIASP and PACIBSP), so it stops the task
//!   instead of faulting. The exception saves BTYPE in SPSR, which the system restores with the task, so the original
//!   instruction is checked as if it had been reached directly.
//! - In code that other threads run: all instructions are aligned words. The system writes such a word with one store,
//!   so that others fetch either the breakpoint or the instruction.
//! - In the instruction cache: writes through `/proc/PID/mem` use the same path as `PTRACE_POKETEXT` (`copy_to_user_page`),
//!   which makes executable memory coherent. `process_vm_writev` does not.
//!
//! A tracee may also be a 32-bit program (AArch32), which the traced one executed. It has another register set and
//! other system calls, and is not traced: no mapping is seen in it.

use std::ptr::{from_mut, without_provenance_mut};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

use super::CodeMapping;
use reorder_base::processor::Processor;

/// The processor whose code runs here.
pub const PROCESSOR: Option<Processor> = Some(Processor::Aarch64);

/// A breakpoint, or what it replaces.
pub type Instruction = [u8; 4];

/// `brk #0`. The program counter stays at it. Kernels use other numbers for themselves.
pub const BREAKPOINT: Instruction = 0xd420_0000_u32.to_le_bytes();

/// Whether code itself begins with a breakpoint, of any number: it stops at the same place as ours once that was
/// removed, and would be taken for ours forever.
pub fn is_breakpoint(code: Instruction) -> bool {
    u32::from_le_bytes(code) & 0xffe0_001f == u32::from_le_bytes(BREAKPOINT)
}

/// Whether an instruction may begin at `address`.
pub fn is_aligned(address: u64) -> bool {
    address.is_multiple_of(BREAKPOINT.len() as u64)
}

/// `mmap`; `fork` and `vfork` are calls of `clone` here.
const MMAP: u64 = 222;
const CLONE: u64 = 220;
const CLONE3: u64 = 435;

/// The address of the breakpoint that stopped a task with SIGTRAP, if it was one.
///
/// The program counter does not show it: a signal that was sent may stop a task that is about to execute a breakpoint.
pub fn breakpoint_hit(task: Pid) -> nix::Result<Option<u64>> {
    let origin = ptrace::getsiginfo(task)?;
    if origin.si_code != libc::TRAP_BRKPT {
        return Ok(None);
    }
    // SAFETY: a SIGTRAP of this code has the form of faults, whose address is the breakpoint's; of a program that sends
    // itself one with this code the bytes are other numbers, which are valid, too.
    Ok(Some(unsafe { origin.si_addr() }.addr() as u64))
}

/// Where a task may just have executed a breakpoint whose signal is not reported.
pub fn possible_hit(task: Pid) -> nix::Result<u64> {
    Ok(registers_if_64_bit(task)?.map_or(0, |registers| registers.pc))
}

/// Whether the task stops there only after it has executed a breakpoint: it may be about to execute it.
pub const IS_PAST_BREAKPOINT: bool = false;

/// Makes a task go on at `address`, where it hit a breakpoint: it is there already.
pub fn go_on_at(_task: Pid, _address: u64) -> nix::Result<()> {
    Ok(())
}

/// What a task that stopped at a system call's end has mapped, if it was a file's code.
pub fn finished_code_mapping(task: Pid) -> nix::Result<Option<CodeMapping>> {
    let Some(registers) = registers_if_64_bit(task)? else { return Ok(None) };
    let [result, length, protection, _, descriptor, offset, _, direction, call, ..] = registers.regs;
    // The kernel shows in x7, during the stop, whether the call begins or ends (`report_syscall`); x0 does not tell,
    // because at the beginning it holds the wanted address.
    let is_end = direction == 1;
    let succeeded = result.cast_signed() > 0;
    let executable = protection & libc::PROT_EXEC as u64 != 0;
    let descriptor = descriptor as i32;
    let is_code = is_end && call == MMAP && succeeded && executable && descriptor >= 0;
    Ok(is_code.then_some(CodeMapping { start: result, length, offset, descriptor }))
}

/// The descriptor that a task reads from which stopped at the beginning of a system call, if it does.
pub fn descriptor_of_read(task: Pid) -> nix::Result<Option<i32>> {
    let Some(registers) = registers_if_64_bit(task)? else { return Ok(None) };
    let [argument, _, _, _, _, _, _, direction, call, ..] = registers.regs;
    // At the end the result is where the descriptor was.
    let is_beginning = direction == 0;
    let reads = [libc::SYS_read, libc::SYS_readv].map(i64::cast_unsigned).contains(&call);
    Ok((is_beginning && reads).then_some(argument as i32))
}

/// Whether the child that a task is just making shares its memory; `None` when the call does not tell.
///
/// `read_word` reads the task's memory.
pub fn child_shares_memory(
    task: Pid,
    read_word: impl FnOnce(u64) -> Option<u64>,
) -> nix::Result<Option<bool>> {
    let Some(registers) = registers_if_64_bit(task)? else { return Ok(None) };
    let [argument, .., call] = registers.regs.first_chunk::<9>().copied().unwrap_or_default();
    let flags = match call {
        CLONE => Some(argument),
        // The first member of its argument structure.
        CLONE3 => read_word(argument),
        _ => None,
    };
    Ok(flags.map(|flags| flags & libc::CLONE_VM as u64 != 0))
}

/// All general registers of a stopped task.
pub type Registers = libc::user_regs_struct;

/// Reads them.
pub fn registers(task: Pid) -> nix::Result<Registers> {
    registers_if_64_bit(task)?.ok_or(Errno::EINVAL)
}

/// Writes them.
pub fn set_registers(task: Pid, registers: &Registers) -> nix::Result<()> {
    ptrace::setregs(task, *registers)
}

/// The registers, unless `task` runs 32-bit code: then the kernel fills less than asked for, which
/// [`ptrace::getregs`] does not tell.
fn registers_if_64_bit(task: Pid) -> nix::Result<Option<Registers>> {
    let mut registers = Registers { regs: [0; 31], sp: 0, pc: 0, pstate: 0 };
    let mut area = libc::iovec { iov_base: from_mut(&mut registers).cast(), iov_len: size_of::<Registers>() };
    let set = without_provenance_mut::<libc::c_void>(libc::NT_PRSTATUS as usize);
    // SAFETY: the kernel writes at most `iov_len` bytes to `iov_base`, which is a live value of that size in which any
    // bytes are valid, and the length to `iov_len`.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, task.as_raw(), set, from_mut(&mut area)) };
    Errno::result(result)?;
    Ok((area.iov_len == size_of::<Registers>()).then_some(registers))
}

/// `svc #0`, as the low end of a little-endian word.
pub const SYSTEM_CALL: i64 = 0xd400_0001;
/// The bits of [`SYSTEM_CALL`] in that word.
pub const SYSTEM_CALL_MASK: i64 = 0xffff_ffff;

/// `registers` ready to perform system call `number`.
pub fn calling(registers: &Registers, number: u64, arguments: [u64; 4]) -> Registers {
    let mut registers = *registers;
    registers.regs[8] = number;
    registers.regs[..4].copy_from_slice(&arguments);
    registers
}

/// The address of the next instruction.
pub fn program_counter(registers: &Registers) -> u64 {
    registers.pc
}

/// `registers` with the next instruction at `place`.
pub fn at(registers: &Registers, place: u64) -> Registers {
    Registers { pc: place, ..*registers }
}

/// The first arguments of a function that is about to be called, if they are numbers or pointers.
pub fn arguments(registers: &Registers) -> [u64; 6] {
    let mut arguments = [0; 6];
    arguments.copy_from_slice(&registers.regs[..6]);
    arguments
}

/// The stack pointer.
pub fn stack_pointer(registers: &Registers) -> u64 {
    registers.sp
}

/// The result of the system call.
pub fn result(registers: &Registers) -> u64 {
    registers.regs[0]
}
