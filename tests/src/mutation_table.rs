//! Correct outputs made wrong in one place, many times: what the verifier says to each, counted by kind.
//!
//! In: correct outputs and how many mutations are wanted. Out: for each kind how many were made, reported, accepted with an
//! explanation, and missed.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use reorder_verify::{VerifyOptions, verify};

/// A correct output that can be made wrong.
pub trait Original: Sync {
    /// What can be made wrong.
    type Kind: Copy + Debug + Ord + Send + Sync + 'static;
    /// All of it.
    const KINDS: &'static [Self::Kind];

    /// Shown in failures.
    fn name(&self) -> &str;
    /// The image and its correct output.
    fn pair(&self) -> (&[u8], &[u8]);
    /// Output number `number` with one error of `kind`; `None` if the image has no place for it.
    fn wrong(&self, kind: Self::Kind, number: u64) -> Option<Vec<u8>>;
    /// Why a changed output executes as the correct one.
    fn excuse(&self, wrong: &[u8]) -> Option<&'static str>;
}

/// What became of the mutations of one kind.
#[derive(Default)]
struct Row {
    made: usize,
    reported: usize,
    explained: BTreeMap<&'static str, usize>,
    missed: Vec<String>,
    /// The longest verification.
    slowest: Duration,
}

enum Outcome {
    Reported,
    Explained(&'static str),
    Missed(String),
}

/// Makes as many errors of each kind, `default` in all or as many as `REORDER_MUTATIONS` says, verifies each, and prints the
/// table. Gives the kinds for which no image has a place.
///
/// # Panics
/// When an error is accepted without an explanation.
#[must_use]
pub fn verify_each<Output: Original>(outputs: &[Output], default: u64) -> Vec<Output::Kind> {
    let wanted = env::var("REORDER_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let each = wanted / Output::KINDS.len() as u64;
    let cases: Vec<(Output::Kind, u64)> =
        Output::KINDS.iter().flat_map(|kind| (0..each).map(move |number| (*kind, number))).collect();
    let outcomes: Vec<(Output::Kind, Outcome, Duration)> = cases
        .par_iter()
        .filter_map(|&(kind, number)| {
            let (outcome, time) = outcome(outputs, kind, number)?;
            Some((kind, outcome, time))
        })
        .collect();
    let mut rows: BTreeMap<Output::Kind, Row> = BTreeMap::new();
    for (kind, outcome, time) in outcomes {
        let row = rows.entry(kind).or_default();
        row.made += 1;
        row.slowest = row.slowest.max(time);
        match outcome {
            Outcome::Reported => row.reported += 1,
            Outcome::Explained(why) => *row.explained.entry(why).or_default() += 1,
            Outcome::Missed(case) => row.missed.push(case),
        }
    }
    print(&rows);
    let missed: Vec<&String> = rows.values().flat_map(|row| &row.missed).collect();
    let some = &missed[..missed.len().min(40)];
    assert!(missed.is_empty(), "{} were accepted, such as {some:#?}", missed.len());
    Output::KINDS.iter().copied().filter(|kind| !rows.contains_key(kind)).collect()
}

#[allow(clippy::print_stdout)] // the table is what the test shows
fn print<Kind: Debug>(rows: &BTreeMap<Kind, Row>) {
    println!(
        "| kind | made | reported | slowest verification, ms | accepted, and why |\n|---|--:|--:|--:|---|"
    );
    for (kind, row) in rows {
        let why: Vec<String> = row.explained.iter().map(|(why, count)| format!("{count}: {why}")).collect();
        let (made, reported, slowest) = (row.made, row.reported, row.slowest.as_millis());
        println!("| {kind:?} | {made} | {reported} | {slowest} | {} |", why.join("; "));
    }
}

/// The outcome of a mutation, on the first image from number `number` on that has a place for it, and how long its verification
/// took.
fn outcome<Output: Original>(
    outputs: &[Output],
    kind: Output::Kind,
    number: u64,
) -> Option<(Outcome, Duration)> {
    let count = outputs.len() as u64;
    // An image whose random place does not serve is asked for a few others.
    let (output, wrong) = (0..count * 8).find_map(|attempt| {
        let output = &outputs[((number + attempt) % count) as usize];
        Some((output, output.wrong(kind, number.wrapping_add(attempt << 32))?))
    })?;
    let (old, new) = output.pair();
    let began = Instant::now();
    let is_proven = verify(old, &wrong, VerifyOptions::default()).is_ok_and(|report| report.is_proven());
    let time = began.elapsed();
    // An excuse reads the whole image, so only accepted mutations are asked for one.
    let outcome = match is_proven.then(|| output.excuse(&wrong)) {
        None => Outcome::Reported,
        Some(Some(why)) => Outcome::Explained(why),
        Some(None) => {
            let first = (0..wrong.len()).find(|&at| wrong[at] != new[at]).unwrap_or_default();
            Outcome::Missed(format!(
                "{kind:?} {number} of `{}` at {first:#x}: {:#04x} became {:#04x}",
                output.name(),
                new[first],
                wrong[first]
            ))
        }
    };
    Some((outcome, time))
}
