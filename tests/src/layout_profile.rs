//! Traces as a profile of LLVM, so that lld and llvm-profdata order by the recorded runs.
//!
//! The text form: a block of traces, then one record per function, which the readers require before they accept a
//! name.
//!
//! For names that several functions share, lld moves all of them. To separate that loss from the quality of its order,
//! there is a second form in which each section is named by its address, for a program of empty sections of the
//! same sizes: lld orders for startup by traces and sizes alone.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::layout_corpus::{Corpus, Start};
use crate::layout_names::ProfileName;

/// By function, a name that no other section has; `None` for functions outside the sections.
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
