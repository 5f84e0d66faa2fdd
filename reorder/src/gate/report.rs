//! What the gate found, for programs and for people; the one model of all its output formats.

use schemars::JsonSchema;
use serde::Serialize;

use super::check::{Check, Verdict};
use super::explanation::{ChangeKind, Explanation, FunctionChange};
use super::metric::{Metric, Unit};
use super::tools::OtherTools;
use super::updated::is_worse;
use reorder_report::table::{Table, counted, grouped};
use reorder_report::visible::visible;
use reorder_report::{Report, Width};

/// The outcome of a run of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// No finding.
    Pass,
    /// At least one finding.
    Fail,
    /// There are findings, and `--warn-only` was given.
    Warn,
    /// The baseline was written; changes are reported and not judged.
    Updated,
}

/// A fact that the reader of the report should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Remark {
    /// What was found.
    pub cause: String,
    /// What to do.
    pub next: Option<String>,
}

/// The result of `reorder gate`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GateReport {
    /// Version of this program.
    pub reorder: &'static str,
    /// The image.
    pub image: String,
    /// The baseline's file.
    pub baseline: Option<String>,
    /// The `reorder.toml` that limits come from.
    pub configuration: Option<String>,
    /// The outcome of a run of the gate.
    pub outcome: Outcome,
    /// Checks that are findings.
    pub findings: u64,
    /// All checks, with limits and verdicts.
    pub checks: Vec<Check>,
    /// Every scenario whose faults or functions changed.
    pub explanations: Vec<Explanation>,
    /// Other compilers, or another linker, than those of the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_tools: Option<OtherTools>,
    /// What limits the figures.
    pub remarks: Vec<Remark>,
    /// Whether the text lists checks without a finding too.
    #[serde(skip)]
    pub shows_all: bool,
}

impl GateReport {
    /// One sentence: how it ended.
    #[must_use]
    pub fn summary(&self) -> String {
        let checks = self.checks.len();
        match self.outcome {
            Outcome::Pass => format!("{}, no finding", counted(checks as u64, "check")),
            Outcome::Fail => format!("{} of {} failed", self.findings, counted(checks as u64, "check")),
            Outcome::Warn => format!(
                "{} of {} failed; --warn-only was given",
                self.findings,
                counted(checks as u64, "check")
            ),
            Outcome::Updated => self.accepted(),
        }
    }

    /// What the new baseline accepts.
    fn accepted(&self) -> String {
        let checks = || self.checks.iter();
        let figures = counted(checks().filter(|check| check.current.is_some()).count() as u64, "figure");
        if checks().all(|check| check.baseline.is_none()) {
            return format!("the baseline was written with {figures}, the first");
        }
        let changed = checks().filter(|check| check.is_changed()).count();
        if changed == 0 {
            return format!("the baseline was written with {figures}, all as before");
        }
        let worse = checks().filter(|check| is_worse(check)).count();
        let gone = checks().filter(|check| check.current.is_none()).count();
        let new = checks().filter(|check| check.baseline.is_none()).count();
        let better = changed - worse - gone - new;
        let parts = [(worse, "worse"), (better, "better"), (new, "new"), (gone, "gone")];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        format!("the baseline was written with {figures}; accepted: {}", parts.join(", "))
    }

    /// Whether the text lists the check: a finding, or a change that is accepted.
    fn is_shown(&self, check: &Check) -> bool {
        let is_accepted = self.outcome == Outcome::Updated && check.baseline.is_some() && check.is_changed();
        self.shows_all || is_accepted || check.verdict.is_finding()
    }

    /// Whether the text explains the scenario: it has a finding, or none has one and sums do.
    fn is_explained(&self, explanation: &Explanation) -> bool {
        let of_scenarios = || self.checks.iter().filter(move |check| self.is_shown(check));
        let has =
            |scenario: Option<&String>| of_scenarios().any(|check| check.key.scenario.as_ref() == scenario);
        let is_only_sums = of_scenarios().all(|check| check.key.scenario.is_none());
        self.shows_all || has(Some(&explanation.scenario)) || is_only_sums && has(None)
    }

