//! Functions that compute with the address that they return to.
//!
//! Such a function may expect certain code there, or calls from certain places only: `__morestack` of split stacks goes on
//! after the instruction that follows its call. A copy calls from elsewhere, and holds only what branches reach. So a
//! function that calls such a function is not copied. To keep the address, or to hand it on, is no computation.

use std::collections::BTreeMap;

use reorder_base::address::Address;
use reorder_base::processor::Processor;
use reorder_image::elf::code::CodeSpace;

use super::{aarch64_return, own_convention, x86_64_return};

/// What is known of called functions.
pub(super) struct ReturnAddresses<'run> {
    code: &'run CodeSpace<'run>,
    known: BTreeMap<Address, bool>,
}

impl<'run> ReturnAddresses<'run> {
    /// Nothing is known yet.
    pub(super) fn new(code: &'run CodeSpace<'run>) -> Self {
        Self { code, known: BTreeMap::new() }
    }

    /// Whether what is called at `target` computes with the address of its caller, or belongs to a run-time that looks it up.
    pub(super) fn are_read_at(&mut self, target: Address) -> bool {
        /// Bytes that are looked at; longer functions read the address at their start.
        const WINDOW: u64 = 0x1000;
        let Some(arena) = self.code.arena_of(target) else { return false };
        let code = self.code;
        *self.known.entry(target).or_insert_with(|| {
            let bytes = code.bytes(target..arena.end.min(target.plus(WINDOW)));
            match code.processor {
                Processor::Aarch64 => {
                    aarch64_return::computes_with_return_address(bytes)
                        || own_convention::expects_preserved_register_aarch64(bytes)
                }
                Processor::X86_64 | Processor::Other => {
                    x86_64_return::computes_with_return_address(bytes)
                        || own_convention::expects_preserved_register(bytes)
                }
            }
        })
    }
}
