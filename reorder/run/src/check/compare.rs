//! Finds the lines that the original prints in each of its runs, and whether the result prints them, too.

use super::difference::{Difference, LineDifference, Stream};
use super::run::Observed;

/// Runs of the original that ended alike.
#[derive(Debug)]
pub(super) struct Seen {
    reference: Observed,
    runs: u64,
    stdout: Stable,
    stderr: Stable,
    /// Runs are asked to end, each at another place of its output.
    is_cut: bool,
}

/// The outcome of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Compared {
    /// The first.
    pub(super) difference: Option<Difference>,
    /// Lines of the original that differ among its own runs.
    pub(super) unstable_lines: u64,
}

impl Seen {
    /// The first run, which is the one that the result is compared with.
    pub(super) fn of(reference: Observed, is_cut: bool) -> Self {
        let stdout = Stable::of(&reference.stdout);
        let stderr = Stable::of(&reference.stderr);
        Self { reference, runs: 1, stdout, stderr, is_cut }
    }

    pub(super) fn reference(&self) -> &Observed {
        &self.reference
    }

    pub(super) fn runs(&self) -> u64 {
        self.runs
    }

    /// A further run, which may differ in what it prints.
    pub(super) fn add(&mut self, run: &Observed) {
        self.runs += 1;
        self.stdout.narrow(&self.reference.stdout, &run.stdout);
        self.stderr.narrow(&self.reference.stderr, &run.stderr);
    }

    /// How the result ended is compared first, because it explains the rest.
    pub(super) fn compare(&self, result: &Observed) -> Compared {
        let reference = &self.reference;
        let streams = || {
            let compared = |stable: &Stable, original: &[u8], result: &[u8]| match self.is_cut {
                true => stable.first_difference_of_both(original, result),
                false => stable.first_difference(original, result),
            };
            let stdout = compared(&self.stdout, &reference.stdout, &result.stdout);
            let stderr = compared(&self.stderr, &reference.stderr, &result.stderr);
            let stdout = stdout.map(|line| (Stream::Output, line));
            stdout.or_else(|| stderr.map(|line| (Stream::Error, line)))
        };
        let is_end = result.end != reference.end;
        let line = streams();
        let difference = (is_end || line.is_some()).then(|| Difference {
            original: reference.end,
            result: result.end,
            line,
            last_words: last_line(&result.stderr).to_vec(),
        });
        Compared { difference, unstable_lines: self.stdout.unstable() + self.stderr.unstable() }
    }
}

/// Which lines of the reference are the same in each run of the original.
#[derive(Debug)]
struct Stable {
    lines: Vec<bool>,
    /// From this line on the number of lines differs.
    end: Option<usize>,
}

impl Stable {
    fn of(reference: &[u8]) -> Self {
        Self { lines: vec![true; lines(reference).count()], end: None }
    }

    fn narrow(&mut self, reference: &[u8], other: &[u8]) {
        let count = lines(other).count();
        let pairs = || lines(reference).zip(lines(other));
        if count == self.lines.len() {
            for (stable, (reference, other)) in self.lines.iter_mut().zip(pairs()) {
                *stable &= reference == other;
            }
        } else {
            let is_known = |at: &usize| !self.lines[*at];
            let same =
                pairs().enumerate().take_while(|(at, (one, other))| one == other || is_known(at)).count();
            self.end = Some(self.end.map_or(same, |end| end.min(same)));
        }
    }

    /// The first line of `result` that is not what each run of the original printed there.
    fn first_difference(&self, reference: &[u8], result: &[u8]) -> Option<LineDifference> {
        let compared = self.end.unwrap_or(usize::MAX);
        let mut offset = 0;
        let mut originals = lines(reference);
        let mut results = lines(result);
        for number in 0..compared {
            let (original, result) = match (originals.next(), results.next()) {
                (None, None) => return None,
                // The original does not always print as many.
                (_, None) if self.end.is_some() => return None,
                // The original ends here: one more line is a difference.
                (original, result) => (original.unwrap_or_default(), result.unwrap_or_default()),
            };
            if original != result && self.lines.get(number).copied().unwrap_or(true) {
                let same = original.iter().zip(result).take_while(|(one, other)| one == other).count();
                return Some(LineDifference {
                    number: number + 1,
                    offset: offset + same as u64,
                    original: original.to_vec(),
                    result: result.to_vec(),
                });
            }
            offset += result.len() as u64;
        }
        None
    }

