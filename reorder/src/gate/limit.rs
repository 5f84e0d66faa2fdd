//! How far a figure may go: `1200`, `+10`, `+2 %`, `+2 % or +512`, `off`.
//!
//! In: limits as configured, by metric and scenario. Out: for each figure the limit that holds, in its unit. A limit for a
//! scenario overrides one for all scenarios; among those of one table, the longer key overrides the shorter.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::metric::{Key, Metric};
use reorder_base::error::{Error, Result};
use reorder_layout::configuration::{Document, LimitValue, flatten_limits};

/// A limit as understood.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Not beyond this value.
    Absolute(f64),
    /// Not further than this from the baseline.
    Difference(f64),
    /// Not further than this percentage from the baseline.
    Percent(f64),
    /// Not further than whichever of the two goes further: a percentage of a small figure is nothing.
    Either {
        /// As [`Limit::Percent`].
        percent: f64,
        /// As [`Limit::Difference`], of the same sign.
        difference: f64,
    },
    /// No limit.
    Off,
}

impl Limit {
    /// Parses `text`: a sign makes it relative to the baseline, `%` requires a sign, and `or` allows both.
    ///
    /// # Errors
    /// Anything except a number with sign, unit or both, and `off`.
    pub fn parse(text: &str) -> Result<Self> {
        let trimmed = text.trim();
        if trimmed == "off" {
            return Ok(Self::Off);
        }
        if let Some((one, other)) = trimmed.split_once(" or ") {
            return match (Self::parse(one)?, Self::parse(other)?) {
                (Self::Percent(percent), Self::Difference(difference))
                | (Self::Difference(difference), Self::Percent(percent))
                    if percent.is_sign_negative() == difference.is_sign_negative() =>
                {
                    Ok(Self::Either { percent, difference })
                }
                _ => Err(mistake(format!("{text:?} is not a percentage and a number of one sign"))),
            };
        }
        let percent = trimmed.strip_suffix('%');
        let number = percent.unwrap_or(trimmed).trim_end();
        let is_relative = number.starts_with(['+', '-']);
        let value: f64 = number
            .parse()
            .ok()
            .filter(|value: &f64| value.is_finite())
            .ok_or_else(|| mistake(format!("{text:?} is not a limit")))?;
        match (percent.is_some(), is_relative) {
            (true, true) => Ok(Self::Percent(value)),
            (false, true) => Ok(Self::Difference(value)),
            (false, false) => Ok(Self::Absolute(value)),
            (true, false) => Err(mistake(format!("{text:?} has no sign, so it is unclear against what"))),
        }
    }

    /// The worst value that is still within the limit; `None` without a limit, or without the baseline it needs.
    #[must_use]
    pub fn worst(self, baseline: Option<f64>) -> Option<f64> {
        match self {
            Self::Absolute(value) => Some(value),
            Self::Difference(difference) => baseline.map(|baseline| baseline + difference),
            Self::Percent(percent) => baseline.map(|baseline| baseline * (1.0 + percent / 100.0)),
            Self::Either { percent, difference } => {
                let by_percent = Self::Percent(percent).worst(baseline)?;
                let by_difference = Self::Difference(difference).worst(baseline)?;
                let is_fall = difference.is_sign_negative();
                Some(if is_fall { by_percent.min(by_difference) } else { by_percent.max(by_difference) })
            }
            Self::Off => None,
        }
    }

    /// Whether it is relative to the baseline.
    #[must_use]
    pub fn is_relative(self) -> bool {
        matches!(self, Self::Difference(_) | Self::Percent(_) | Self::Either { .. })
    }
}

fn mistake(cause: String) -> Error {
    Error::usage(cause).with_hint("write a number, +N, +N % or \"+N % or +N\" against the baseline, or off")
}

/// The limit of one figure, and where it is set.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AppliedLimit {
    /// As configured.
    pub text: String,
    /// Where: `[gate.limits] faults`, `default`.
    pub source: String,
    #[serde(skip)]
    /// As understood.
    pub limit: Limit,
}

/// All limits of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    general: BTreeMap<String, AppliedLimit>,
    by_scenario: BTreeMap<String, BTreeMap<String, AppliedLimit>>,
}

