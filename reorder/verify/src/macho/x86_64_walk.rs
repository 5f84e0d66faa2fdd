//! Finds which bytes of an atom of x86-64 code are instructions.
//!
//! Compilers for Apple's systems put jump tables after the code of a function, mostly unmarked, so decoding from the first
//! byte to the last would read tables as instructions. Control is followed instead: from the start, along branches, and
//! through tables of distances whose address the function takes. Bytes that control is not seen to reach, such as landing
//! pads, are decoded from the first one up to the first that is not an instruction; these bytes are listed as uncertain.
//!
//! In: the bytes of one atom. Out: its address fields in order, and whether control runs past its end.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::super::bytes::displacement_at;
use super::super::fields::{AddressField, Addressing, addressing};
use super::super::padding::padding_length;
use super::super::processor::Processor;
use super::view::MachView;

/// An address field with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacedField {
    /// Position of the field in the atom.
    pub(super) at: usize,
    /// Position of the end of its instruction.
    pub(super) end: usize,
    pub(super) field: AddressField,
}

/// The contents of one atom.
#[derive(Clone, Debug, Default)]
pub(super) struct Walk {
    /// By position.
    pub(super) fields: Vec<PlacedField>,
    pub(super) instructions: usize,
    /// Control may run past the last byte.
    pub(super) runs_on: bool,
    /// It jumps to an address that it computes or reads.
    pub(super) has_computed_jump: bool,
    /// An instruction that cannot be checked: position.
    pub(super) unsupported: Option<usize>,
    /// A byte that is no instruction, data or padding: position.
    pub(super) unexplained: Option<usize>,
    /// Positions that control is not seen to reach. Instructions may begin at other positions than those decoded.
    pub(super) unreached: Vec<Range<usize>>,
    /// One past the last byte that is data or belongs to an instruction other than padding.
    pub(super) end: usize,
}

/// What is known of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Byte {
    Unknown,
    Code,
    Data,
}

struct Walker<'a> {
    code: &'a [u8],
    address: u64,
    bytes: Vec<Byte>,
    open: Vec<usize>,
    /// Positions whose address the function takes, in what was decoded since the last look for tables.
    taken: Vec<usize>,
    /// All of them.
    addressed: Vec<usize>,
    /// Positions whose address the function may take, ascending: no table goes on over the start of another.
    limits: Vec<usize>,
    /// Those of them where a table may begin, because control does not run into it.
    bases: Vec<usize>,
    /// Where the zeros at the end begin; no instruction starts there.
    end: usize,
    /// Control runs past the last instruction other than padding, and that instruction is not a call.
    is_live: bool,
    walk: Walk,
}

/// How often an atom is walked with other ends of its tables.
const MAX_WALKS: usize = 8;

/// Walks the atom `code`, which stands at `address` of `image`.
pub(super) fn walk(image: &MachView<'_>, code: &[u8], address: u64) -> Walk {
    let (mut limits, may_have_tables) = addresses_taken(code, address);
    let mut first: Option<Walk> = None;
    for _ in 0..MAX_WALKS {
        let (walk, addressed) = walk_within(image, code, address, &limits, may_have_tables);
        if walk.unexplained.is_none() && walk.unsupported.is_none() {
            return walk;
        }
        first.get_or_insert(walk);
        // Tables that were decoded as instructions may have ended other tables too early. Instructions that control
        // reaches take fewer addresses.
        if addressed == limits {
            break;
        }
        limits = addressed;
    }
    first.unwrap_or_default()
}