    /// The same where either may have been cut: only lines that both have whole are compared.
    fn first_difference_of_both(&self, reference: &[u8], result: &[u8]) -> Option<LineDifference> {
        let whole = |text: &[u8]| lines(text).filter(|line| line.ends_with(b"\n")).count();
        let count = whole(reference).min(whole(result));
        let beginning = |text: &[u8]| lines(text).take(count).map(<[u8]>::len).sum::<usize>();
        let (original_end, result_end) = (beginning(reference), beginning(result));
        let both = Self { lines: self.lines.clone(), end: Some(self.end.unwrap_or(usize::MAX).min(count)) };
        both.first_difference(&reference[..original_end], &result[..result_end])
    }

    fn unstable(&self) -> u64 {
        let end = self.end.unwrap_or(self.lines.len()).min(self.lines.len());
        let inside = self.lines[..end].iter().filter(|stable| !**stable).count();
        (inside + self.lines.len() - end) as u64
    }
}

/// Lines with their ends: one that is not ended is another one.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|&byte| byte == b'\n')
}

fn last_line(text: &[u8]) -> &[u8] {
    lines(text).filter(|line| !line.trim_ascii().is_empty()).last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::run::End;
    use super::*;
    use reorder_system::stops::Ending;

    fn printed(text: &str) -> Observed {
        let end = End::Ended(Ending::Exited(0));
        Observed { end, stdout: text.into(), stderr: Vec::new(), took: Duration::ZERO, was_asked: false }
    }

    /// What is found in `result` after runs of the original that printed `originals`.
    fn compared(originals: &[&str], result: &str) -> (Option<(usize, u64)>, u64) {
        let mut seen = Seen::of(printed(originals[0]), false);
        originals[1..].iter().for_each(|text| seen.add(&printed(text)));
        let Compared { difference, unstable_lines } = seen.compare(&printed(result));
        let line = difference.and_then(|difference| difference.line);
        (line.map(|(_, line)| (line.number, line.offset)), unstable_lines)
    }

    #[test]
    fn only_what_each_run_of_the_original_prints_is_compared() {
        for (originals, result, expected) in [
            (&["a\nb\n", "a\nb\n"][..], "a\nb\n", (None, 0)),
            (&["a\nb\n", "a\nb\n"], "a\nc\n", (Some((2, 2)), 0)),
            (&["a\npid 1\nb\n", "a\npid 2\nb\n"], "a\npid 333\nb\n", (None, 1)),
            (&["a\npid 1\nb\n", "a\npid 2\nb\n"], "a\npid 333\nx\n", (Some((3, 10)), 1)),
            // More, fewer and unended lines are differences where the original always prints as many.
            (&["a\n", "a\n"], "a\nb\n", (Some((2, 2)), 0)),
            (&["a\nb\n", "a\nb\n"], "a\n", (Some((2, 2)), 0)),
            (&["a\n", "a\n"], "a", (Some((1, 1)), 0)),
            // Where it does not, the beginning alone is compared.
            (&["a\nb\nc\n", "a\nb\n"], "a\nb\nx\ny\n", (None, 1)),
            (&["a\nb\nc\n", "a\nb\n"], "a\nx\n", (Some((2, 2)), 1)),
            (&["a\nb\nc\n", "a\nb\n"], "a\n", (None, 1)),
            (&["a\nt 1\nb\n", "a\nt 2\nb\n", "a\nt 3\n"], "a\nt 4\nz\n", (None, 2)),
            // Found out by a later run.
            (&["t 1\n", "t 1\n", "t 2\n"], "t 2\n", (None, 1)),
            (&["", ""], "", (None, 0)),
        ] {
            assert_eq!(compared(originals, result), expected, "{originals:?} {result:?}");
        }
    }

    /// A server is asked to end at a moment that differs from run to run.
    #[test]
    fn of_runs_that_are_cut_only_whole_common_lines_are_compared() {
        for (result, is_different) in [
            ("a\nb\nc\nd\n", false),
            ("a\n", false),
            ("", false),
            ("a\nb\nx", false),
            ("a\nx\n", true),
            ("a\nb\nx\n", true),
        ] {
            let mut seen = Seen::of(printed("a\nb\nc\n"), true);
            seen.add(&printed("a\nb\nc\n"));
            assert_eq!(seen.compare(&printed(result)).difference.is_some(), is_different, "{result:?}");
        }
    }

    #[test]
    fn the_end_counts_even_if_nothing_is_printed() {
        let seen = Seen::of(printed(""), false);
        let killed = Observed { end: End::Ended(Ending::Killed(libc::SIGSEGV)), ..printed("") };
        let difference = seen.compare(&killed).difference;
        assert!(difference.is_some_and(|difference| difference.is_failure()));
        let late = Observed { end: End::TooLate, ..printed("") };
        assert!(seen.compare(&late).difference.is_some_and(|difference| difference.is_failure()));
    }
}
