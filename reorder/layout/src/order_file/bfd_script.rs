//! Writes linker scripts for GNU ld.
//!
//! Two forms. With the default script at hand (`ld --verbose` prints it), the sections are named first in its `.text`: one
//! output section, as without a script. Without it, an `INSERT` script gives the chosen sections an output section of
//! their own, `.text.ordered`, before `.text`; that works in every version.

use super::file_pattern::{escaped, patterns};
use super::lld_script::of_text;
use reorder_base::error::{Error, Result};
use reorder_trace::link_map::{LinkMap, SectionIndex};

/// The output section of the `INSERT` form.
pub(crate) const ORDERED: &str = ".text.ordered";

/// `default_script` with `sections` first in its `.text`, in this order. Takes the script alone or all that `ld
/// --verbose` prints, which has it between two lines of `=`.
///
/// # Errors
/// A script without a `.text` section of its own.
pub fn bfd_script(map: &LinkMap<'_>, sections: &[SectionIndex], default_script: &str) -> Result<String> {
    let script = between_rules(default_script);
    let place = inside_text(script).ok_or_else(|| {
        Error::usage("the default script of the linker has no section .text").with_hint(
            "give what `ld --verbose` prints for the same options as the link, or link without a script of your own",
        )
    })?;
    let (head, tail) = script.split_at(place);
    let mut out = String::with_capacity(script.len() + sections.len() * 40);
    out.push_str(head);
    out.push('\n');
    for pattern in patterns(map, &of_text(map, sections)) {
        out.push_str("    ");
        out.push_str(&pattern);
        out.push('\n');
    }
    out.push_str(tail.strip_prefix('\n').unwrap_or(tail));
    Ok(out)
}

/// An `INSERT` script of the sections of a map.
pub(super) fn insert_sections(map: &LinkMap<'_>, sections: &[SectionIndex]) -> String {
    insert(&patterns(map, &of_text(map, sections)))
}

/// An `INSERT` script of sections by their possible names, one group for each function.
pub(super) fn insert_names(groups: &[Vec<Vec<u8>>]) -> String {
    let pattern = |names: &Vec<Vec<u8>>| {
        let names: Vec<String> = names.iter().map(|name| escaped(name)).collect();
        format!("*({})", names.join(" "))
    };
    insert(&groups.iter().map(pattern).collect::<Vec<_>>())
}

fn insert(patterns: &[String]) -> String {
    let lines: String = patterns.iter().map(|pattern| format!("    {pattern}\n")).collect();
    format!("SECTIONS\n{{\n  {ORDERED} :\n  {{\n{lines}  }}\n}}\nINSERT BEFORE .text;\n")
}

fn between_rules(text: &str) -> &str {
    let is_rule = |line: &str| line.len() >= 8 && line.trim_end().bytes().all(|byte| byte == b'=');
    let mut offset = 0;
    let mut rules = text.split_inclusive('\n').filter_map(|line| {
        let start = offset;
        offset += line.len();
        is_rule(line.trim_end()).then_some((start, offset))
    });
    match (rules.next(), rules.next()) {
        (Some((_, start)), Some((end, _))) => &text[start..end],
        _ => text,
    }
}

/// The offset after the brace that opens `.text :`.
fn inside_text(script: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = script[from..].find(".text") {
        let at = from + found;
        from = at + ".text".len();
        let starts_a_word =
            script[..at].ends_with(|before: char| before.is_ascii_whitespace() || before == '}');
        let Some(rest) = script[from..].trim_start().strip_prefix(':').filter(|_| starts_a_word) else {
            continue;
        };
        // What may stand between the colon and the brace is an address or an alignment.
        let brace = rest.find('{').filter(|&brace| !rest[..brace].contains([';', '}', ':']))?;
        return Some(script.len() - rest.len() + brace + 1);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_inside_text_and_nowhere_else() {
        let script = "x\n======\n==========\nSECTIONS { .rela.text : { *(.rela.text) }\n  .text           :\n  {\n  *(.text)\n} }\n==========\n";
        let out = bfd_script(&LinkMap::default(), &[], script).expect("a place");
        assert_eq!(
            out,
            "SECTIONS { .rela.text : { *(.rela.text) }\n  .text           :\n  {\n  *(.text)\n} }\n"
        );
        let at = inside_text(script).expect("a place");
        assert!(script[..at].ends_with(".text           :\n  {"));
        assert!(bfd_script(&LinkMap::default(), &[], "SECTIONS { .text.x : { *(.text) } }").is_err());
        assert!(bfd_script(&LinkMap::default(), &[], "").is_err());
    }
}
