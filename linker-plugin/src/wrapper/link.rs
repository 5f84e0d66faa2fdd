//! One link with an order: from the cache, through a trial, or in the finished image.

use std::ffi::OsString;
use std::path::Path;

use reorder::error::{Error, Result};
use reorder::link_map::LinkMap;
use reorder::report::Report;

use super::addition::Addition;
use super::cache::Cache;
use super::inputs;
use super::invocation::Invocation;
use super::moved::Moved;
use super::options::Options;
use super::ordering::{Occasion, Ordering, Trial};
use super::post_link::order_in_place;
use super::process::{Outcome, exit_code, run_quietly, run_visibly};
use super::real_linker::{Environment, RealLinker};
use super::recorded::Recorded;
use super::remembered::{Memory, Remembered};
use super::report::LinkReport;
use super::route::Route;
use super::talk::Talk;
use super::trial;
use super::workplace::Workplace;

/// Everything that one link needs to be ordered.
#[derive(Debug)]
pub struct OrderedLink<'call> {
    /// Who links.
    pub real: &'call RealLinker,
    /// What this process was started with.
    pub environment: &'call Environment,
    /// What is linked.
    pub invocation: &'call Invocation,
    /// What is wanted.
    pub options: &'call Options,
    /// What the traces are of.
    pub recorded: &'call Recorded,
    /// What was found out before.
    pub cache: Option<&'call Cache>,
    /// Where to say so.
    pub talk: Talk,
}

/// Why nothing was delivered.
#[derive(Debug)]
pub enum Failure {
    /// No order could be made or used: the link can be done without.
    NotOrdered(Error),
    /// The link fails by itself; doing it again says why.
    LinkFails,
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
    /// [`Failure`]; nothing stands under the output's name then that was not there before.
    pub fn run(&self) -> std::result::Result<u8, Failure> {
        let route = Route::of(self.real.family, self.options.mode, self.invocation)?;
        self.talk.detail(&format!("{}: {}", self.real.version, route.name()));
        let place = Workplace::beside(&self.invocation.output_path())?;
        let key = inputs::key(self.real, route, self.invocation, self.options, self.recorded)?;
        let memory = Memory::new(self.cache, key, self.invocation);
        let remembered = memory.recall();
        if let Some(Remembered::NotOrdered { message, hint }) = remembered {
            let mut error = Error::usage(message);
            error.hint = hint;
            return Err(Failure::NotOrdered(error));
        }
        match (route, remembered) {
            (Route::PostLink, remembered) => self.in_finished_image(&place, &memory, remembered),
            (_, Some(Remembered::Order { additions, report })) if memory.additions(&additions).is_some() => {
                self.check_coverage(&report)?;
                self.link_with(&memory.additions(&additions).unwrap_or_default(), &place, None)?;
                place.deliver()?;
                self.tell(LinkReport { is_remembered: true, ..report });
                Ok(0)
            }
            (route, _) => self.through_linker(route, &place, &memory),
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
            return Err(Failure::LinkFails);
        }
        let said = outcome.stdout()?;
        let map_text = read(&map)?;
        let trial_map = LinkMap::parse(&map_text).map_err(|error| error.in_file(&map))?;
        let trial = Trial { image: &image, map: &trial_map, said: &said };
        let (invocation, options, linker) = (self.invocation, self.options, self.real.version.as_str());
        let occasion = Occasion { invocation, options, route, linker };
        let ordering = match Ordering::new(&trial, &occasion) {
            Ok(ordering) => ordering,
            Err(error) => {
                memory.remember_failure(inputs, &error);
                return Err(error.into());
            }
        };
        self.check_coverage(&ordering.report)?;
        let new_map = match self.invocation.map() {
            Some(of_user) => of_user,
            None => place.file("map"),
        };
        self.link_with(
            &ordering.additions,
            place,
            self.invocation.map().is_none().then_some(new_map.as_path()),
        )?;
        let mut report = ordering.report.clone();
        // A map of the user's may be of a form that is not known here; the link is none the worse for it.
        let new_text = read(&new_map).unwrap_or_default();
        report.faults = LinkMap::parse(&new_text)
            .ok()
            .map(|new| ordering.faults(&Moved::between(&trial_map, &new), self.options));
        place.deliver()?;
        memory.remember_order(inputs, &ordering.additions, &report);
        self.tell(report);
        Ok(0)
    }

