//! The order for one link, computed from a trial of it.

use std::path::Path;

use reorder::error::{Error, Result};
use reorder::image::functions::FunctionTable;
use reorder::image::mapped::map_image;
use reorder::layout::{Layout, Room, lay_out};
use reorder::link_map::LinkMap;
use reorder::order_file::lld::{self, Origin, Unnamed};

use super::addition::{Addition, Form};
use super::invocation::Invocation;
use super::linked::{Starts, functions_of};
use super::moved::Moved;
use super::options::Options;
use super::report::{Faults, LinkReport, NamesFound, StartSpans};
use super::route::Route;

/// What a trial gave.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'files> {
    /// The image.
    pub image: &'files Path,
    /// Its map.
    pub map: &'files LinkMap<'files>,
    /// What the linker said: GNU ld's script stands there.
    pub said: &'files [u8],
}

/// An order for a linker.
#[derive(Debug)]
pub struct Ordering {
    /// What the linker is given.
    pub addition: Addition,
    /// The account, without faults: they are not known before the real link is done.
    pub report: LinkReport,
    /// What starts touch in the trial.
    spans: StartSpans,
}

impl Ordering {
    /// Orders what the trial linked.
    ///
    /// # Errors
    /// Images that are not understood, traces that do not fit, orders that the linker cannot be given.
    pub fn new(
        trial: &Trial<'_>,
        route: Route,
        invocation: &Invocation,
        options: &Options,
        linker: &str,
    ) -> Result<Self> {
        let bytes = map_image(trial.image)?;
        let (file, functions) = functions_of(trial.image, &bytes)?;
        let starts = Starts::resolve(trial.image, &functions, invocation, options)?;
        let request = options.request();
        let layout = lay_out(&file, &functions, &starts.traces.traces, Room::Linker, &request)?
            .with_hot(&starts.traces.counts, &functions);
        let origin = Origin::new(&file, request.strategy, request.seed, Some(&starts.traces.coverage));
        let (addition, moved_along) = addition(trial, route, &functions, &layout, &origin, invocation)?;
        let chosen = &layout.order[..layout.chosen];
        let report = LinkReport {
            output: invocation.output.display().to_string(),
            linker: linker.to_owned(),
            route: route.name().to_owned(),
            functions: functions.len() as u64,
            needed: layout.needed as u64,
            ordered: chosen.len() as u64,
            ordered_bytes: chosen.iter().map(|&index| functions.get(index).size()).sum(),
            moved_along,
            starts: starts.traces.traces.len() as u64,
            names: NamesFound::new(&starts.names),
            faults: None,
            notes: starts.notes.clone(),
            layout: format!("{request:?}"),
            is_remembered: false,
        };
        Ok(Self { addition, report, spans: StartSpans::new(&functions, &starts.traces) })
    }

    /// What starts cost in the trial and in the link with the order.
    #[must_use]
    pub fn faults(&self, moved: &Moved, options: &Options) -> Faults {
        // What was not found again stays where it was.
        self.spans.faults(|address| moved.map(address).unwrap_or(address), &options.request())
    }
}

/// The order as the linker takes it, and how many functions it cannot tell from others.
fn addition(
    trial: &Trial<'_>,
    route: Route,
    functions: &FunctionTable<'_>,
    layout: &Layout,
    origin: &Origin<'_>,
    invocation: &Invocation,
) -> Result<(Addition, u64)> {
    let _ = (trial, invocation);
    match route {
        Route::Lld => {
            let symbols = lld::write(functions, layout, origin, Unnamed::Omit);
            Ok((Addition { form: Form::Symbols, contents: symbols.bytes }, symbols.summary.ambiguous as u64))
        }
        _ => Err(Error::usage("not yet")),
    }
}
