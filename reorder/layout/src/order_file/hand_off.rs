//! An order in the dialect of one linker, as a file that people pass to it: comments, then what the linker reads.
//!
//! With a link map each chosen function is placed by its exact input section; without one, linkers that order sections
//! only get the names that compilers give to the sections of these functions.

use super::data::DataOrder;
use super::ld64;
use super::lld::{self, OrderFile, Summary, Unnamed};
use super::lld_script::{Anchor, lld_script};
use super::origin::Origin;
use super::{Linker, bfd_script, gold, section_names, sections};
use crate::Layout;
use reorder_base::error::{Error, Result};
use reorder_image::functions::FunctionTable;
use reorder_image::macho::CodeSymbol;
use reorder_trace::link_map::LinkMap;

/// Writes for lld, gold or GNU ld; `unnamed` applies to lld's symbols only.
///
/// # Errors
/// A link map of another image, or without `.text`.
pub fn write_elf(
    linker: Linker,
    functions: &FunctionTable<'_>,
    layout: &Layout,
    map: Option<&LinkMap<'_>>,
    origin: &Origin<'_>,
    unnamed: Unnamed,
) -> Result<OrderFile> {
    match (linker, map) {
        (Linker::Ld64, _) => {
            let symbols = respelled(functions);
            Ok(write_ld64(functions, layout, &symbols, None, origin))
        }
        (_, Some(map)) => write_sections(linker, functions, layout, map, origin),
        (Linker::Lld, None) => Ok(lld::write(functions, layout, origin, unnamed)),
        (Linker::Gold, None) => {
            let (groups, summary) = section_names::of_chosen(functions, layout);
            let head = origin.hashed(GOLD, &summary);
            Ok(OrderFile { bytes: [head, gold::names(&groups)].concat(), summary })
        }
        (Linker::Bfd, None) => {
            let (groups, summary) = section_names::of_chosen(functions, layout);
            let head = origin.scripted(BFD, &summary);
            Ok(OrderFile { bytes: [head, bfd_script::insert_names(&groups).into_bytes()].concat(), summary })
        }
    }
}

/// Writes for Apple's linkers, whose spelling of the functions is `symbols`.
#[must_use]
pub fn write_ld64(
    functions: &FunctionTable<'_>,
    layout: &Layout,
    symbols: &[CodeSymbol<'_>],
    architecture: Option<&str>,
    origin: &Origin<'_>,
) -> OrderFile {
    let (lines, summary) = ld64::lines(functions, layout, symbols, architecture);
    OrderFile { bytes: [origin.hashed(LD64, &summary), lines].concat(), summary }
}

const GOLD: &[&str] =
    &["Order file for gold: --section-ordering-file", "the listed sections go to the end of .text"];
const LLD_SCRIPT: &[&str] =
    &["Linker script for lld: -T FILE, in addition to everything else; clang and gcc: -Wl,-T,FILE"];
const BFD: &[&str] = &[
    "Linker script for GNU ld: -T FILE, in addition to everything else; gcc: -Wl,-T,FILE",
    "it adds to the linker's own script and puts the functions into .text.ordered, before .text",
];
const LD64: &[&str] = &["Order file for Apple's linkers and ld64.lld: -order_file FILE, in Xcode ORDER_FILE"];

fn write_sections(
    linker: Linker,
    functions: &FunctionTable<'_>,
    layout: &Layout,
    map: &LinkMap<'_>,
    origin: &Origin<'_>,
) -> Result<OrderFile> {
    if map.is_apple() {
        return Err(Error::usage("the link map is of one of Apple's linkers, the image is not")
            .with_hint("give the map that was written when this image was linked: -Wl,-Map=FILE"));
    }
    let sections = sections::ordered_sections(functions, layout, map);
    let summary = summary(linker, functions, layout, map, &sections);
    if summary.named == 0 && summary.chosen > 0 {
        return Err(Error::usage("no function of the image lies in a section of the link map")
            .with_hint("give the map that was written when this very image was linked"));
    }
    let (head, body) = match linker {
        Linker::Gold => (origin.hashed(GOLD, &summary), gold::gold_sections(map, &sections)),
        Linker::Bfd => {
            (origin.scripted(BFD, &summary), bfd_script::insert_sections(map, &sections).into_bytes())
        }
        Linker::Lld | Linker::Ld64 => {
            let anchor = Anchor::of(map).ok_or_else(|| {
                Error::usage("the link map has no .text with another output section beside it")
                    .with_hint("without the link map functions are ordered by their symbols")
            })?;
            (origin.scripted(LLD_SCRIPT, &summary), lld_script(map, &sections, anchor).into_bytes())
        }
    };
    Ok(OrderFile { bytes: [head, body].concat(), summary })
}

fn summary(
    linker: Linker,
    functions: &FunctionTable<'_>,
    layout: &Layout,
    map: &LinkMap<'_>,
    listed: &[reorder_trace::link_map::SectionIndex],
) -> Summary {
    let chosen = layout.order.iter().take(layout.chosen);
    let crowds = sections::crowds(functions, map);
    let places = sections::Places::of(map);
    let mut summary =
        Summary { functions: functions.len(), sections: Some(listed.len()), ..Summary::default() };
    let unclear = match linker {
        Linker::Gold => gold::ambiguous(map, listed),
        _ => Vec::new(),
    };
    let mut sharing = 0;
    for &function in chosen {
        summary.chosen += 1;
        let Some(section) = places.at(functions.get(function).start) else {
            summary.unnamed += 1;
            continue;
        };
        summary.named += 1;
        summary.ambiguous += usize::from(unclear.binary_search(&section).is_ok());
        sharing += usize::from(crowds[section.0 as usize] > 1);
    }
    summary.sharing = Some(sharing);
    summary
}

/// Lists data objects after the functions of an order for lld.
pub fn append_data(order: &mut OrderFile, data: &DataOrder<'_>) {
    let count = data.names.len();
    let head = format!("# data objects {} of {} with content that others have, too\n", count, data.objects);
    order.bytes.extend_from_slice(head.as_bytes());
    for name in &data.names {
        order.bytes.extend_from_slice(name);
        order.bytes.push(b'\n');
    }
    order.summary.data_objects = Some(count);
}

/// The symbols of a map of one of Apple's linkers.
///
/// # Errors
/// Maps of other linkers.
pub fn symbols_of<'map>(map: &LinkMap<'map>) -> Result<Vec<CodeSymbol<'map>>> {
    if !map.is_apple() {
        return Err(Error::usage("the link map is of a linker for ELF, the image is not")
            .with_hint("give the map that was written when this image was linked: -Wl,-map,FILE"));
    }
    let symbols = map.sections.iter().map(|section| CodeSymbol {
        address: section.address,
        name: section.name.into(),
        object: (!section.object.is_empty()).then_some(section.object),
    });
    Ok(symbols.collect())
}

/// Names of ELF symbols as Mach-O has them: an order of one platform for the other.
fn respelled<'data>(functions: &FunctionTable<'data>) -> Vec<CodeSymbol<'data>> {
    let symbol = |&(address, name): &(reorder_base::address::Address, &[u8])| CodeSymbol {
        address,
        name: [b"_", name].concat().into(),
        object: None,
    };
    functions.names().iter().map(symbol).collect()
}
