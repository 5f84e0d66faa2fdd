//! Ends runs of programs that do not end by themselves, such as servers: after some time, or once they have printed a text.
//!
//! The program gets SIGTERM, as from a service manager, so that it shuts down in its own way and runs can be repeated. A
//! program that does not end is killed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

/// When a run is asked to end; never, unless something is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopRule {
    /// This long after its beginning.
    pub after: Option<Duration>,
    /// As soon as this text is in what it printed on standard output or on standard error.
    pub until: Option<String>,
}

impl StopRule {
    /// Whether runs are ever asked to end.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *self != Self::default()
    }

    /// Whether the rule must see what the program prints.
    #[must_use]
    pub(crate) fn needs_output(&self) -> bool {
        self.until.is_some()
    }

    /// The time limit of a run: `limit`, counted from the time ([`Self::after`]) at which the run is asked to end.
    #[must_use]
    pub fn extends(&self, limit: Duration) -> Duration {
        limit.saturating_add(self.after.unwrap_or_default())
    }
}

/// How long a program may take to end once it was asked.
const GRACE: Duration = Duration::from_secs(10);

/// What is to be done about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    GoesOn,
    /// Send this signal.
    Ends(Signal),
}

/// Applies a rule to one run.
#[derive(Debug)]
pub(crate) struct Stopper<'rule> {
    rule: &'rule StopRule,
    started: Instant,
    asked: Option<Instant>,
    /// It has printed the text.
    has_text: bool,
    /// Bytes of each output that were searched.
    searched: [u64; 2],
}

impl<'rule> Stopper<'rule> {
    /// For a run that begins now.
    pub(crate) fn new(rule: &'rule StopRule) -> Self {
        Self { rule, started: Instant::now(), asked: None, has_text: false, searched: [0; 2] }
    }

    /// Looks at the clock and at what was printed so far.
    pub(crate) fn look(&mut self, outputs: Option<&[File; 2]>) -> io::Result<Wish> {
        if let Some(asked) = self.asked {
            let is_over = asked.elapsed() >= GRACE;
            return Ok(if is_over { Wish::Ends(Signal::SIGKILL) } else { Wish::GoesOn });
        }
        let is_time = self.rule.after.is_some_and(|after| self.started.elapsed() >= after);
        self.has_text = self.has_printed(outputs)?;
        if !is_time && !self.has_text {
            return Ok(Wish::GoesOn);
        }
        self.asked = Some(Instant::now());
        Ok(Wish::Ends(Signal::SIGTERM))
    }

    /// Whether the run, which has ended, never printed the text that it was to be ended for.
    pub(crate) fn misses_text(&mut self, outputs: Option<&[File; 2]>) -> io::Result<bool> {
        Ok(self.rule.until.is_some() && !self.has_text && !self.has_printed(outputs)?)
    }

    /// Whether the run was asked to end.
    pub(crate) fn has_asked(&self) -> bool {
        self.asked.is_some()
    }

    fn has_printed(&mut self, outputs: Option<&[File; 2]>) -> io::Result<bool> {
        let (Some(text), Some(outputs)) = (&self.rule.until, outputs) else { return Ok(false) };
        let wanted = text.as_bytes();
        for (output, searched) in outputs.iter().zip(&mut self.searched) {
            // The text may have begun in what was printed before.
            let overlap = (wanted.len() as u64).saturating_sub(1);
            let mut from = searched.saturating_sub(overlap);
            let mut kept = Vec::new();
            let mut buffer = vec![0; 1 << 16];
            loop {
                let length = output.read_at(&mut buffer, from)?;
                if length == 0 {
                    break;
                }
                from += length as u64;
                kept.extend_from_slice(&buffer[..length]);
                if kept.windows(wanted.len().max(1)).any(|window| window == wanted) || wanted.is_empty() {
                    return Ok(true);
                }
                kept.drain(..kept.len().saturating_sub(overlap as usize));
            }
            *searched = from;
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_text_is_found_in_either_output_and_across_looks() {
        for output in [0, 1] {
            let rule = StopRule { until: Some("ready".to_owned()), ..StopRule::default() };
            let mut stopper = Stopper::new(&rule);
            let mut files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
            files[output].write_all(&[b'x'; 70_000]).unwrap();
            files[output].write_all(b"\nalread").unwrap();
            assert_eq!(stopper.look(Some(&files)).unwrap(), Wish::GoesOn);
            files[output].write_all(b"y").unwrap();
            assert_eq!(stopper.look(Some(&files)).unwrap(), Wish::Ends(Signal::SIGTERM));
            assert_eq!(stopper.look(Some(&files)).unwrap(), Wish::GoesOn, "it is asked once");
        }
    }

    #[test]
    fn a_text_after_the_last_look_is_not_missed() {
        let rule = StopRule { until: Some("ready".to_owned()), ..StopRule::default() };
        let mut stopper = Stopper::new(&rule);
        let mut files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
        assert_eq!(stopper.look(Some(&files)).unwrap(), Wish::GoesOn);
        assert!(stopper.misses_text(Some(&files)).unwrap());
        files[0].write_all(b"ready").unwrap();
        assert!(!stopper.misses_text(Some(&files)).unwrap());
        assert!(!Stopper::new(&StopRule::default()).misses_text(None).unwrap(), "no text is wanted");
    }

    #[test]
    fn without_a_rule_runs_go_on() {
        let rule = StopRule::default();
        assert!(!rule.is_set());
        assert_eq!(Stopper::new(&rule).look(None).unwrap(), Wish::GoesOn);
        let rule = StopRule { after: Some(Duration::ZERO), ..rule };
        assert_eq!(Stopper::new(&rule).look(None).unwrap(), Wish::Ends(Signal::SIGTERM));
    }
}
