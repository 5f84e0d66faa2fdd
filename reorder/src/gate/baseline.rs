//! The baseline as a file: the figures of an image when the team last accepted them.
//!
//! In: bytes, or figures and scenarios. Out: the other. One JSON object with one line for each figure and function, so that
//! version control shows what changed. Guarantee: writing what was read gives the same bytes; a position outside of the
//! table of functions is an error.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metric::Figure;
use super::startup::{Startup, StartupFunction, StartupScenario};
use reorder_base::error::{Error, ErrorKind, Result};

/// Identifies the format; the number grows when older programs cannot read it.
pub const SCHEMA: &str = "reorder-baseline/1";

/// The figures and scenarios of an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline {
    /// Version of the program that made it: its compressors may differ from those of another.
    pub reorder: String,
    /// Name of the image's file.
    pub image: String,
    /// The compilers and the linker that made it, as they name themselves in it, sorted; empty where that is unknown.
    pub tools: Vec<String>,
    /// The memory models by name, each with its numbers.
    pub models: BTreeMap<String, String>,
    /// In the order of reports.
    pub figures: Vec<Figure>,
    /// What its scenarios ran.
    pub startup: Startup,
}

/// Pages of functions are counted one by one, so a small file must not claim large functions: all scenarios together may run
/// this many bytes, or this many for each byte of the file, whichever is more.
const MAX_TEXT: u64 = 1 << 30;
const MAX_PART: u64 = 4 << 10;

#[derive(Deserialize, JsonSchema)]
#[schemars(title = "Baseline of reorder gate")]
/// What an image was like when it was last said to be good. Written by `reorder gate --update-baseline`.
pub(crate) struct File {
    /// Tells the file from others.
    #[schemars(extend("const" = SCHEMA))]
    schema: String,
    /// Version of the program that wrote it.
    #[serde(default)]
    reorder: String,
    /// Name of the image's file.
    #[serde(default)]
    image: String,
    /// The compilers and the linker that made it, as they name themselves in it.
    #[serde(default)]
    tools: Vec<String>,
    /// The memory models by name, each with its numbers.
    #[serde(default)]
    models: BTreeMap<String, String>,
    /// In the order of reports.
    figures: Vec<Figure>,
    /// Functions that some scenario runs: name, first address and bytes, sorted by address.
    functions: Vec<(String, u64, u64)>,
    /// The scenarios, sorted by name.
    scenarios: Vec<ScenarioLine>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct ScenarioLine {
    /// As in `reorder.toml`.
    name: String,
    /// What its first recording runs, in order of first execution: positions in `functions`, from 0.
    order: Vec<u32>,
}

impl Baseline {
    /// Reads a baseline.
    ///
    /// # Errors
    /// Anything except what [`Self::write`] writes, with its place.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let again = "restore it from version control; or write it from an image that is good: reorder gate IMAGE -t TRACES \
                     --update-baseline";
        let malformed = |message: String| Error::new(ErrorKind::Malformed, message).with_hint(again);
        if let Some(line) = Self::conflict(bytes) {
            // To write it anew would accept whatever either side has made worse.
            return Err(malformed(format!("line {line}: an unresolved merge conflict")).with_hint(
                "take one side whole, such as git checkout --ours or --theirs with this file, and run the gate again: it \
                 shows what the merge costs",
            ));
        }
        let file: File =
            serde_json::from_slice(bytes).map_err(|error| malformed(format!("not a baseline: {error}")))?;
        if file.schema != SCHEMA {
            return Err(malformed(format!("the schema is {:?}, not {SCHEMA:?}", file.schema)));
        }
        let count = file.functions.len();
        for scenario in &file.scenarios {
            let mut is_listed = vec![false; count];
            let is_usable = |&place: &u32| {
                is_listed.get_mut(place as usize).is_some_and(|seen| !std::mem::replace(seen, true))
            };
            if !scenario.order.iter().all(is_usable) {
                let name = &scenario.name;
                return Err(malformed(format!(
                    "scenario {name:?} runs a function twice, or none of the {count}"
                )));
            }
        }
        let size_of = |place: &u32| file.functions[*place as usize].2;
        let mut sizes = file.scenarios.iter().flat_map(|scenario| &scenario.order).map(size_of);
        let largest = MAX_TEXT.max((bytes.len() as u64).saturating_mul(MAX_PART));
        let sum = sizes.try_fold(0, |sum: u64, size| sum.checked_add(size).filter(|sum| *sum <= largest));
        let overflows = |(_, address, size): &(String, u64, u64)| address.checked_add(*size).is_none();
        if sum.is_none() || file.functions.iter().any(overflows) {
            return Err(malformed("the functions are larger than any text".to_owned()));
        }
        for (number, figure) in file.figures.iter().enumerate() {
            let key = &figure.key;
            if !figure.value.is_finite() || figure.value < 0.0 {
                return Err(malformed(format!("{key} has an impossible value")));
            }
            if file.figures[..number].iter().any(|other| other.key == *key) {
                return Err(malformed(format!("{key} occurs twice")));
            }
        }
        let function = |(name, address, size)| StartupFunction { name, address, size };
        let scenario = |line: ScenarioLine| StartupScenario { name: line.name, order: line.order };
        Ok(Self {
            reorder: file.reorder,
            image: file.image,
            tools: file.tools,
            models: file.models,
            figures: file.figures,
            startup: Startup {
                functions: file.functions.into_iter().map(function).collect(),
                scenarios: file.scenarios.into_iter().map(scenario).collect(),
            },
        })
    }

