//! How blocks are reached without jump tables: which are called or addressed, and where branches enter them.

use super::blocks::{BlockIndex, Partition};
use super::pointers::CodePointer;
use crate::decode::x86_64::{DecodedBlock, FieldKind};
use crate::elf::code::CodeSpace;
use reorder_base::address::Address;

/// What fields and pointers say of each block.
pub struct BlockUses {
    is_called: Vec<bool>,
    is_referenced: Vec<bool>,
    /// Sorted places, not entries, that pointers or other blocks' fields lead to.
    entered: Vec<Address>,
}

impl BlockUses {
    /// Collects the uses from all fields, from the loader's pointers and from the headers.
    pub fn new(
        code: &CodeSpace<'_>,
        partition: &Partition,
        decoded: &[DecodedBlock],
        pointers: &[CodePointer],
        roots: &[Address],
    ) -> Self {
        let count = partition.blocks.len();
        let mut uses =
            Self { is_called: vec![false; count], is_referenced: vec![false; count], entered: Vec::new() };
        let data = pointers.iter().map(|pointer| pointer.target).chain(roots.iter().copied());
        for target in data {
            if let Some(block) = partition.block_containing(target) {
                uses.is_called[block.0 as usize] = true;
                uses.is_referenced[block.0 as usize] = true;
                uses.entered.extend(Some(target).filter(|target| !partition.block(block).is_entry(*target)));
            }
        }
        for field in decoded.iter().flat_map(|block| &block.fields) {
            let target = field.target(code);
            let Some(index) = partition.block_containing(target) else { continue };
            let is_jump = matches!(field.kind, FieldKind::Jump | FieldKind::ShortJump);
            uses.is_referenced[index.0 as usize] = true;
            uses.is_called[index.0 as usize] |= !is_jump;
            uses.entered.extend(Some(target).filter(|target| !partition.block(index).is_entry(*target)));
        }
        uses.entered.sort_unstable();
        uses.entered.dedup();
        uses
    }

    /// Only jumps, or no listed references, lead to the block: it can be a part that a compiler split off.
    pub(crate) fn may_be_part(&self, block: BlockIndex) -> bool {
        !self.is_called[block.0 as usize]
    }

    /// Some field or pointer refers to the block.
    pub(crate) fn is_referenced(&self, block: BlockIndex) -> bool {
        self.is_referenced[block.0 as usize]
    }

    /// Something outside of its block leads to `address`, which is no entry.
    pub fn is_entered(&self, address: Address) -> bool {
        self.entered.binary_search(&address).is_ok()
    }
}
