//! Sizes that cost by the byte: of the compressed file, of its code by tier, and of an update.
//!
//! In: an image, its functions, what recorded startups ran, and another build or the same image laid out anew. Out:
//! [`Sizes`].

use layout_algos::problem::NodeId;
use layout_algos::score::Span;
use rayon::prelude::*;
use serde::Serialize;

use crate::gate::Compressor;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_image::functions::FunctionTable;
use reorder_image::references::References;
use reorder_layout::opened::OpenedImage;
use reorder_report::Width;
use reorder_report::table::{Table, grouped};
use reorder_trace::ResolvedTrace;

/// How likely a startup needs a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// A recorded startup runs it.
    Recorded,
    /// It is called, or its address is taken, by a function that a recorded startup runs; known for x86-64 ELF images only.
    Likely,
    /// All others.
    Rest,
}

impl Tier {
    /// The likeliest first.
    pub const ALL: [Self; 3] = [Self::Recorded, Self::Likely, Self::Rest];

    /// As in JSON and in keys of figures.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Likely => "likely",
            Self::Rest => "rest",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Recorded => "code that startups ran",
            Self::Likely => "code that this refers to",
            Self::Rest => "other code",
        }
    }
}

/// The tier of each function.
pub(crate) struct Tiers {
    of: Vec<Tier>,
    /// Those that are told apart: without references, the likely functions are among the rest.
    pub(crate) known: &'static [Tier],
}

/// The tier of each of `functions`.
///
/// # Errors
/// Malformed symbol tables, too many references.
pub(crate) fn tiers<'traces>(
    image: &OpenedImage<'_>,
    functions: &FunctionTable<'_>,
    traces: impl Iterator<Item = &'traces ResolvedTrace>,
) -> Result<Tiers> {
    let mut tiers = vec![Tier::Rest; functions.len()];
    for function in traces.flat_map(|trace| &trace.functions) {
        tiers[function.0 as usize] = Tier::Recorded;
    }
    let Some(file) = image.elf_for_x86_64() else {
        return Ok(Tiers { of: tiers, known: &[Tier::Recorded, Tier::Rest] });
    };
    let graph = References::extract(file, functions)?.graph;
    let recorded: Vec<u32> =
        (0..functions.len() as u32).filter(|&index| tiers[index as usize] == Tier::Recorded).collect();
    for reference in recorded.into_iter().flat_map(|index| graph.of(NodeId(index))) {
        // Nodes after the functions are data.
        if let Some(tier) = tiers.get_mut(reference.target.index()).filter(|tier| **tier == Tier::Rest) {
            *tier = Tier::Likely;
        }
    }
    Ok(Tiers { of: tiers, known: &Tier::ALL })
}

/// The compressed code of each tier in an ELF image whose functions are at `places`, by itself and in the order of its
/// addresses, bytes of overlapping functions once; `None` for images of other kinds.
///
/// # Errors
/// When the compressor fails.
pub(crate) fn compressed_code(
    image: &OpenedImage<'_>,
    places: &[Option<Span>],
    tiers: &Tiers,
    compressor: Compressor,
) -> Result<Option<[u64; Tier::ALL.len()]>> {
    let OpenedImage::Elf(file, _) = image else { return Ok(None) };
    let sizes = Tier::ALL.into_par_iter().map(|tier| {
        let spans = united(places, tiers, tier).into_iter();
        let bytes = spans.filter_map(|span| file.bytes_at(Address(span.start), span.end - span.start));
        let code = bytes.collect::<Vec<_>>().concat();
        if code.is_empty() { Ok(0) } else { compressor.size(&code) }
    });
    let sizes: Vec<u64> = sizes.collect::<Result<_>>()?;
    Ok(sizes.try_into().ok())
}

/// Where the functions of a tier are, without overlaps and in the order of addresses.
fn united(places: &[Option<Span>], tiers: &Tiers, tier: Tier) -> Vec<Span> {
    let of_tier = places.iter().zip(&tiers.of).filter(|(_, other)| **other == tier);
    let mut spans: Vec<Span> = of_tier.filter_map(|(place, _)| *place).collect();
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    let mut covered = 0;
    let parts = spans.into_iter().filter_map(|span| {
        let start = span.start.max(covered);
        covered = covered.max(span.end);
        (start < span.end).then_some(Span { start, end: span.end })
    });
    parts.collect()
}

