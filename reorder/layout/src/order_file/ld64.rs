//! Writes order files for Apple's linkers and ld64.lld: `-order_file`.
//!
//! In: functions, their layout, and the symbols as the linker spells them with their object files. Out: one symbol a line,
//! `object.o:symbol` where several functions have the name; members of archives are `lib.a(member.o):symbol`. Only the last
//! component of a path counts. `#` starts a comment anywhere, so symbols with one in their names cannot be listed.

use super::lld::Summary;
use crate::Layout;
use reorder_image::functions::FunctionTable;
use reorder_image::macho::CodeSymbol;
use reorder_trace::link_map::ObjectFile;

/// The lines of the chosen part of `layout`, preceded by `architecture:` if one is given, and an account of them.
#[must_use]
pub fn lines(
    functions: &FunctionTable<'_>,
    layout: &Layout,
    symbols: &[CodeSymbol<'_>],
    architecture: Option<&str>,
) -> (Vec<u8>, Summary) {
    let mut by_address: Vec<&CodeSymbol<'_>> =
        symbols.iter().filter(|symbol| is_expressible(&symbol.name)).collect();
    by_address.sort_unstable();
    by_address.dedup_by(|later, kept| (later.address, &later.name) == (kept.address, &kept.name));
    let mut names: Vec<&[u8]> = by_address.iter().map(|symbol| &*symbol.name).collect();
    names.sort_unstable();
    let times = |name: &[u8]| {
        let first = names.partition_point(|other| *other < name);
        names[first..].partition_point(|other| *other == name)
    };
    let mut in_files: Vec<(Vec<u8>, &[u8])> = by_address
        .iter()
        .filter(|symbol| times(&symbol.name) > 1)
        .filter_map(|symbol| Some((prefix(symbol.object?), &*symbol.name)))
        .collect();
    in_files.sort_unstable();
    let times_in_file = |file: &[u8], name: &[u8]| {
        let first = in_files.partition_point(|(other, symbol)| (other.as_slice(), *symbol) < (file, name));
        in_files[first..].partition_point(|(other, symbol)| (other.as_slice(), *symbol) == (file, name))
    };
    let chosen = &layout.order[..layout.chosen.min(layout.order.len())];
    let mut summary = Summary { functions: functions.len(), chosen: chosen.len(), ..Summary::default() };
    let mut out = Vec::new();
    for &function in chosen {
        let start = functions.get(function).start;
        let first = by_address.partition_point(|symbol| symbol.address < start);
        let here = by_address[first..].iter().take_while(|symbol| symbol.address == start).take(64);
        let mut named: Vec<_> = here.map(|symbol| (times(&symbol.name), *symbol)).collect();
        named.sort_by_key(|(times, _)| *times);
        let Some((times, symbol)) = named.first() else {
            summary.unnamed += 1;
            continue;
        };
        summary.named += 1;
        if let Some(architecture) = architecture {
            out.extend_from_slice(architecture.as_bytes());
            out.push(b':');
        }
        if *times > 1 {
            let file = symbol.object.map(prefix);
            let is_clear = file.as_ref().is_some_and(|file| times_in_file(file, &symbol.name) == 1);
            summary.ambiguous += usize::from(!is_clear);
            if let Some(file) = file {
                out.extend_from_slice(&file);
                out.push(b':');
            }
        }
        out.extend_from_slice(&symbol.name);
        out.push(b'\n');
    }
    (out, summary)
}

/// `a.o` or `lib.a(a.o)`.
fn prefix(object: &[u8]) -> Vec<u8> {
    let file = ObjectFile::of(object).leaf();
    match file.archive {
        Some(archive) => [archive, b"(", file.name, b")"].concat(),
        None => file.name.to_vec(),
    }
}

fn is_expressible(name: &[u8]) -> bool {
    !name.is_empty()
        && !name.contains(&b'#')
        && !name.contains(&b'\n')
        && name.trim_ascii().len() == name.len()
}
