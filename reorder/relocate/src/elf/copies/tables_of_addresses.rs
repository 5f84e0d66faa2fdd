//! Tables of addresses through which code of a program at a fixed address jumps: `jmp *table(,%rax,8)`, or a load and a jump.
//!
//! The instruction names the table, and nothing keeps its address. A table ends at the latest at the first word that leads to no
//! code and at the next table; the verifier, asked, says how many entries are read, and that what is loaded is only jumped to.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::assumed::operands_reach_copies;
use super::bodies::Body;
use super::tables::{Entry, Table};
use reorder_base::address::Address;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;

/// More than any switch has.
const MAX_ENTRIES: u64 = 1 << 16;

/// The tables that `bodies` jump through, by address.
pub(super) fn of_bodies(file: &ElfFile<'_>, analysis: &Analysis<'_>, bodies: &[Body]) -> Vec<Table> {
    if !operands_reach_copies(file) {
        return Vec::new();
    }
    let mut fields: BTreeMap<Address, BTreeMap<Address, Address>> = BTreeMap::new();
    for body in bodies {
        let code = analysis.code.bytes(body.range.clone());
        for (offset, _) in &body.walk.steps {
            let place = body.range.start.plus(u64::from(*offset));
            let rest = code.get(*offset as usize..).unwrap_or_default();
            if let Some((table, field)) = table_read(rest, place) {
                fields.entry(table).or_default().insert(field, place);
            }
        }
    }
    let bases: Vec<Address> = fields.keys().copied().collect();
    let table = |(base, fields): (Address, BTreeMap<Address, Address>)| {
        let next = bases.partition_point(|other| *other <= base);
        let end = bases.get(next).copied();
        let targets: Vec<Address> = (0..MAX_ENTRIES)
            .map_while(|number| {
                let is_before = |end| base.plus(number * Entry::Target.size()) < end;
                if !end.is_none_or(is_before) {
                    return None;
                }
                let word = file.bytes_at(base.plus(number * Entry::Target.size()), Entry::Target.size())?;
                let target = Address(u64::from_le_bytes(*word.first_chunk()?));
                analysis.code.arena_of(target).map(|_| target)
            })
            .collect();
        (!targets.is_empty()).then_some(Table { base, entry: Entry::Target, targets, fields })
    };
    fields.into_iter().filter_map(table).collect()
}

/// The table that the instruction at the start of `code` jumps through or loads from, and where it names it.
fn table_read(code: &[u8], place: Address) -> Option<(Address, Address)> {
    let mut decoder = Decoder::with_ip(64, code, place.0, DecoderOptions::NONE);
    let instruction = decoder.decode();
    let is_read = match instruction.mnemonic() {
        Mnemonic::Jmp => is_entry(&instruction, 0),
        Mnemonic::Mov => instruction.op0_register().is_gpr64() && is_entry(&instruction, 1),
        _ => false,
    };
    let field = place.plus(decoder.get_constant_offsets(&instruction).displacement_offset() as u64);
    is_read.then(|| (Address(instruction.memory_displacement64()), field))
}

/// Whether an operand is a word of a table whose address the instruction states.
fn is_entry(instruction: &Instruction, operand: u32) -> bool {
    instruction.op_kind(operand) == OpKind::Memory
        && instruction.memory_base() == Register::None
        && instruction.memory_index().is_gpr64()
        && instruction.memory_index_scale() == 8
        && instruction.memory_displ_size() >= 4
        && !matches!(instruction.segment_prefix(), Register::FS | Register::GS)
}
