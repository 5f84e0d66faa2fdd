//! Which basic blocks of an image ran, in order.
//!
//! Takes resolved traces and the image that they were resolved for. Guarantee: each block lies in its function, and
//! begins and ends where instructions of it do, whatever the trace says; a function for which this cannot be shown is
//! given whole.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::ResolvedTrace;
use super::outside::{OutsideCode, OutsideEntries};
use crate::{RecordedBlock, RecordedBlocks};
use reorder_base::address::Address;
use reorder_image::basic_blocks::{LoadedBytes, Outline, functions_apart, outline};
use reorder_image::code_digest::CodeDigest;
use reorder_image::elf::file::ElfFile;
use reorder_image::functions::{FunctionIndex, FunctionTable};

/// A run of instructions of one function that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutedBlock {
    /// The function.
    pub function: FunctionIndex,
    /// Bytes from its start.
    pub offset: u32,
    /// Bytes; never zero.
    pub size: u32,
}

/// The executed blocks of some traces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutedBlocks {
    /// Parallel to the given traces: blocks in order of first execution, each once. A function that is given whole is one
    /// block of all its bytes; otherwise its blocks do not overlap.
    pub traces: Vec<Vec<ExecutedBlock>>,
    /// Parallel to the blocks: nanoseconds since the start of the run, 0 where the trace has no times.
    pub nanoseconds: Vec<Vec<u64>>,
    /// Parallel to the given traces: where the run may enter code outside of functions, which is what the loader calls, and the
    /// linker's stubs that blocks call. Stubs of functions that are given whole are missing, and all of a trace without blocks.
    pub outside: Vec<Vec<Address>>,
    /// How much of them is known.
    pub account: BlockAccount,
}

/// An account of the executed functions. A function counts once for each trace that ran it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockAccount {
    /// Functions of which the executed blocks are known.
    pub by_block: u64,
    /// Their executed blocks.
    pub blocks: u64,
    /// The bytes of these blocks.
    pub block_bytes: u64,
    /// The bytes of these functions.
    pub function_bytes: u64,
    /// Functions that are given whole, by the reason.
    pub whole: BTreeMap<WholeReason, u64>,
}

impl BlockAccount {
    /// Functions that are given whole.
    pub fn whole_functions(&self) -> u64 {
        self.whole.values().sum()
    }
}

/// Why a function is given whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WholeReason {
    /// The trace has blocks of no function: it was recorded without `--blocks`, or is of another format.
    TraceWithoutBlocks,
    /// The trace has no blocks of this function: its code was not certain when it was recorded.
    NotRecorded,
    /// The code is not certain in this image.
    NotUnderstood,
    /// The code is another than the one that was recorded.
    OtherCode,
}

impl WholeReason {
    /// As in messages, after "because".
    pub fn text(self) -> &'static str {
        match self {
            Self::TraceWithoutBlocks => "the trace has functions only",
            Self::NotRecorded => "the recorder did not understand all of their code",
            Self::NotUnderstood => "not all of their code is understood",
            Self::OtherCode => "their code has changed since it was recorded",
        }
    }
}

/// The executed blocks of `traces`, which were resolved for the functions of `file`, in order of first execution.
///
/// Each function of a trace is in the result of that trace, by its blocks or whole. A function that is given whole has
/// the place of its first execution.
pub fn executed_blocks(
    traces: &[ResolvedTrace],
    file: &ElfFile<'_>,
    functions: &FunctionTable<'_>,
) -> ExecutedBlocks {
    let (loaded, is_apart) = (LoadedBytes::new(file), functions_apart(functions));
    let mut known = KnownCode { file, functions, loaded, is_apart, outlines: HashMap::new() };
    let mut account = BlockAccount::default();
    let has_blocks = |trace: &ResolvedTrace| !trace.blocks.is_empty();
    let outside = traces.iter().any(has_blocks).then(|| OutsideCode::of(file, functions));
    let mut executed = ExecutedBlocks::default();
    for trace in traces {
        let mut entries = outside.as_ref().filter(|_| has_blocks(trace)).map(OutsideCode::entries);
        let timed = known.blocks_of(trace, entries.as_mut(), &mut account);
        let (nanoseconds, blocks) = timed.into_iter().unzip();
        executed.nanoseconds.push(nanoseconds);
        executed.traces.push(blocks);
        executed.outside.push(entries.map_or_else(Vec::new, OutsideEntries::found));
    }
    ExecutedBlocks { account, ..executed }
}

