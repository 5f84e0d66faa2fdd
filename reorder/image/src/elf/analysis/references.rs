//! Checks every address field and every code pointer against the partition.
//!
//! Takes decoded blocks and pointers; gives [`Finding`]s: which blocks must keep their distance, which must stay,
//! and which gaps are in use. `units` combines the findings and decides.

use crate::boundaries::Boundaries;
use crate::decode::x86_64::{DecodedBlock, Field, FieldKind};
use crate::elf::analysis::blocks::{BlockIndex, GapContent, Partition};
use crate::elf::analysis::pointers::CodePointer;
use crate::elf::code::{CodeSpace, Region};
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;

/// One consequence of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// All blocks from the first to the second keep their distances.
    Glue(BlockIndex, BlockIndex),
    /// The block stays.
    Pin(BlockIndex, Pin),
    /// The block stays, and what decoding it found is not to be trusted: none of its bytes may be written.
    Distrust(BlockIndex, Pin),
    /// The gap is referred to, so it is not free even where it looks like padding.
    KeepGap(usize),
    /// The gap keeps its bytes, whatever becomes of the function after it.
    KeepBytes(usize),
    /// The first block jumps into the second: parts of one function, whose jump tables may span both.
    Related(BlockIndex, BlockIndex),
}

/// How one field is to be treated.
enum Verdict {
    /// An ordinary field.
    Keep,
    /// A branch to the block's own end that means "unreachable": it moves with the block.
    OwnEnd,
}

/// Compilers align what is called; the parts that they split off a function are not.
const CALLED_ALIGNMENT: u64 = 16;

/// `jcc`, as opposed to the `jmp` of a call in tail position.
fn is_conditional(code: &CodeSpace<'_>, field: &Field) -> bool {
    const NEAR_JUMP: u8 = 0xe9;
    let place = code.address(field.place);
    code.bytes(Address(place.0 - 1)..place) != [NEAR_JUMP]
}

/// What a branch reaches when it skips a `lock` prefix on purpose.
const LOCK_PREFIX: u8 = 0xf0;

/// Checks the fields of one block; removes those that move with it. `returns`: whether each block has an instruction that
/// returns.
pub fn check_fields(
    code: &CodeSpace<'_>,
    partition: &Partition,
    boundaries: &Boundaries,
    index: BlockIndex,
    decoded: &mut DecodedBlock,
    returns: &[bool],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut fields = std::mem::take(&mut decoded.fields);
    fields.retain(|field| {
        let (verdict, found) = check_field(code, partition, boundaries, index, field);
        findings.extend(found);
        match verdict {
            Verdict::Keep => true,
            Verdict::OwnEnd => {
                decoded.refers_to_own_end = true;
                false
            }
        }
    });
    fields.shrink_to_fit();
    decoded.fields = fields;
    // Compilers emit no code after calls that never return; hand-written code also ends functions with calls that do.
    let comes_back = decoded
        .ends_with_call
        .and_then(|target| {
            partition.block_containing(target).filter(|&called| partition.block(called).is_entry(target))
        })
        .is_some_and(|called| returns[called.0 as usize]);
    if (decoded.falls_through || comes_back) && decoded.invalid_at.is_none() {
        let end = partition.block(index).end;
        let next = BlockIndex(index.0 + 1);
        let same_arena = partition
            .blocks
            .get(next.0 as usize)
            .is_some_and(|block| block.arena == partition.block(index).arena);
        let padded = partition
            .gap_containing(end)
            .is_none_or(|gap| partition.gaps[gap].content == GapContent::Padding);
        if same_arena && padded {
            findings.push(Finding::Glue(index, next));
        } else {
            findings.push(Finding::Pin(index, Pin { reason: PinReason::GluedToGap, evidence: end }));
        }
    }
    findings
}

