//! Facts from the whole image about a place in code: whether it catches exceptions, and whether any branch leads there.

use std::ops::Range;
use std::sync::OnceLock;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use rayon::prelude::*;

use crate::elf::landing_pads::{TablePads, pads_of};
use crate::elf::pair::ImagePair;
use crate::elf::relocated_field::RelocatedField;
use crate::elf::unwind_walk::{UnwindEntries, UnwindEntry};
use crate::elf::view::ElfView;
use crate::exception_table::CallSite;
use reorder_base::address::Address;

/// Facts that are rarely needed.
pub(super) struct Evidence<'a> {
    pair: ImagePair<'a>,
    /// Unwind entries with an exception table, by start.
    catching: Vec<UnwindEntry>,
    /// Starts of functions that some other code calls or jumps to.
    entered: OnceLock<Vec<Address>>,
    /// Places of kept relocations that store distances, and the sections that have them.
    distances: Vec<Address>,
    listed: Vec<Range<Address>>,
}

impl<'a> Evidence<'a> {
    pub(super) fn of(pair: ImagePair<'a>) -> Self {
        let entries =
            pair.old.section(b".eh_frame").into_iter().flat_map(UnwindEntries::of).map_while(Result::ok);
        let mut catching: Vec<UnwindEntry> =
            entries.filter(|entry| entry.exception_table.is_some()).collect();
        catching.sort_unstable_by_key(|entry| entry.start);
        let (distances, listed) = kept_distances(pair.old);
        Self { pair, catching, entered: OnceLock::new(), distances, listed }
    }

    /// Call sites with landing pads of the function at `start`. One that reaches beyond the code of its unwind entry has no
    /// code here.
    pub(super) fn call_sites(&self, start: u64, size: u64) -> Vec<CallSite> {
        let first = self.catching.partition_point(|entry| entry.start < start);
        let own = self.catching[first..].iter().take_while(|entry| entry.start < start.saturating_add(size));
        let mut sites: Vec<CallSite> = Vec::new();
        for entry in own {
            // A call site has at least four bytes.
            let mut budget = (entry.size as usize).saturating_add(16);
            let table =
                entry.exception_table.and_then(|table| pads_of(self.pair.old, table, entry, &mut budget));
            if let Some(TablePads::FromStart(found)) = table {
                let end = entry.start.saturating_add(entry.size);
                sites.extend(found.into_iter().map(|site| {
                    let is_inside = entry.start <= site.code.start && site.code.end <= end;
                    CallSite { code: if is_inside { site.code } else { end..end }, ..site }
                }));
            }
        }
        sites
    }

    /// Whether the linker's list for the section at `place` names a distance there; `None` without such a list.
    pub(super) fn is_listed(&self, place: Address) -> Option<bool> {
        let has_list = self.listed.iter().any(|range| range.contains(&place));
        has_list.then(|| self.distances.binary_search(&place).is_ok())
    }

    /// Whether only a table seems to lead to `target`, a place outside of the table's function.
    pub(super) fn is_orphan(&self, target: Address) -> bool {
        let Some(home) = self.pair.moves.containing(target) else { return false };
        if self.entered().binary_search(&target).is_ok() {
            return false;
        }
        if home.old_start == target {
            return true;
        }
        let start = home.old_start.0;
        let bytes =
            self.pair.old.code_at(start, home.old_end().0).and_then(|section| section.at(start, home.size));
        let mut falls_in = false;
        let mut is_boundary = false;
        let mut decoder = Decoder::with_ip(64, bytes.unwrap_or_default(), start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            is_boundary |= decoder.ip() == target.0;
            decoder.decode_out(&mut instruction);
            let leads_there = instruction.op0_kind() == OpKind::NearBranch64
                && instruction.near_branch_target() == target.0;
            if leads_there {
                return false;
            }
            falls_in |= instruction.next_ip() == target.0 && !ends(&instruction);
        }
        // Code before such a place often ends with a call that never returns, so a call does not count as reaching it.
        is_boundary && !falls_in
    }

    fn entered(&self) -> &[Address] {
        self.entered.get_or_init(|| {
            let of_function = |range: &crate::moves::Move| {
                let start = range.old_start.0;
                let code = self.pair.old.code_at(start, range.old_end().0);
                let bytes = code.and_then(|section| section.at(start, range.size)).unwrap_or_default();
                let decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
                let is_outside = |target: &u64| !(start..range.old_end().0).contains(target);
                let targets = decoder.into_iter().filter_map(|instruction| {
                    let is_branch = instruction.op0_kind() == OpKind::NearBranch64;
                    let is_address = instruction.is_ip_rel_memory_operand();
                    (is_branch || is_address).then(|| {
                        if is_branch {
                            instruction.near_branch_target()
                        } else {
                            instruction.ip_rel_memory_address()
                        }
                    })
                });
                targets.filter(is_outside).map(Address).collect::<Vec<Address>>()
            };
            let mut all: Vec<Address> =
                self.pair.moves.as_slice().par_iter().flat_map_iter(of_function).collect();
            all.par_sort_unstable();
            all.dedup();
            all
        })
    }
}

/// Whether control may end at `instruction`: any call may never return.
fn ends(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
            | FlowControl::Call
            | FlowControl::IndirectCall
    ) || instruction.mnemonic() == Mnemonic::Int3
}

/// Where kept relocations store distances in data, and which sections have a list at all.
fn kept_distances(image: &ElfView<'_>) -> (Vec<Address>, Vec<Range<Address>>) {
    use goblin::elf::section_header::SHT_RELA;
    let (mut distances, mut listed) = (Vec::new(), Vec::new());
    let lists = image.sections.iter().filter(|section| section.kind == SHT_RELA && !section.is_loaded());
    for list in lists.filter(|list| !list.bytes.is_empty()) {
        let Some(target) = image.sections.get(list.info as usize) else { continue };
        if !target.is_loaded() || target.is_code() {
            continue;
        }
        let before = distances.len();
        for record in list.bytes.chunks_exact(super::super::pointers::RELA_SIZE) {
            let place = crate::bytes::u64_at(record, 0).unwrap_or_default();
            let kind = crate::bytes::u64_at(record, 8).unwrap_or_default() as u32;
            let field = RelocatedField::of(image.processor, kind);
            if field.is_some_and(|field| field.is_relative() && field.width() == 4) {
                distances.push(Address(place));
            }
        }
        if distances.len() > before {
            listed.push(Address(target.address)..Address(target.end()));
        }
    }
    distances.sort_unstable();
    (distances, listed)
}
