//! Traces as a profile of LLVM, so that lld and llvm-profdata order by what was really run.
//!
//! The text form: a block of traces, then one record per function, which the readers demand before they believe a
//! name. Local functions are called `file;name` as the compiler's instrumentation would; functions without any
//! symbol go by their address, which only this project's own reader of orders understands.
//!
//! Names that several functions share make lld move all of them. To tell that loss from the quality of its order,
//! there is a second form in which each section is named by its address, for a program of empty sections of the
//! same sizes: lld orders for the start by traces and sizes alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use reorder::address::Address;
use reorder::image::functions::{Function, FunctionTable};

use crate::layout_corpus::{Corpus, Start};

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

/// By function, a name that no other section has; nothing for functions outside the sections.
#[must_use]
pub fn section_names(corpus: &Corpus) -> Vec<Option<ProfileName>> {
    let name = |section: u32| ProfileName(section_name(corpus.sections[section as usize].address));
    corpus.section_of.iter().map(|section| section.map(name)).collect()
}

/// Assembly of a program with all sections of `corpus`, in link order, without their contents.
#[must_use]
pub fn empty_sections(corpus: &Corpus) -> String {
    let mut text = String::from(".globl _start\n.set _start, 0\n");
    for section in &corpus.sections {
        let name = section_name(section.address);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            ".section .text.{name},\"ax\",@progbits\n.balign {}\n.type {name},@function\n{name}:\n.zero {}\n.size {name}, {}",
            section.alignment, section.size, section.size
        );
    }
    text
}

fn section_name(address: u64) -> String {
    format!("at_{address:#x}")
}

/// The profile of `starts`, each of weight 1; `names` by function. Functions of one name are one function, as they
/// are for the readers; functions without one are left out.
#[must_use]
pub fn profile_text(names: &[Option<ProfileName>], starts: &[Start]) -> String {
    let mut text = format!(":ir\n:temporal_prof_traces\n{0}\n{0}\n", starts.len());
    let mut recorded = BTreeSet::new();
    for start in starts {
        let mut seen = BTreeSet::new();
        let line: Vec<&str> = start
            .functions
            .iter()
            .filter_map(|&function| names[function as usize].as_ref())
            .map(|ProfileName(name)| name.as_str())
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
        let names = ["main", "a.c;helper", "main"].map(|name| Some(ProfileName(name.to_owned())));
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
