//! How large traces are, what they touch and how much they have in common.
//!
//! Everything comes from the traces alone; no image is read.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Location, Trace};

/// Figures of some traces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceStatistics {
    /// One for each trace, in the order given.
    pub traces: Vec<SingleTraceStatistics>,
    /// One for each image, in order of first appearance.
    pub images: Vec<ImageStatistics>,
}

/// Figures of one trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SingleTraceStatistics {
    /// Its file.
    pub trace: String,
    /// Its image.
    pub image: String,
    /// Lines, repetitions included.
    pub events: u64,
    /// Functions.
    pub distinct_functions: u64,
    /// Of these, how many some other trace of the same image has, too.
    pub shared_functions: u64,
    /// What its functions touch, when it states addresses and sizes.
    pub touched: Option<Touched>,
    /// Basic blocks of these functions, where they were recorded.
    pub basic_blocks: u64,
    /// From the program's start to the last first execution.
    pub span_nanoseconds: Option<u64>,
}

/// Figures of all traces of one image together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageStatistics {
    /// Its path.
    pub image: String,
    /// Traces of it.
    pub traces: u64,
    /// Functions in any of them.
    pub distinct_functions: u64,
    /// Functions in all of them.
    pub common_functions: u64,
    /// What these functions touch, when all traces state addresses and sizes.
    pub touched: Option<Touched>,
}

/// How much of an image some functions occupy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Touched {
    /// Bytes of the functions.
    pub bytes: u64,
    /// Pages of 4096 bytes that hold one of these bytes.
    pub pages: u64,
}

const PAGE: u64 = 4096;

/// The functions of one trace, each with its size.
type Functions<'trace> = BTreeMap<&'trace Location, Option<u64>>;

/// Figures of `traces`, alone and together.
pub fn statistics(traces: &[Trace]) -> TraceStatistics {
    let functions: Vec<Functions<'_>> = traces.iter().map(functions_of).collect();
    let images: Vec<String> = traces.iter().map(|trace| trace.image.to_string()).collect();
    // In how many traces of its image a function is.
    let mut frequencies: BTreeMap<&str, BTreeMap<&Location, u64>> = BTreeMap::new();
    for (image, functions) in images.iter().zip(&functions) {
        let frequencies = frequencies.entry(image).or_default();
        functions.keys().for_each(|function| *frequencies.entry(function).or_default() += 1);
    }
    let frequency = |image: &str, function: &Location| {
        frequencies.get(image).and_then(|image| image.get(function)).copied().unwrap_or(0)
    };
    let single = |(trace, functions): (&Trace, &Functions<'_>)| {
        let image = trace.image.to_string();
        SingleTraceStatistics {
            trace: trace.label(),
            events: trace.events.len() as u64,
            distinct_functions: functions.len() as u64,
            shared_functions: functions.keys().filter(|function| frequency(&image, function) > 1).count()
                as u64,
            touched: touched(functions),
            basic_blocks: trace.block_count(),
            span_nanoseconds: trace.events.iter().filter_map(|event| event.nanoseconds).max(),
            image,
        }
    };
    let together = |image: &str, members: &[usize]| {
        let traces = members.len() as u64;
        let mut all = Functions::new();
        for member in members {
            all.extend(functions[*member].iter().map(|(key, size)| (*key, *size)));
        }
        ImageStatistics {
            traces,
            distinct_functions: all.len() as u64,
            common_functions: all.keys().filter(|function| frequency(image, function) == traces).count()
                as u64,
            touched: touched(&all),
            image: image.to_owned(),
        }
    };
    let mut members: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, image) in images.iter().enumerate() {
        members.entry(image).or_default().push(index);
    }
    let mut in_order: Vec<_> = members.iter().collect();
    in_order.sort_by_key(|(_, members)| members.first());
    TraceStatistics {
        traces: traces.iter().zip(&functions).map(single).collect(),
        images: in_order.into_iter().map(|(image, members)| together(image, members)).collect(),
    }
}

fn functions_of(trace: &Trace) -> Functions<'_> {
    trace.events.iter().map(|event| (&event.location, event.size)).collect()
}

/// `None` unless every function has an address and a size.
fn touched(functions: &Functions<'_>) -> Option<Touched> {
    let mut touched = Touched { bytes: 0, pages: 0 };
    let mut after_last_page = 0;
    // Addresses come in order, so that a page can only be shared with functions right before.
    for (location, size) in functions {
        let Location::Image(address) = location else { return None };
        let size = (*size)?;
        let end = address.0.checked_add(size)?;
        touched.bytes = touched.bytes.checked_add(size)?;
        let first_page = (address.0 / PAGE).max(after_last_page);
        after_last_page = after_last_page.max(end.div_ceil(PAGE));
        touched.pages += after_last_page.saturating_sub(first_page);
    }
    (!functions.is_empty()).then_some(touched)
}
