//! What LLVM 22's tools would do with the same traces, function for function.
//!
//! For comparison and for replacing those tools without a change of layout. Two front ends make groups of functions
//! ([`utilities`]); one bisection orders them ([`bisection`]). Neither looks at the weights of traces. Sources read
//! for this: `TemporalProfTraceTy::createBPFunctionNodes`, `BalancedPartitioning` and lld's section orderer; nothing
//! of them is copied.
//!
//! Functions with the same earliest position start in an order that traces do not know: `llvm-profdata` sorts them by
//! the MD5 of their names, lld by the position of their symbols in its tables. Callers that know pass these as
//! `keys`.

mod bisection;
mod logarithms;
mod random;
mod utilities;

use super::Orderer;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;
use utilities::{ByPosition, ByPositionOrBytes};

/// The order that `llvm-profdata order` prints; functions outside all traces follow in link order.
#[derive(Clone, Debug, Default)]
pub struct LlvmProfdata {
    /// By function: the first eight bytes of the MD5 of its profile name, as a little-endian number. Missing ones
    /// stand for themselves in link order.
    pub keys: Vec<u64>,
}

/// The order that lld makes for `--bp-startup-sort=function`; functions outside all traces follow in link order.
#[derive(Clone, Debug, Default)]
pub struct LldPartitioning {
    /// By function: the position of its section among those that lld considers: those of global symbols in the order
    /// that inputs mention them, then those of local symbols. Missing ones follow in link order.
    pub keys: Vec<u64>,
}

impl Orderer for LlvmProfdata {
    fn order(&self, problem: &LayoutProblem) -> FunctionOrder {
        let mut nodes = utilities::nodes::<ByPosition>(problem, &self.keys);
        utilities::drop_outliers(&mut nodes);
        FunctionOrder::with_rest(bisection::order(nodes), problem.function_count() as u32)
    }
}

impl Orderer for LldPartitioning {
    fn order(&self, problem: &LayoutProblem) -> FunctionOrder {
        let nodes = utilities::nodes::<ByPositionOrBytes>(problem, &self.keys);
        FunctionOrder::with_rest(bisection::order(nodes), problem.function_count() as u32)
    }
}
