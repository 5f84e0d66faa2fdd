//! The data that the page draws, by column: ascending numbers become differences, which compress well.
//!
//! Addresses are distances from [`Columns::origin`], because a page calculates in floating point, which is exact only up to
//! 2⁵³.

use std::ops::Range;

use layout_algos::score::Span;
use reorder_base::address::Address;
use reorder_layout::simulate::OtherBuild;
use serde::Serialize;

use super::PageRequest;
use super::parts::{Fragment, Places};
use super::pins::PinnedFunctions;
use super::scenarios::{Curves, FirstTouch, POINTS, Results, ScenarioResult};

/// The origin is a multiple of this, so that distances divide into pages as addresses do, for all common page sizes.
const ORIGIN_ALIGNMENT: u64 = 1 << 30;

/// First touches that are drawn; scenarios beyond have their figures only.
const MAX_TOUCHES: usize = 4_000_000;

/// Points of curves that are drawn; scenarios beyond have their figures only.
const MAX_POINTS: usize = 4_000_000;

/// Everything that is drawn.
#[derive(Clone, Debug, Serialize)]
pub struct Columns {
    /// Address that all others are distances from, in hexadecimal.
    origin: String,
    /// Start and length of each range of code.
    text: Vec<[u64; 2]>,
    /// Points of each curve after its origin.
    points: usize,
    /// Differences of the functions' starts.
    starts: Vec<i64>,
    sizes: Vec<u64>,
    /// Start in the second image minus the end of the function before; empty without one.
    new_starts: Vec<i64>,
    /// Sizes in the second image, 0 for functions that it does not have; empty unless it is another build.
    new_sizes: Vec<u64>,
    /// Start and length of each range of code of the second image; empty where they are those of the first.
    new_text: Vec<[i64; 2]>,
    /// Scenarios that run the function.
    scenarios_of: Vec<u32>,
    pins: PinColumns,
    /// Copies in the second image.
    #[serde(skip_serializing_if = "Option::is_none")]
    fragments: Option<FragmentColumns>,
    all: StartColumns,
    scenarios: Vec<StartColumns>,
}

/// Pinned functions.
#[derive(Clone, Debug, Default, Serialize)]
struct PinColumns {
    /// Differences of their numbers.
    functions: Vec<i64>,
    /// Positions in `titles`.
    reasons: Vec<usize>,
    evidence: Vec<i64>,
    titles: Vec<String>,
}

/// Copies, by function and place in it.
#[derive(Clone, Debug, Default, Serialize)]
struct FragmentColumns {
    /// Differences of the functions' numbers.
    functions: Vec<i64>,
    /// Bytes from the function's start.
    offsets: Vec<u64>,
    /// Bytes of the original.
    sizes: Vec<u64>,
    /// Differences of the copies' starts.
    copies: Vec<i64>,
    copy_sizes: Vec<u64>,
}

/// Where the functions of a scenario run, in its order.
#[derive(Clone, Debug, Default, Serialize)]
struct PlaceColumns {
    /// Places of each function.
    counts: Vec<usize>,
    /// Differences of their starts.
    starts: Vec<i64>,
    sizes: Vec<u64>,
}

/// What runs of functions, in both images.
#[derive(Clone, Debug, Serialize)]
struct PartColumns {
    old: PlaceColumns,
    new: PlaceColumns,
}

/// One scenario, or all.
#[derive(Clone, Debug, Serialize)]
struct StartColumns {
    /// Whether the next two columns are present.
    is_drawn: bool,
    /// Differences of the numbers of the functions, by first touch.
    order: Vec<i64>,
    /// Differences of the times of first touch; empty when unknown, and of several recordings: the order is by shares of
    /// each, in which times do not ascend.
    microseconds: Vec<i64>,
    /// Where the axis of time ends; 0 where there is none.
    end_microseconds: u64,
    /// Absent where functions are shown whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<PartColumns>,
    /// Empty beyond [`MAX_POINTS`].
    models: Vec<ModelColumns>,
}

