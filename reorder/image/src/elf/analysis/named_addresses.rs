//! The addresses that x86-64 code forms or loads, for [`crate::stored_distances`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::Mnemonic;

use super::blocks::{BlockIndex, Gap, GapContent};
use super::computed_addresses::{CodeView, far_addresses, far_constants};
use super::pointers::{CodePointer, PointersByPlace};
use crate::decode::gap::GapInstructions;
use crate::decode::x86_64::{DecodedBlock, FieldKind};
use crate::elf::code::Region;
use crate::elf::relocation::LoaderRelocation;
use crate::stored_distances::{NamedAddresses, SumBudget, stored_address, words_read};
use reorder_base::address::Address;

/// How code names an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    /// The bytes there are loaded or stored.
    Accessed,
    /// A number equals it.
    Stated,
    /// The address itself is the result.
    Formed,
}

/// Addresses that the loader stores, by place.
pub(super) struct LoadedAddresses {
    code: PointersByPlace,
    data: PointersByPlace,
}

impl LoadedAddresses {
    pub(super) fn new(
        view: CodeView<'_, '_>,
        pointers: &[CodePointer],
        relocations: &[LoaderRelocation],
    ) -> Self {
        Self {
            code: PointersByPlace::new(pointers).with_symbols(view.code, relocations),
            data: PointersByPlace::of_data(view.code, relocations),
        }
    }

    /// The address in the eight bytes at `place`.
    fn at(&self, view: CodeView<'_, '_>, place: Address) -> Option<Address> {
        let loaded = self.code.at(place).or_else(|| self.data.at(place));
        loaded.or_else(|| stored_address(view.file, place))
    }
}

/// Tells what code names.
#[derive(Clone, Copy)]
pub(super) struct Naming<'run, 'data> {
    pub(super) view: CodeView<'run, 'data>,
    pub(super) loaded: &'run LoadedAddresses,
    pub(super) budget: &'run SumBudget,
}

impl Naming<'_, '_> {
    /// The addresses that a block names; `None` if there are too many. Of a block that is distrusted, all that its bytes may name.
    pub(super) fn of_block(
        self,
        index: BlockIndex,
        block: &DecodedBlock,
        is_distrusted: bool,
    ) -> Option<NamedAddresses> {
        let constants = far_constants(self.view, index, block).len();
        self.budget.spend(block.data_references.len().saturating_mul(constants))?;
        let Some(far) = far_addresses(self.view, index, block) else {
            return self.budget.spend(usize::MAX).and(None);
        };
        let fields = block.fields.iter().filter_map(|field| match field.kind {
            FieldKind::AddressOf => Some((field.target(self.view.code), Use::Formed)),
            FieldKind::Memory => Some((field.target(self.view.code), Use::Accessed)),
            _ => None,
        });
        let of_fields: BTreeSet<(Address, Use)> = fields.collect();
        let is_field = |address: &Address| {
            let first = of_fields.range((*address, Use::Accessed)..).next();
            first.is_some_and(|(target, _)| target == address)
        };
        // Other addresses of data are numbers in programs at a fixed address.
        let stated = block.data_references.iter().filter(|address| !is_field(address));
        let stated =
            stated.chain(&block.absolute_candidates).chain(&far).map(|address| (*address, Use::Stated));
        // A block that takes the address of one of its own places may count from there.
        let own = block.own_places.iter().map(|place| (*place, Use::Formed));
        let bounds = self.view.partition.block(index);
        let possible = is_distrusted.then(|| self.possible_addresses(bounds.start..bounds.end));
        let all = of_fields.iter().copied().chain(stated).chain(own).chain(possible.into_iter().flatten());
        Some(self.resolved(all))
    }

    /// The addresses that each piece of a gap names.
    pub(super) fn of_gap(self, gap: &Gap) -> Vec<NamedAddresses> {
        let pieces = gap.pieces();
        match gap.content {
            GapContent::Padding => Vec::new(),
            GapContent::Opaque => pieces
                .map(|piece| {
                    // Small numbers in data among code look like distances to places near them.
                    let possible = self.possible_addresses(piece.clone());
                    let is_meant =
                        |(address, used): &(Address, Use)| *used == Use::Formed || !piece.contains(address);
                    self.resolved(possible.filter(is_meant))
                })
                .collect(),
            GapContent::Code => {
                let named = self.named_by_gap(gap);
                let within = |piece: Range<Address>| {
                    let first = named.partition_point(|(place, ..)| *place < piece.start);
                    let named = named[first..].iter().take_while(move |(place, ..)| *place < piece.end);
                    self.resolved(named.map(|(_, address, used)| (*address, *used)))
                };
                pieces.map(within).collect()
            }
        }
    }