    /// The line, from 1, of the first mark that git leaves where two sides of a merge differ.
    #[must_use]
    pub fn conflict(bytes: &[u8]) -> Option<usize> {
        let is_mark = |line: &[u8]| line.starts_with(b"<<<<<<< ") || line.starts_with(b">>>>>>> ");
        bytes.split(|&byte| byte == b'\n').position(is_mark).map(|before| before + 1)
    }

    /// Whether a file with these contents may be replaced by a baseline: it is empty, or begins like one, even if the rest
    /// is damaged.
    #[must_use]
    pub(crate) fn is_replaceable(bytes: &[u8]) -> bool {
        // The beginning of our own files, with white space that other tools may have inserted.
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(256)]);
        let start: String = start.chars().filter(|character| !character.is_whitespace()).collect();
        start.is_empty() && bytes.len() < 256 || start.starts_with("{\"schema\":\"reorder-baseline/")
    }

    /// The file.
    #[must_use]
    pub fn write(&self) -> String {
        let Self { reorder, image, tools, models, figures, startup } = self;
        let mut text = format!(
            "{{\n\"schema\": {},\n\"reorder\": {},\n\"image\": {},\n\"tools\": {},\n\"models\": {},\n",
            json(&SCHEMA),
            json(reorder),
            json(image),
            json(tools),
            json(models)
        );
        list(&mut text, "figures", figures);
        text.push_str(",\n");
        let functions: Vec<_> =
            startup.functions.iter().map(|one| (&one.name, one.address, one.size)).collect();
        list(&mut text, "functions", &functions);
        text.push_str(",\n");
        let scenarios: Vec<_> = startup
            .scenarios
            .iter()
            .map(|one| ScenarioLine { name: one.name.clone(), order: one.order.clone() })
            .collect();
        list(&mut text, "scenarios", &scenarios);
        text.push_str("\n}\n");
        text
    }
}

fn list<T: Serialize>(text: &mut String, name: &str, items: &[T]) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{}: [", json(&name));
    for (index, item) in items.iter().enumerate() {
        text.push_str(if index == 0 { "\n" } else { ",\n" });
        text.push_str(&json(item));
    }
    text.push_str(if items.is_empty() { "]" } else { "\n]" });
}

