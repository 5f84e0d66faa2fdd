//! `reorder apply --layout blocks`: copies of the code that startups execute, in an order of its own.

use std::ops::Range;
use std::path::Path;

use crate::cli::arrangement::ArrangementArguments;
use crate::cli::context::Context;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_image::elf::file::{ElfFile, Linkage};
use reorder_image::elf::functions::ElfFunctions;
use reorder_layout::simulate::{Placement, functions_that_save_a_page};
use reorder_layout::{LayoutRequest, Memory, Piece, PieceTrace, Strategy, lay_out_pieces};
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::Applied;
use reorder_relocate::apply::clones::{with_fragments, with_random_fragments};
use reorder_relocate::elf::copies::Candidate;
use reorder_trace::{BlockAccount, ExecutedBlock, ExecutedBlocks, WholeReason, executed_blocks};
use reorder_trace::{ImageIdentity, ResolvedTrace};
use reorder_verify::recover_moves;

/// What one startup executed, in order of first execution.
struct Executed {
    weight: u64,
    ranges: Vec<Range<Address>>,
}

/// Copies what the traces say was executed. The functions of `applied` have moved or stayed; traces are of `file`.
///
/// # Errors
/// No traces of this image, refusals, malformed tables.
pub(crate) fn with_blocks(
    applied: Applied,
    path: &Path,
    (file, functions): (&ElfFile<'_>, &ElfFunctions<'_>),
    arrangement: &ArrangementArguments,
    options: RelocateOptions,
    context: &Context,
) -> Result<Applied> {
    let request = arrangement.request(Memory::default());
    if request.strategy == Strategy::Random {
        return with_random_fragments(&applied, request.seed, options, |candidates| {
            order(candidates, &[], &request)
        });
    }
    let identity = ImageIdentity::of(path, file.build_id());
    let traces = arrangement.traces(path, &identity, &functions.table, &context.talk)?.traces;
    let blocks = executed_blocks(&traces, file, &functions.table);
    with_executed(applied, (file, functions), (&traces, &blocks), &request, options, context)
}

/// Copies what `blocks`, the executed blocks of `traces`, say was executed; at a fixed address, except functions whose copies
/// would save no page.
///
/// # Errors
/// Refusals, malformed tables.
pub(crate) fn with_executed(
    applied: Applied,
    (file, functions): (&ElfFile<'_>, &ElfFunctions<'_>),
    (traces, blocks): (&[ResolvedTrace], &ExecutedBlocks),
    request: &LayoutRequest,
    options: RelocateOptions,
    context: &Context,
) -> Result<Applied> {
    tell_whole(&blocks.account, context);
    let found = &functions.found;
    let functions = &functions.table;
    let range = |block: &ExecutedBlock| {
        let start = functions.get(block.function).start.plus(u64::from(block.offset));
        let start = Address(applied.map.map(start).0);
        start..start.plus(u64::from(block.size))
    };
    let pairs = traces.iter().zip(&blocks.traces);
    let executed: Vec<Executed> = pairs
        .map(|(trace, blocks)| Executed { weight: trace.weight, ranges: blocks.iter().map(range).collect() })
        .collect();
    let ran = union(executed.iter().flat_map(|executed| &executed.ranges));
    let narrowed = |draft: &[u8]| {
        // Elsewhere nearly all pointers follow, so few originals run.
        if file.linkage != Linkage::FixedAddress {
            return Ok(None);
        }
        let moves = recover_moves(file.bytes, draft)?;
        let placement = Placement::of_elf(file, draft, &moves)?;
        let page_bytes = request.memory.page_bytes();
        let saving = functions_that_save_a_page(functions, blocks, &placement, page_bytes);
        let all = blocks.traces.iter().flatten();
        let (kept, left): (Vec<_>, Vec<_>) = all.partition(|block| saving.contains(&block.function));
        let ranges: Vec<Range<Address>> = kept.into_iter().map(range).collect();
        Ok((!left.is_empty()).then(|| union(ranges.iter())))
    };
    let lay_out = |candidates: &[Candidate]| order(candidates, &executed, request);
    with_fragments(&applied, (&ran, found), options, lay_out, narrowed)
}

/// Says how many functions are copied whole, because their basic blocks are not known.
fn tell_whole(account: &BlockAccount, context: &Context) {
    for (reason, count) in &account.whole {
        let all = *count + account.by_block;
        let cause = format!("{count} of {all} executed functions count whole: {}", reason.text());
        match reason {
            WholeReason::TraceWithoutBlocks => {
                context
                    .talk
                    .warning(&cause, Some("record again: reorder record --blocks -o TRACES -- PROGRAM"));
            }
            _ => context.talk.detail(&cause),
        }
    }
}

/// All bytes of `ranges`, as ranges that ascend and do not overlap. Ranges that touch stay apart: control may enter at each.
fn union<'ranges>(ranges: impl Iterator<Item = &'ranges Range<Address>>) -> Vec<Range<Address>> {
    let mut sorted: Vec<Range<Address>> = ranges.filter(|range| !range.is_empty()).cloned().collect();
    sorted.sort_unstable_by_key(|range| (range.start, range.end));
    let mut union: Vec<Range<Address>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match union.last_mut() {
            Some(last) if last.start == range.start => last.end = last.end.max(range.end),
            Some(last) => {
                let end = last.end;
                last.end = end.min(range.start);
                union.push(range.start..range.end.max(end));
            }
            None => union.push(range),
        }
    }
    union
}

/// The order of the candidates.
fn order(candidates: &[Candidate], executed: &[Executed], request: &LayoutRequest) -> Result<Vec<usize>> {
    let piece = |candidate: &Candidate| Piece { size: candidate.size, alignment: candidate.alignment };
    let pieces: Vec<Piece> = candidates.iter().map(piece).collect();
    let mut by_start: Vec<(Address, u32)> =
        candidates.iter().zip(0..).map(|(candidate, number)| (candidate.range.start, number)).collect();
    by_start.sort_unstable();
    let traces: Vec<PieceTrace> = executed
        .iter()
        .map(|executed| {
            let mut is_known = vec![false; candidates.len()];
            let mut pieces = Vec::new();
            for range in &executed.ranges {
                let first = by_start.partition_point(|(start, _)| *start <= range.start).saturating_sub(1);
                let touched = by_start[first..].iter().take_while(|(start, _)| *start < range.end);
                for &(_, number) in touched {
                    let is_hit = candidates[number as usize].range.end > range.start;
                    if is_hit && !std::mem::replace(&mut is_known[number as usize], true) {
                        pieces.push(number);
                    }
                }
            }
            PieceTrace { weight: executed.weight, pieces }
        })
        .collect();
    lay_out_pieces(&pieces, &traces, request)
}

#[cfg(test)]
mod tests {
    use super::union;
    use reorder_base::address::Address;

    #[test]
    fn ranges_are_cut_where_others_begin() {
        let range = |start, end| Address(start)..Address(end);
        let ranges = [range(8, 12), range(1, 4), range(10, 20), range(4, 6), range(1, 2), range(30, 30)];
        let expected = [range(1, 4), range(4, 6), range(8, 10), range(10, 20)];
        assert_eq!(union(ranges.iter()), expected);
        let nested = [range(1, 20), range(5, 6)];
        assert_eq!(union(nested.iter()), [range(1, 5), range(5, 20)]);
        let again = [range(1, 20), range(5, 6), range(5, 8)];
        assert_eq!(union(again.iter()), [range(1, 5), range(5, 20)]);
    }
}
