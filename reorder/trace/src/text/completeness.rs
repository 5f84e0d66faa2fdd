//! Whether a file of traces still has its end.
//!
//! In: the traces as they were read, with the stated length of each. Out: the same, incomplete ones marked as cut, and a
//! note for each loss. Guarantee: a trace that remains [`Evidence::Exact`] has all events that it was written with.

use crate::{Evidence, Note, Reading, Trace};
use reorder_base::numbers::decimal;

/// One trace of a file.
#[derive(Debug)]
pub(super) struct Section {
    /// Where its first line begins.
    pub(super) start: u64,
    pub(super) trace: Trace,
    /// How many events it was written with, if it says so.
    pub(super) stated_events: Option<u64>,
    /// How many basic blocks, which it says if it has any.
    pub(super) stated_blocks: Option<u64>,
    /// Its place among the traces that were written together.
    pub(super) part: Option<Part>,
}

impl Section {
    /// A trace whose first line begins at `start`.
    pub(super) fn at(start: u64) -> Self {
        let trace = Trace { weight: 1, ..Trace::default() };
        Self { start, trace, stated_events: None, stated_blocks: None, part: None }
    }

    fn has_lost_events(&self) -> bool {
        self.stated_events.is_some_and(|stated| stated != self.trace.events.len() as u64)
    }

    /// What it has of blocks and should have, where these differ.
    fn lost_blocks(&self) -> Option<(u64, u64)> {
        let (found, stated) = (self.trace.block_count(), self.stated_blocks.unwrap_or(0));
        (found != stated).then_some((found, stated))
    }
}

/// `3 of 57`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// From 1.
    pub(super) number: u64,
    pub(super) count: u64,
}

impl Part {
    /// `None` when `value` has another form, or a number beyond the count.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let mut words = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let number = decimal(words.next()?)?;
        let count = (words.next()? == b"of").then(|| decimal(words.next()?))??;
        (words.next().is_none() && number >= 1 && number <= count).then_some(Self { number, count })
    }

    fn follows(self, former: Option<Self>) -> bool {
        former.map_or(self.number == 1, |former| {
            self.count == former.count && self.number.checked_sub(1) == Some(former.number)
        })
    }

    fn is_last(&self) -> bool {
        self.number == self.count
    }
}

const AGAIN: &str = "copy the file again from where it was made, or record again";

/// The traces of `sections`; `cut` is where a line begins that the file ends in.
pub(super) fn checked(mut sections: Vec<Section>, cut: Option<u64>) -> Reading {
    let mut notes: Vec<Note> = cut.into_iter().map(|offset| note(offset, UNENDED)).collect();
    let mut former: Option<Part> = None;
    for section in &sections {
        let is_next = section.part.map_or(former.is_none(), |part| part.follows(former));
        if !is_next {
            notes.push(incomplete(section.start, former));
        }
        former = section.part.filter(|part| !part.is_last());
    }
    if let (Some(_), Some(last)) = (former, sections.last()) {
        notes.push(incomplete(last.start, former));
    }
    // Headers alone, without the number of events that ends them: the rest of them is missing.
    let is_beginning = |section: &Section| section.stated_events.is_none() && section.trace.events.is_empty();
    if let Some(beginning) = sections.pop_if(|last| is_beginning(last)) {
        notes.push(note(beginning.start, "the file ends in the headers of this trace, which is left out"));
    }
    let is_last = |index: usize, all: &[Section]| index + 1 == all.len();
    for index in 0..sections.len() {
        let is_in_cut_line = cut.is_some() && is_last(index, &sections);
        let section = &mut sections[index];
        let found = section.trace.events.len();
        let evidence = match section.stated_events {
            Some(stated) if section.has_lost_events() => {
                let message = format!(
                    "the trace has {found} events and was written with {stated}: it is cut, or was edited"
                );
                notes.push(note(section.start, message));
                Evidence::Cut
            }
            Some(_) if section.lost_blocks().is_some() => {
                let (found, stated) = section.lost_blocks().unwrap_or_default();
                let message = format!(
                    "the trace has {found} basic blocks and was written with {stated}: it is cut, or was edited"
                );
                notes.push(note(section.start, message));
                Evidence::Cut
            }
            Some(_) => continue,
            None if is_in_cut_line => Evidence::Cut,
            None => {
                let message = "the trace does not say how many events it has, so it may be cut";
                let hint = "record again, or add the line `# events: NUMBER` above the events of a list written by hand";
                notes.push(Note::at(section.start, message).with_hint(hint));
                Evidence::Listed
            }
        };
        section.trace.evidence = section.trace.evidence.max(evidence);
    }
    Reading { traces: sections.into_iter().map(|section| section.trace).collect(), notes }
}

const UNENDED: &str = "the file ends inside this line, which is left out: it is cut";

fn note(offset: u64, message: impl Into<String>) -> Note {
    Note::at(offset, message).with_hint(AGAIN)
}

/// After `former`, other traces of the same file should follow.
fn incomplete(offset: u64, former: Option<Part>) -> Note {
    match former {
        Some(Part { number, count }) => {
            let message =
                format!("only {number} of the {count} traces that this file had are left: it is cut");
            note(offset, message)
        }
        None => note(offset, "the traces before this one are missing from the file"),
    }
}
