//! Functions that a number may lead to when it is added to the address of another one.
//!
//! Hand-written dispatch adds a stored distance to the address of a function. Where the table is, the code need not tell: it
//! may come from the global offset table, or from the caller. So the numbers at all places of the data count, in all
//! widths, and shifted as the sum shifts them. The function that is added to always stays.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use crate::decoded_atom::{CodeSum, DecodedAtom, MAX_PATCHABLE_BYTES, beyond_sums};
use crate::elf::analysis::blocks::{BlockIndex, GapContent, Partition};
use crate::elf::analysis::references::Finding;
use crate::elf::file::ElfFile;
use crate::elf::section::Section;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::refusal::RefusalCode;

/// Distances that are looked for at once: functions times sums.
const MAX_WANTED: usize = 1 << 20;
/// How often the data are looked through.
const MAX_PASSES: usize = 1 << 6;
/// Functions are aligned to at most 16 unless asked for more.
const MAX_SCALE: u8 = 4;
/// Bytes of the widest number.
const MAX_WIDTH: usize = 8;

/// Pins for all sums of the atoms, which are the blocks of `partition`, and for those whose parts are `handed` to other code,
/// with the function that hands them.
///
/// # Errors
/// Refuses (R7) where there are more sums than are tried.
pub(super) fn check_code_sums(
    file: &ElfFile<'_>,
    partition: &Partition,
    decoded: &[DecodedAtom],
    handed: impl Iterator<Item = (CodeSum, Address)>,
) -> Result<Vec<Finding>> {
    let of_atoms = decoded.iter().zip(&partition.blocks);
    let own = of_atoms.flat_map(|(atom, block)| atom.sums.iter().map(|sum| (*sum, block.first_function)));
    let mut sums: Vec<(CodeSum, Address)> = own.chain(handed).collect();
    sums.sort_unstable();
    sums.dedup_by_key(|(sum, _)| *sum);
    let Some(&(_, evidence)) = sums.first() else { return Ok(Vec::new()) };
    let patched: BTreeMap<Address, BlockIndex> =
        sums.iter().filter_map(|(sum, _)| Some((sum.base, patchable_at(partition, sum.base)?))).collect();
    let rooms: BTreeSet<u64> = patched
        .iter()
        .map(|(base, block)| partition.block(*block).first_function.distance_from(*base))
        .collect();
    let starts: Vec<(Address, BlockIndex)> = (0..)
        .zip(&partition.blocks)
        .flat_map(|(index, block)| block.function_starts().map(move |start| (start, BlockIndex(index))))
        .flat_map(|(start, block)| {
            let entry = move |room: &u64| Address(start.0.wrapping_sub(*room));
            let is_one = move |entry: &Address| patchable_at(partition, *entry) == Some(block);
            [start].into_iter().chain(rooms.iter().map(entry).filter(is_one)).map(move |entry| (entry, block))
        })
        .collect();
    let at_once = (MAX_WANTED / starts.len().max(1)).max(1);
    if sums.len() > at_once.saturating_mul(MAX_PASSES) {
        return Err(beyond_sums(RefusalCode::PrivateRuntimeTables, evidence).into());
    }
    let mut found: BTreeSet<(BlockIndex, Address)> = BTreeSet::new();
    for sums in sums.chunks(at_once) {
        let wanted = Wanted::new(sums, &starts);
        for section in file.sections.iter().filter(|section| may_hold_numbers(section)) {
            found.extend(wanted.found_in(file.section_bytes(section)));
        }
    }
    let home = |base: Address| partition.block_containing(base).or_else(|| patched.get(&base).copied());
    let of_bases = sums.iter().filter_map(|(sum, evidence)| Some((home(sum.base)?, *evidence)));
    let pinned: Vec<(BlockIndex, Address)> = of_bases.chain(found).collect();
    // The no-operations at an entry must not be given to other functions.
    let gaps_before = pinned.iter().filter_map(|(block, _)| {
        let before = Address(partition.block(*block).start.0.wrapping_sub(1));
        partition.gap_containing(before).filter(|_| !rooms.is_empty()).map(Finding::KeepGap)
    });
    let pin = |&(block, evidence): &(BlockIndex, Address)| {
        Finding::Pin(block, Pin { reason: PinReason::ComputedAddress, evidence })
    };
    Ok(pinned.iter().map(pin).chain(gaps_before).collect())
}

/// The block whose first function is entered at `address`, before its start: patchable functions have no-operations at their
/// entry, before what their unwind entries cover, and in a stripped image nothing else tells of the entry.
fn patchable_at(partition: &Partition, address: Address) -> Option<BlockIndex> {
    let gap = partition.gap_containing(address).map(|gap| &partition.gaps[gap]);
    let block = match gap {
        Some(gap) if gap.content == GapContent::Padding => partition.block_containing(gap.end),
        Some(_) => None,
        None => partition.block_containing(address),
    };
    let start = |block: &BlockIndex| partition.block(*block).first_function;
    block.filter(|block| address < start(block) && start(block).distance_from(address) <= MAX_PATCHABLE_BYTES)
}

