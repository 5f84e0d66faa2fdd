//! Bytes right before an entry that belong to it and move with it.
//!
//! Compilers put there what callers compare or what tools patch: they reach it by a distance from the entry. Known are the signature and
//! type hash of clang's `-fsanitize=function`, the type hash of `-fsanitize=kcfi`, and patchable no-operations that a pointer
//! names. Bytes of any other kind that end at an entry may be data of the function, too: they stay with all code that no
//! function describes, so the function stays.

use super::blocks::{BlockIndex, Partition, padding_length};
use super::pointers::CodePointer;
use super::references::Finding;
use crate::elf::code::CodeSpace;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;
use reorder_base::processor::Processor;

/// What `-fsanitize=function` of clang 17 and later puts before a type hash of four bytes.
const FUNCTION_SIGNATURE: [u8; 4] = 0xc105_cafe_u32.to_le_bytes();
const SIGNED_PREFIX_LENGTH: usize = 8;
/// `mov eax, imm32`, which is never executed.
const TYPE_HASH_LENGTH: usize = 5;
const MOV_EAX_IMMEDIATE: u8 = 0xb8;

/// Pointers into one gap that are looked at.
const MAX_NAMED: usize = 64;

/// Where the prefix of an entry begins; `bytes`, which stand at `start`, end at the entry and belong to no other function.
pub(super) fn prefix_start(
    processor: Processor,
    bytes: &[u8],
    pointers: &[CodePointer],
    start: Address,
) -> Address {
    let without_data = &bytes[..bytes.len() - data_length(processor, bytes)];
    let end = start.plus(without_data.len() as u64);
    let first = pointers.partition_point(|pointer| pointer.target < start);
    let named = pointers[first..].iter().map(|pointer| pointer.target).take_while(|target| *target < end);
    // What stands before those no-operations may be filler of another kind: gold jumps over its own.
    let is_filler = |target: &Address| {
        let rest = &without_data[target.distance_from(start) as usize..];
        padding_length(processor, rest, *target) == rest.len()
    };
    named.take(MAX_NAMED).find(is_filler).unwrap_or(end)
}

/// Length of the constants at the end of `bytes`. On AArch64 `Prefixes` finds them.
fn data_length(processor: Processor, bytes: &[u8]) -> usize {
    if processor == Processor::Aarch64 {
        return 0;
    }
    let last = |length: usize| bytes.len().checked_sub(length).map_or(&[][..], |start| &bytes[start..]);
    if last(SIGNED_PREFIX_LENGTH).starts_with(&FUNCTION_SIGNATURE) {
        return SIGNED_PREFIX_LENGTH;
    }
    let before = bytes.len().saturating_sub(TYPE_HASH_LENGTH);
    let is_type_hash = last(TYPE_HASH_LENGTH).first() == Some(&MOV_EAX_IMMEDIATE)
        && padding_length(processor, &bytes[..before], Address(0)) == before;
    if is_type_hash { TYPE_HASH_LENGTH } else { 0 }
}

/// Pins the x86-64 functions that follow code or data of no function without padding between.
///
/// On AArch64 [`Prefixes`](super::aarch64::prefixes::Prefixes) finds what callers read.
pub(super) fn check_prefixes(code: &CodeSpace<'_>, partition: &Partition) -> Vec<Finding> {
    let mut findings = Vec::new();
    if code.processor == Processor::Aarch64 {
        return findings;
    }
    for index in 0..partition.blocks.len() {
        let block = BlockIndex(index as u32);
        if let Some(evidence) = partition.bytes_before(code, block) {
            findings.push(Finding::Pin(block, Pin { reason: PinReason::GluedToGap, evidence }));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start_of(bytes: &[u8], pointers: &[u64]) -> u64 {
        let pointer = |&target: &u64| CodePointer {
            target: Address(target),
            place: Address(0),
            addend_field: None,
            place_field: None,
        };
        let pointers: Vec<CodePointer> = pointers.iter().map(pointer).collect();
        prefix_start(Processor::X86_64, bytes, &pointers, Address(0x1000)).0
    }

    #[test]
    fn constants_belong_to_the_entry_after_them() {
        // The hash is a return, and looks like the end of a function.
        let signed = [0x90, 0x90, 0xfe, 0xca, 0x05, 0xc1, 0x31, 0xc0, 0x5b, 0xc3];
        assert_eq!((start_of(&signed, &[]), start_of(&signed, &[0x1001])), (0x1002, 0x1001));
        // After code of no function; pointers to another function.
        let after_code = [0x31, 0xc0, 0xfe, 0xca, 0x05, 0xc1, 1, 2, 3, 4];
        assert_eq!(start_of(&after_code, &[0x1001, 0x2000]), 0x1002);
        assert_eq!(start_of(&[0xcc, 0xb8, 1, 2, 3, 4], &[]), 0x1001);
        assert_eq!(start_of(&[0xc3, 0xb8, 1, 2, 3, 4], &[]), 0x1006);
        assert_eq!((start_of(&[0x90; 4], &[]), start_of(&[0x90; 4], &[0x1002])), (0x1004, 0x1002));
        // jmp over no-operations, of which the last two are patchable.
        let jumped_over = [0xe9, 4, 0, 0, 0, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];
        assert_eq!((start_of(&jumped_over, &[0x1009]), start_of(&jumped_over, &[0x1001])), (0x1009, 0x100b));
        assert_eq!((start_of(&[], &[]), start_of(&[0x05, 0xc1, 1, 2, 3, 4], &[])), (0x1000, 0x1006));
    }
}
