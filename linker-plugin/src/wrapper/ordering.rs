//! The order for one link, computed from a trial of it.

use std::path::Path;

use reorder_base::error::Result;
use reorder_image::functions::FunctionTable;
use reorder_image::macho::CodeSymbol;
use reorder_image::macho::architecture;
use reorder_layout::order_file::data::{DataOrder, similar_side_by_side};
use reorder_layout::order_file::hand_off::append_data;
use reorder_layout::order_file::ld64;
use reorder_layout::order_file::lld::{self, Unnamed};
use reorder_layout::order_file::origin::{Identity, Origin};
use reorder_layout::order_file::{
    Anchor, bfd_script, gold, gold_sections, lld_script, ordered_sections, sections,
};
use reorder_layout::{Layout, LayoutRequest, Memory, Room, lay_out, lay_out_functions};
use reorder_system::mapped::map_image;
use reorder_trace::link_map::LinkMap;

use super::addition::{Addition, Form};
use super::build_names::{BuildNames, NamedFunctions};
use super::invocation::Invocation;
use super::link::Failure;
use super::linked::{Starts, functions_of};
use super::moved::Moved;
use super::options::Options;
use super::report::{Faults, LinkReport, NamesFound, StartSpans};
use super::route::{Route, has_script};

/// The result of a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial<'files> {
    /// The image.
    pub(crate) image: &'files Path,
    /// Its map.
    pub(crate) map: &'files LinkMap<'files>,
    /// The linker's output, which contains GNU ld's script.
    pub(crate) said: &'files [u8],
}

/// What an order is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occasion<'call> {
    /// What is linked.
    pub(crate) invocation: &'call Invocation,
    /// The options.
    pub(crate) options: &'call Options,
    /// How the order gets into the output.
    pub(crate) route: Route,
    /// The real linker and its version.
    pub(crate) linker: &'call str,
    /// Names of functions that traces lack.
    pub(crate) build_names: &'call BuildNames<'call>,
}

/// An order for a linker.
#[derive(Debug)]
pub(crate) struct Ordering {
    /// What the linker is given.
    pub(crate) additions: Vec<Addition>,
    /// The account, without faults: they are not known before the real link is done.
    pub(crate) report: LinkReport,
    request: LayoutRequest,
    /// The functions of the trial.
    pub(crate) names: NamedFunctions,
    /// What the recorded runs touch in the trial.
    spans: StartSpans,
}

impl Ordering {
    /// Orders what the trial linked.
    ///
    /// # Errors
    /// Unsupported images, traces that do not fit, orders that the linker cannot be given.
    pub(crate) fn new(trial: &Trial<'_>, occasion: &Occasion<'_>) -> std::result::Result<Self, Failure> {
        match occasion.route {
            Route::OrderFile => Self::of_mach_o(trial, occasion),
            _ => Self::of_elf(trial, occasion),
        }
    }

    fn of_elf(trial: &Trial<'_>, occasion: &Occasion<'_>) -> std::result::Result<Self, Failure> {
        let Occasion { invocation, options, route, .. } = *occasion;
        let bytes = map_image(trial.image)?;
        let (file, functions) = functions_of(trial.image, &bytes)?;
        let starts = Starts::resolve(trial.image, &functions, invocation, options, occasion.build_names)?;
        let (traces, request) = (&starts.traces.traces, options.request(Memory::default()));
        let layout = lay_out(&file, &functions, traces, Room::Linker, &request)?;
        let layout = layout.with_hot(&starts.traces.counts, &functions);
        let input = OrderInput { functions: &functions, layout: &layout, map: trial.map };
        let coverage = Some(&starts.traces.coverage);
        let origin = Origin { identity: Identity::BuildId(None), request, coverage };
        let data = options.data.then(|| similar_side_by_side(&file, request.seed)).transpose()?;
        let (additions, moved_along) = match route {
            Route::Lld => input.for_lld(invocation, &origin, data.as_ref()),
            Route::SectionOrdering => input.for_gold(),
            _ => input.for_bfd(trial.said)?,
        };
        Ok(Self::with(additions, moved_along, &input, &starts, (request, occasion)))
    }

    /// The map has everything that is needed: Apple's linkers place symbols, and list them with their objects.
    fn of_mach_o(trial: &Trial<'_>, occasion: &Occasion<'_>) -> std::result::Result<Self, Failure> {
        let Occasion { invocation, options, .. } = *occasion;
        let code = || trial.map.sections.iter().filter(|symbol| symbol.output == b"__TEXT,__text");
        // Profiles know functions by the names that they have in the source.
        let in_source =
            code().filter_map(|symbol| Some((symbol.address, 0, symbol.name.strip_prefix(b"_")?)));
        let functions = FunctionTable::from_named_ranges(
            code().map(|symbol| (symbol.address, symbol.size, symbol.name)).chain(in_source),
        );
        let starts = Starts::resolve(trial.image, &functions, invocation, options, occasion.build_names)?;
        let request = options.request(Memory::of_macho(architecture(&map_image(trial.image)?)?));
        let layout = lay_out_functions(&functions, &starts.traces.traces, &request)?
            .with_hot(&starts.traces.counts, &functions);
        let symbols: Vec<CodeSymbol<'_>> = code()
            .map(|symbol| CodeSymbol {
                address: symbol.address,
                name: symbol.name.into(),
                object: Some(symbol.object),
            })
            .collect();
        let (lines, summary) = ld64::lines(&functions, &layout, &symbols, None);
        let additions = vec![Addition::new(Form::OrderFile, &lines)];
        let input = OrderInput { functions: &functions, layout: &layout, map: trial.map };
        let moved_along = summary.ambiguous as u64;
        Ok(Self::with(additions, moved_along, &input, &starts, (request, occasion)))
    }