/// Differences of the points of both diagrams under one model.
#[derive(Clone, Debug, Serialize)]
struct ModelColumns {
    by_functions: CurveColumns,
    by_time: CurveColumns,
}

#[derive(Clone, Debug, Serialize)]
struct CurveColumns {
    old: Vec<i64>,
    new: Vec<i64>,
    bound: Vec<i64>,
}

/// Packs what is drawn.
pub(super) fn columns(request: &PageRequest<'_>, results: Results, pins: PinnedFunctions) -> Columns {
    let functions = request.functions;
    let text = request.text();
    let first_function = functions.iter().next().map(|(_, function)| function.start);
    let fragments = request.fragments();
    let with_copies = text_with(&text, &fragments);
    let new_text = request.other_build().map_or(with_copies.as_slice(), OtherBuild::text);
    let starts = text.first().into_iter().chain(new_text).map(|range| range.start);
    let lowest = starts.chain(first_function).min();
    let origin = lowest.unwrap_or_default().0 & !(ORIGIN_ALIGNMENT - 1);
    let distance = |address: u64| address.wrapping_sub(origin) as i64;

    let mut scenarios_of = vec![0u32; functions.len()];
    for touch in results.scenarios.iter().flat_map(|scenario| &scenario.order) {
        scenarios_of[touch.function.0 as usize] += 1;
    }
    let mut end = 0;
    let mut new_start = |start: i64, size: u64| {
        let difference = start.wrapping_sub(end);
        end = start.wrapping_add(size as i64);
        difference
    };
    // A function that another build does not have is at the origin and has no bytes, so that no page shows it.
    let nowhere = Span { start: origin, end: origin };
    let places: Vec<Span> =
        request.new_places().unwrap_or_default().into_iter().map(|place| place.unwrap_or(nowhere)).collect();
    let size = |place: &Span| place.end.saturating_sub(place.start);
    let new_starts = places.iter().map(|place| new_start(distance(place.start), size(place))).collect();
    let new_sizes = request.other_build().map(|_| places.iter().map(size).collect());
    let mut budget = MAX_TOUCHES;
    let mut points_left = MAX_POINTS;
    let mut start = |result: &ScenarioResult| {
        let is_drawn = result.order.len() <= budget;
        budget -= if is_drawn { result.order.len() } else { 0 };
        let points = result.models.len() * CURVES * (POINTS + 1);
        let has_curves = points <= points_left;
        points_left -= if has_curves { points } else { 0 };
        start_columns(result, is_drawn, has_curves, distance)
    };
    Columns {
        origin: format!("{origin:#x}"),
        text: text
            .iter()
            .map(|range| [range.start.0 - origin, range.end.distance_from(range.start)])
            .collect(),
        points: POINTS,
        starts: differences(functions.iter().map(|(_, function)| distance(function.start.0))),
        sizes: functions.iter().map(|(_, function)| function.size()).collect(),
        new_starts,
        new_sizes: new_sizes.unwrap_or_default(),
        new_text: new_text
            .iter()
            .map(|range| [distance(range.start.0), range.end.distance_from(range.start).cast_signed()])
            .collect(),
        scenarios_of,
        pins: pin_columns(pins, distance),
        fragments: (!fragments.is_empty()).then(|| fragment_columns(&fragments, distance)),
        all: start(&results.all),
        scenarios: results.scenarios.iter().map(start).collect(),
    }
}

/// The text and the range of all copies; nothing without copies.
fn text_with(text: &[Range<Address>], fragments: &[Fragment]) -> Vec<Range<Address>> {
    let start = fragments.iter().map(|fragment| fragment.copy.start).min();
    let end = fragments.iter().map(|fragment| fragment.copy.end).max();
    let Some((start, end)) = start.zip(end) else { return Vec::new() };
    let mut ranges = text.to_vec();
    ranges.push(Address(start)..Address(end));
    ranges.sort_unstable_by_key(|range| range.start);
    ranges
}