fn check_field(
    code: &CodeSpace<'_>,
    partition: &Partition,
    boundaries: &Boundaries,
    index: BlockIndex,
    field: &Field,
) -> (Verdict, Vec<Finding>) {
    let mut findings = Vec::new();
    let block = partition.block(index);
    let target = field.target(code);
    let evidence = code.address(field.place);
    let pin = |reason| Pin { reason, evidence };
    let is_branch = matches!(field.kind, FieldKind::Jump | FieldKind::Call | FieldKind::ShortJump);
    match code.region(target) {
        Region::Arena => {}
        Region::FixedCode => {
            if field.kind == FieldKind::ShortJump || target == block.end && field.kind == FieldKind::Jump {
                findings.push(Finding::Pin(index, pin(PinReason::GluedToGap)));
            }
            return (Verdict::Keep, findings);
        }
        // An undefined weak function: the linker left a call to address zero that is never made.
        Region::Mapped | Region::Outside if target == Address(0) => return (Verdict::Keep, findings),
        Region::Data | Region::Mapped if !is_branch => return (Verdict::Keep, findings),
        _ if target == block.end && field.kind != FieldKind::Call && is_branch => {
            return (Verdict::OwnEnd, findings);
        }
        _ => {
            findings.push(Finding::Distrust(index, pin(PinReason::BranchOutsideCode)));
            return (Verdict::Keep, findings);
        }
    }
    if let Some(gap) = partition.gap_containing(target) {
        let is_padding = partition.gaps[gap].content == GapContent::Padding;
        if target == block.end && is_padding && matches!(field.kind, FieldKind::Jump | FieldKind::ShortJump) {
            return (Verdict::OwnEnd, findings);
        }
        findings.push(Finding::KeepGap(gap));
        if field.kind == FieldKind::ShortJump {
            findings.push(Finding::Pin(index, pin(PinReason::GluedToGap)));
        }
        if target == block.end && field.kind == FieldKind::AddressOf {
            findings.push(Finding::Pin(index, pin(PinReason::PointerInside)));
        }
        return (Verdict::Keep, findings);
    }
    let Some(other_index) = partition.block_containing(target) else { return (Verdict::Keep, findings) };
    let other = partition.block(other_index);
    let is_entry = other.is_entry(target);
    match field.kind {
        FieldKind::ShortJump => findings.push(Finding::Glue(index, other_index)),
        // The end of this block and the start of the next are one address: keeping both together keeps both
        // meanings.
        FieldKind::Jump | FieldKind::AddressOf if target == block.end => {
            findings.push(Finding::Glue(index, other_index));
        }
        FieldKind::Memory => findings.push(Finding::Pin(other_index, pin(PinReason::ReadAsData))),
        FieldKind::AddressOf if !is_entry => {
            findings.push(Finding::Pin(other_index, pin(PinReason::InsideAddressed)));
        }
        FieldKind::Jump if !is_entry || other.modulus < CALLED_ALIGNMENT || is_conditional(code, field) => {
            findings.push(Finding::Related(index, other_index));
        }
        _ => {}
    }
    if is_branch && !is_entry && !is_boundary(code, boundaries, target) {
        findings.push(Finding::Distrust(index, pin(PinReason::BranchInsideInstruction)));
        findings.push(Finding::Pin(other_index, pin(PinReason::BranchInsideInstruction)));
    }
    (Verdict::Keep, findings)
}

/// An instruction starts at `target`, or one does whose `lock` prefix is skipped.
pub fn is_boundary(code: &CodeSpace<'_>, boundaries: &Boundaries, target: Address) -> bool {
    let offset = code.offset(target);
    if boundaries.is_marked(offset) {
        return true;
    }
    let before = Address(target.0.wrapping_sub(1));
    code.arena_of(before).is_some()
        && boundaries.is_marked(code.offset(before))
        && code.bytes(before..target) == [LOCK_PREFIX]
}

/// Checks one pointer in data.
pub(crate) fn check_pointer(
    code: &CodeSpace<'_>,
    partition: &Partition,
    boundaries: &Boundaries,
    pointer: &CodePointer,
) -> Vec<Finding> {
    check_data_target(code, partition, boundaries, pointer.target, pointer.place)
}

/// Checks a code address that data holds at `place`.
pub(crate) fn check_data_target(
    code: &CodeSpace<'_>,
    partition: &Partition,
    boundaries: &Boundaries,
    target: Address,
    place: Address,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let pin = Pin { reason: PinReason::PointerInside, evidence: place };
    if let Some(gap) = partition.gap_containing(target) {
        findings.push(Finding::KeepGap(gap));
        // A pair of pointers around a function: its start would move away from its end.
        if let Some(before) = partition.block_containing(Address(target.0.wrapping_sub(1))) {
            findings.push(Finding::Pin(before, pin));
        }
        // Inside padding, it may be the address of the function after it minus a constant.
        let gap = partition.gaps[gap];
        if gap.start < target && gap.content == GapContent::Padding {
            findings.extend(partition.block_containing(gap.end).map(|after| Finding::Pin(after, pin)));
        }
    } else if let Some(index) = partition.block_containing(target) {
        let block = partition.block(index);
        if !block.is_entry(target) && !boundaries.is_marked(code.offset(target)) {
            findings.push(Finding::Pin(index, pin));
            let is_last = block.end.distance_from(target) < MAX_INSTRUCTION;
            let after = is_last.then(|| partition.block_containing(block.end)).flatten();
            findings.extend(after.map(|after| Finding::Pin(after, pin)));
        }
    }
    findings
}

/// Bytes of the longest instruction (x86-64).
const MAX_INSTRUCTION: u64 = 15;