    /// What the text does not list, in one clause.
    fn rest(&self, shown: &[&Check]) -> String {
        let rest = self.checks.len() - shown.len();
        match (rest, self.outcome) {
            (0, _) => String::new(),
            (_, Outcome::Pass) => "; --all lists them".to_owned(),
            (_, Outcome::Updated) => "; --all lists all".to_owned(),
            (1, _) => "; the other one is within its limit (--all lists it)".to_owned(),
            (rest, _) => format!("; the other {rest} are within their limits (--all lists them)"),
        }
    }

    /// The checks that are findings.
    pub fn findings(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.verdict.is_finding())
    }

    /// The explanation of a check's scenario.
    #[must_use]
    pub(crate) fn explanation_of(&self, check: &Check) -> Option<&Explanation> {
        let scenario = check.key.scenario.as_ref()?;
        self.explanations.iter().find(|explanation| explanation.scenario == *scenario)
    }
}

impl Check {
    /// What is checked: `page faults, linux-4k, status`.
    #[must_use]
    pub fn title(&self) -> String {
        let mut title = self.key.metric.title().to_owned();
        if !self.key.part.is_empty() {
            title.push_str(&format!(", {}", visible(&self.key.part)));
        }
        match (&self.key.scenario, self.key.metric) {
            (Some(scenario), _) => title.push_str(&format!(", {}", visible(scenario))),
            (None, Metric::Faults) => title.push_str(", all scenarios"),
            (None, _) => {}
        }
        title
    }

    /// A value in the unit of the check.
    #[must_use]
    pub fn shown(&self, value: Option<f64>) -> String {
        let Some(value) = value else { return "-".to_owned() };
        match self.unit {
            Unit::Percent => format!("{value:.1} %"),
            Unit::Milliseconds => format!("{value:.2} ms"),
            // Means of several recordings need not be whole.
            _ if value.fract() != 0.0 => format!("{value:.1}"),
            _ => grouped(value.max(0.0) as u64),
        }
    }

    /// The change, in percent or in the unit of the check.
    #[must_use]
    pub fn shown_change(&self) -> String {
        match (self.baseline, self.current, self.change_percent()) {
            (Some(baseline), Some(current), _) if self.unit == Unit::Percent => {
                format!("{:+.1}", current - baseline)
            }
            (Some(baseline), Some(current), percent) if baseline != current => match percent {
                Some(percent) => format!("{percent:+.2} %"),
                None => format!("+{}", self.shown(Some(current))),
            },
            (Some(_), Some(_), _) => "=".to_owned(),
            _ => "-".to_owned(),
        }
    }

    /// The limit with the value that it means.
    #[must_use]
    pub(crate) fn shown_limit(&self) -> String {
        match (&self.limit, self.worst) {
            (Some(limit), Some(worst)) if limit.limit.is_relative() => {
                // The last whole number that passes, or bytes and functions would be shown in parts.
                let is_mean = |value: Option<f64>| value.is_some_and(|value| value.fract() != 0.0);
                let is_whole = !matches!(self.unit, Unit::Percent | Unit::Milliseconds)
                    && !is_mean(self.baseline)
                    && !is_mean(self.current);
                let last = if is_whole { worst.floor() } else { worst };
                format!("{} ({})", limit.text, self.shown(Some(last)))
            }
            (Some(limit), _) => limit.text.clone(),
            (None, _) => "-".to_owned(),
        }
    }

    /// One sentence for a finding: what it was, is, and may be.
    #[must_use]
    pub fn sentence(&self) -> String {
        let title = self.title();
        match self.verdict {
            Verdict::Gone => {
                format!("{title}: the baseline has {}, this run has none", self.shown(self.baseline))
            }
            _ => {
                let change = match self.baseline {
                    Some(_) => format!(" ({}, baseline {})", self.shown_change(), self.shown(self.baseline)),
                    None => String::new(),
                };
                let limit = self.limit.as_ref().map_or_else(String::new, |limit| {
                    format!("; allowed {} by {}", visible(&self.shown_limit()), visible(&limit.source))
                });
                format!("{title}: {}{change}{limit}", self.shown(self.current))
            }
        }
    }
}

