//! The cost of a layout: page faults of recorded runs under memory models, and lower bounds for all layouts.
//!
//! The touch model is the same everywhere: a function that runs touches every page of its range. Pages are
//! numbered by the true addresses, so alignment, padding and pinned neighbours count as they are.

mod cost;
mod fault_curve;
mod fault_model;
mod layer_bound;
mod lower_bound;
mod lower_bounds;
mod objective;
mod positions;
mod present_pages;
mod price_bound;
mod span;
#[cfg(test)]
mod tests;

pub use cost::{Cost, cost, cost_of_trace};
pub use fault_curve::FaultCurve;
pub use fault_model::FaultModel;
pub use lower_bound::{lower_bound, touched_bytes};
pub use lower_bounds::{LowerBounds, Occupancy, lower_bounds};
pub use objective::Objective;
pub use positions::positions;
pub use span::{Span, packed};