impl Limits {
    /// Those of `reorder.toml`.
    ///
    /// # Errors
    /// Keys that no metric has, and values that are not limits.
    pub fn of(document: &Document) -> Result<Self> {
        let general = understood(GENERAL, &document.gate.limits)?;
        let by_scenario = document.scenario.iter().map(|(name, table)| {
            let limits = understood(&format!("scenario.{name}.limits"), &table.limits)?;
            Ok((name.clone(), limits))
        });
        Ok(Self { general, by_scenario: by_scenario.collect::<Result<_>>()? })
    }

    /// Configured limits that apply to no figure in `used`, except those of figures that are measured only on request.
    #[must_use]
    pub fn unused<'limits>(
        &'limits self,
        used: impl Iterator<Item = &'limits AppliedLimit>,
    ) -> Vec<&'limits str> {
        let used: BTreeSet<&str> = used.map(|limit| limit.source.as_str()).collect();
        let measured =
            [Metric::WallMilliseconds, Metric::MajorFaults, Metric::PagesTouched, Metric::DeltaBytes]
                .map(Metric::key);
        let is_measured = |key: &str| measured.contains(&key.split('.').next().unwrap_or_default());
        let all = self.by_scenario.values().chain([&self.general]).flatten();
        all.filter(|(key, _)| !is_measured(key))
            .map(|(_, limit)| limit.source.as_str())
            .filter(|source| !used.contains(source))
            .collect()
    }

    /// The limit of the figure called `key`: the configured one, otherwise the default of the metric.
    #[must_use]
    pub fn find(&self, key: &Key) -> Option<AppliedLimit> {
        let own = key.scenario.as_ref().and_then(|scenario| self.by_scenario.get(scenario));
        let path = key.path();
        let configured = own.into_iter().chain([&self.general]).find_map(|limits| nearest(limits, &path));
        if let Some(limit) = configured {
            return Some(limit.clone());
        }
        let text = key.metric.default_limit()?;
        let limit = Limit::parse(text).ok()?;
        Some(AppliedLimit { text: text.to_owned(), source: "default".to_owned(), limit })
    }
}

/// The limit of `path`, or of its longest prefix that ends before a dot.
fn nearest<'limits>(
    limits: &'limits BTreeMap<String, AppliedLimit>,
    path: &str,
) -> Option<&'limits AppliedLimit> {
    let mut path = path;
    loop {
        if let Some(limit) = limits.get(path) {
            return Some(limit);
        }
        path = path.rsplit_once('.')?.0;
    }
}

fn understood(table: &str, limits: &BTreeMap<String, LimitValue>) -> Result<BTreeMap<String, AppliedLimit>> {
    let mut all = BTreeMap::new();
    for (key, value) in flatten_limits(limits) {
        let source = format!("[{table}] {key}");
        let metric = key.split('.').next().unwrap_or_default();
        let Some(metric) = Metric::ALL.into_iter().find(|known| known.key() == metric) else {
            let known: Vec<_> = Metric::ALL.iter().map(|metric| metric.key()).collect();
            return Err(Error::usage(format!("{source}: there is no figure called {metric}"))
                .with_hint(format!("there are limits of {}", known.join(", "))));
        };
        if table != GENERAL && !metric.is_of_scenarios() {
            return Err(Error::usage(format!("{source}: this is a figure of the image, not of a scenario"))
                .with_hint("write it below [gate.limits]"));
        }
        let is_relative = |limit| !matches!(limit, Limit::Absolute(_) | Limit::Off);
        let (text, limit) = match value {
            LimitValue::Number(number) if number.is_finite() && number >= 0.0 => {
                (number.to_string(), Limit::Absolute(number))
            }
            LimitValue::Number(number) => {
                return Err(Error::usage(format!("{source}: {number} is not a limit"))
                    .with_hint("against the baseline write it in quotes: \"-2\""));
            }
            LimitValue::Text(text) => {
                let limit = Limit::parse(&text).map_err(|mut error| {
                    error.message = format!("{source}: {}", error.message);
                    error
                })?;
                (text, limit)
            }
            LimitValue::Flag(_) | LimitValue::Parts(_) => {
                return Err(mistake(format!("{source} has no limit")));
            }
        };
        if metric == Metric::DeltaBytes && is_relative(limit) {
            return Err(Error::usage(format!("{source}: no baseline has the size of a delta"))
                .with_hint("give a number of bytes, such as 200000"));
        }
        if all.insert(key, AppliedLimit { text, source: source.clone(), limit }).is_some() {
            return Err(Error::usage(format!("{source} is there twice, in two ways of writing"))
                .with_hint("leave one of them"));
        }
    }
    Ok(all)
}

