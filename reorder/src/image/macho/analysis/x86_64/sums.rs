//! Calls and jumps to sums: the address of a function plus a distance that the program keeps in its data.
//!
//! Such distances count from a function and not from their own place, so no list and no scan of the data knows them. Where the
//! code of an atom goes to a register in which two were added, the functions whose addresses it takes stay, and so do all
//! that the words of the tables it addresses lead to from there. Which register holds what is not followed: too much costs
//! a function its freedom.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::X86Context;
use super::fields::Use;
use super::walk::Walk;
use crate::address::Address;
use crate::image::analysis::computed_addresses::{LONGEST_TABLE, MOST_SUMS, may_lead_to_code};

/// Bytes of the distances that programs store.
const WIDTHS: [u64; 2] = [4, 8];

/// What a sum may lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    /// Functions that must stay, sorted.
    pub(super) functions: Vec<Address>,
    /// There are more sums than are tried.
    pub(super) is_cut_off: bool,
}

/// What the sums that `atom` goes to may lead to. `explained` are its jumps whose targets are known.
pub(super) fn reached(
    context: &X86Context<'_>,
    atom: &Range<Address>,
    walk: &Walk<'_>,
    is_explained: impl Fn(Address) -> bool,
) -> Reached {
    let text = context.file.text().range();
    let taken = walk.fields.iter().filter(|field| field.used == Use::Take).map(|field| field.target);
    let bases: BTreeSet<Address> =
        taken.filter(|target| text.contains(target) && !atom.contains(target)).collect();
    let (Some(lowest), Some(highest)) = (bases.first().copied(), bases.last().copied()) else {
        return Reached::default();
    };
    if !goes_to_sum(&walk.instructions(), is_explained) {
        return Reached::default();
    }
    let mut functions = bases.clone();
    let tables: BTreeSet<Address> = walk
        .fields
        .iter()
        .filter(|field| matches!(field.used, Use::Take | Use::Memory))
        .map(|field| field.target)
        .filter(|place| !context.is_code(*place))
        .collect();
    let mut budget = MOST_SUMS;
    for (table, width) in tables.iter().flat_map(|table| WIDTHS.map(|width| (*table, width))) {
        let words = (0..LONGEST_TABLE as u64).map_while(|index| {
            let place = table.plus(width * index);
            match width {
                4 => context.file.word_at(place).map(|word| i64::from(word as i32) as u64),
                _ => context.file.long_at(place),
            }
        });
        for word in words.filter(|word| *word != 0 && may_lead_to_code((lowest, highest), *word, &text)) {
            let Some(rest) = budget.checked_sub(bases.len()) else {
                return Reached { functions: Vec::new(), is_cut_off: true };
            };
            budget = rest;
            let targets = bases.iter().map(|base| base.plus(word));
            functions.extend(targets.filter(|target| context.starts.binary_search(target).is_ok()));
        }
    }
    Reached { functions: functions.into_iter().collect(), is_cut_off: false }
}

/// Whether control goes to a register into which anything was added.
fn goes_to_sum(instructions: &[Instruction], is_explained: impl Fn(Address) -> bool) -> bool {
    let is_register = |instruction: &&Instruction| instruction.op0_kind() == OpKind::Register;
    let gone_to: BTreeSet<Register> = instructions
        .iter()
        .filter(|instruction| match instruction.flow_control() {
            FlowControl::IndirectCall => true,
            FlowControl::IndirectBranch => !is_explained(Address(instruction.ip())),
            _ => false,
        })
        .filter(is_register)
        .map(|instruction| instruction.op0_register().full_register())
        .collect();
    if gone_to.is_empty() {
        return false;
    }
    let mut sums: BTreeSet<Register> = instructions.iter().filter_map(sum).collect();
    // Copies of a register, and copies of these.
    loop {
        let known = sums.len();
        let copies = instructions.iter().filter(|instruction| {
            matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64)
                && instruction.op1_kind() == OpKind::Register
                && sums.contains(&instruction.op1_register())
        });
        let copies: Vec<Register> = copies.map(Instruction::op0_register).collect();
        sums.extend(copies);
        if sums.len() == known {
            break;
        }
    }
    gone_to.iter().any(|register| sums.contains(register))
}

/// The register that gets the sum of two registers, or of one and a word of memory.
fn sum(instruction: &Instruction) -> Option<Register> {
    let target = instruction.op0_register();
    let is_sum = match instruction.mnemonic() {
        Mnemonic::Add | Mnemonic::Sub => {
            matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory)
        }
        Mnemonic::Lea => {
            instruction.memory_base() != Register::None && instruction.memory_index() != Register::None
        }
        _ => false,
    };
    (is_sum && target.is_gpr64()).then(|| target.full_register())
}