    /// The instructions of a gap that name addresses: place, address and use, in the order of places.
    fn named_by_gap(self, gap: &Gap) -> Vec<(Address, Address, Use)> {
        let code = self.view.code;
        let mut named = Vec::new();
        for instruction in GapInstructions::new(code.bytes(gap.start..gap.end), gap.start) {
            let place = Address(instruction.ip());
            if instruction.is_ip_rel_memory_operand() {
                let used = if instruction.mnemonic() == Mnemonic::Lea { Use::Formed } else { Use::Accessed };
                named.push((place, Address(instruction.ip_rel_memory_address()), used));
            }
            if code.is_fixed_address {
                let numbers = (0..instruction.op_count()).filter_map(|at| instruction.try_immediate(at).ok());
                // The decoder keeps the target of a jump in the same field; a jump names nothing.
                let displacement =
                    (instruction.memory_displ_size() >= 4).then(|| instruction.memory_displacement64());
                let numbers = numbers.chain(displacement).map(Address);
                let stated = numbers.filter(|number| code.region(*number) != Region::Outside);
                named.extend(stated.map(|number| (place, number, Use::Stated)));
            }
        }
        named
    }

    /// Addresses that bytes of code may hold, or the distances to them, wherever its instructions start.
    fn possible_addresses(self, range: Range<Address>) -> impl Iterator<Item = (Address, Use)> {
        /// Bytes of an immediate number after the distance.
        const IMMEDIATES: [u64; 4] = [0, 1, 2, 4];
        let code = self.view.code;
        let bytes = code.bytes(range.clone());
        let ends = (4..).map(move |end| range.start.plus(end));
        let windows = bytes.windows(4).enumerate().zip(ends);
        let distances = windows.filter_map(move |((at, window), end)| {
            let distance = i64::from(i32::from_le_bytes(*window.first_chunk()?)).cast_unsigned();
            // `lea distance(%rip), register`
            let is_formed = matches!(bytes[..at], [.., 0x8d, operand] if operand & 0xc7 == 5);
            let relative = IMMEDIATES.map(|immediate| {
                let used = if is_formed && immediate == 0 { Use::Formed } else { Use::Stated };
                (end.plus(immediate).plus(distance), used)
            });
            let stated = code.is_fixed_address.then_some((Address(distance), Use::Stated));
            Some(relative.into_iter().chain(stated))
        });
        distances.flatten().filter(move |(address, _)| code.region(*address) != Region::Outside)
    }

    /// What is named by `uses`, with what is loaded from there.
    fn resolved(self, uses: impl Iterator<Item = (Address, Use)>) -> NamedAddresses {
        let view = self.view;
        let is_data = |place: &Address| view.code.region(*place) == Region::Data;
        let is_code = |place: &Address| matches!(view.code.region(*place), Region::Arena | Region::FixedCode);
        // Code of no function never moves, but functions do at distances from it.
        let may_be_base = |address: &Address| match view.partition.block_containing(*address) {
            Some(_) => view.partition.entered_at(view.code, *address).is_some(),
            None => is_code(address),
        };
        let mut named = NamedAddresses::default();
        let mut data: BTreeMap<Address, Use> = BTreeMap::new();
        for (address, used) in uses {
            if is_data(&address) {
                let known = data.entry(address).or_insert(used);
                *known = used.max(*known);
            } else if may_be_base(&address) || used == Use::Formed && is_code(&address) {
                named.bases.insert(address);
            }
        }
        // A variable of another object is loaded from where its address is loaded from.
        let variables: Vec<Address> =
            data.keys().filter_map(|place| self.loaded.at(view, *place)).filter(is_data).collect();
        let words = data.iter().flat_map(|(place, used)| words_read(*place, *used != Use::Accessed));
        let words = words.chain(variables.iter().flat_map(|place| words_read(*place, false)));
        for address in words.filter_map(|word| self.loaded.at(view, word)) {
            named.bases.extend(Some(address).filter(may_be_base));
            named.places.extend(Some(address).filter(is_data));
        }
        named.places.extend(data.into_keys().chain(variables));
        named
    }
}