/// Where each function is in its own image.
pub(crate) fn own_places(functions: &FunctionTable<'_>) -> Vec<Option<Span>> {
    let span = |start: u64, size| Some(Span { start, end: start.saturating_add(size) });
    functions.iter().map(|(_, function)| span(function.start.0, function.size())).collect()
}

/// Deltas of higher levels are a tenth smaller and take twenty times as long.
const DELTA_LEVEL: i32 = 12;
/// Logarithms of windows that the format allows.
const DELTA_WINDOWS: std::ops::RangeInclusive<u32> = 10..=30;

/// Bytes that lead from `old` to `new`, as `zstd -12 --patch-from` makes them.
///
/// # Errors
/// When the compressor fails, which happens only for lack of memory.
pub(crate) fn delta(old: &[u8], new: &[u8]) -> Result<u64> {
    use zstd_safe::{CCtx, CParameter, compress_bound, get_error_name};
    let failed = |code| Error::usage(format!("the delta failed: {}", get_error_name(code)));
    let window = (old.len() + new.len()).max(1).ilog2() + 1;
    let window = window.clamp(*DELTA_WINDOWS.start(), *DELTA_WINDOWS.end());
    let mut context = CCtx::create();
    for parameter in [
        CParameter::CompressionLevel(DELTA_LEVEL),
        CParameter::WindowLog(window),
        CParameter::EnableLongDistanceMatching(true),
    ] {
        context.set_parameter(parameter).map_err(failed)?;
    }
    context.ref_prefix(old).map_err(failed)?;
    let mut compressed = vec![0; compress_bound(new.len())];
    Ok(context.compress2(&mut compressed[..], new).map_err(failed)? as u64)
}

/// The compressor whose sizes are told; what packages use most.
const TOLD: Compressor = Compressor::Gzip;

/// The compressed sizes of an image and, if there is one, of another build or layout of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// The name of the compressor.
    pub compressor: &'static str,
    /// The whole file.
    pub file: Size,
    /// The functions of each tier by themselves; none where that is not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierSize>,
    /// Bytes of a delta by zstd that leads from the image to the second one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta_bytes: Option<u64>,
}

/// Compressed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// In the image.
    pub compressed_bytes: u64,
    /// In the second image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_compressed_bytes: Option<u64>,
}

/// The code of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TierSize {
    /// Which.
    pub tier: Tier,
    /// Its functions.
    pub functions: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The same compressed.
    #[serde(flatten)]
    pub size: Size,
}

/// An image that is compared: its bytes, and where it has the functions of the first one.
pub struct SizedImage<'run> {
    /// The whole file.
    pub bytes: &'run [u8],
    /// The same, parsed.
    pub image: &'run OpenedImage<'run>,
    /// By function; nothing if the functions that run are elsewhere, too.
    pub places: Option<Vec<Option<Span>>>,
}

/// Compressed bytes of one image.
struct Compressed {
    file: u64,
    /// By tier.
    code: Option<[u64; Tier::ALL.len()]>,
}

