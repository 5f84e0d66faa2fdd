//! Constants that AArch64 code adds to a pointer before it calls it, as [`super::super::call_offsets`] uses them.
//!
//! Instructions are looked at in the order of their addresses, regardless of control flow: that errs on the side of
//! seeing an offset.

use std::collections::BTreeSet;

use rayon::prelude::*;

use crate::code_reference::{AtomReferences, CodeForm};
use crate::decode::aarch64::{Operation, Register, WORD, decode, uses};
use crate::decode::sums::{CallOffset, MAX_BIAS};
use crate::elf::analysis::absolute_addresses::{literals, possible_places};
use crate::elf::analysis::blocks::Block;
use crate::elf::analysis::call_offsets::{Held, keep_distances, stored_elsewhere};
use crate::elf::analysis::computed_addresses::CodeView;
use crate::elf::analysis::pointers::CodePointer;
use crate::elf::analysis::references::Finding;
use crate::elf::code::CodeSpace;
use crate::elf::relocation::LoaderRelocation;
use reorder_base::address::Address;
use reorder_base::error::Result;

/// Registers that a call may change: x0 to x18 and the link register.
const CALL_CLOBBERED: u32 = 0x4007_ffff;

/// Pins for the pointers of an image, and for what its code forms.
///
/// # Errors
/// R7 where code takes off more different constants than are tried.
pub(super) fn check_call_offsets(
    view: CodeView<'_, '_>,
    references: &AtomReferences,
    pointers: &[CodePointer],
    relocations: &[LoaderRelocation],
) -> Result<Vec<Finding>> {
    let CodeView { file, code, partition } = view;
    let of_block =
        |block: &Block| offsets_of(code, block.first_function, code.bytes(block.first_function..block.end));
    let offsets: BTreeSet<CallOffset> = partition.blocks.par_iter().flat_map_iter(of_block).collect();
    if offsets.is_empty() {
        return Ok(Vec::new());
    }
    let mut addresses: Vec<Held> =
        pointers.iter().map(|pointer| (pointer.target, pointer.place, true)).collect();
    addresses.extend(stored_elsewhere(code, relocations));
    for (index, block) in partition.blocks.iter().enumerate() {
        let formed = references.of_atom(index, block.first_function);
        let formed = formed.filter(|reference| reference.form != CodeForm::Branch26);
        addresses.extend(formed.map(|reference| (reference.target, block.first_function, true)));
        // A function that forms its own address has no reference that leaves it.
        if !of_block(block).is_empty() {
            addresses.push((block.first_function, block.first_function, true));
        }
    }
    if code.is_fixed_address {
        let constants = literals(code, partition);
        let stored = possible_places(file, code).chain(constants.values());
        addresses.extend(stored.map(|target| (target, target, false)));
    }
    keep_distances(code, partition, &offsets, addresses.into_iter())
}

/// The offsets of the calls in `bytes`, which stand at `start`.
fn offsets_of(code: &CodeSpace<'_>, start: Address, bytes: &[u8]) -> Vec<CallOffset> {
    let mut added = [0u64; 32];
    // Registers that hold a page: what is added to those makes the address.
    let mut pages = 0u32;
    let mut found = Vec::new();
    for (index, bytes) in bytes.chunks_exact(WORD as usize).enumerate() {
        let word = bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        let at = |register: Register| usize::from(register.0);
        let operation = decode(word, start.plus(index as u64 * WORD));
        let written = uses(word).writes;
        match operation {
            Operation::AddImmediate(to, from, number) => {
                let is_page = pages >> from.0 & 1 == 1;
                added[at(to)] = if is_page { 0 } else { added[at(from)].wrapping_add(number) };
            }
            Operation::Move(to, from) => added[at(to)] = added[at(from)],
            Operation::CallRegister(register) => {
                found.extend(within(added[at(register)]));
                lose(&mut added, CALL_CLOBBERED);
            }
            Operation::BranchRegister(register) => {
                found.extend(within(added[at(register)]));
                lose(&mut added, u32::MAX);
            }
            Operation::Call(target) | Operation::Branch(target) => {
                let called = register_of_thunk(code, target);
                found.extend(called.and_then(|register| within(added[at(register)])));
                let is_call = matches!(operation, Operation::Call(_));
                lose(&mut added, if is_call { CALL_CLOBBERED } else { u32::MAX });
            }
            Operation::Return | Operation::Trap => lose(&mut added, u32::MAX),
            _ => match subtracted(word) {
                Some((to, from, number)) => added[at(to)] = added[at(from)].wrapping_sub(number),
                None => lose(&mut added, written | uses(word).may_write),
            },
        }
        pages &= !written;
        if let Operation::Adrp(register, _) = operation {
            pages |= 1 << register.0;
        }
        // The zero register and the stack pointer are no pointers to code.
        added[at(Register::NONE)] = 0;
    }
    found
}

/// The register is the call's operand, or that of the thunk that it leads to. Other direct calls do not count: an offset from a
/// label within a function would lead to the next function by chance.
fn within(offset: u64) -> Option<CallOffset> {
    let is_within = offset != 0 && (offset <= MAX_BIAS || offset.wrapping_neg() <= MAX_BIAS);
    is_within.then_some(CallOffset { offset, is_certain: true })
}

fn lose(added: &mut [u64; 32], registers: u32) {
    added.iter_mut().enumerate().filter(|(index, _)| registers >> index & 1 == 1).for_each(|(_, it)| *it = 0);
}

/// `SUB` of an immediate, 64 bits: destination, source, the number.
fn subtracted(word: u32) -> Option<(Register, Register, u64)> {
    let shift = (word >> 22 & 1) * 12;
    let number = u64::from(word >> 10 & 0xfff) << shift;
    (word & 0xff80_0000 == 0xd100_0000).then(|| (Register::at(word, 0), Register::at(word, 5), number))
}

/// The register that a thunk at `start` jumps to, perhaps after it copied it (GCC's and clang's -mharden-sls=blr).
fn register_of_thunk(code: &CodeSpace<'_>, start: Address) -> Option<Register> {
    let end = start.plus(2 * WORD);
    code.arena_of(start).filter(|arena| end <= arena.end)?;
    let mut words =
        code.bytes(start..end).chunks_exact(WORD as usize).filter_map(|bytes| bytes.first_chunk());
    // Where these stand makes no difference to what they do with registers.
    let mut next = || words.next().map(|word| decode(u32::from_le_bytes(*word), start));
    match (next()?, next()?) {
        (Operation::BranchRegister(register), _) => Some(register),
        (Operation::Move(copy, from), Operation::BranchRegister(register)) if copy == register => Some(from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtractions_are_read() {
        // sub x0, x1, #0x10; sub x2, x2, #1, lsl #12; add x0, x1, #0x10; subs x0, x1, #0x10
        assert_eq!(subtracted(0xd100_4020), Some((Register(0), Register(1), 16)));
        assert_eq!(subtracted(0xd140_0442), Some((Register(2), Register(2), 4096)));
        assert_eq!((subtracted(0x9100_4020), subtracted(0xf100_4020)), (None, None));
    }

    #[test]
    fn offsets_beyond_a_bias_are_none() {
        let offset =
            |offset: i64| within(offset.cast_unsigned()).map(|it| (it.offset.cast_signed(), it.is_certain));
        assert_eq!((offset(-16), offset(4096)), (Some((-16, true)), Some((4096, true))));
        assert_eq!((offset(0), offset(4097), offset(-4097)), (None, None, None));
    }
}
