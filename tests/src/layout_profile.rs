//! Traces as a profile of LLVM, so that lld and llvm-profdata order by what was really run.
//!
//! The text form: a block of traces, then one record per function, which the readers demand before they believe a
//! name. Local functions are called `file;name` as the compiler's instrumentation would; functions without any
//! symbol go by their address, which only this project's own reader of orders understands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use reorder::address::Address;
use reorder::image::functions::{Function, FunctionTable};

use crate::layout_corpus::Start;

/// What a profile calls a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileName(pub String);

impl ProfileName {
    /// One for each function.
    #[must_use]
    pub fn all(functions: &FunctionTable<'_>) -> Vec<Self> {
        let symbols = best_symbols(functions);
        let name = |function: &Function| {
            let symbol = symbols.get(&function.start).cloned();
            Self(symbol.unwrap_or_else(|| format!("function@{}", function.start)))
        };
        functions.iter().map(|(_, function)| name(function)).collect()
    }
}

/// One name per address of code: the first global one, else the first local one behind its file.
fn best_symbols(functions: &FunctionTable<'_>) -> BTreeMap<Address, String> {
    let mut globals = BTreeMap::new();
    let mut locals = BTreeMap::new();
    let mut file = String::new();
    for symbol in functions.symbols.iter() {
        let name = String::from_utf8_lossy(symbol.name);
        if symbol.kind == object::elf::STT_FILE.0 {
            file = name.into_owned();
        } else if symbol.is_function() && symbol.defining_section().is_some() && !name.is_empty() {
            if symbol.binding == object::elf::STB_LOCAL.0 {
                locals.entry(symbol.value).or_insert_with(|| format!("{file};{name}"));
            } else {
                globals.entry(symbol.value).or_insert_with(|| name.into_owned());
            }
        }
    }
    locals.extend(globals);
    locals
}

/// The profile of `starts`, each of weight 1. Functions of one name are one function, as they are for the readers.
#[must_use]
pub fn profile_text(names: &[ProfileName], starts: &[Start]) -> String {
    let mut text = format!(":ir\n:temporal_prof_traces\n{0}\n{0}\n", starts.len());
    let mut recorded = BTreeSet::new();
    for start in starts {
        let mut seen = BTreeSet::new();
        let line: Vec<&str> = start
            .functions
            .iter()
            .map(|&function| names[function as usize].0.as_str())
            .filter(|name| seen.insert(*name))
            .collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "1\n{},", line.join(","));
        recorded.extend(seen);
    }
    for (number, name) in recorded.iter().enumerate() {
        let _ = writeln!(text, "{name}\n{}\n1\n1\n", number + 1);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_come_first_and_every_name_has_a_record() {
        let names = ["main", "a.c;helper", "main"].map(|name| ProfileName(name.to_owned()));
        let starts = [
            Start { name: "one".to_owned(), functions: vec![0, 1, 2] },
            Start { name: "two".to_owned(), functions: vec![1] },
        ];
        let expected = "\
:ir
:temporal_prof_traces
2
2
1
main,a.c;helper,
1
a.c;helper,
a.c;helper
1
1
1

main
2
1
1

";
        assert_eq!(profile_text(&names, &starts), expected);
    }
}