impl Sizes {
    /// The sizes of `old`, which has these functions and traces, and of `new`.
    ///
    /// # Errors
    /// Malformed symbol tables, a compressor that fails.
    pub fn of<'traces>(
        functions: &FunctionTable<'_>,
        traces: impl Iterator<Item = &'traces ResolvedTrace>,
        old: &SizedImage<'_>,
        new: Option<&SizedImage<'_>>,
    ) -> Result<Self> {
        let tiers = tiers(old.image, functions, traces)?;
        let images: Vec<&SizedImage<'_>> = std::iter::once(old).chain(new).collect();
        let of_image = |one: &&SizedImage<'_>| {
            let code = one.places.as_ref().map(|places| compressed_code(one.image, places, &tiers, TOLD));
            Ok(Compressed { file: TOLD.size(one.bytes)?, code: code.transpose()?.flatten() })
        };
        let (sizes, delta_bytes) = rayon::join(
            || images.par_iter().map(of_image).collect::<Result<Vec<_>>>(),
            || new.map(|new| delta(old.bytes, new.bytes)).transpose(),
        );
        let sizes = sizes?;
        let size = |value: &dyn Fn(&Compressed) -> u64| Size {
            compressed_bytes: sizes.first().map_or(0, value),
            new_compressed_bytes: sizes.get(1).map(value),
        };
        let has_tiers = sizes.iter().all(|image| image.code.is_some());
        let of_tier = |(number, tier): (usize, Tier)| {
            let count = tiers.of.iter().filter(|other| **other == tier).count() as u64;
            let places = old.places.as_deref().unwrap_or_default();
            let bytes = united(places, &tiers, tier).iter().map(|span| span.end - span.start).sum();
            let size = size(&|image| image.code.map_or(0, |code| code[number]));
            TierSize { tier, functions: count, bytes, size }
        };
        let known = Tier::ALL.into_iter().enumerate().filter(|(_, tier)| tiers.known.contains(tier));
        Ok(Self {
            compressor: TOLD.name(),
            file: size(&|image| image.file),
            tiers: known.filter(|_| has_tiers).map(of_tier).collect(),
            delta_bytes: delta_bytes?,
        })
    }

    /// A table, and a line about the delta.
    #[must_use]
    pub fn text(&self, width: Width) -> String {
        let is_compared = self.file.new_compressed_bytes.is_some();
        let mut titles = vec![format!("bytes, by {}", self.compressor), "functions".to_owned()];
        titles.push("image".to_owned());
        if is_compared {
            titles.extend(["new".to_owned(), "change".to_owned()]);
        }
        let mut table = Table::new(titles);
        let mut row = |title: &str, functions: Option<u64>, size: Size| {
            let mut row = vec![title.to_owned(), functions.map(grouped).unwrap_or_default()];
            row.push(grouped(size.compressed_bytes));
            if let Some(new) = size.new_compressed_bytes {
                row.push(grouped(new));
                let old = size.compressed_bytes as f64;
                let change = (old > 0.0).then(|| format!("{:+.1} %", (new as f64 / old - 1.0) * 100.0));
                row.push(change.unwrap_or_default());
            }
            table.row(row);
        };
        row("file", None, self.file);
        for tier in &self.tiers {
            row(tier.tier.title(), Some(tier.functions), tier.size);
        }
        let mut text = table.render(width);
        if let Some(delta) = self.delta_bytes {
            text.push_str(&format!(
                "a delta by zstd from the image to the new one has {} bytes\n",
                grouped(delta)
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;
    use crate::gate::own_program;

    /// A file may have any number of symbols in the same bytes.
    #[test]
    fn overlapping_functions_count_once() {
        let span = |start, end| Some(Span { start, end });
        let tiers = Tiers {
            of: vec![Tier::Rest, Tier::Recorded, Tier::Rest, Tier::Rest, Tier::Rest],
            known: &Tier::ALL,
        };
        let places = [span(0, 100), span(50, 60), span(10, 120), span(200, 210), None];
        let starts = |tier| {
            united(&places, &tiers, tier).iter().map(|span| (span.start, span.end)).collect::<Vec<_>>()
        };
        assert_eq!(starts(Tier::Rest), [(0, 100), (100, 120), (200, 210)]);
        assert_eq!(starts(Tier::Recorded), [(50, 60)]);
    }

    #[test]
    fn a_delta_costs_what_changed() {
        let old = own_program();
        let mut new = old.clone();
        new[4000..4100].fill(0x5a);
        let whole = Compressor::Zstd.size(&new).unwrap();
        assert!(delta(&old, &new).unwrap() * 100 < whole);
        new.rotate_left(500_000);
        assert!(delta(&old, &new).unwrap() * 100 < whole, "code that moved is found");
        assert!(delta(&[], &new).unwrap() * 10 > whole * 9);
    }
}
