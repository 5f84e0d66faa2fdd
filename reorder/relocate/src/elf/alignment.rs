//! Which alignment the starts of functions keep.
//!
//! Programs put flags into the low bits of function pointers: C++ one bit, runtimes two or three, and functions that are
//! declared `aligned(64)` can carry six. Nothing in a finished image says which bits are used, so a function whose address
//! is taken keeps the alignment that its own address shows, up to what may have been asked for. Three facts bound that:
//!
//! * The **ordinary** alignment of a section is what its compilers gave to functions that asked for nothing: 16 for speed,
//!   4 by `-falign-functions=4`, 1 in code built for size. It is the largest power of two that clearly more functions have
//!   than would by chance (of those aligned to half of it, half). Parts that were split off functions have none, hence
//!   not all.
//! * The **section's** alignment (`sh_addralign`) is the largest that any function in it asked for, since linkers take the
//!   maximum. Where it is 16, as in nineteen of twenty images, a multiple of 64 is chance.
//! * **Padding** of *n* bytes before a function is not explained by an alignment of *n* or less. From the ordinary
//!   alignment on it shows that the function asked for more, and then all that its address has counts.
//!
//! Padding does not show every request: one `aligned(64)` function in four needs less padding than the ordinary alignment
//! explains. So functions in a row with one whose padding shows a request keep as much as that one. A function whose address
//! is taken keeps its own alignment, up to the section's. Where functions are packed or aligned to 4, this last rule holds
//! only for functions aligned to 16 or more, in sections that state more than 16: one function in sixteen has that by
//! chance, and a lower limit would cost every second function its room. In other packed sections no function keeps more
//! than padding shows.
//!
//! When room is short, functions whose address is not taken lose what padding shows, and everything beyond [`MAX_TAG`].

use rayon::prelude::*;

use reorder_base::address::Address;
use reorder_image::code_reference::CodeForm;
use reorder_image::decode::x86_64::FieldKind;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::blocks::{Block, GapContent, ORDINARY_ALIGNMENT, alignment};
use reorder_image::elf::analysis::fields::CodeFields;
use reorder_image::elf::analysis::units::{Unit, UnitIndex, unit_containing};
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::ordinary_alignment::ordinary_alignment;

/// The alignment that a function keeps at its new address, as powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// As long as there is room.
    pub ordinary: u64,
    /// Always.
    pub least: u64,
}

/// The alignment that functions keep whose addresses are not known to be taken, if they have it: three bits.
const MAX_TAG: u64 = 8;

/// What code may be aligned to so as not to share a cache line.
const CACHE_LINE: u64 = 64;

/// No function asks for more than a page.
const PAGE: u64 = 4096;

/// The alignment of each unit.
pub fn alignments(analysis: &Analysis<'_>, functions: &ElfFunctions<'_>) -> Vec<Alignment> {
    let is_addressed = addressed_units(analysis, functions);
    let blocks = &analysis.partition.blocks;
    let own: Vec<u64> = blocks.par_iter().map(own_alignment).collect();
    let starts: Vec<u64> = blocks.par_iter().map(|block| alignment(block.start, PAGE)).collect();
    let entries: Vec<u64> = blocks.par_iter().map(|block| alignment(block.first_function, PAGE)).collect();
    // Compilers align either the entry or what they put before it; the larger of both would often be chance. What all
    // functions have in common counts as well, those inside of blocks included.
    let ordinary: Vec<u64> = (0..analysis.code.arenas.len())
        .map(|arena| {
            let of = |values| ordinary_alignment(&members(blocks, values, arena).collect::<Vec<u64>>());
            let inner = blocks.iter().filter(|block| block.arena as usize == arena);
            let inner: Vec<u64> =
                inner.flat_map(Block::function_starts).map(|start| alignment(start, PAGE)).collect();
            of(&starts).max(of(&entries)).max(ordinary_alignment(&inner))
        })
        .collect();
    let asked: Vec<u64> = blocks
        .par_iter()
        .zip(&own)
        .map(|(block, &own)| asked_by_padding(analysis, block, own, ordinary[block.arena as usize]))
        .collect();
    let sections: Vec<SectionAlignment> = ordinary
        .iter()
        .zip(&analysis.code.arenas)
        .enumerate()
        .map(|(arena, (&ordinary, facts))| {
            let shown = members(blocks, &asked, arena).max().unwrap_or(1);
            SectionAlignment::new(ordinary, facts.alignment, shown)
        })
        .collect();
    let shown = in_rows(blocks, &own, &asked, &sections);
    let kept = |unit: &Unit, is_addressed| {
        let section = sections[unit.arena as usize];
        let blocks = unit.blocks.clone().map(|block| block as usize);
        let kept = blocks.map(|block| kept_by(own[block], section, shown[block], is_addressed));
        kept.fold(Alignment { ordinary: 1, least: 1 }, Alignment::max)
    };
    analysis.units.iter().zip(is_addressed).map(|(unit, is_addressed)| kept(unit, is_addressed)).collect()
}

