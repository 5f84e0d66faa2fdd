//! Our two LLVM strategies compared with LLVM's own tools: the same order, function for function.

use end_to_end::llvm_tools::{ToolOrder, lld_order, llvm_profdata_order, name_key, name_keys};
use layout_algos::ids::FunctionId;
use layout_algos::order::FunctionOrder;
use layout_algos::problem::{LayoutProblem, Trace};
use layout_algos::random::Random;
use layout_algos::solve::{LldPartitioning, LlvmProfdata, Orderer};

/// Runs with a common core and an own part each, in shuffled chunks, with some functions left out.
fn problem(functions: u32, traces: u32, seed: u64) -> LayoutProblem {
    let mut random = Random::new(seed, &[]);
    let sizes = (0..functions).map(|_| random.below(2048)).map(|bytes| 1 + bytes * bytes / 1024).collect();
    let mut shuffled: Vec<u32> = (0..functions).collect();
    random.shuffle(&mut shuffled);
    let core = functions as usize / 3;
    let traces: Vec<Trace> = (0..traces)
        .map(|_| {
            let start = core + random.below(u64::from(functions) / 2) as usize;
            let end = (start + functions as usize / 6).min(shuffled.len());
            let mut ran: Vec<u32> = shuffled[..core].to_vec();
            ran.extend(&shuffled[start..end]);
            ran.retain(|_| random.below(8) != 0);
            for chunk in ran.chunks_mut(32) {
                random.shuffle(chunk);
            }
            Trace { weight: 1 + random.below(3), functions: ran.into_iter().map(FunctionId).collect() }
        })
        .collect();
    LayoutProblem::new(sizes, &traces).unwrap()
}

fn assert_same(problem: &LayoutProblem, tool: &ToolOrder, ours: &FunctionOrder) {
    let ours: Vec<FunctionId> = ours.iter().take(tool.functions.len()).collect();
    let first = ours.iter().zip(&tool.functions).position(|(ours, theirs)| ours != theirs);
    assert_eq!(first, None, "of {} functions of {} traces", ours.len(), problem.traces().len());
}

/// Functions and traces: trivial, shallow, deeper than the splits go, more than the tools' table of logarithms.
const SHAPES: [(u32, u32); 6] = [(6, 1), (24, 3), (300, 1), (700, 9), (5000, 40), (60_000, 4)];

#[test]
fn profdata_orders_functions_as_we_do() {
    for (seed, (functions, traces)) in SHAPES.into_iter().enumerate() {
        let problem = problem(functions, traces, seed as u64);
        let directory = tempfile::tempdir().unwrap();
        let tool = llvm_profdata_order(&problem, directory.path()).unwrap();
        assert_same(&problem, &tool, &LlvmProfdata { keys: name_keys(&problem) }.order(&problem));
    }
}

#[test]
fn lld_places_functions_as_we_do() {
    for (seed, (functions, traces)) in SHAPES.into_iter().enumerate() {
        let problem = problem(functions, traces, seed as u64);
        let directory = tempfile::tempdir().unwrap();
        let tool = lld_order(&problem, directory.path()).unwrap();
        assert_same(&problem, &tool, &LldPartitioning::default().order(&problem));
    }
}

#[test]
fn names_have_the_keys_of_llvm() {
    // `main` as LLVM's own documents show it.
    assert_eq!(name_key("main"), 0xdb95_6436_e78d_d5fa);
}
