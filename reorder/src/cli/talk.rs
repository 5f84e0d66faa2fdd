//! Messages and progress on stderr: bars on a terminal, one line per phase elsewhere, nothing with `--quiet`.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::context::width_of;
use crate::cli::shared_args::SharedArguments;
use crate::hints;
use reorder_base::error::Error;
use reorder_report::Width;
use reorder_report::visible::visible;

/// Prints messages for the user.
#[derive(Debug)]
pub struct Talk {
    quiet: bool,
    verbosity: u8,
    colors: bool,
    terminal: bool,
    width: Width,
}

#[derive(Clone, Copy)]
enum Color {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
}

impl Talk {
    /// Messages as the shared flags request them.
    pub fn new(shared: &SharedArguments) -> Self {
        Self {
            quiet: shared.quiet,
            verbosity: shared.verbose,
            colors: shared.colors_talk(),
            terminal: std::io::stderr().is_terminal(),
            width: width_of(&std::io::stderr()),
        }
    }

    /// A failure and what to do next; printed even with `--quiet`.
    pub fn error(&self, error: &Error) {
        self.say(Some(("error", Color::Red)), &error.to_string());
        if let Some(hint) = &error.hint {
            self.say(Some(("hint", Color::Cyan)), &hints::text(hint));
        }
    }

    /// Something that needs attention: the cause, and the next step if there is one.
    pub fn warning(&self, cause: &str, hint: Option<&str>) {
        if self.quiet {
            return;
        }
        self.say(Some(("warning", Color::Yellow)), cause);
        if let Some(hint) = hint {
            self.say(Some(("hint", Color::Cyan)), hint);
        }
    }

    /// A fact worth knowing.
    pub fn note(&self, fact: &str) {
        if !self.quiet {
            self.say(None, fact);
        }
    }

    /// A fact that is printed only with `-v`.
    pub fn detail(&self, fact: &str) {
        if self.verbosity > 0 && !self.quiet {
            self.say(None, fact);
        }
    }

    /// Starts a phase of `steps` steps (0: unknown); it ends when the value is dropped or finished.
    pub fn phase(&self, name: &'static str, steps: u64) -> Phase<'_> {
        let bar = if self.quiet || !self.terminal {
            ProgressBar::hidden()
        } else if steps == 0 {
            // Its style first: the default one is a bar of the whole width, which would be drawn for a moment.
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
            if let Ok(style) = ProgressStyle::with_template("{msg:>9} {spinner}") {
                bar.set_style(style);
            }
            bar.set_message(name);
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        } else {
            let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
            if let Ok(style) = ProgressStyle::with_template("{msg:>9} [{bar:30}] {pos}/{len}") {
                bar.set_style(style);
            }
            bar.set_message(name);
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar
        };
        Phase { talk: self, name, bar, started: Instant::now() }
    }

    fn say(&self, label: Option<(&str, Color)>, message: &str) {
        let message = harmless(message);
        self.write(label, &message);
    }

    fn write(&self, label: Option<(&str, Color)>, message: &str) {
        let mut stderr = std::io::stderr().lock();
        // If stderr is closed, the exit status still gives the result.
        let _ = match label {
            // A hint may be a command to copy.
            Some((word @ "hint", color)) => {
                writeln!(stderr, "{} {message}", self.paint(&format!("{word}:"), color))
            }
            Some((word, color)) => {
                let text = self.width.wrapped(&format!("{word}: {message}"));
                let rest = text.strip_prefix(word).unwrap_or(&text);
                let rest = rest.strip_prefix(':').unwrap_or(rest);
                writeln!(stderr, "{}{rest}", self.paint(&format!("{word}:"), color))
            }
            None => writeln!(stderr, "{}", self.width.wrapped(message)),
        };
    }

    fn paint(&self, text: &str, color: Color) -> String {
        if self.colors { format!("\x1b[1;{}m{text}\x1b[0m", color as u8) } else { text.to_owned() }
    }
}

/// A message in which names from files cannot control a terminal or give commands to a GitHub runner, which interprets lines
/// of stderr that start with `::`. Line breaks and tabs of our own messages are kept.
fn harmless(message: &str) -> String {
    let line = |line: &str| {
        let shown: Vec<_> = line.split('\t').map(visible).collect();
        let mark = if line.trim_start().starts_with("::") { "| " } else { "" };
        format!("{mark}{}", shown.join("\t"))
    };
    message.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// A running phase.
#[derive(Debug)]
pub struct Phase<'talk> {
    talk: &'talk Talk,
    name: &'static str,
    bar: ProgressBar,
    started: Instant,
}

impl Phase<'_> {
    /// One step is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Ends the phase with its outcome in a few words, such as `1132 functions in 3 runs`.
    pub fn finish(self, outcome: &str) {
        self.bar.finish_and_clear();
        let name = self.talk.paint(&format!("{:>9}", self.name), Color::Green);
        if !self.talk.quiet {
            let seconds = match self.talk.verbosity {
                0 => String::new(),
                _ => format!(" ({:.2} s)", self.started.elapsed().as_secs_f64()),
            };
            self.talk.write(None, &format!("{name} {}{seconds}", harmless(outcome)));
        }
    }
}

impl Drop for Phase<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_lines_and_give_no_commands() {
        assert_eq!(harmless("two\n\tlines é"), "two\n\tlines é");
        assert_eq!(harmless("a\n ::error::b\u{1b}[31m\r"), "a\n|  ::error::b\\u{1b}[31m\\u{d}");
        assert_eq!(harmless("std::vector"), "std::vector");
    }
}