/// What `values` say of the blocks of one arena.
fn members<'run>(
    blocks: &'run [Block],
    values: &'run [u64],
    arena: usize,
) -> impl Iterator<Item = u64> + 'run {
    blocks.iter().zip(values).filter(move |(block, _)| block.arena as usize == arena).map(|(_, &value)| value)
}

impl Alignment {
    fn max(self, other: Self) -> Self {
        Self { ordinary: self.ordinary.max(other.ordinary), least: self.least.max(other.least) }
    }
}

/// What a section says of its functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SectionAlignment {
    /// The alignment of functions that asked for none.
    ordinary: u64,
    /// The most that a function may have asked for whose padding shows no request.
    most: u64,
    /// What the section's header says: the most that any function in it asked for.
    stated: u64,
    /// Most functions have less than compilers give for speed.
    is_packed: bool,
}

impl SectionAlignment {
    /// `stated`: the section's own alignment; `shown`: the largest that padding in it shows.
    fn new(ordinary: u64, stated: u64, shown: u64) -> Self {
        let is_packed = ordinary < ORDINARY_ALIGNMENT;
        let most = if is_packed && stated <= ORDINARY_ALIGNMENT { shown } else { stated.max(shown) };
        Self { ordinary, most: most.clamp(ordinary, PAGE), stated, is_packed }
    }

    /// The most that a function may have asked for whose padding shows a request.
    fn asked(self) -> u64 {
        self.stated.clamp(self.most, PAGE.max(self.most))
    }

    /// What a function may have asked for whose padding shows no request, and whose address has the alignment `own`.
    fn possible(self, own: u64) -> u64 {
        if self.is_packed && own.min(self.most) < ORDINARY_ALIGNMENT {
            return own.min(self.ordinary);
        }
        if own >= self.most {
            return self.most;
        }
        // A long gap before one function, as linkers leave it between files, does not make others ask for less.
        own.min(CACHE_LINE.max(self.stated))
    }
}

/// What one block keeps; `shown`: the part of it that padding shows.
fn kept_by(own: u64, section: SectionAlignment, shown: u64, is_addressed: bool) -> Alignment {
    let ordinary = own.min(section.ordinary);
    let untaken = Alignment { ordinary: ordinary.max(shown), least: ordinary.min(MAX_TAG) };
    if !is_addressed {
        return untaken;
    }
    // An odd address must not become even: C++ pointers to member functions mark virtual functions by that bit.
    let least = section.possible(own).max(shown).max(2);
    Alignment { ordinary: untaken.ordinary.max(least), least }
}

/// What the padding before a block shows it to have asked for beyond the `ordinary` alignment; 1 for none.
fn asked_by_padding(analysis: &Analysis<'_>, block: &Block, own: u64, ordinary: u64) -> u64 {
    let padding = padding_before(analysis, block);
    let asked = padding.checked_add(1).and_then(u64::checked_next_power_of_two).unwrap_or(PAGE);
    if padding >= ordinary && own >= asked { asked } else { 1 }
}

/// The part of its `own` alignment that each block keeps because padding shows that it, or another block in its row,
/// `asked` for one; 1 for none. A row ends at the first block with less alignment, which chance soon brings in unrelated
/// code.
fn in_rows(blocks: &[Block], own: &[u64], asked: &[u64], sections: &[SectionAlignment]) -> Vec<u64> {
    let mut shown = vec![1; blocks.len()];
    let mut walk = |indices: &mut dyn Iterator<Item = usize>| {
        let mut row = Row { arena: u32::MAX, asked: 1, shown: 1 };
        for index in indices {
            let (arena, own, asked) = (blocks[index].arena, own[index], asked[index]);
            if arena != row.arena || own < row.asked {
                row = Row { arena, asked: 1, shown: 1 };
            }
            if asked > 1 {
                let most = own.min(sections[arena as usize].asked());
                row = Row { arena, asked: row.asked.max(asked), shown: row.shown.max(most) };
            }
            shown[index] = row.shown.min(own).max(shown[index]);
        }
    };
    walk(&mut (0..blocks.len()));
    walk(&mut (0..blocks.len()).rev());
    shown
}

/// Blocks next to each other that may have been aligned together.
struct Row {
    arena: u32,
    /// What padding shows that some of them asked for; all have it.
    asked: u64,
    /// The most that those have.
    shown: u64,
}

/// Bytes of padding before the block's first function, if only padding is there.
fn padding_before(analysis: &Analysis<'_>, block: &Block) -> u64 {
    let before = Address(block.start.0.wrapping_sub(1));
    let gap = analysis.partition.gap_containing(before).map(|index| analysis.partition.gaps[index]);
    let gap = gap.filter(|gap| gap.content == GapContent::Padding && gap.end == block.start);
    gap.map_or(0, |gap| block.first_function.distance_from(gap.start))
}