impl FunctionChange {
    /// One sentence: `new_feature is new in this scenario, 120 bytes: +1 fault, page 0x2000`.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{} {}", visible(&self.name), self.predicate())
    }

    /// The sentence without the name.
    #[must_use]
    pub(crate) fn predicate(&self) -> String {
        let bytes = |bytes: Option<u64>| counted(bytes.unwrap_or(0), "byte");
        let what = match self.change {
            ChangeKind::Added => format!("is new in this scenario, {}", bytes(self.new_bytes)),
            ChangeKind::Removed => format!("no longer runs, {}", bytes(self.old_bytes)),
            ChangeKind::Resized => {
                format!("has {} instead of {}", bytes(self.new_bytes), grouped(self.old_bytes.unwrap_or(0)))
            }
            ChangeKind::Moved => format!("has other neighbours, at {}", self.address),
        };
        let faults = match self.faults {
            0 => String::new(),
            1 | -1 => format!(": {:+} fault", self.faults),
            faults => format!(": {faults:+} faults"),
        };
        let pages: Vec<String> = self.pages.iter().take(4).map(ToString::to_string).collect();
        let pages = match (self.faults > 0, pages.len()) {
            (false, _) | (_, 0) => String::new(),
            (_, 1) => format!(", page {}", pages[0]),
            _ => format!(", pages {}", pages.join(", ")),
        };
        format!("{what}{faults}{pages}")
    }
}

/// Functions of one scenario that the text form lists; JSON lists all.
const SHOWN_FUNCTIONS: usize = 12;

impl Report for GateReport {
    const COMMAND: &'static str = "gate";

    fn text(&self, width: Width) -> String {
        let mut text = String::new();
        let mut table = Table::new(["check", "baseline", "now", "change", "limit", ""]);
        let shown: Vec<&Check> = self.checks.iter().filter(|check| self.is_shown(check)).collect();
        for check in &shown {
            let verdict = match check.verdict {
                Verdict::Fail | Verdict::Gone => check.verdict.name().to_uppercase(),
                Verdict::Pass | Verdict::Unlimited => String::new(),
                Verdict::New => "new".to_owned(),
            };
            table.row([
                check.title(),
                check.shown(check.baseline),
                check.shown(check.current),
                check.shown_change(),
                visible(&check.shown_limit()).into_owned(),
                verdict,
            ]);
        }
        if !shown.is_empty() {
            text.push_str(&table.render(width));
        }
        // The first thing to know about a difference.
        if let (Some(tools), false) = (&self.other_tools, shown.is_empty()) {
            text.push_str(&format!("\n{}\n", tools.sentence()));
        }
        let explained: Vec<_> = self.explanations.iter().filter(|one| self.is_explained(one)).collect();
        for explanation in &explained {
            text.push_str(&format!("\n{}\n", explanation.heading()));
            for change in explanation.functions.iter().take(SHOWN_FUNCTIONS) {
                let name = width.cut(&visible(&change.name), 1, 2);
                let sentence = format!("{name} {}", change.predicate());
                text.push_str(&format!("{}\n", width.hanging("  ", &sentence)));
            }
            let more = explanation.functions.len().saturating_sub(SHOWN_FUNCTIONS) as u64;
            if more > 0 {
                text.push_str(&format!(
                    "  and {}; --format json lists all\n",
                    counted(more, "more function")
                ));
            }
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!("{}: {}{}\n", visible(&self.image), self.summary(), self.rest(&shown)));
        let first = self.other_tools.as_ref().filter(|_| shown.is_empty()).map(|tools| tools.sentence());
        for cause in first.iter() {
            text.push_str(&format!("note: {cause}\n"));
        }
        for remark in &self.remarks {
            text.push_str(&format!("note: {}\n", visible(&remark.cause)));
            if let Some(next) = &remark.next {
                text.push_str(&format!("  next: {}\n", visible(next)));
            }
        }
        text
    }
}

impl Explanation {
    /// One line: the scenario, its faults then and now, and how many functions changed.
    #[must_use]
    pub fn heading(&self) -> String {
        format!(
            "{}: {} -> {} faults ({}); functions: {} new, {} gone, {} resized",
            visible(&self.scenario),
            grouped(self.old_faults),
            grouped(self.new_faults),
            visible(&self.model),
            grouped(self.added),
            grouped(self.removed),
            grouped(self.resized),
        )
    }
}
