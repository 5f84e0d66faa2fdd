//! One link with an order: from the cache, through a trial, or in the finished image.

use std::ffi::OsString;
use std::path::Path;

use reorder::error::{Error, Result};
use reorder::link_map::LinkMap;
use reorder::report::Report;
use serde::{Deserialize, Serialize};

use super::addition::Addition;
use super::cache::Cache;
use super::contents::Digest;
use super::inputs::{self, Input, are_same, inputs_of};
use super::invocation::Invocation;
use super::moved::Moved;
use super::options::Options;
use super::ordering::{Occasion, Ordering, Trial};
use super::post_link::order_in_place;
use super::process::{Outcome, exit_code, run_quietly, run_visibly};
use super::real_linker::{Environment, RealLinker};
use super::recorded::Recorded;
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

/// What is remembered of a link.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    inputs: Vec<Input>,
    /// None when the finished image was changed.
    additions: Vec<Addition>,
    report: LinkReport,
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
        let remembered = self.cache.and_then(|cache| cache.get::<Remembered>(&key));
        let remembered = remembered.filter(|remembered| are_same(&remembered.inputs, self.invocation));
        match (route, remembered) {
            (Route::PostLink, remembered) => self.in_finished_image(&place, &key, remembered),
            (_, Some(Remembered { additions, report, .. })) => {
                self.check_coverage(&report)?;
                self.link_with(&additions, &place, None)?;
                place.deliver()?;
                self.tell(LinkReport { is_remembered: true, ..report })?;
                Ok(0)
            }
            (route, _) => self.through_linker(route, &place, &key),
        }
    }

    fn through_linker(
        &self,
        route: Route,
        place: &Workplace,
        key: &Digest,
    ) -> std::result::Result<u8, Failure> {
        let (image, map) = (place.file("trial"), place.file("trial.map"));
        let arguments = trial::arguments(self.invocation, self.real.family, route, &image, &map);
        let command = self.real.command(self.environment)?;
        // What the link depends on is read while it runs.
        let (outcome, inputs) = rayon::join(|| run_quietly(command, arguments), || self.inputs());
        let mut outcome = outcome?;
        if !outcome.status.success() {
            return Err(Failure::LinkFails);
        }
        let said = outcome.stdout()?;
        let map_text = read(&map)?;
        let trial_map = LinkMap::parse(&map_text).map_err(|error| error.in_file(&map))?;
        let trial = Trial { image: &image, map: &trial_map, said: &said };
        let (invocation, options, linker) = (self.invocation, self.options, self.real.version.as_str());
        let ordering = Ordering::new(&trial, &Occasion { invocation, options, route, linker })?;
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
        let new_text = read(&new_map)?;
        report.faults = LinkMap::parse(&new_text)
            .ok()
            .map(|new| ordering.faults(&Moved::between(&trial_map, &new), self.options));
        place.deliver()?;
        self.remember(key, inputs, ordering.additions, &report, None);
        self.tell(report)?;
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
        key: &Digest,
        remembered: Option<Remembered>,
    ) -> std::result::Result<u8, Failure> {
        let mut arguments: Vec<OsString> = self.invocation.arguments.clone();
        arguments.extend(trial::output_arguments(self.invocation, self.real.family, &place.output()));
        let command = self.real.command(self.environment)?;
        let (status, inputs) = match &remembered {
            Some(_) => (run_visibly(command, arguments)?, None),
            None => {
                let (status, inputs) = rayon::join(|| run_visibly(command, arguments), || self.inputs());
                (status?, inputs)
            }
        };
        if !status.success() {
            return Ok(exit_code(status));
        }
        self.correct_side_files(place)?;
        let known = remembered.and_then(|remembered| Some((remembered.report, self.cache?.image(key)?)));
        if let Some((report, image)) = known {
            self.check_coverage(&report)?;
            replace_contents(&place.output(), &image)?;
            place.deliver()?;
            self.tell(LinkReport { is_remembered: true, ..report })?;
            return Ok(0);
        }
        match order_in_place(&place.output(), self.invocation, self.options, &self.real.version) {
            Ok(report) => {
                self.check_coverage(&report)?;
                self.remember(key, inputs, Vec::new(), &report, Some(&place.output()));
                place.deliver()?;
                self.tell(report)?;
            }
            Err(error) if self.options.strict => return Err(error.into()),
            Err(error) => {
                place.deliver()?;
                warn_not_ordered(self.talk, self.invocation, &error);
            }
        }
        Ok(0)
    }

    fn inputs(&self) -> Option<Vec<Input>> {
        self.cache.and_then(|_| inputs_of(self.invocation))
    }

    fn remember(
        &self,
        key: &Digest,
        inputs: Option<Vec<Input>>,
        additions: Vec<Addition>,
        report: &LinkReport,
        image: Option<&Path>,
    ) {
        let (Some(cache), Some(inputs)) = (self.cache, inputs) else { return };
        if let Some(image) = image {
            cache.put_image(key, image);
        }
        cache.put(key, &Remembered { inputs, additions, report: report.clone() });
        cache.prune();
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

    fn tell(&self, report: LinkReport) -> Result<()> {
        self.talk.note(&report.text());
        if let Some(file) = &self.options.report {
            let json = reorder::report::render(&report, reorder::cli::shared_args::Format::Json)?;
            reorder::write::whole(&self.invocation.directory.join(file), json.as_bytes())?;
        }
        Ok(())
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