/// Walks with tables that end at the `limits`; also returns the addresses that instructions reached by control take.
fn walk_within(
    image: &MachView<'_>,
    code: &[u8],
    address: u64,
    limits: &[usize],
    may_have_tables: bool,
) -> (Walk, Vec<usize>) {
    let leads_inside = |base: usize| {
        let target = displacement_at(code, base).map(|distance| (base as u64).wrapping_add(distance));
        target.is_some_and(|target| target < code.len() as u64 && target != base as u64)
    };
    let bases = limits.iter().copied().filter(|&base| may_have_tables && leads_inside(base)).collect();
    let end = address.wrapping_add(code.len() as u64);
    let entries = image.entries_between(address, end).iter().map(|entry| (entry - address) as usize);
    let mut walker = Walker {
        code,
        address,
        bytes: vec![Byte::Unknown; code.len()],
        open: entries.chain([0]).collect(),
        taken: Vec::new(),
        addressed: Vec::new(),
        limits: limits.to_vec(),
        bases,
        end: code.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1),
        is_live: false,
        walk: Walk::default(),
    };
    for range in image.data_between(address, end) {
        let from = range.start.saturating_sub(address) as usize;
        let to = (range.end.saturating_sub(address) as usize).min(code.len());
        walker.bytes[from.min(to)..to].fill(Byte::Data);
    }
    walker.follow();
    while walker.find_tables() {
        walker.follow();
    }
    let mut addressed = std::mem::take(&mut walker.addressed);
    addressed.sort_unstable();
    addressed.dedup();
    walker.walk.unreached = walker.unknown();
    walker.rest();
    let is_explained = |range: &Range<usize>| range.start >= walker.end || walker.is_padding(range.clone());
    walker.walk.unexplained =
        walker.unknown().iter().find(|range| !is_explained(range)).map(|range| range.start);
    let data = walker.bytes.iter().rposition(|byte| *byte == Byte::Data);
    walker.walk.end = walker.walk.end.max(data.map_or(0, |last| last + 1));
    walker.walk.fields.sort_unstable_by_key(|field| field.at);
    (walker.walk, addressed)
}