/// Limits of everything.
const GENERAL: &str = "gate.limits";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use proptest::prelude::*;

    use super::*;

    fn limits(text: &str) -> Result<Limits> {
        Limits::of(&toml::from_str::<Document>(text).unwrap())
    }

    #[test]
    fn a_delta_has_no_baseline() {
        assert!(limits("[gate.limits]\ndelta-bytes = 200000\n").is_ok());
        for text in ["+5 %", "+100"] {
            let error = limits(&format!("[gate.limits]\ndelta-bytes = \"{text}\"\n")).unwrap_err();
            assert!(error.to_string().contains("no baseline") && error.hint.is_some(), "{error}");
        }
    }

    #[test]
    fn the_nearest_limit_holds() {
        let limits = limits(
            "[gate.limits]\nfaults = '+2 %'\n'faults.linux-4k' = 100\ncompressed = { zstd = '+10' }\n\
             [scenario.status.limits]\nfaults = 'off'\n",
        )
        .unwrap();
        let found = |key: Key| limits.find(&key).map(|limit| (limit.text, limit.source));
        let expected = |text: &str, source: &str| Some((text.to_owned(), source.to_owned()));
        let key = |part, scenario| Key::of_scenario(Metric::Faults, part, scenario);
        assert_eq!(found(key("linux-4k", "log")), expected("100", "[gate.limits] faults.linux-4k"));
        assert_eq!(found(key("ios-16k", "log")), expected("+2 %", "[gate.limits] faults"));
        assert_eq!(found(key("linux-4k", "status")), expected("off", "[scenario.status.limits] faults"));
        let compressed = |part| Key::of_image(Metric::Compressed, part);
        assert_eq!(found(compressed("zstd.64k")), expected("+10", "[gate.limits] compressed.zstd"));
        assert_eq!(found(compressed("xz")), expected("+1 % or +256", "default"));
        assert_eq!(found(Key::of_image(Metric::PinnedFunctions, "")), None);
    }

    #[test]
    fn mistakes_name_their_place() {
        for (text, part) in [
            ("[gate.limits]\nfautls = 3\n", "[gate.limits] fautls"),
            ("[gate.limits]\nfaults = '3 %'\n", "against what"),
            ("[scenario.s.limits]\nfaults = 'few'\n", "[scenario.s.limits] faults"),
            ("[gate.limits]\nfaults = 'inf'\n", "not a limit"),
            ("[gate.limits]\nfaults = nan\n", "not a limit"),
            ("[gate.limits]\ntrace-coverage = -2\n", "not a limit"),
            ("[gate.limits]\nfaults = true\n", "[gate.limits] faults"),
            ("[gate.limits]\nfaults = {}\n", "[gate.limits] faults"),
            ("[gate.limits]\nfaults = { linux-4k = 1 }\n'faults.linux-4k' = 2\n", "twice"),
            ("[scenario.s.limits]\nfile-bytes = 1\n", "[scenario.s.limits] file-bytes"),
        ] {
            let error = limits(text).unwrap_err();
            assert!(error.to_string().contains(part) && error.hint.is_some(), "{error}");
        }
    }

    #[test]
    fn limits_are_relative_to_the_baseline() {
        let worst = |text, baseline| Limit::parse(text).unwrap().worst(baseline);
        assert_eq!(worst("+5 %", Some(200.0)), Some(210.0));
        assert_eq!(worst("-2", Some(99.0)), Some(97.0));
        assert_eq!(worst("+5%", None), None);
        assert_eq!(worst("120", None), Some(120.0));
        assert_eq!(worst("off", Some(1.0)), None);
        assert_eq!(worst("+1 % or +256", Some(1_000.0)), Some(1_256.0));
        assert_eq!(worst("+256 or +1 %", Some(100_000.0)), Some(101_000.0));
        assert_eq!(worst("-1 % or -2", Some(100.0)), Some(98.0));
        for text in ["+1 % or -2", "+1 or +2", "1200 or +1 %", "+1 % or off"] {
            assert!(Limit::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_limit_or_a_mistake(text in "[-+0-9.eof% ]{0,12}") {
            if let Ok(limit) = Limit::parse(&text) {
                prop_assert!(limit == Limit::Off || limit.worst(Some(1.0)).is_some());
            }
        }
    }
}
