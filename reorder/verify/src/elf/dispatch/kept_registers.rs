//! The registers that a call of one of the image's own functions preserves.
//!
//! The calling convention lets a callee overwrite nine registers. A compiler that sees caller and callee knows which of the
//! nine the callee leaves alone, and keeps the addresses of tables there across the call (`-fipa-ra`, on in gcc from -O2).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};

use super::formed::{Formed, RegisterSet, written_by};
use crate::elf::view::ElfView;

/// Instructions that are decoded of a callee and of everything that it calls.
const MAX_INSTRUCTIONS: usize = 1 << 11;
/// Depth to which nested calls are followed.
const MAX_DEPTH: usize = 16;

/// What is known of the callees of an image.
#[derive(Debug)]
pub(crate) struct KeptRegisters<'a> {
    image: &'a ElfView<'a>,
    known: Mutex<BTreeMap<u64, RegisterSet>>,
}

impl<'a> KeptRegisters<'a> {
    /// An empty cache for the callees of `image`.
    pub(crate) fn of(image: &'a ElfView<'a>) -> Self {
        Self { image, known: Mutex::default() }
    }

    /// The registers that the callee at `target` certainly does not write; none if its code cannot be followed to each
    /// return.
    pub(crate) fn by(&self, target: u64) -> RegisterSet {
        if let Some(kept) = self.known.lock().ok().and_then(|known| known.get(&target).copied()) {
            return kept;
        }
        // Each callee has a budget of its own, so the result does not depend on the order of queries.
        let mut walk = Walk {
            image: self.image,
            left: MAX_INSTRUCTIONS,
            done: BTreeMap::new(),
            factory: InstructionInfoFactory::new(),
        };
        let kept = walk.written(target, MAX_DEPTH).map_or(0, |written| !written);
        if let Ok(mut known) = self.known.lock() {
            known.insert(target, kept);
        }
        kept
    }
}

/// One callee and what it calls.
struct Walk<'a> {
    image: &'a ElfView<'a>,
    /// Instructions that may still be decoded.
    left: usize,
    /// The registers that each function writes; `None` while it is being followed, so recursion counts as unknown.
    done: BTreeMap<u64, Option<RegisterSet>>,
    factory: InstructionInfoFactory,
}

impl Walk<'_> {
    /// What the function at `target` may write; `None` if its code cannot be followed.
    fn written(&mut self, target: u64, depth: usize) -> Option<RegisterSet> {
        if let Some(&written) = self.done.get(&target) {
            return written;
        }
        self.done.insert(target, None);
        let written = self.follow(target, depth.checked_sub(1)?);
        self.done.insert(target, written);
        written
    }

    fn follow(&mut self, target: u64, depth: usize) -> Option<RegisterSet> {
        let mut seen = BTreeSet::new();
        let mut work = vec![target];
        let mut written = 0;
        // Targets of branches, and the ranges from each computed address to the call that uses it: a branch into such a
        // range may bring another callee.
        let (mut entered, mut resolved) = (BTreeSet::new(), Vec::new());
        while let Some(start) = work.pop() {
            let section = self.image.section_at(start).filter(|section| section.is_code())?;
            let bytes = section.bytes.get(usize::try_from(start - section.address).ok()?..)?;
            let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
            let mut instruction = Instruction::default();
            let mut previous = Instruction::default();
            let mut formed = Formed::default();
            while seen.insert(decoder.ip()) {
                self.left = self.left.checked_sub(1)?;
                decoder.decode_out(&mut instruction);
                if instruction.is_invalid() {
                    return None;
                }
                let own = written_by(&instruction, &mut self.factory);
                written |= own;
                let mut called = 0;
                let near = || {
                    let is_near = instruction.op0_kind() == OpKind::NearBranch64;
                    is_near.then(|| instruction.near_branch_target())
                };
                match instruction.flow_control() {
                    FlowControl::Next => {}
                    FlowControl::ConditionalBranch => {
                        entered.insert(near()?);
                        work.push(near()?);
                    }
                    FlowControl::UnconditionalBranch => {
                        entered.insert(near()?);
                        work.push(near()?);
                        break;
                    }
                    FlowControl::Call => called = self.written(near()?, depth)?,
                    // GCC's -mforce-indirect-call, and calls of functions that may be far away.
                    FlowControl::IndirectCall => {
                        let (place, callee) = formed.called(&instruction)?;
                        resolved.push(place + 1..instruction.next_ip());
                        called = self.written(callee, depth)?;
                    }
                    FlowControl::IndirectBranch => {
                        let (place, callee) = formed.called(&instruction)?;
                        resolved.push(place + 1..instruction.next_ip());
                        entered.insert(callee);
                        work.push(callee);
                        break;
                    }
                    // A thunk overwrites its return address with the address that it calls.
                    FlowControl::Return if replaces_return_address(&previous) => return None,
                    FlowControl::Return | FlowControl::Exception => break,
                    _ => return None,
                }
                previous = instruction;
                written |= called;
                formed.follow(&instruction, own | called);
            }
        }
        let is_entered = |range: &Range<u64>| entered.range(range.clone()).next().is_some();
        (!resolved.iter().any(is_entered)).then_some(written)
    }
}

/// Whether a return right after this instruction goes to an address that the instruction stored.
fn replaces_return_address(previous: &Instruction) -> bool {
    let is_store = previous.op_count() > 0
        && previous.op0_kind() == OpKind::Memory
        && previous.memory_base() == Register::RSP;
    is_store || previous.mnemonic() == Mnemonic::Push
}