    fn with(
        additions: Vec<Addition>,
        moved_along: u64,
        input: &OrderInput<'_>,
        starts: &Starts,
        (request, occasion): (LayoutRequest, &Occasion<'_>),
    ) -> Self {
        let OrderInput { functions, layout, map } = input;
        let chosen = &layout.order[..layout.chosen];
        let sharing = if map.is_apple() { 0 } else { needed_that_share(functions, layout, map) };
        let report = LinkReport {
            output: occasion.invocation.output.display().to_string(),
            is_ordered: true,
            linker: occasion.linker.to_owned(),
            route: occasion.route.name().to_owned(),
            functions: functions.len() as u64,
            needed: layout.needed as u64,
            ordered: chosen.len() as u64,
            ordered_bytes: chosen.iter().map(|&index| functions.get(index).size()).sum(),
            moved_along,
            sharing,
            starts: starts.traces.traces.len() as u64,
            names: NamesFound::new(&starts.names),
            faults: None,
            notes: starts.notes.clone(),
            layout: format!("{request:?}"),
            is_remembered: false,
        };
        let spans = StartSpans::new(functions, &starts.traces);
        Self { additions, report, request, names: NamedFunctions::of(functions), spans }
    }

    /// The cost of the recorded runs in the trial and in the link with the order.
    #[must_use]
    pub(crate) fn faults(&self, moved: &Moved) -> Faults {
        self.spans.faults(|address| moved.map(address), &self.request)
    }
}

/// How many functions that recorded runs need share an input section with others, and move with them only.
fn needed_that_share(functions: &FunctionTable<'_>, layout: &Layout, map: &LinkMap<'_>) -> u64 {
    let crowds = sections::crowds(functions, map);
    let needed = Layout { chosen: layout.needed, ..layout.clone() };
    let crowds =
        ordered_sections(functions, &needed, map).into_iter().map(|section| crowds[section.0 as usize]);
    crowds.filter(|&count| count > 1).map(u64::from).sum()
}

/// What is written in the dialect of a linker.
#[derive(Clone, Copy)]
struct OrderInput<'trial> {
    functions: &'trial FunctionTable<'trial>,
    layout: &'trial Layout,
    map: &'trial LinkMap<'trial>,
}

/// lld compares each pattern of a script with each input section: a second or so.
const MAX_COMPARISONS: usize = 1 << 28;

/// Each form comes with the number of functions that the linker cannot distinguish from others.
impl OrderInput<'_> {
    /// Symbols, as long as they tell functions apart: lld places all functions of a name together. Otherwise a script,
    /// and symbols for data only.
    fn for_lld(
        &self,
        invocation: &Invocation,
        origin: &Origin<'_>,
        data: Option<&DataOrder<'_>>,
    ) -> (Vec<Addition>, u64) {
        let mut symbols = lld::write(self.functions, self.layout, origin, Unnamed::Omit);
        let ambiguous = symbols.summary.ambiguous;
        let script = match Anchor::of(self.map) {
            Some(anchor) if ambiguous > 0 && !has_script(invocation) => self.lld_script(anchor),
            _ => None,
        };
        let mut additions = Vec::new();
        if let Some(script) = &script {
            additions.push(Addition::new(Form::Script, script.as_bytes()));
            symbols.bytes.clear();
        }
        if let Some(data) = data {
            append_data(&mut symbols, data);
        }
        if !symbols.bytes.is_empty() {
            additions.push(Addition::new(Form::Symbols, &symbols.bytes));
        }
        (additions, if script.is_some() { 0 } else { ambiguous as u64 })
    }

    fn lld_script(&self, anchor: Anchor<'_>) -> Option<String> {
        let needed = Layout { chosen: self.layout.needed, ..self.layout.clone() };
        [self.layout, &needed]
            .into_iter()
            .map(|layout| ordered_sections(self.functions, layout, self.map))
            .find(|sections| sections.len().saturating_mul(self.map.sections.len()) <= MAX_COMPARISONS)
            .map(|sections| lld_script(self.map, &sections, anchor))
    }

    fn for_gold(&self) -> (Vec<Addition>, u64) {
        let sections = ordered_sections(self.functions, self.layout, self.map);
        let ambiguous = gold::ambiguous(self.map, &sections).len();
        let contents = gold_sections(self.map, &sections);
        (vec![Addition::new(Form::Sections, &contents)], ambiguous as u64)
    }

    fn for_bfd(&self, said: &[u8]) -> Result<(Vec<Addition>, u64)> {
        let sections = ordered_sections(self.functions, self.layout, self.map);
        let script = bfd_script(self.map, &sections, &String::from_utf8_lossy(said))?;
        Ok((vec![Addition::new(Form::Script, script.as_bytes())], 0))
    }
}
