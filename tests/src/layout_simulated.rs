//! Where a link would put each function for a given order.
//!
//! lld places the sections of the listed functions first, each at the next address that its alignment allows, and
//! the others after them in link order. Doing the same here scores an order without a link, and positions functions
//! that share their name with others, which no order file can tell apart.

use layout_algos::score::Span;

use crate::layout_corpus::Corpus;

/// By function, its address range when the sections of `listed` come first. Functions outside the sections stay.
#[must_use]
pub fn simulated(corpus: &Corpus, listed: &[u32]) -> Vec<Span> {
    let mut placed = vec![None; corpus.sections.len()];
    let mut cursor = corpus.sections.first().map_or(0, |section| section.address);
    let chosen = listed.iter().filter_map(|&function| corpus.section_of[function as usize]);
    for index in chosen.chain(0..corpus.sections.len() as u32) {
        let section = corpus.sections[index as usize];
        let place = &mut placed[index as usize];
        if place.is_none() {
            let start = cursor.next_multiple_of(section.alignment);
            *place = Some(start);
            cursor = start + section.size;
        }
    }
    let moved = |(span, section): (&Span, &Option<u32>)| {
        let place =
            section.and_then(|index| Some((corpus.sections[index as usize], placed[index as usize]?)));
        place.map_or(*span, |(section, place)| {
            let start = place + (span.start - section.address);
            Span { start, end: start + (span.end - span.start) }
        })
    };
    corpus.spans.iter().zip(&corpus.section_of).map(moved).collect()
}
