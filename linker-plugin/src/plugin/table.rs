//! Code sections as a table of functions that traces are resolved against.
//!
//! In: the link's objects. Out: [`Table`]: each section that may be placed has an address of its own, in input order,
//! and all names of its functions; copies of which the linker keeps one come after the first. The addresses are
//! beyond those of any program, so that an address in a trace never means one of them.

use std::collections::HashMap;

use reorder_base::address::Address;
use reorder_image::functions::{Function, FunctionIndex, FunctionTable, LocalName};
use reorder_trace::{Name, root_name};

use super::abi::Section;
use super::inputs::InputObject;
use super::object_file::{CodeSection, FunctionName, Scope};

/// The first of the made-up addresses: user space of every processor ends below, and layouts take 62 bits.
const ORIGIN: u64 = 0x2000_0000_0000_0000;
/// Larger alignments are handled by the linker; the layout need not know them.
const MAX_ALIGNMENT: u64 = 1 << 16;

/// A section that can be placed, with its copies in other objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placeable {
    /// The section, then copies.
    pub(super) sections: Vec<Section>,
    /// Size in bytes of the first.
    pub(super) size: u64,
    /// How many functions it holds.
    pub(super) functions: usize,
    start: Address,
}

/// All of them.
pub(super) struct Table<'objects> {
    /// In input order; [`FunctionIndex`] counts the same.
    pub(super) placeables: Vec<Placeable>,
    names: Vec<(usize, &'objects [u8])>,
    locals: Vec<LocalName<'objects>>,
    /// Local functions that share a name but for what optimisers add.
    namesakes: HashMap<&'objects [u8], Vec<Namesake<'objects>>>,
}

/// A local function of which others have the name.
#[derive(Clone, Copy)]
struct Namesake<'objects> {
    name: &'objects [u8],
    file: &'objects [u8],
    size: u64,
}

impl<'objects> Table<'objects> {
    /// Puts the sections of all `objects` in a row.
    pub(super) fn new(objects: &'objects [InputObject]) -> Self {
        let definitions = Definitions::new(objects);
        let mut table =
            Self { placeables: Vec::new(), names: Vec::new(), locals: Vec::new(), namesakes: HashMap::new() };
        // Of each group and each weak function the first copy counts, wherever it is.
        let mut first_of_group: HashMap<(&[u8], &[u8]), usize> = HashMap::new();
        let mut owner: HashMap<&[u8], (bool, usize)> = HashMap::new();
        let mut copies: Vec<(usize, Section)> = Vec::new();
        let mut cursor = ORIGIN;
        for object in objects {
            for section in &object.sections {
                let id = object.section(section);
                let group = section.group.as_deref().map(|group| (group, section.name.as_slice()));
                if let Some(&first) = group.and_then(|group| first_of_group.get(&group)) {
                    copies.push((first, id));
                    continue;
                }
                let counting = || section.functions.iter().filter(|f| definitions.counts(f, id));
                if counting().next().is_none() {
                    // What a strong definition replaces stays in the output, but is not called.
                    let owned = section.functions.iter().find_map(|f| owner.get(f.name.as_slice()));
                    let copy = owned.filter(|(is_strong, _)| !is_strong || section.group.is_some());
                    copies.extend(copy.map(|&(_, first)| (first, id)));
                    continue;
                }
                let Some(start) = cursor.checked_next_multiple_of(section.alignment.clamp(1, MAX_ALIGNMENT))
                else {
                    break;
                };
                let Some(end) = start.checked_add(section.size) else { break };
                cursor = end;
                let position = table.placeables.len();
                if let Some(group) = group {
                    first_of_group.insert(group, position);
                }
                for function in counting() {
                    table.names.push((position, &function.name));
                    match &function.scope {
                        Scope::Local(file) => {
                            table.locals.push(LocalName {
                                start: Address(start),
                                name: &function.name,
                                file,
                            });
                            let namesake = Namesake { name: &function.name, file, size: function.size };
                            table.namesakes.entry(root_name(&function.name)).or_default().push(namesake);
                        }
                        Scope::Weak | Scope::Global => {
                            let is_strong = rank(function, section) == Rank::Strong;
                            owner.insert(&function.name, (is_strong, position));
                        }
                    }
                }
                let placeable = Placeable {
                    sections: vec![id],
                    size: section.size,
                    functions: counting().count(),
                    start: Address(start),
                };
                table.placeables.push(placeable);
            }
        }
        for (first, copy) in copies {
            table.placeables[first].sections.push(copy);
        }
        table.namesakes.retain(|_, namesakes| namesakes.len() > 1);
        table
    }

    /// The same as functions: one for each section, with all names.
    pub(super) fn functions(&self) -> FunctionTable<'_> {
        let functions = self.placeables.iter().map(|placeable| Function {
            start: placeable.start,
            end: placeable.start.plus(placeable.size),
            has_unwind_entry: false,
        });
        let names = self.names.iter().map(|&(position, name)| (self.placeables[position].start, name));
        FunctionTable::new(functions.collect(), names.collect(), self.locals.clone())
    }

    /// The section of a function.
    pub(super) fn placeable(&self, function: FunctionIndex) -> Option<&Placeable> {
        self.placeables.get(function.0 as usize)
    }

    /// Words that mean the one local function of this name and size, where several have the name.
    ///
    /// The size is the evidence of a trace that was recorded with the same objects.
    pub(super) fn spelled_by_size(&self, name: &[u8], size: u64) -> Option<Name> {
        let family = self.namesakes.get(root_name(name))?;
        // A function of exactly this name is not an optimiser's variant of another.
        let is_exact = family.iter().any(|namesake| namesake.name == name);
        let mut fitting = family
            .iter()
            .filter(|namesake| namesake.size == size && size > 0 && (!is_exact || namesake.name == name));
        let only = fitting.next()?;
        if fitting.next().is_some() {
            return None;
        }
        if family.iter().filter(|namesake| namesake.name == only.name).count() == 1 {
            return Some(Name::from(only.name));
        }
        (!only.file.is_empty()).then(|| Name::from([only.file, b";", only.name].concat()))
    }
}

/// Which definition of a name that several objects define becomes part of the output.
struct Definitions<'objects> {
    counting: HashMap<&'objects [u8], (Rank, Section)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Strong,
    Replaceable,
}

impl<'objects> Definitions<'objects> {
    fn new(objects: &'objects [InputObject]) -> Self {
        let mut counting: HashMap<&[u8], (Rank, Section)> = HashMap::new();
        for object in objects {
            for section in &object.sections {
                for function in section.functions.iter().filter(|f| !matches!(f.scope, Scope::Local(_))) {
                    let candidate = (rank(function, section), object.section(section));
                    counting
                        .entry(&function.name)
                        .and_modify(|known| {
                            if candidate.0 < known.0 {
                                *known = candidate;
                            }
                        })
                        .or_insert(candidate);
                }
            }
        }
        Self { counting }
    }

    fn counts(&self, function: &FunctionName, section: Section) -> bool {
        matches!(function.scope, Scope::Local(_))
            || self.counting.get(function.name.as_slice()).is_some_and(|(_, counting)| *counting == section)
    }
}

fn rank(function: &FunctionName, section: &CodeSection) -> Rank {
    match function.scope == Scope::Global && section.group.is_none() {
        true => Rank::Strong,
        false => Rank::Replaceable,
    }
}
