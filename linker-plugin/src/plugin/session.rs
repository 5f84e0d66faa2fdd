//! One link, from the first hook to the last.
//!
//! In: what the linker shows. Out: its order, through [`Host`]. No file is claimed or written.

use std::borrow::Cow;
use std::path::PathBuf;

use reorder_base::error::Error;
use reorder_layout::{Memory, Strategy};

use super::abi::{InputFile, Level, Status};
use super::host::{Host, Linker, Offer};
use super::inputs::{Inputs, Taken};
use super::options::{Options, Talk};
use super::order::{Arrangement, Failure, arrange};
use super::report;
use crate::hints::{self, Spelling};

/// The output section of what is ordered, where it gets a segment of its own.
const UNIQUE_SECTION: &std::ffi::CStr = c".text.ordered";

/// What mold does.
const PRETENDS: &str = "this linker offers the ordering of sections and does nothing about it, and may load no other \
                        plugin beside this one: leave it out";

/// One link.
pub(super) struct Session {
    voice: Voice,
    linker: Linker,
    options: Options,
    output: Option<PathBuf>,
    inputs: Inputs,
    /// There is no more work.
    is_given_up: bool,
    is_separated: bool,
    /// How many objects came after the first order.
    late_inputs: usize,
    /// The outcome of the last order, until it is reported.
    outcome: Option<Outcome>,
}

enum Outcome {
    Ordered(Box<Arrangement>),
    /// Why there is no order.
    Unordered(String),
}

/// Messages and their severity.
#[derive(Clone, Copy)]
struct Voice {
    host: Host,
    is_strict: bool,
    talk: Talk,
}

impl Session {
    /// Starts a link; returned with the status for the linker.
    pub(super) fn start(offer: Offer) -> (Option<Self>, Status) {
        let Offer { host, options: texts, output, linker } = offer;
        let (is_strict, talk) = Options::glimpse(&texts);
        let voice = Voice { host, is_strict, talk };
        if !host.orders_sections() {
            let name = linker.name();
            return (None, voice.give_up(&format!("{name} does not let plugins order sections")));
        }
        if !linker.is_known() {
            return (None, voice.give_up(PRETENDS));
        }
        let options = match Options::parse(&texts) {
            Ok(options) => options,
            Err(error) => return (None, voice.fail(&error)),
        };
        let voice = Voice { talk: options.talk, ..voice };
        if host.allow_section_ordering() != Status::OK {
            return (None, voice.give_up("the linker does not allow sections to be ordered"));
        }
        let mut is_separated = false;
        if options.unique_segment {
            is_separated = host.separates_sections() && host.allow_unique_segment() == Status::OK;
            if !is_separated {
                let status = voice.complain("the linker gives plugins no segments; leave out unique-segment");
                if status != Status::OK {
                    return (None, status);
                }
            }
        }
        let session = Self {
            voice,
            linker,
            options,
            output,
            inputs: Inputs::default(),
            is_given_up: false,
            is_separated,
            late_inputs: 0,
            outcome: None,
        };
        (Some(session), Status::OK)
    }

    /// Where the hooks are registered.
    pub(super) fn host(&self) -> &Host {
        &self.voice.host
    }

    /// Notes an input file.
    ///
    /// # Safety
    /// The descriptor of `file` is open during the call.
    pub(super) unsafe fn take(&mut self, file: &InputFile) -> Status {
        if self.is_given_up {
            return Status::OK;
        }
        // SAFETY: as this function demands.
        match unsafe { self.inputs.take(&self.voice.host, file) } {
            Taken::Yes => Status::OK,
            Taken::Pretended => {
                self.is_given_up = true;
                self.voice.give_up(PRETENDS)
            }
        }
    }

    /// Notes an input file that was made during the link, and sends the order again: the next chance comes when
    /// sections have their places.
    ///
    /// # Safety
    /// The descriptor of `file` is open during the call.
    pub(super) unsafe fn take_late(&mut self, file: &InputFile) -> Status {
        // SAFETY: as this function demands.
        let status = unsafe { self.take(file) };
        if status != Status::OK {
            return status;
        }
        self.late_inputs += 1;
        self.order()
    }