fn fragment_columns(fragments: &[Fragment], distance: impl Fn(u64) -> i64) -> FragmentColumns {
    FragmentColumns {
        functions: differences(fragments.iter().map(|fragment| i64::from(fragment.function.0))),
        offsets: fragments.iter().map(|fragment| fragment.offset).collect(),
        sizes: fragments.iter().map(|fragment| fragment.size).collect(),
        copies: differences(fragments.iter().map(|fragment| distance(fragment.copy.start))),
        copy_sizes: fragments.iter().map(|fragment| fragment.copy.end - fragment.copy.start).collect(),
    }
}

fn place_columns(order: &[FirstTouch], places: &Places, distance: impl Fn(u64) -> i64) -> PlaceColumns {
    let of_each = || order.iter().map(|touch| places.of(touch.function));
    PlaceColumns {
        counts: of_each().map(<[Span]>::len).collect(),
        starts: differences(of_each().flatten().map(|span| distance(span.start))),
        sizes: of_each().flatten().map(|span| span.end - span.start).collect(),
    }
}

fn pin_columns(pins: PinnedFunctions, distance: impl Fn(u64) -> i64) -> PinColumns {
    let pins = pins.unwrap_or_default();
    let mut reasons: Vec<_> = pins.iter().map(|(_, pin)| pin.reason).collect();
    reasons.sort_unstable();
    reasons.dedup();
    PinColumns {
        functions: differences(pins.iter().map(|(function, _)| i64::from(function.0))),
        reasons: pins.iter().map(|(_, pin)| reasons.partition_point(|&reason| reason < pin.reason)).collect(),
        evidence: pins.iter().map(|(_, pin)| distance(pin.evidence.0)).collect(),
        titles: reasons.iter().map(ToString::to_string).collect(),
    }
}

/// Curves under one model.
const CURVES: usize = 6;

fn start_columns(
    result: &ScenarioResult,
    is_drawn: bool,
    has_curves: bool,
    distance: impl Fn(u64) -> i64,
) -> StartColumns {
    let order: &[FirstTouch] = if is_drawn { &result.order } else { &[] };
    let microseconds = |touch: &FirstTouch| (touch.nanoseconds / 1000) as i64;
    let has_times = result.nanoseconds > 0 && result.recordings == 1;
    StartColumns {
        is_drawn,
        order: differences(order.iter().map(|touch| i64::from(touch.function.0))),
        microseconds: if has_times { differences(order.iter().map(microseconds)) } else { Vec::new() },
        end_microseconds: result.nanoseconds.div_ceil(1000),
        parts: result.parts.as_ref().map(|parts| PartColumns {
            old: place_columns(order, &parts.old, &distance),
            new: place_columns(order, &parts.new, &distance),
        }),
        models: result
            .models
            .iter()
            .filter(|_| has_curves)
            .map(|model| ModelColumns {
                by_functions: curve_columns(&model.by_functions),
                by_time: curve_columns(&model.by_time),
            })
            .collect(),
    }
}

fn curve_columns(curves: &Curves) -> CurveColumns {
    // Rounding must not lift the bound above what it bounds.
    let rounded = |curve: &[f64]| differences(curve.iter().map(|faults| faults.round() as i64));
    CurveColumns {
        old: rounded(&curves.old),
        new: rounded(&curves.new),
        bound: differences(curves.bound.iter().map(|faults| (faults + ROUNDING).floor() as i64)),
    }
}

/// Sums of shares of whole numbers are less inexact than this.
const ROUNDING: f64 = 1e-6;

fn differences(numbers: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut last = 0i64;
    let difference = |number: i64| {
        let difference = number.wrapping_sub(last);
        last = number;
        difference
    };
    numbers.map(difference).collect()
}
