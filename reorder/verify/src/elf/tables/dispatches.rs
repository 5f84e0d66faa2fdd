//! What value analysis proves of the jumps of an image: which table each reads, at which indices, and where it leads.

use std::collections::{BTreeMap, BTreeSet};

use goblin::elf::header::ET_EXEC;
use iced_x86::{Decoder, DecoderOptions, Instruction};
use rayon::prelude::*;

use super::held_places::HeldPlaces;
use super::undescribed::undescribed_entries;
use super::x86_64::{Tables, analysed};
use crate::elf::absolute_fields::AbsoluteFields;
use crate::elf::alignment::Alignments;
use crate::elf::dispatch::{Follow, RegisterSet, Word, targets};
use crate::elf::functions::compare_functions;
use crate::elf::gaps::check_gaps;
use crate::elf::landing_pads::LandingPads;
use crate::elf::pair::ImagePair;
use crate::elf::view::ElfView;
use crate::moves::AddressMoves;
use crate::report::Findings;
use reorder_base::address::Address;

/// A jump that reads a table of four-byte distances from the table itself, or of eight-byte addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::elf) struct KnownJump {
    /// First address of the table.
    pub(in crate::elf) table: Address,
    /// Bytes of an entry.
    pub(in crate::elf) entry: u64,
    /// The largest index that it reads; `None` if no bound is proven.
    pub(in crate::elf) last: Option<u64>,
    /// Where the entries lead.
    pub(in crate::elf) targets: Vec<Address>,
}

/// What one analysis of a function and its parts says of a jump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::elf) enum Jump {
    /// The table is known.
    Known(KnownJump),
    /// It reads words of another form, or from a table that is not known.
    Unknown,
    /// Some other jump of the function is unknown. It may lead anywhere, so nothing is certain of this one.
    Beside,
}

/// The jumps of one image.
pub(in crate::elf) struct Dispatches<'a> {
    tables: &'a Tables<'a>,
    /// By place. A part that several functions share has a jump in each.
    jumps: BTreeMap<Address, Vec<Jump>>,
    /// Targets of direct calls.
    called: BTreeSet<Address>,
}

/// Analyses `image`, whose functions are `functions`, and gives the result to `then`.
pub(in crate::elf) fn with_dispatches<T>(
    image: &ElfView<'_>,
    functions: &AddressMoves,
    then: impl FnOnce(&Dispatches<'_>) -> T,
) -> T {
    let absolute = AbsoluteFields::collect(image);
    let (pads, alignments) = (LandingPads::of(image), Alignments::default());
    let pair = ImagePair {
        old: image,
        new: image,
        moves: functions,
        absolute: &absolute,
        pads: &pads,
        alignments: &alignments,
    };
    let mut code = compare_functions(pair);
    // An image does not differ from itself.
    code.references.extend(check_gaps(pair, &mut Findings::new(0)).references);
    code.references.sort_unstable();
    code.entries.extend(undescribed_entries(image, functions));
    code.entries.sort_unstable();
    // Elsewhere the loader writes the addresses.
    let follow = if image.header.e_type == ET_EXEC { Follow::Addresses } else { Follow::Distances };
    if follow == Follow::Addresses {
        code.dispatching.append(&mut code.loading_targets);
        code.dispatching.sort_unstable();
        code.dispatching.dedup();
    }
    analysed(pair, &code, follow, |tables, shapes| {
        let mut jumps: BTreeMap<Address, Vec<Jump>> = BTreeMap::new();
        let loaded = shapes.iter().flat_map(|(_, shape)| &shape.loaded).filter_map(|(_, word)| *word);
        let held = (follow == Follow::Addresses).then(|| HeldPlaces::of(image, functions, loaded));
        for (_, shape) in &shapes {
            let last = |word: &Word| Some(word.index.most).filter(|_| !word.index.is_free());
            let is_bounded = |word: &Option<Word>| word.as_ref().is_some_and(|word| last(word).is_some());
            let is_entered =
                shape.jumps_elsewhere && held.as_ref().is_some_and(|held| held.enters(&shape.members));
            let is_clear =
                shape.is_clear && !is_entered && shape.loaded.iter().all(|(_, word)| is_bounded(word));
            let known = |anchor: u64, word: &Word| {
                let starts = if anchor == 0 { &[] } else { tables.starts.as_slice() };
                let targets = targets(image, (anchor, *word), starts);
                Jump::Known(KnownJump {
                    table: Address(word.table),
                    entry: u64::from(word.width),
                    last: last(word),
                    targets: targets.into_iter().map(Address).collect(),
                })
            };
            for &(place, anchor, word) in &shape.jumps {
                let is_own = word.table == anchor && word.width == 4 && word.is_extended;
                let jump = match is_own {
                    true if !is_clear => Jump::Beside,
                    true => known(anchor, &word),
                    false => Jump::Unknown,
                };
                jumps.entry(Address(place)).or_default().push(jump);
            }
            for (place, word) in &shape.loaded {
                let jump = match word {
                    Some(word) if is_clear => known(0, word),
                    Some(_) => Jump::Beside,
                    None => Jump::Unknown,
                };
                jumps.entry(Address(*place)).or_default().push(jump);
            }
            for &place in &shape.unknown {
                jumps.entry(Address(place)).or_default().push(Jump::Unknown);
            }
        }
        then(&Dispatches { tables: &tables, jumps, called: called(image, functions) })
    })
}

/// Targets of the direct calls of all functions.
fn called(image: &ElfView<'_>, functions: &AddressMoves) -> BTreeSet<Address> {
    let calls = functions.as_slice().par_iter().flat_map_iter(|function| {
        let (start, end) = (function.old_start.0, function.old_end().0);
        let bytes = image.code_at(start, end).and_then(|section| section.at(start, function.size));
        let mut decoder = Decoder::with_ip(64, bytes.unwrap_or_default(), start, DecoderOptions::NONE);
        let mut found = Vec::new();
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_call_near() {
                found.push(Address(instruction.near_branch_target()));
            }
        }
        found
    });
    calls.collect()
}

impl Dispatches<'_> {
    /// What is known of the jump at `place`; nothing if it reads no table.
    pub(in crate::elf) fn at(&self, place: Address) -> &[Jump] {
        self.jumps.get(&place).map_or(&[], Vec::as_slice)
    }

    /// Where the function that contains `place` catches exceptions.
    pub(in crate::elf) fn pads(&self, place: Address) -> Vec<Address> {
        let home = self.tables.pair.moves.containing(place);
        let sites = home.map(|home| self.tables.evidence.call_sites(home.old_start.0, home.size));
        sites.unwrap_or_default().into_iter().map(|site| Address(site.pad)).collect()
    }

    /// Whether some code calls `target` directly. Compilers do not call parts that they split off from functions.
    pub(in crate::elf) fn is_called(&self, target: Address) -> bool {
        self.called.contains(&target)
    }

    /// Whether `call` certainly does not return.
    pub(in crate::elf) fn is_last(&self, call: &Instruction) -> bool {
        self.tables.endings.is_last(call)
    }

    /// The registers that the function at `target` certainly does not write, a bit for each by its number.
    pub(in crate::elf) fn kept_by(&self, target: Address) -> RegisterSet {
        self.tables.kept.by(target.0)
    }

    /// The number of the register to whose value the code at `target` jumps, if that does nothing else.
    pub(in crate::elf) fn thunk(&self, target: Address) -> Option<usize> {
        self.tables.thunks.register(target.0)
    }
}
