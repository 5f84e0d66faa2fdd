//! Recorded blocks of the running test's own functions: they are believed as long as they fit its code.

use std::sync::Arc;

use super::{BlockAccount, ExecutedBlock, ResolvedTrace, WholeReason, executed_blocks, resolve};
use crate::{Event, ImageIdentity, Location, RecordedBlock, RecordedBlocks, Trace};
use reorder_image::basic_blocks::{LoadedBytes, Outline, outline};
use reorder_image::code_digest::CodeDigest;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::{FunctionIndex, FunctionTable};

/// Calls `check` with three functions that have at least three blocks each, with their outlines.
fn with_own_functions(
    check: impl FnOnce(&ElfFile<'_>, &FunctionTable<'_>, &ImageIdentity, [(FunctionIndex, Outline); 3]),
) {
    let path = std::env::current_exe().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let file = ElfFile::parse(&bytes).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap().table;
    let loaded = LoadedBytes::new(&file);
    let outlined = functions.iter().filter_map(|(index, function)| {
        let found = outline(&loaded, &bytes, function.start..function.end).ok()?;
        let is_only = functions.starting_at(function.start) == Some(index);
        (is_only && found.blocks.len() >= 3).then_some((index, found))
    });
    let found: Vec<_> = outlined.take(3).collect();
    check(&file, &functions, &ImageIdentity::of(&path, file.build_id()), found.try_into().unwrap());
}

fn recorded(outline: &Outline, wanted: &[(usize, u64)]) -> Arc<RecordedBlocks> {
    let block = |&(number, nanoseconds): &(usize, u64)| {
        let block = outline.blocks[number];
        RecordedBlock { offset: block.start, size: block.end - block.start, nanoseconds }
    };
    Arc::new(RecordedBlocks { digest: CodeDigest::of(outline), blocks: wanted.iter().map(block).collect() })
}

fn traced(function: FunctionIndex, blocks: RecordedBlocks) -> ResolvedTrace {
    ResolvedTrace {
        weight: 1,
        functions: vec![function],
        nanoseconds: vec![5],
        blocks: vec![Some(Arc::new(blocks))],
        ..ResolvedTrace::default()
    }
}

#[test]
fn blocks_come_in_order_of_execution_across_functions() {
    with_own_functions(|file, functions, identity, [first, second, third]| {
        let event = |index, nanoseconds, blocks| {
            let function = functions.get(index);
            let size = Some(function.size());
            Event { size, nanoseconds, blocks, ..Event::at(Location::Image(function.start)) }
        };
        let events = vec![
            event(first.0, Some(10), Some(recorded(&first.1, &[(0, 10), (2, 50)]))),
            event(second.0, Some(20), None),
            event(third.0, Some(30), Some(recorded(&third.1, &[(0, 30), (1, 40)]))),
        ];
        let without = events.iter().map(|event| Event { blocks: None, ..event.clone() }).collect();
        let trace = |events| Trace { image: identity.clone(), weight: 1, events, ..Trace::default() };
        let resolved = resolve(&[trace(events), trace(without)], functions, identity).unwrap();
        let executed = executed_blocks(&resolved.traces, file, functions);
        let block = |(function, outline): &(FunctionIndex, Outline), number: usize| {
            let block = outline.blocks[number];
            ExecutedBlock { function: *function, offset: block.start, size: block.end - block.start }
        };
        let whole =
            |function| ExecutedBlock { function, offset: 0, size: functions.get(function).size() as u32 };
        let expected =
            [block(&first, 0), whole(second.0), block(&third, 0), block(&third, 1), block(&first, 2)];
        assert_eq!(executed.traces[0], expected);
        assert_eq!(executed.traces[1], [first.0, second.0, third.0].map(whole));
        let size = |function| functions.get(function).size();
        let expected_account = BlockAccount {
            by_block: 2,
            blocks: 4,
            block_bytes: [0, 2, 3, 4].map(|position| u64::from(expected[position].size)).iter().sum::<u64>(),
            function_bytes: size(first.0) + size(third.0),
            whole: [(WholeReason::NotRecorded, 1), (WholeReason::TraceWithoutBlocks, 3)].into(),
        };
        assert_eq!(executed.account, expected_account);
        assert_eq!(executed.account.whole_functions(), 4);
        // What the loader calls before and after the program is in no function, and a trace of functions says nothing of it.
        let section = |name: &[u8]| file.sections.iter().find(|section| section.name == name).unwrap();
        let [outside, nothing] = executed.outside.as_slice() else { panic!("two traces") };
        for called in [section(b".init").address, section(b".fini").address] {
            assert!(outside.contains(&called), "{outside:?}");
        }
        assert!(outside.iter().all(|entry| functions.containing(*entry).is_none()), "{outside:?}");
        assert_eq!(nothing, &[]);
    });
}

#[test]
fn blocks_that_do_not_fit_the_code_are_not_believed() {
    with_own_functions(|file, functions, _, [(index, outline), ..]| {
        let good = recorded(&outline, &[(0, 5), (1, 6)]);
        let executed = executed_blocks(&[traced(index, (*good).clone())], file, functions);
        assert_eq!((executed.traces[0].len(), executed.account.by_block), (2, 1));
        let size = functions.get(index).size() as u32;
        let inside = (1..size).find(|offset| !outline.begins_instruction(*offset)).unwrap();
        let with = |change: &dyn Fn(&mut RecordedBlocks)| {
            let mut changed = (*good).clone();
            change(&mut changed);
            changed
        };
        for (number, wrong) in [
            with(&|recorded| recorded.digest.0 ^= 1),
            with(&|recorded| recorded.blocks[0].offset = inside),
            with(&|recorded| recorded.blocks[0].size = inside),
            with(&|recorded| recorded.blocks[0].size = size + 1),
            with(&|recorded| recorded.blocks[0].size = u32::MAX),
            with(&|recorded| recorded.blocks[0].size = 0),
            with(&|recorded| recorded.blocks[0].size = size),
            with(&|recorded| recorded.blocks[1] = recorded.blocks[0]),
            with(&|recorded| recorded.blocks.clear()),
        ]
        .into_iter()
        .enumerate()
        {
            let executed = executed_blocks(&[traced(index, wrong)], file, functions);
            assert_eq!(executed.traces[0], [ExecutedBlock { function: index, offset: 0, size }], "{number}");
            assert_eq!(executed.account.whole, [(WholeReason::OtherCode, 1)].into(), "{number}");
        }
    });
}