/// Numbers that lead from what is added to to another function.
struct Wanted {
    /// Sorted: the number, the function and the code that adds.
    numbers: Vec<(u64, BlockIndex, Address)>,
    /// Whether a number with this digest is wanted: nearly none are.
    digests: Vec<bool>,
}

impl Wanted {
    fn new(sums: &[(CodeSum, Address)], starts: &[(Address, BlockIndex)]) -> Self {
        let of_sums = sums.par_iter().flat_map_iter(|(sum, evidence)| {
            let others = starts.iter().filter(|(start, _)| *start != sum.base);
            others.flat_map(|(start, block)| {
                let distance = start.distance_from(sum.base);
                // The distance back counts, too: what is known may be what a number is taken from.
                let both = [distance, distance.wrapping_neg()].into_iter();
                both.flat_map(|distance| numbers(distance, sum.shift))
                    .map(|number| (number, *block, *evidence))
            })
        });
        let mut numbers: Vec<_> = of_sums.collect();
        numbers.par_sort_unstable();
        let mut digests = vec![false; 1 << DIGEST_BITS];
        numbers.iter().for_each(|(number, _, _)| digests[digest(*number)] = true);
        Self { numbers, digests }
    }

    /// The functions that numbers in `bytes` lead to, at any place: records may be packed.
    fn found_in(&self, bytes: &[u8]) -> Vec<(BlockIndex, Address)> {
        let places = (0..bytes.len()).into_par_iter().with_min_len(1 << 16);
        places.flat_map_iter(|place| self.at(&bytes[place..])).collect()
    }

    /// Those that the numbers at the start of `bytes` lead to.
    fn at(&self, bytes: &[u8]) -> Vec<(BlockIndex, Address)> {
        let mut wide = [0; MAX_WIDTH];
        let length = bytes.len().min(MAX_WIDTH);
        wide[..length].copy_from_slice(&bytes[..length]);
        let wide = u64::from_le_bytes(wide);
        let mut found = Vec::new();
        for width in [1, 2, 4, MAX_WIDTH].into_iter().filter(|width| *width <= length) {
            let unused = 64 - 8 * width as u32;
            let (plain, signed) = (wide << unused >> unused, ((wide << unused) as i64 >> unused) as u64);
            found.extend(self.matching(plain));
            if signed != plain {
                found.extend(self.matching(signed));
            }
        }
        found
    }

    fn matching(&self, number: u64) -> impl Iterator<Item = (BlockIndex, Address)> + '_ {
        let first = match self.digests[digest(number)] {
            true => self.numbers.partition_point(|(wanted, _, _)| *wanted < number),
            false => self.numbers.len(),
        };
        let same = self.numbers[first..].iter().take_while(move |(wanted, _, _)| *wanted == number);
        same.map(|(_, block, evidence)| (*block, *evidence))
    }
}

/// The numbers that `distance` may be stored as, if it is shifted when it is added, or before.
fn numbers(distance: u64, shift: u8) -> impl Iterator<Item = u64> {
    let shifts = (0..=MAX_SCALE).chain((shift > MAX_SCALE).then_some(shift));
    let exact = shifts.filter(move |shift| distance >> shift << shift == distance);
    exact.map(move |shift| (distance as i64 >> shift) as u64)
}

const DIGEST_BITS: u32 = 20;

/// A number from zero to two to the [`DIGEST_BITS`].
fn digest(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - DIGEST_BITS)) as usize
}

/// Loaded data whose format is not known word by word.
fn may_hold_numbers(section: &Section<'_>) -> bool {
    const KNOWN: [&[u8]; 3] = [b".eh_frame", b".eh_frame_hdr", b".gcc_except_table"];
    section.is_loaded()
        && !section.is_executable()
        && section.has_bytes()
        && section.kind == object::elf::SHT_PROGBITS.0
        && !KNOWN.contains(&section.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_widths_lead_to_functions() {
        let starts = [
            (Address(0x1000), BlockIndex(0)),
            (Address(0x1040), BlockIndex(1)),
            (Address(0xff0), BlockIndex(2)),
        ];
        let found = |shift: u8, bytes: &[u8]| {
            let sum = CodeSum { base: Address(0x1000), shift };
            let wanted = Wanted::new(&[(sum, Address(0))], &starts);
            let mut blocks: Vec<u32> = wanted.found_in(bytes).into_iter().map(|(block, _)| block.0).collect();
            blocks.sort_unstable();
            blocks.dedup();
            blocks
        };
        assert_eq!(found(0, &[0x40]), [1]);
        assert_eq!(found(6, &[9, 1]), [1, 2], "shifted by six, or by four");
        assert_eq!(found(0, &[1]), [2], "sixteen bytes before");
        assert_eq!(found(0, &[9, 0xf0, 0xff, 0xff, 0xff]), [1, 2], "also what it may be taken from");
        assert_eq!(found(0, &[0x41, 9, 9]), [] as [u32; 0]);
    }
}
