//! One link with an order: from the cache, through a trial, or in the finished image.

use std::ffi::OsString;
use std::path::Path;

use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;
use reorder_trace::link_map::LinkMap;

use super::account::Account;
use super::addition::Addition;
use super::build_names::BuildNames;
use super::cache::Cache;
use super::environment::Environment;
use super::inputs;
use super::invocation::Invocation;
use super::moved::Moved;
use super::options::Options;
use super::ordering::{Occasion, Ordering, Trial};
use super::post_link::order_in_place;
use super::process::{Outcome, run_quietly};
use super::real_linker::RealLinker;
use super::recorded::Recorded;
use super::remembered::{Memory, Remembered};
use super::report::LinkReport;
use super::route::Route;
use super::talk::{Talk, hint_of};
use super::trial;
use super::workplace::Workplace;

/// Everything that one link needs to be ordered.
#[derive(Debug)]
pub(crate) struct OrderedLink<'call> {
    /// The real linker.
    pub(crate) real: &'call RealLinker,
    /// The environment.
    pub(crate) environment: &'call Environment,
    /// What is linked.
    pub(crate) invocation: &'call Invocation,
    /// The options.
    pub(crate) options: &'call Options,
    /// What the traces are of.
    pub(crate) recorded: &'call Recorded,
    /// What was found out before.
    pub(crate) cache: Option<&'call Cache>,
    /// For messages.
    pub(crate) talk: Talk,
}

/// Why no output was delivered.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No order could be made or used: the link can be done without.
    NotOrdered(Error),
    /// No function of the traces is found in what is linked.
    Unfit(Error),
    /// The link fails, probably also without us: running it again without us shows why. The first of its messages.
    LinkFails(String),
    /// The traces fit too little, and the user wants the link to fail then.
    TooLittleFound(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::NotOrdered(error)
    }
}