impl Walker<'_> {
    /// Decodes everything that is reached from the open positions.
    fn follow(&mut self) {
        while let Some(start) = self.open.pop() {
            let mut position = start;
            self.is_live = true;
            while let Some(next) = self.decode(position) {
                // Calls that never return may precede tables.
                if self.bases.binary_search(&next).is_ok() {
                    break;
                }
                position = next;
            }
        }
    }

    /// The runs of bytes that have not been classified.
    fn unknown(&self) -> Vec<Range<usize>> {
        let mut position = 0;
        let runs = self.bytes.chunk_by(|left, right| (*left == Byte::Unknown) == (*right == Byte::Unknown));
        let mut unknown = Vec::new();
        for run in runs {
            if run[0] == Byte::Unknown {
                unknown.push(position..position + run.len());
            }
            position += run.len();
        }
        unknown
    }

    /// Decodes one instruction; returns the position after it if control continues there and it was not decoded before.
    fn decode(&mut self, position: usize) -> Option<usize> {
        if position >= self.end {
            self.walk.runs_on |= self.is_live;
            return None;
        }
        if self.bytes[position] != Byte::Unknown {
            return None;
        }
        let mut decoder = Decoder::with_ip(
            64,
            &self.code[position..],
            self.address.wrapping_add(position as u64),
            DecoderOptions::NONE,
        );
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        let end = position + instruction.len();
        self.bytes[position..end].fill(Byte::Code);
        self.walk.instructions += 1;
        match addressing(&decoder, &instruction) {
            Addressing::None => {}
            Addressing::Unsupported => self.walk.unsupported = Some(position),
            Addressing::Field(field) => {
                self.walk.fields.push(PlacedField { at: position + field.offset, end, field });
                if let Some(target) = self.own(field.target) {
                    match field.is_branch {
                        true => self.open.push(target),
                        false if instruction.mnemonic() == Mnemonic::Lea => {
                            self.taken.push(target);
                            self.addressed.push(target);
                        }
                        false => {}
                    }
                }
            }
        }
        self.walk.has_computed_jump |= instruction.flow_control() == FlowControl::IndirectBranch
            && matches!(instruction.op0_kind(), OpKind::Register | OpKind::Memory);
        if !falls_through(&instruction) {
            self.walk.end = self.walk.end.max(end);
            return None;
        }
        if !is_padding(&instruction) {
            self.walk.end = self.walk.end.max(end);
            // A call at the end of a function does not return.
            self.is_live =
                !matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        }
        Some(end)
    }

    fn own(&self, target: u64) -> Option<usize> {
        let position = usize::try_from(target.checked_sub(self.address)?).ok()?;
        (position < self.code.len()).then_some(position)
    }

    /// Reads the tables at the addresses taken; returns whether that found anything new.
    fn find_tables(&mut self) -> bool {
        let mut taken = std::mem::take(&mut self.taken);
        taken.sort_unstable();
        taken.dedup();
        for base in taken {
            let next = self.limits.partition_point(|&limit| limit <= base);
            let limit = self.limits.get(next).copied().unwrap_or(self.code.len());
            let mut place = base;
            while self.walk.has_computed_jump && place + 4 <= limit {
                let is_free = self.bytes[place..place + 4].iter().all(|byte| *byte != Byte::Code);
                let distance = displacement_at(self.code, place);
                let target =
                    distance.map(|distance| self.address.wrapping_add(base as u64).wrapping_add(distance));
                let Some(target) = target.and_then(|target| self.own(target)).filter(|_| is_free) else {
                    break;
                };
                // No table leads into itself.
                if (base..place + 4).contains(&target) {
                    break;
                }
                self.bytes[place..place + 4].fill(Byte::Data);
                self.open.push(target);
                place += 4;
            }
            if place == base {
                self.open.push(base);
            }
        }
        !self.open.is_empty()
    }

    /// Decodes what was not reached, except padding.
    fn rest(&mut self) {
        let mut position = 0;
        while position < self.code.len() {
            if self.bytes[position] != Byte::Unknown {
                position += 1;
                continue;
            }
            let end =
                position + self.bytes[position..].iter().take_while(|byte| **byte == Byte::Unknown).count();
            self.is_live = false;
            // The end of the padding examined last: examining each of its bytes again would take quadratic time.
            let mut padding_end = position;
            while position < end.min(self.end) {
                // Zeros would be instructions, too, if anything led to them.
                if !self.is_live && position >= padding_end {
                    padding_end = position + padding_length(Processor::X86_64, &self.code[position..end], 0);
                    if padding_end == end {
                        break;
                    }
                }
                match self.decode_unreached(position, end) {
                    Some(next) => position = next,
                    None => break,
                }
            }
            self.follow();
            position = end;
        }
    }

    /// Whether the bytes there are only padding.
    fn is_padding(&self, range: Range<usize>) -> bool {
        padding_length(Processor::X86_64, &self.code[range.clone()], 0) == range.len()
    }

    /// As [`Self::decode`], but goes on after jumps, and never over the `end`.
    fn decode_unreached(&mut self, position: usize, end: usize) -> Option<usize> {
        if self.bytes[position] != Byte::Unknown {
            return Some(position + 1);
        }
        let mut decoder = Decoder::new(64, &self.code[position..end], DecoderOptions::NONE);
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        let next = position + instruction.len();
        if self.decode(position).is_none() {
            self.is_live = false;
        } else if next >= self.end {
            self.walk.runs_on |= self.is_live;
        }
        Some(next)
    }
}

/// Positions in `code` that any instruction takes the address of, decoded from the first byte to the last, ascending; and
/// whether there is a computed jump. Tables may be misread here, which can only end a table too early.
fn addresses_taken(code: &[u8], address: u64) -> (Vec<usize>, bool) {
    let own = address..address.wrapping_add(code.len() as u64);
    let mut taken = Vec::new();
    let mut has_computed_jump = false;
    for instruction in Decoder::with_ip(64, code, address, DecoderOptions::NONE) {
        has_computed_jump |= instruction.flow_control() == FlowControl::IndirectBranch;
        if instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand() {
            let target = instruction.ip_rel_memory_address();
            if own.contains(&target) {
                taken.push((target - address) as usize);
            }
        }
    }
    taken.sort_unstable();
    taken.dedup();
    (taken, has_computed_jump)
}

fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

fn falls_through(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::Next
        | FlowControl::ConditionalBranch
        | FlowControl::XbeginXabortXend
        | FlowControl::Call
        | FlowControl::IndirectCall => !matches!(instruction.mnemonic(), Mnemonic::Hlt | Mnemonic::Ud2),
        FlowControl::Interrupt => instruction.mnemonic() == Mnemonic::Int,
        _ => false,
    }
}
