//! A processor without support for tracing: this code is not reached, because callers check [`PROCESSOR`] first.

use nix::errno::Errno;
use nix::unistd::Pid;

use super::CodeMapping;
use reorder_base::processor::Processor;

/// No processor whose code could be traced.
pub const PROCESSOR: Option<Processor> = None;

/// There is none.
pub type Instruction = [u8; 1];

/// There is none.
pub const BREAKPOINT: Instruction = [0];

/// No place is free for a breakpoint.
pub fn is_breakpoint(_code: Instruction) -> bool {
    true
}

/// No place is fit for a breakpoint.
pub fn is_aligned(_address: u64) -> bool {
    false
}

/// Fails.
pub fn breakpoint_hit(_task: Pid) -> nix::Result<Option<u64>> {
    Err(Errno::ENOSYS)
}

/// Fails.
pub fn possible_hit(_task: Pid) -> nix::Result<u64> {
    Err(Errno::ENOSYS)
}

/// None is.
pub const IS_PAST_BREAKPOINT: bool = false;

/// Fails.
pub fn go_on_at(_task: Pid, _address: u64) -> nix::Result<()> {
    Err(Errno::ENOSYS)
}

/// Fails.
pub fn finished_code_mapping(_task: Pid) -> nix::Result<Option<CodeMapping>> {
    Err(Errno::ENOSYS)
}

/// Fails.
pub fn descriptor_of_read(_task: Pid) -> nix::Result<Option<i32>> {
    Err(Errno::ENOSYS)
}

/// Fails.
pub fn child_shares_memory(
    _task: Pid,
    _read_word: impl FnOnce(u64) -> Option<u64>,
) -> nix::Result<Option<bool>> {
    Err(Errno::ENOSYS)
}

/// None are known.
pub type Registers = ();

/// Fails.
pub fn registers(_task: Pid) -> nix::Result<Registers> {
    Err(Errno::ENOSYS)
}

/// Fails.
pub fn set_registers(_task: Pid, _registers: &Registers) -> nix::Result<()> {
    Err(Errno::ENOSYS)
}

/// There is none.
pub const SYSTEM_CALL: i64 = 0;
/// The bits of [`SYSTEM_CALL`] in that word.
pub const SYSTEM_CALL_MASK: i64 = 0;

/// Changes nothing.
pub fn calling(_registers: &Registers, _number: u64, _arguments: [u64; 4]) -> Registers {}

/// None is known.
pub fn program_counter(_registers: &Registers) -> u64 {
    0
}

/// Changes nothing.
pub fn at(_registers: &Registers, _place: u64) -> Registers {}

/// None is known.
pub fn arguments(_registers: &Registers) -> [u64; 6] {
    [0; 6]
}

/// None is known.
pub fn stack_pointer(_registers: &Registers) -> u64 {
    0
}

/// None is known.
pub fn result(_registers: &Registers) -> u64 {
    0
}