impl OrderedLink<'_> {
    /// Links and delivers; gives the exit status for the caller.
    ///
    /// # Errors
    /// [`Failure`]; no output is delivered then.
    pub(crate) fn run(&self) -> std::result::Result<u8, Failure> {
        let route = Route::of(self.real.family, self.options.mode, self.invocation)?;
        self.talk.detail(route.name());
        if self.options.data && route != Route::Lld {
            self.talk.warning("data is not ordered: only lld for ELF takes an order of data", None);
        }
        let place = Workplace::beside(&self.invocation.output_path())?;
        if route == Route::PostLink {
            return self.in_finished_image(&place);
        }
        let memory = Memory::of_link(self.cache, inputs::key(self, route)?, self.invocation);
        match memory.recall() {
            Some(Remembered::Order { additions, report }) => {
                self.check_coverage(&report)?;
                let linked =
                    memory.additions(&additions).map(|additions| self.link_with(&additions, &place, None));
                if !matches!(linked, Some(Ok(()))) {
                    return self.through_linker(route, &place, &memory);
                }
                place.deliver()?;
                self.tell(&LinkReport { is_remembered: true, ..report });
                Ok(0)
            }
            // With `strict` it costs the link, so it has to be true now.
            Some(Remembered::NotOrdered { message, hint, is_unfit }) if !self.options.strict => {
                let mut error = Error::usage(message);
                error.hint = hint.map(Hint::Advice);
                Err(if is_unfit { Failure::Unfit(error) } else { Failure::NotOrdered(error) })
            }
            _ => self.through_linker(route, &place, &memory),
        }
    }

    fn through_linker(
        &self,
        route: Route,
        place: &Workplace,
        memory: &Memory<'_>,
    ) -> std::result::Result<u8, Failure> {
        let (image, map) = (place.file("trial"), place.file("trial.map"));
        let arguments = trial::arguments(self.invocation, self.real.family, route, &image, &map);
        let command = self.real.command(self.environment)?;
        // What the link depends on is read while it runs.
        let (outcome, inputs) = rayon::join(|| run_quietly(command, arguments), || memory.inputs());
        let mut outcome = outcome?;
        if !outcome.status.success() {
            return Err(Failure::LinkFails(outcome.first_message()));
        }
        let said = outcome.stdout()?;
        let map_text = read(&map)?;
        let trial_map = LinkMap::parse(&map_text).map_err(|error| error.in_file(&map))?;
        let trial = Trial { image: &image, map: &trial_map, said: &said };
        let (invocation, options, linker) = (self.invocation, self.options, self.real.version.as_str());
        let build_names = &BuildNames::new(self.cache);
        let occasion = Occasion { invocation, options, route, linker, build_names };
        let ordering = Ordering::new(&trial, &occasion)
            .inspect_err(|failure| memory.remember_failure(inputs.clone(), failure, place))?;
        self.check_coverage(&ordering.report)?;
        // A map that the linker prints goes where the user wants it, and nowhere else.
        let of_user = self.invocation.map();
        let own_map = (of_user.is_none() && !trial::prints_map(self.invocation)).then(|| place.file("map"));
        self.link_with(&ordering.additions, place, own_map.as_deref())?;
        let mut report = ordering.report.clone();
        // A map of the user's may be of a form that is not known here; that does not harm the link.
        let new_text = of_user.or(own_map).and_then(|map| read(&map).ok()).unwrap_or_default();
        if let Ok(new_map) = LinkMap::parse(&new_text) {
            let moved = Moved::between(&trial_map, &new_map);
            report.faults = report.names.tells_of_faults().then(|| ordering.faults(&moved));
            let names = ordering.names.moved(|address| moved.map(address));
            build_names.keep_output(invocation, &place.output(), &names);
        }
        place.deliver()?;
        memory.remember_order(inputs, &ordering.additions, &report);
        self.tell(&report);
        Ok(0)
    }

    /// The real link at its temporary place, with an order if there is one.
    fn link_with(
        &self,
        additions: &[Addition],
        place: &Workplace,
        map: Option<&Path>,
    ) -> std::result::Result<(), Failure> {
        place.remove_old_output();
        let mut arguments: Vec<OsString> = self.invocation.arguments.clone();
        for (number, addition) in additions.iter().enumerate() {
            arguments.extend(addition.arguments(&place.file(&format!("order{number}")))?);
        }
        arguments.extend(map.into_iter().flat_map(|map| trial::map_arguments(self.real.family, map)));
        arguments.extend(trial::output_arguments(self.invocation, self.real.family, &place.output()));
        let mut outcome: Outcome = run_quietly(self.real.command(self.environment)?, arguments)?;
        if !outcome.status.success() {
            let message = place.spelled(outcome.first_message().as_bytes(), &self.invocation.output);
            let message = String::from_utf8_lossy(&message).into_owned();
            if additions.is_empty() {
                return Err(Failure::LinkFails(message));
            }
            let program = self.real.program.display();
            return Err(Error::usage(format!("{program} does not link with the order: {message}"))
                .with_hint("please report this; --reorder-mode=post-link orders without the linker's help")
                .into());
        }
        // A closed stderr does not affect the output.
        let _ = outcome.repeat(|said| place.spelled(said, &self.invocation.output));
        self.correct_side_files(place)?;
        Ok(())
    }

    /// The link is done in any case, so the remembered result is the one of this link.
    fn in_finished_image(&self, place: &Workplace) -> std::result::Result<u8, Failure> {
        self.link_with(&[], place, None)?;
        let output = place.output();
        let memory = Memory::of_image(self.cache, inputs::image_key(self, &output)?);
        match memory.recall() {
            Some(Remembered::Image { image, report }) => {
                if let Some(image) = memory.image(&image) {
                    self.check_coverage(&report)?;
                    replace_contents(&output, &image)?;
                    place.deliver()?;
                    self.tell(&LinkReport { is_remembered: true, ..report });
                    return Ok(0);
                }
            }
            Some(Remembered::NotOrdered { message, hint, is_unfit }) => {
                let mut error = Error::usage(message);
                error.hint = hint.map(Hint::Advice);
                let failure = if is_unfit { Failure::Unfit(error) } else { Failure::NotOrdered(error) };
                return self.deliver_unordered(place, failure);
            }
            _ => {}
        }
        match order_in_place(&output, self.invocation, self.options, &self.real.version) {
            Ok((report, image)) => {
                self.check_coverage(&report)?;
                memory.remember_image(&image, &report);
                place.deliver()?;
                self.tell(&report);
                Ok(0)
            }
            Err(failure) => {
                memory.remember_failure(memory.inputs(), &failure, place);
                self.deliver_unordered(place, failure)
            }
        }
    }

    /// Delivers the finished link as it is, unless the user wants it to fail without an order.
    fn deliver_unordered(&self, place: &Workplace, failure: Failure) -> std::result::Result<u8, Failure> {
        let is_of_others =
            matches!(failure, Failure::Unfit(_)) && self.recorded.may_be_of_others(self.options);
        let error = match failure {
            Failure::Unfit(error) | Failure::NotOrdered(error) if is_of_others || !self.options.strict => {
                error
            }
            failure => return Err(failure),
        };
        place.deliver()?;
        match is_of_others {
            true => self.talk.detail(&error.to_string()),
            false => warn_not_ordered(self.account(), &error),
        }
        Ok(0)
    }

    fn correct_side_files(&self, place: &Workplace) -> Result<()> {
        self.invocation
            .files_about_output()
            .iter()
            .try_for_each(|file| place.correct(file, &self.invocation.output))
    }

    fn check_coverage(&self, report: &LinkReport) -> std::result::Result<(), Failure> {
        if report.sharing * 2 > report.needed {
            let cause = format!(
                "{} functions share a section with others and move with them only: the order has little effect",
                report.sharing
            );
            self.talk.warning(
                &cause,
                Some("compile with -ffunction-sections, or order with --reorder-mode=post-link"),
            );
        }
        report.notes.iter().for_each(|note| self.talk.detail(note));
        let (names, percent) = (&report.names, report.names.percent());
        let lost = names.lost_text().unwrap_or_default();
        const RECORD: &str = "record the program again: reorder record -o traces -- PROGRAM ARGUMENTS";
        if let Some(least) = self.options.fail_below.filter(|&least| percent < u64::from(least)) {
            let cause =
                format!("{percent} % of the traces is found, less than the {least} % of fail-below: {lost}");
            return Err(Failure::TooLittleFound(Error::usage(cause).with_hint(RECORD)));
        }
        if percent < u64::from(self.options.warn_below) {
            self.talk.warning(&format!("{percent} % of the traces is found: {lost}"), Some(RECORD));
        } else if !lost.is_empty() {
            self.talk.detail(&lost);
        }
        Ok(())
    }

    fn tell(&self, report: &LinkReport) {
        self.account().ordered(report);
    }

    fn account(&self) -> Account<'_> {
        let Self { invocation, options, environment, talk, .. } = *self;
        Account { invocation, options, environment, talk }
    }
}

/// Says that a link was done without an order, and why.
pub(crate) fn warn_not_ordered(account: Account<'_>, error: &Error) {
    account.not_ordered(error);
    account.talk.warning(
        &format!("{} is linked without an order: {error}", account.invocation.output.display()),
        hint_of(error).as_deref(),
    );
}

/// Gives `output` the contents of `image`, and keeps its permissions: linkers make outputs executable as the user's mask
/// allows.
fn replace_contents(output: &Path, image: &Path) -> Result<()> {
    let permissions = std::fs::metadata(output).map_err(|error| Error::io(output, error))?.permissions();
    std::fs::copy(image, output).map_err(|error| Error::io(image, error))?;
    std::fs::set_permissions(output, permissions).map_err(|error| Error::io(output, error))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::io(path, error))
}
