//! The options of `-plugin-opt`.
//!
//! In: the texts, in order. Out: [`Options`], or an error that lists the known ones.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;
use reorder_layout::memory;
use reorder_layout::{LayoutRequest, Memory, Strategy};

/// All options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Trace files, directories of them, or `@FILE`.
    pub traces: Vec<PathBuf>,
    /// Files that traces need to be understood.
    pub companions: Vec<PathBuf>,
    /// An order file instead of traces.
    pub order: Option<PathBuf>,
    /// The name under which the program was recorded.
    pub program: Option<PathBuf>,
    /// How functions are ordered.
    pub request: LayoutRequest,
    /// Ordered functions get a segment of their own.
    pub unique_segment: bool,
    /// Whether a failure to apply the order is an error.
    pub strict: bool,
    /// How many messages are printed.
    pub talk: Talk,
}

/// How many messages are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Talk {
    /// Errors only.
    Quiet,
    /// Warnings and one line of what was done.
    Short,
    /// Everything.
    Verbose,
}

const KNOWN: &str = "traces=PATH, companion=FILE, order=FILE, program=NAME, strategy=NAME, seed=NUMBER, memory=MODEL, \
                     unique-segment, strict, quiet, verbose";

impl Options {
    /// Reads them.
    ///
    /// # Errors
    /// Unknown options, missing or invalid values, and neither traces nor an order.
    pub fn parse<Text: AsRef<[u8]>>(texts: &[Text]) -> Result<Self> {
        let mut options = Self {
            traces: Vec::new(),
            companions: Vec::new(),
            order: None,
            program: None,
            request: LayoutRequest::of(Strategy::Auto, 0),
            unique_segment: false,
            strict: false,
            talk: Talk::Short,
        };
        let (mut strategy, mut seed, mut memory) = (Strategy::Auto, 0, Memory::default());
        for text in texts.iter().map(AsRef::as_ref) {
            let (key, value) = match text.iter().position(|&byte| byte == b'=') {
                Some(equals) => (&text[..equals], Some(&text[equals + 1..])),
                None => (text, None),
            };
            match (key, value.filter(|value| !value.is_empty())) {
                (b"traces", Some(value)) => options.traces.push(path(value)),
                (b"companion", Some(value)) => options.companions.push(path(value)),
                (b"order", Some(value)) => options.order = Some(path(value)),
                (b"program", Some(value)) => options.program = Some(path(value)),
                (b"strategy", Some(value)) => strategy = choice(text, value)?,
                (b"memory", Some(value)) => memory = memory_named(text, value)?,
                (b"seed", Some(value)) => {
                    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    seed = number.ok_or_else(|| unusable(text, "a number is wanted, such as seed=7"))?;
                }
                (b"unique-segment", None) if value.is_none() => options.unique_segment = true,
                (b"strict", None) if value.is_none() => options.strict = true,
                (b"quiet", None) if value.is_none() => options.talk = Talk::Quiet,
                (b"verbose", None) if value.is_none() => options.talk = Talk::Verbose,
                _ => return Err(unusable(text, format!("known are {KNOWN}"))),
            }
        }
        options.request = LayoutRequest { memory, ..LayoutRequest::of(strategy, seed) };
        options.checked()
    }

    /// Whether these texts contain `strict` and `quiet`; other texts may be unknown: some linkers give every plugin the
    /// options of all.
    pub(crate) fn glimpse<Text: AsRef<[u8]>>(texts: &[Text]) -> (bool, Talk) {
        let has = |wanted: &[u8]| texts.iter().any(|text| text.as_ref() == wanted);
        (has(b"strict"), if has(b"quiet") { Talk::Quiet } else { Talk::Short })
    }

    fn checked(self) -> Result<Self> {
        let is_usage = |message: &str, hint: &str| Err(Error::usage(message).with_hint(hint));
        if self.order.is_some() && !self.traces.is_empty() {
            return is_usage(
                "an order file and traces are given",
                "leave out order= to order by traces, or traces= to keep the listed order",
            );
        }
        if self.order.is_none() && self.traces.is_empty() && self.request.strategy.needs_traces() {
            return is_usage(
                "no traces are given",
                "add -plugin-opt traces=PATH; record them first: reorder record -o PATH -- PROGRAM ARGUMENTS",
            );
        }
        Ok(self)
    }
}

fn path(value: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(value))
}

fn choice<Choice: clap::ValueEnum>(text: &[u8], value: &[u8]) -> Result<Choice> {
    let chosen = std::str::from_utf8(value).ok().and_then(|value| Choice::from_str(value, false).ok());
    chosen.ok_or_else(|| {
        let names: Vec<String> = Choice::value_variants()
            .iter()
            .filter_map(Choice::to_possible_value)
            .filter(|value| !value.is_hide_set())
            .map(|value| value.get_name().to_owned())
            .collect();
        unusable(text, format!("known are {}", names.join(", ")))
    })
}

fn memory_named(text: &[u8], value: &[u8]) -> Result<Memory> {
    let named = std::str::from_utf8(value).ok().and_then(Memory::named);
    named.ok_or_else(|| unusable(text, format!("known are {}", memory::known_names())))
}

fn unusable(text: &[u8], hint: impl Into<Hint>) -> Error {
    Error::usage(format!("the option {:?} is not understood", String::from_utf8_lossy(text))).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use reorder_layout::Strategy;

    #[test]
    fn all_options_are_understood() {
        let texts = [
            "traces=a b,c",
            "traces=@list",
            "companion=x=y",
            "program=demo",
            "strategy=first-seen",
            "seed=7",
            "memory=16k",
            "unique-segment",
            "strict",
            "verbose",
        ];
        let options = Options::parse(&texts).expect("known options");
        assert_eq!(options.traces, ["a b,c", "@list"].map(PathBuf::from));
        assert_eq!(options.companions, [PathBuf::from("x=y")]);
        let expected =
            LayoutRequest { memory: Memory::Pages16K, ..LayoutRequest::of(Strategy::FirstSeen, 7) };
        assert_eq!(options.request, expected);
        assert!(options.unique_segment && options.strict && options.talk == Talk::Verbose);
    }

    #[test]
    fn what_is_not_understood_is_named_with_what_is_known() {
        for text in ["trace=a", "strict=1", "traces=", "traces", "unique-segment=", "", "=", "\u{e9}"] {
            let error = Options::parse(&["order=x", text]).expect_err("unknown");
            assert!(error.message.contains(&format!("{text:?}")), "{error}");
            assert!(
                error
                    .hint
                    .is_some_and(|hint| hint.advice().is_some_and(|text| text.contains("unique-segment"))),
                "{text}"
            );
        }
        let error = Options::parse(&["strategy=best"]).expect_err("unknown");
        assert!(error.hint.is_some_and(|hint| hint.advice().is_some_and(|text| text.contains("first-seen"))));
        assert!(Options::parse(&["seed=-1", "order=x"]).is_err());
    }

    #[test]
    fn something_must_say_the_order() {
        assert!(Options::parse::<&str>(&[]).is_err_and(|error| error.message.contains("no traces")));
        assert!(Options::parse(&["order=x", "traces=y"]).is_err());
        assert!(Options::parse(&["strategy=random"]).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_an_option_or_an_error(texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..4)) {
            let _ = Options::parse(&texts);
        }
    }
}