    /// Sends the order of all that was seen so far.
    pub(super) fn order(&mut self) -> Status {
        if self.is_given_up {
            return Status::OK;
        }
        let mut outcome = self.try_order();
        if let Ok((Outcome::Ordered(arrangement), Status::BAD_HANDLE)) = &outcome
            && self.inputs.retain_orderable(&self.voice.host, &arrangement.sections)
        {
            outcome = self.try_order();
        }
        match outcome {
            Ok((outcome, Status::OK)) => self.outcome = Some(outcome),
            Ok(_) => self.outcome = Some(Outcome::Unordered("the linker refuses the order".to_owned())),
            Err(error) => {
                self.is_given_up = true;
                self.outcome = None;
                return self.voice.fail(&error);
            }
        }
        // Objects that are still to come may hold what is missing now.
        match self.voice.host.register_cleanup {
            Some(_) => Status::OK,
            None => self.tell(),
        }
    }

    /// Reports the outcome of the order.
    pub(super) fn tell(&mut self) -> Status {
        match self.outcome.take() {
            None => Status::OK,
            Some(Outcome::Unordered(cause)) => {
                let text = format!("{cause}; functions keep their order");
                match self.voice.is_strict {
                    // Errors have been counted when the last hook is called: only this one still counts.
                    true => {
                        self.voice.host.say(Level::Fatal, &prefixed(&text));
                        Status::ERROR
                    }
                    false => self.voice.complain(&text),
                }
            }
            Some(Outcome::Ordered(arrangement)) => {
                for (level, text) in report::sentences(&arrangement, self.options.talk) {
                    self.voice.say(level, &text);
                }
                if self.late_inputs > 1 {
                    let text = format!("{} objects were made during the link", self.late_inputs);
                    self.voice.detail(&text);
                }
                self.voice.detail(&format!("{} placed the sections", self.linker.name()));
                Status::OK
            }
        }
    }

    /// The outcome of an order, and the linker's answer.
    fn try_order(&self) -> Result<(Outcome, Status), Error> {
        let options = self.current_options();
        match arrange(&self.inputs.objects, &options, self.output.as_deref()) {
            Ok(arrangement) => {
                let status = self.send(&arrangement);
                Ok((Outcome::Ordered(Box::new(arrangement)), status))
            }
            Err(Failure::Unreadable(error)) => Err(error),
            Err(Failure::Unfitting(error)) => Ok((Outcome::Unordered(words(&error)), Status::OK)),
        }
    }

    /// Every object made during the link asks for a new order of everything. There may be hundreds, so after the first
    /// the search for the best of several layouts is left out.
    fn current_options(&self) -> Cow<'_, Options> {
        if self.late_inputs <= 1 || self.options.request.strategy != Strategy::Auto {
            return Cow::Borrowed(&self.options);
        }
        let mut options = self.options.clone();
        options.request.strategy = Strategy::Balanced;
        options.request.unseen = Strategy::Balanced.default_unseen();
        Cow::Owned(options)
    }

    fn send(&self, arrangement: &Arrangement) -> Status {
        let host = &self.voice.host;
        if self.is_separated && !arrangement.sections.is_empty() {
            let page = match self.options.request.memory {
                Memory::Pages16K => 16 << 10,
                Memory::Folios64K => 64 << 10,
                Memory::Pages4K
                | Memory::FaultAround
                | Memory::ReadAround
                | Memory::ReadAhead
                | Memory::ReadAround4M
                | Memory::Blocks512K
                | Memory::Blocks4M => 4 << 10,
            };
            let status = host.unique_segment(UNIQUE_SECTION, page, &arrangement.sections);
            if status != Status::OK {
                return status;
            }
        }
        host.update_section_order(&arrangement.sections)
    }
}

impl Voice {
    /// Ends all work with a message that says what to do instead.
    fn give_up(&self, cause: &str) -> Status {
        self.complain(&format!(
            "{cause}; functions keep their order; let reorder-ld stand in for the linker, or run `reorder apply` on the \
             program"
        ))
    }

    /// A warning, or an error with `strict`.
    fn complain(&self, text: &str) -> Status {
        if self.is_strict {
            self.host.say(Level::Error, &prefixed(text));
            return Status::ERROR;
        }
        self.say(Level::Warning, text);
        Status::OK
    }

    fn fail(&self, error: &Error) -> Status {
        self.host.say(Level::Error, &prefixed(&words(error)));
        Status::ERROR
    }

    fn say(&self, level: Level, text: &str) {
        if self.talk > Talk::Quiet {
            self.host.say(level, &prefixed(text));
        }
    }

    fn detail(&self, text: &str) {
        if self.talk == Talk::Verbose {
            self.host.say(Level::Info, &prefixed(text));
        }
    }
}

fn words(error: &Error) -> String {
    let hint = error.hint.as_ref().and_then(|hint| hints::text(hint, Spelling::Plugin));
    let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
    format!("{error}{hint}")
}

fn prefixed(text: &str) -> String {
    format!("reorder: {text}")
}