    /// The real link, with an order, at its temporary place.
    fn link_with(
        &self,
        additions: &[Addition],
        place: &Workplace,
        map: Option<&Path>,
    ) -> std::result::Result<(), Failure> {
        let mut arguments: Vec<OsString> = self.invocation.arguments.clone();
        for (number, addition) in additions.iter().enumerate() {
            arguments.extend(addition.arguments(&place.file(&format!("order{number}")))?);
        }
        arguments.extend(map.into_iter().flat_map(|map| trial::map_arguments(self.real.family, map)));
        arguments.extend(trial::output_arguments(self.invocation, self.real.family, &place.output()));
        let mut outcome: Outcome = run_quietly(self.real.command(self.environment)?, arguments)?;
        if !outcome.status.success() {
            let said = outcome.stderr()?;
            let said = String::from_utf8_lossy(&said);
            let first = said.lines().next().unwrap_or("no message").to_owned();
            return Err(Error::usage(format!(
                "{} does not link with the order: {first}",
                self.real.program.display()
            ))
            .with_hint("please report this; --reorder-mode=post-link orders without the linker's help")
            .into());
        }
        // A closed stderr takes nothing from the output.
        let _ = outcome.repeat();
        self.correct_side_files(place)?;
        Ok(())
    }

    fn in_finished_image(
        &self,
        place: &Workplace,
        memory: &Memory<'_>,
        remembered: Option<Remembered>,
    ) -> std::result::Result<u8, Failure> {
        let mut arguments: Vec<OsString> = self.invocation.arguments.clone();
        arguments.extend(trial::output_arguments(self.invocation, self.real.family, &place.output()));
        let command = self.real.command(self.environment)?;
        let known = match remembered {
            Some(Remembered::Image { image, report }) => memory.image(&image).zip(Some(report)),
            _ => None,
        };
        let (status, inputs) = match &known {
            Some(_) => (run_visibly(command, arguments)?, None),
            None => {
                let (status, inputs) = rayon::join(|| run_visibly(command, arguments), || memory.inputs());
                (status?, inputs)
            }
        };
        if !status.success() {
            return Ok(exit_code(status));
        }
        self.correct_side_files(place)?;
        if let Some((image, report)) = known {
            self.check_coverage(&report)?;
            replace_contents(&place.output(), &image)?;
            place.deliver()?;
            self.tell(LinkReport { is_remembered: true, ..report });
            return Ok(0);
        }
        match order_in_place(&place.output(), self.invocation, self.options, &self.real.version) {
            Ok((report, image)) => {
                self.check_coverage(&report)?;
                memory.remember_image(inputs, &image, &report);
                place.deliver()?;
                self.tell(report);
            }
            Err(error) => {
                memory.remember_failure(inputs, &error);
                if self.options.strict {
                    return Err(error.into());
                }
                place.deliver()?;
                warn_not_ordered(self.talk, self.invocation, &error);
            }
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

    /// The output is delivered: what goes wrong here costs a word.
    fn tell(&self, report: LinkReport) {
        self.talk.note(&report.text());
        let Some(file) = &self.options.report else { return };
        let written = reorder::report::render(&report, reorder::cli::shared_args::Format::Json)
            .and_then(|json| reorder::write::whole(&self.invocation.directory.join(file), json.as_bytes()));
        if let Err(error) = written {
            self.talk.warning(&format!("the report is not written: {error}"), error.hint.as_deref());
        }
    }
}

/// Says that a link was done without an order, and why.
pub fn warn_not_ordered(talk: Talk, invocation: &Invocation, error: &Error) {
    talk.warning(
        &format!("{} is linked without an order: {error}", invocation.output.display()),
        error.hint.as_deref(),
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