/// The code of the executed functions, read once for all traces.
struct KnownCode<'run, 'data> {
    file: &'run ElfFile<'data>,
    functions: &'run FunctionTable<'data>,
    loaded: LoadedBytes,
    /// By function: only these have outlines, so that all of them together are no larger than the image.
    is_apart: Vec<bool>,
    outlines: HashMap<FunctionIndex, Option<(CodeDigest, Outline)>>,
}

impl KnownCode<'_, '_> {
    /// The blocks with their times, in the order of these, and of the trace where times are equal.
    fn blocks_of(
        &mut self,
        trace: &ResolvedTrace,
        mut outside: Option<&mut OutsideEntries<'_>>,
        account: &mut BlockAccount,
    ) -> Vec<(u64, ExecutedBlock)> {
        let mut timed: Vec<(u64, ExecutedBlock)> = Vec::with_capacity(trace.functions.len());
        for (position, &function) in trace.functions.iter().enumerate() {
            let recorded = trace.blocks.get(position).and_then(Option::as_deref);
            let code = *self.functions.get(function);
            let size = code.size();
            let checked = match recorded {
                None if trace.blocks.is_empty() => Err(WholeReason::TraceWithoutBlocks),
                None => Err(WholeReason::NotRecorded),
                Some(recorded) => self.checked(function, recorded),
            };
            match checked {
                Ok(blocks) => {
                    account.by_block += 1;
                    account.blocks += blocks.len() as u64;
                    account.block_bytes += blocks.iter().map(|block| u64::from(block.size)).sum::<u64>();
                    account.function_bytes += size;
                    timed.extend(blocks.iter().map(|block| {
                        let RecordedBlock { offset, size, nanoseconds } = *block;
                        if let Some(outside) = &mut outside {
                            outside.add_block(code.start.plus(u64::from(offset)), u64::from(size));
                        }
                        (nanoseconds, ExecutedBlock { function, offset, size })
                    }));
                }
                Err(reason) => {
                    *account.whole.entry(reason).or_default() += 1;
                    let time = trace.nanoseconds.get(position).copied().unwrap_or_default();
                    // Larger functions than this do not exist: distances in code have 32 bits.
                    let size = u32::try_from(size).unwrap_or(u32::MAX);
                    timed.push((time, ExecutedBlock { function, offset: 0, size }));
                }
            }
        }
        timed.sort_by_key(|(time, _)| *time);
        timed
    }

    /// The recorded blocks of `function`, if they can be blocks of its code.
    fn checked<'trace>(
        &mut self,
        function: FunctionIndex,
        recorded: &'trace RecordedBlocks,
    ) -> Result<&'trace [RecordedBlock], WholeReason> {
        let range = *self.functions.get(function);
        let (file, loaded, is_apart) = (self.file, &self.loaded, &self.is_apart);
        let known = self.outlines.entry(function).or_insert_with(|| {
            is_apart.get(function.0 as usize).filter(|is_apart| **is_apart)?;
            let mut found = outline(loaded, file.bytes, range.start..range.end).ok()?;
            let digest = CodeDigest::of(&found);
            // Not needed any more, and as large as the code.
            found.masked = Vec::new();
            Some((digest, found))
        });
        let (digest, outline) = known.as_ref().ok_or(WholeReason::NotUnderstood)?;
        let mut ranges = BTreeSet::new();
        let mut fits = |block: &RecordedBlock| {
            let end = block.offset.checked_add(block.size).filter(|end| *end > block.offset);
            let is_code = end.is_some_and(|end| outline.ends_instruction(end));
            is_code && outline.begins_instruction(block.offset) && ranges.insert((block.offset, end))
        };
        let fit = *digest == recorded.digest && recorded.blocks.iter().all(&mut fits);
        let mut adjacent = ranges.iter().zip(ranges.iter().skip(1));
        let is_apart = adjacent.all(|(first, second)| first.1.is_some_and(|end| end <= second.0));
        match fit && is_apart && !ranges.is_empty() {
            true => Ok(&recorded.blocks),
            false => Err(WholeReason::OtherCode),
        }
    }
}