/// The alignment of the block's functions, as their addresses show it.
fn own_alignment(block: &Block) -> u64 {
    let starts = block.function_starts().chain([block.start]);
    starts.map(|start| alignment(start, PAGE)).max().unwrap_or(1)
}

/// For each unit, whether something takes an address in it, so that the low bits may have a meaning.
fn addressed_units(analysis: &Analysis<'_>, functions: &ElfFunctions<'_>) -> Vec<bool> {
    let unit_of = |target: Address| unit_containing(&analysis.units, target);
    let pointers = analysis.pointers.par_iter().filter_map(|pointer| unit_of(pointer.target));
    let absolute = analysis.absolute_fields.par_iter().filter_map(|field| unit_of(field.target));
    let own = analysis.partition.blocks.par_iter().filter(|block| block.takes_own_address);
    let own = own.filter_map(|block| unit_of(block.start));
    let mut addressed: Vec<UnitIndex> = pointers.chain(absolute).chain(own).collect();
    let exported = functions.dynamic_symbols.iter().filter(|symbol| symbol.defining_section().is_some());
    addressed.extend(exported.filter_map(|symbol| unit_of(symbol.value)));
    let blocks = &analysis.partition.blocks;
    match &analysis.fields {
        CodeFields::X86_64(fields) => {
            let all = fields.of(0..blocks.len() as u32).par_iter();
            let taken = all.filter(|field| field.kind == FieldKind::AddressOf);
            addressed.par_extend(taken.filter_map(|field| unit_of(field.target(&analysis.code))));
        }
        CodeFields::Aarch64(references) => {
            let all = blocks.par_iter().enumerate().flat_map_iter(|(index, block)| {
                references
                    .of_atom(index, block.start)
                    .filter(|reference| reference.form != CodeForm::Branch26)
            });
            addressed.par_extend(all.filter_map(|reference| unit_of(reference.target)));
        }
    }
    let mut is_addressed = vec![false; analysis.units.len()];
    addressed.into_iter().for_each(|unit| is_addressed[unit.0 as usize] = true);
    is_addressed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_counts_as_far_as_it_may_have_been_asked_for() {
        let section = |ordinary, stated| SectionAlignment::new(ordinary, stated, 1);
        let kept = |own, section, shown, is_addressed| {
            let Alignment { ordinary, least } = kept_by(own, section, shown, is_addressed);
            (ordinary, least)
        };
        // No function in the section asked for more than 16.
        assert_eq!(kept(4096, section(16, 16), 1, true), (16, 16));
        assert_eq!(kept(4096, section(16, 16), 1, false), (16, 8));
        // Some function did: this one may have.
        assert_eq!(kept(256, section(16, 4096), 1, true), (256, 256));
        assert_eq!(kept(32, section(16, 4096), 1, true), (32, 32));
        assert_eq!(kept(256, section(16, 4096), 256, true), (256, 256));
        assert_eq!(kept(256, section(16, 4096), 1, false), (16, 8));
        assert_eq!(kept(256, section(16, 4096), 256, false), (256, 8));
        // The largest that the section states.
        assert_eq!(kept(4096, section(16, 4096), 1, true), (4096, 4096));
        // Packed code: parity alone, and what padding shows.
        assert_eq!(kept(1, section(1, 16), 1, true), (2, 2));
        assert_eq!(kept(1, section(1, 16), 1, false), (1, 1));
        assert_eq!(kept(16, section(1, 16), 1, true), (2, 2));
        assert_eq!(kept(16, section(4, 16), 1, true), (4, 4));
        assert_eq!(kept(16, section(1, 16), 16, false), (16, 1));
        assert_eq!(kept(16, section(1, 16), 16, true), (16, 16));
        assert_eq!(SectionAlignment::new(4, 16, 1).most, 4);
        assert_eq!(SectionAlignment::new(4, 16, 32).most, 32);
        // Some function in packed code asked for 64: one that has it, or nearly, may be that one.
        assert_eq!(kept(64, section(1, 64), 1, true), (64, 64));
        assert_eq!(kept(32, section(1, 64), 1, true), (32, 32));
        // The padding of other functions shows more than the section states.
        assert_eq!(SectionAlignment::new(1, 128, 256).possible(128), 128);
        assert_eq!(SectionAlignment::new(16, 128, 256).possible(128), 128);
        assert_eq!(SectionAlignment::new(16, 32, 256).possible(128), 64);
        assert_eq!(kept(8, section(1, 64), 1, true), (2, 2));
        assert_eq!(kept(64, section(1, 64), 1, false), (1, 1));
    }
}
