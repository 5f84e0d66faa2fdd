//! A layout close to that of the last release.
//!
//! Takes a layout and the functions of the last release in their order there; gives a layout that keeps as much of it as
//! recorded startups allow, and what that costs.

use layout_algos::ids::FunctionId;
use layout_algos::order::FunctionOrder;
use layout_algos::solve::FavourPrevious;
use serde::Serialize;

use super::{Layout, LayoutRequest, Room, Traded, from_order, order_file, problem, to_id};
use reorder_base::error::Result;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_trace::{Pairing, ResolvedTrace};

/// How much more recorded startups may cost: one per cent.
const BUDGET_PERMILLE: u32 = 10;

/// What closeness to the last release costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PreviousTrade {
    /// Functions of the image that the last release has.
    pub known: usize,
    /// Growth of the cost of recorded startups, in thousandths.
    pub more_permille: u64,
    /// Pages of the last release that keep 80 % of their functions within a page's length, in thousandths: without regard to it.
    pub kept_permille_without: u64,
    /// The same with regard to it.
    pub kept_permille: u64,
}

/// The functions that an order file lists.
#[must_use]
pub fn of_order(bytes: &[u8], functions: &FunctionTable<'_>) -> Vec<FunctionIndex> {
    order_file::read::read(bytes, functions).functions
}

/// The functions that another build has as well, in its order.
#[must_use]
pub fn of_build(functions: &FunctionTable<'_>, other: &FunctionTable<'_>) -> Vec<FunctionIndex> {
    let pairing = Pairing::of(functions, other);
    let mut placed: Vec<_> = pairing
        .partners
        .iter()
        .enumerate()
        .filter_map(|(index, partner)| Some((other.get((*partner)?).start, FunctionIndex(index as u32))))
        .collect();
    placed.sort_unstable();
    placed.into_iter().map(|(_, index)| index).collect()
}

/// `layout`, as close to `previous` as one per cent of recorded startups' cost allows, and what that costs.
///
/// # Errors
/// As for the layout itself.
pub fn favour(
    layout: Layout,
    previous: &[FunctionIndex],
    functions: &FunctionTable<'_>,
    traces: &[ResolvedTrace],
    room: Room<'_>,
    request: &LayoutRequest,
) -> Result<Layout> {
    let problem = problem::problem_of(None, functions, traces, room, request)?;
    let order = FunctionOrder::with_rest(
        layout.order.iter().map(|&function| to_id(function)),
        functions.len() as u32,
    );
    let mut is_listed = vec![false; functions.len()];
    let mut known: Vec<FunctionId> = previous.iter().map(|&function| to_id(function)).collect();
    known.retain(|function| !std::mem::replace(&mut is_listed[function.index()], true));
    let favour = FavourPrevious { budget_permille: BUDGET_PERMILLE, seed: request.seed };
    let favoured = favour.choose(&problem, &order, &known);
    let [kept_permille_without, kept_permille] = favoured.kept_permille;
    let trade = PreviousTrade {
        known: known.len(),
        more_permille: favoured.growth_permille,
        kept_permille_without,
        kept_permille,
    };
    // Pinned functions that startups need are in no trace of the problem.
    let mut is_needed = vec![false; functions.len()];
    for function in layout.order.iter().take(layout.needed) {
        is_needed[function.0 as usize] = true;
    }
    let (mut order, rest): (Vec<_>, Vec<_>) =
        from_order(&favoured.order).into_iter().partition(|function| is_needed[function.0 as usize]);
    order.extend(rest);
    let chosen = order.len();
    let traded = Traded { previous: Some(trade), ..layout.traded };
    Ok(Layout { order, chosen, traded, ..layout })
}
