//! Calls that never return: control does not reach the code after such a call from there, and must not weaken what is known
//! there.
//!
//! Functions of other images are recognised by name; the image's own by their code, or because some function ends with a
//! call of them. A call that is not certain never to return is assumed to return.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use goblin::elf::reloc::{R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};
use goblin::elf::section_header::SHT_RELA;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use crate::bytes::u64_at;
use crate::elf::pointers::RELA_SIZE;
use crate::elf::symbol_walk::symbol_at;
use crate::elf::view::ElfView;
use crate::moves::AddressMoves;
use reorder_base::address::Address;

/// Functions of the C and C++ libraries, and of GLib, that never return, according to their documentation.
const ENDING: [&[u8]; 36] = [
    b"abort",
    b"exit",
    b"_exit",
    b"_Exit",
    b"quick_exit",
    b"pthread_exit",
    b"thrd_exit",
    b"longjmp",
    b"siglongjmp",
    b"_longjmp",
    b"__longjmp_chk",
    b"err",
    b"errx",
    b"verr",
    b"verrx",
    b"__stack_chk_fail",
    b"__chk_fail",
    b"__fortify_fail",
    b"__assert_fail",
    b"__assert",
    b"__assert_perror_fail",
    b"__cxa_throw",
    b"__cxa_rethrow",
    b"__cxa_bad_cast",
    b"__cxa_bad_typeid",
    b"__cxa_throw_bad_array_new_length",
    b"__cxa_throw_bad_array_length",
    b"__cxa_call_unexpected",
    b"__cxa_call_terminate",
    b"_Unwind_Resume",
    b"_ZSt9terminatev",
    b"_ZSt10unexpectedv",
    b"g_assertion_message",
    b"g_assertion_message_expr",
    b"g_abort",
    b"Py_FatalError",
];
/// Helpers of the C++ library that throw.
const THROWING: &[u8] = b"_ZSt";
const THROW: &[u8] = b"__throw_";

/// Depth to which calls inside of a callee are followed.
const MAX_DEPTH: usize = 4;
/// Instructions of a callee that are decoded.
const MAX_INSTRUCTIONS: usize = 400;

/// What is known of the callees of an image.
#[derive(Debug)]
pub(crate) struct Endings<'a> {
    image: &'a ElfView<'a>,
    moves: &'a AddressMoves,
    /// Slots of the GOT with the address of a function that never returns.
    slots: BTreeSet<u64>,
    known: Mutex<BTreeMap<u64, bool>>,
}

impl<'a> Endings<'a> {
    /// Reads the relocations of `image`; `last_calls` are the targets of calls that end functions.
    pub(crate) fn of(image: &'a ElfView<'a>, moves: &'a AddressMoves, last_calls: &[Address]) -> Self {
        let mut slots = BTreeSet::new();
        for table in image.sections.iter().filter(|section| section.kind == SHT_RELA && section.is_loaded()) {
            let Some(symbols) = image.sections.get(table.link as usize) else { continue };
            let Some(names) = image.sections.get(symbols.link as usize) else { continue };
            for record in table.bytes.chunks_exact(RELA_SIZE) {
                let information = u64_at(record, 8).unwrap_or_default();
                if !matches!(information as u32, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
                    continue;
                }
                let symbol = symbol_at(symbols, (information >> 32) as usize);
                let name =
                    symbol.and_then(|symbol| names.bytes.get(symbol.name as usize..)).unwrap_or_default();
                let end = name.iter().position(|&byte| byte == 0).unwrap_or(0);
                if is_ending(&name[..end]) {
                    slots.extend(u64_at(record, 0));
                }
            }
        }
        let known = Mutex::new(last_calls.iter().map(|target| (target.0, true)).collect());
        Self { image, moves, slots, known }
    }

    /// Whether `instruction` is a call that never returns.
    pub(crate) fn is_last(&self, instruction: &Instruction) -> bool {
        match instruction.flow_control() {
            FlowControl::Call => self.ends_within(instruction.near_branch_target(), MAX_DEPTH),
            FlowControl::IndirectCall => self.ends_through(instruction),
            _ => false,
        }
    }

    /// Whether the function at `target` never returns.
    pub(super) fn never_returns_from(&self, target: u64) -> bool {
        self.ends_within(target, MAX_DEPTH)
    }

    /// Whether what an instruction loads from memory is a function that never returns.
    fn ends_through(&self, instruction: &Instruction) -> bool {
        instruction.is_ip_rel_memory_operand() && self.slots.contains(&instruction.ip_rel_memory_address())
    }

    fn ends_within(&self, target: u64, depth: usize) -> bool {
        let known = |known: &Mutex<BTreeMap<u64, bool>>| known.lock().ok()?.get(&target).copied();
        if let Some(ends) = known(&self.known) {
            return ends;
        }
        let Some(depth) = depth.checked_sub(1) else { return false };
        let ends = self.never_returns(target, depth).unwrap_or(false);
        // A negative result at a smaller depth may be incomplete and is not kept.
        if (ends || depth + 1 == MAX_DEPTH)
            && let Ok(mut known) = self.known.lock()
        {
            known.insert(target, ends);
        }
        ends
    }

    /// Whether the code at `target` never returns; `None` if it cannot be followed.
    fn never_returns(&self, target: u64, depth: usize) -> Option<bool> {
        let mut seen = BTreeSet::new();
        let mut work = vec![target];
        let mut left = MAX_INSTRUCTIONS;
        while let Some(start) = work.pop() {
            if !seen.insert(start) {
                continue;
            }
            let section = self.image.section_at(start).filter(|section| section.is_code())?;
            let bytes = section.bytes.get((start - section.address) as usize..)?;
            let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
            let mut instruction = Instruction::default();
            loop {
                left = left.checked_sub(1)?;
                decoder.decode_out(&mut instruction);
                if instruction.is_invalid() {
                    return None;
                }
                let near = instruction.op0_kind() == OpKind::NearBranch64;
                match instruction.flow_control() {
                    FlowControl::Return => return Some(false),
                    FlowControl::ConditionalBranch if near => work.push(instruction.near_branch_target()),
                    FlowControl::UnconditionalBranch if near => {
                        work.push(instruction.near_branch_target());
                        break;
                    }
                    FlowControl::IndirectBranch if self.ends_through(&instruction) => break,
                    FlowControl::Call
                        if near && self.ends_within(instruction.near_branch_target(), depth) =>
                    {
                        break;
                    }
                    FlowControl::IndirectCall if self.ends_through(&instruction) => break,
                    FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall
                        if instruction.mnemonic() != Mnemonic::Hlt => {}
                    FlowControl::Interrupt if instruction.mnemonic() != Mnemonic::Int3 => {}
                    FlowControl::Exception | FlowControl::Interrupt | FlowControl::Next => break,
                    _ => return None,
                }
                // A call at the end of a function does not return: the compiler left no code after it.
                let is_call =
                    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
                if is_call && self.moves.described_ending_at(Address(instruction.next_ip())).is_some() {
                    break;
                }
                if seen.contains(&instruction.next_ip()) {
                    break;
                }
            }
        }
        Some(true)
    }
}

fn is_ending(name: &[u8]) -> bool {
    let is_throwing = name.starts_with(THROWING) && name.windows(THROW.len()).any(|part| part == THROW);
    ENDING.contains(&name) || is_throwing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_that_throw_are_known_by_their_names() {
        assert!(is_ending(b"_ZSt17__throw_bad_allocv") && is_ending(b"exit"));
        assert!(!is_ending(b"_ZSt4cout") && !is_ending(b"error") && !is_ending(b""));
    }
}
