//! Pinned functions as text, for all commands that list them.
//!
//! In: all of them. Out: how many there are for each reason, and the heaviest with the place that shows it. Names are
//! demangled; the JSON form has the symbols, and all functions.

use std::collections::BTreeMap;

use crate::names::shown;
use reorder_image::pins::PinReason;
use reorder_relocate::apply::PinnedFunction;
use reorder_report::Width;
use reorder_report::table::{Table, counted, grouped};

/// Functions that are listed unless all are asked for.
pub const HEAVIEST: usize = 10;

/// A summary by reason, the one with most bytes first, and the `most` largest functions.
pub fn pins_text(pinned: &[PinnedFunction], most: usize, width: Width) -> String {
    if pinned.is_empty() {
        return String::new();
    }
    let mut reasons: BTreeMap<PinReason, (u64, u64)> = BTreeMap::new();
    for function in pinned {
        let (count, bytes) = reasons.entry(function.reason).or_default();
        *count += 1;
        *bytes += function.size_bytes;
    }
    let mut text = String::new();
    // A summary that is as long as the list says nothing more.
    if pinned.len() > most || reasons.len() < pinned.len() {
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|&(reason, (_, bytes))| (std::cmp::Reverse(bytes), reason));
        let mut table = Table::new(["pinned because", "functions", "bytes"]);
        for (reason, (count, bytes)) in reasons {
            table.row([reason.to_string(), grouped(count), grouped(bytes)]);
        }
        text.push_str(&format!("{}\n", table.render(width)));
    }
    let mut largest: Vec<&PinnedFunction> = pinned.iter().collect();
    largest.sort_by_key(|function| (std::cmp::Reverse(function.size_bytes), function.address));
    let title = if pinned.len() > most { "heaviest of them" } else { "pinned" };
    let mut table = Table::new([title, "address", "bytes", "because", "evidence"]).with_texts([3]);
    for function in largest.iter().take(most) {
        table.row([
            shown(function.name.as_bytes()),
            function.address.to_string(),
            grouped(function.size_bytes),
            function.reason.to_string(),
            function.evidence.to_string(),
        ]);
    }
    text.push_str(&table.render(width));
    if pinned.len() > most {
        let more = counted((pinned.len() - most) as u64, "more function");
        text.push_str(&format!("{more}: reorder inspect --all, or --format json\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use reorder_base::address::Address;

    #[test]
    fn reasons_are_summed_and_names_readable() {
        let pinned = |number: u64, name: &str, reason| PinnedFunction {
            name: name.to_owned(),
            address: Address(number * 16),
            size_bytes: number,
            reason,
            evidence: Address(7),
        };
        let mut all: Vec<PinnedFunction> =
            (1..=20).map(|number| pinned(number, "main", PinReason::SegmentStart)).collect();
        all.push(pinned(500, "_ZN5hexyl3run17h0123456789abcdefE", PinReason::NamedSection));
        let text = pins_text(&all, HEAVIEST, Width::of_terminal(80));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("20    210") && text.contains("hexyl::run"), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("main")).count(), HEAVIEST - 1);
        assert!(text.ends_with("11 more functions: reorder inspect --all, or --format json\n"), "{text}");
        let one = pins_text(&all[..1], HEAVIEST, Width::UNLIMITED);
        assert_eq!(one.lines().count(), 2, "{one}");
    }
}
