//! One call as a linker: with an order if possible, else as if we were not there.

use std::path::PathBuf;

use reorder_base::error::{Error, Result};

use super::account::Account;
use super::cache::Cache;
use super::caller;
use super::environment::Environment;
use super::invocation::Invocation;
use super::link::{Failure, OrderedLink, warn_not_ordered};
use super::options::{Mode, Options};
use super::process::{become_linker, exit_code, run_visibly};
use super::real_linker::{self, RealLinker};
use super::recorded::Recorded;
use super::talk::Talk;

/// The exit status when this program could not do its part.
pub(crate) const COULD_NOT_RUN: u8 = 2;
/// The exit status for a finding: the traces fit too little.
const FINDING: u8 = 1;

/// What to link, and with which linker.
#[derive(Debug)]
pub(crate) struct Call<'call> {
    /// The linker that is stood in for.
    pub(crate) program: PathBuf,
    /// What this process was started with.
    pub(crate) environment: &'call Environment,
    /// What is linked.
    pub(crate) invocation: &'call Invocation,
    /// The options.
    pub(crate) options: &'call Options,
    /// Whether the arguments name our files, which must not outlive this process.
    pub(crate) has_own_files: bool,
    /// Where to say what is done.
    pub(crate) talk: Talk,
}

impl Call<'_> {
    /// Links; gives the exit status.
    #[must_use]
    pub(crate) fn link(&self) -> u8 {
        let cache = self.options.cache_directory(self.environment).map(Cache::in_directory);
        let cache = cache.as_ref();
        let recorded = match self.recorded(cache) {
            Ok(Some(recorded)) => recorded,
            Ok(None) => return self.link_plainly(),
            Err(error) => return self.without_order(&error),
        };
        let real = match RealLinker::of(self.program.clone(), self.environment, cache) {
            Ok(real) => real,
            Err(error) => return self.without_order(&error),
        };
        self.talk.detail(&format!("{} ({})", real.program.display(), real.version));
        let Self { environment, invocation, options, talk, .. } = *self;
        let ordered =
            OrderedLink { real: &real, environment, invocation, options, recorded: &recorded, cache, talk };
        match ordered.run() {
            Ok(status) => status,
            Err(Failure::LinkFails(message)) => self.link_that_fails(&message),
            Err(Failure::TooLittleFound(error)) => {
                self.account().not_ordered(&error);
                talk.error(&error);
                FINDING
            }
            // Traces that do not name their program are tried with every link; most links are of other programs.
            Err(Failure::Unfit(error)) if recorded.may_be_of_others(options) => {
                talk.detail(&error.to_string());
                self.link_plainly()
            }
            Err(Failure::Unfit(error) | Failure::NotOrdered(error)) => self.without_order(&error),
        }
    }

    fn account(&self) -> Account<'_> {
        let Self { invocation, options, environment, talk, .. } = *self;
        Account { invocation, options, environment, talk }
    }

    /// The traces, if they concern this link.
    fn recorded(&self, cache: Option<&Cache>) -> Result<Option<Recorded>> {
        let (options, invocation) = (self.options, self.invocation);
        if options.mode == Mode::Off || options.traces.is_empty() {
            self.talk.detail("no order is asked for");
            return Ok(None);
        }
        if let Some(left_alone) = invocation.left_alone() {
            self.talk.detail(&format!("{}: {}", invocation.output.display(), left_alone.reason()));
            return Ok(None);
        }
        if options.program.is_empty() && invocation.is_helper_of_a_build() {
            self.talk.detail(&format!("{} is a helper of the build", invocation.output.display()));
            return Ok(None);
        }
        let recorded = Recorded::read(options, cache)?;
        if let Some(reason) = recorded.is_unconcerned(invocation, options) {
            self.talk.detail(&reason);
            return Ok(None);
        }
        Ok(Some(recorded))
    }

    /// The link as it is without us, unless the user wants it to fail without an order.
    fn without_order(&self, error: &Error) -> u8 {
        if self.options.strict {
            self.account().not_ordered(error);
            self.talk.error(error);
            return COULD_NOT_RUN;
        }
        warn_not_ordered(self.account(), error);
        self.link_plainly()
    }

    /// A link that fails with our additions, and therefore probably also without them: `message` is its first message.
    fn link_that_fails(&self, message: &str) -> u8 {
        let status = real_linker::command(&self.program, self.environment)
            .and_then(|command| run_visibly(command, self.invocation.arguments.clone()));
        match status {
            Ok(status) if status.success() => {
                let error = Error::usage(format!("a trial of the link fails: {message}"))
                    .with_hint("please report this; --reorder-mode=post-link needs no trial");
                if self.options.strict {
                    self.talk.error(&error);
                    return COULD_NOT_RUN;
                }
                warn_not_ordered(self.account(), &error);
                0
            }
            Ok(status) => exit_code(status),
            Err(error) => {
                self.talk.error(&error);
                COULD_NOT_RUN
            }
        }
    }

    /// Becomes the real linker; but runs it as a child and waits below a compiler that may be killed with us, and if files
    /// must be removed afterwards.
    fn link_plainly(&self) -> u8 {
        let linked = real_linker::command(&self.program, self.environment).and_then(|command| {
            if self.has_own_files || caller::is_watched(self.environment) {
                run_visibly(command, self.invocation.arguments.clone()).map(exit_code)
            } else {
                Err(become_linker(command, &self.invocation.arguments))
            }
        });
        linked.unwrap_or_else(|error| {
            self.talk.error(&error);
            COULD_NOT_RUN
        })
    }
}