/// Cannot fail: texts, finite numbers and lists of them always have a JSON form.
fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use proptest::prelude::*;

    use super::super::metric::{Key, Metric};
    use super::*;

    prop_compose! {
        fn figure()(kind in 0..Metric::ALL.len(), part in "[a-z0-9.]{0,8}", scenario in prop::option::of(".{0,8}"),
            value in 0..1_000_000_u32, bound in prop::option::of(0..1000_u32)) -> Figure {
            let key = Key { metric: Metric::ALL[kind], part, scenario };
            Figure { key, value: f64::from(value) / 8.0, lower_bound: bound.map(f64::from) }
        }
    }

    prop_compose! {
        fn startup()(names in prop::collection::vec(".{0,12}", 1..6))(
            orders in prop::collection::vec((".{0,6}", prop::sample::subsequence((0..names.len() as u32).collect::<Vec<_>>(), 0..=names.len()).prop_shuffle()), 0..3),
            names in Just(names)) -> Startup {
            let function = |(place, name): (usize, &String)| StartupFunction { name: name.clone(), address: place as u64 * 64, size: 9 };
            let scenario = |(name, order)| StartupScenario { name, order };
            Startup { functions: names.iter().enumerate().map(function).collect(), scenarios: orders.into_iter().map(scenario).collect() }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(figures in prop::collection::vec(figure(), 0..8), startup in startup()) {
            let mut keys = Vec::new();
            let figures = figures.into_iter().filter(|one| !keys.contains(&one.key) && { keys.push(one.key.clone()); true });
            let figures = figures.collect();
            let models = [("tablet".to_owned(), "pages of 4096".to_owned())].into();
            let tools = vec!["GCC: 12".to_owned()];
            let baseline = Baseline { reorder: "1.2.3".into(), image: "a \"b\"\n".into(), tools, models, figures, startup };
            let text = baseline.write();
            let read = Baseline::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(&read, &baseline);
            prop_assert_eq!(read.write(), text);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Baseline::parse(&bytes);
        }

        #[test]
        fn damaged_files_are_survived(startup in startup(), place in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut text = Baseline { startup, ..Baseline::default() }.write().into_bytes();
            let place = place.index(text.len());
            text[place] = byte;
            if let Ok(read) = Baseline::parse(&text) {
                for scenario in &read.startup.scenarios {
                    prop_assert!(scenario.order.iter().all(|&one| (one as usize) < read.startup.functions.len()));
                }
            }
        }
    }

    #[test]
    fn only_baselines_are_replaced() {
        let whole = Baseline::default().write();
        let own = [
            whole.as_str(),
            &whole[..40],
            "",
            " \n",
            "{ \"schema\" : \"reorder-baseline/9\"",
            &format!("\n{whole}"),
        ];
        assert!(own.iter().all(|text| Baseline::is_replaceable(text.as_bytes())));
        let blank = " ".repeat(300);
        for text in ["{}", "\u{7f}ELF", "int main;", "{\"schema\": \"other\"}", "[1]", &blank] {
            assert!(!Baseline::is_replaceable(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_conflict_is_no_invitation_to_accept_what_it_holds() {
        let text = Baseline::default().write();
        let (first, rest) = text.split_at(text.find("\"figures\"").unwrap());
        let merged = format!("{first}<<<<<<< HEAD\n{rest}=======\n{rest}>>>>>>> other\n");
        let error = Baseline::parse(merged.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("line 7: an unresolved merge conflict"), "{error}");
        let hint = error.hint.unwrap();
        assert!(!hint.advice().unwrap().contains("--update-baseline"), "{hint:?}");
        assert_eq!(Baseline::conflict(text.as_bytes()), None);
    }

    #[test]
    fn mistakes_say_how_to_go_on() {
        for text in [
            "{}",
            "",
            r#"{"schema":"other","figures":[],"functions":[],"scenarios":[]}"#,
            r#"{"schema":"reorder-baseline/1","figures":[],"functions":[],"scenarios":[{"name":"s","order":[0]}]}"#,
            r#"{"schema":"reorder-baseline/1","figures":[{"metric":"faults","value":1},{"metric":"faults","value":2}],"functions":[],"scenarios":[]}"#,
            r#"{"schema":"reorder-baseline/1","figures":[{"metric":"faults","value":-1}],"functions":[],"scenarios":[]}"#,
            r#"{"schema":"reorder-baseline/1","figures":[],"functions":[["f",0,4294967296]],"scenarios":[{"name":"s","order":[0]}]}"#,
        ] {
            let error = Baseline::parse(text.as_bytes()).unwrap_err();
            assert!(
                error
                    .hint
                    .is_some_and(|hint| hint.advice().is_some_and(|text| text.contains("--update-baseline"))),
                "{text}"
            );
        }
    }
}
