//! Where the exceptions of calls are caught.
//!
//! Takes the call sites that a function and its parts state; gives the landing pad of a call. What is known at a pad is
//! what is known at the calls of its sites, and nothing of other calls.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction};

use super::region::Region;
use crate::exception_table::CallSite;

/// The landing pads of a region.
#[derive(Debug)]
pub(super) struct Catching {
    /// Code and the position of its pad, ascending and disjoint.
    sites: Vec<(Range<u64>, usize)>,
    /// Positions of pads that may be entered from anywhere.
    pub(super) open: Vec<usize>,
}

impl Catching {
    /// The pads of `sites`. Where exceptions come from is not known for a site without a call, whose exceptions come from
    /// other instructions, and for sites that overlap, of which personality routines may take either.
    pub(super) fn of(region: &Region, sites: &[CallSite]) -> Self {
        let mut calls: Vec<u64> =
            region.instructions.iter().filter(|instruction| is_call(instruction)).map(last_byte).collect();
        calls.sort_unstable();
        let has_call = |code: &Range<u64>| {
            calls
                .get(calls.partition_point(|&call| call < code.start))
                .is_some_and(|call| code.contains(call))
        };
        let mut found = Self { sites: Vec::new(), open: Vec::new() };
        for site in sites {
            let Some(pad) = region.position(site.pad) else { continue };
            if has_call(&site.code) {
                found.sites.push((site.code.clone(), pad));
            } else {
                found.open.push(pad);
            }
        }
        found.sites.sort_unstable_by_key(|(code, pad)| (code.start, code.end, *pad));
        found.sites.dedup();
        if found.sites.windows(2).any(|pair| pair[1].0.start < pair[0].0.end) {
            found.open.extend(found.sites.drain(..).map(|(_, pad)| pad));
        }
        found.open.sort_unstable();
        found.open.dedup();
        found
    }

    /// The position of the pad that catches the exceptions of `call`.
    pub(super) fn pad(&self, call: &Instruction) -> Option<usize> {
        let address = last_byte(call);
        let after = self.sites.partition_point(|(code, _)| code.start <= address);
        let (code, pad) = self.sites.get(after.checked_sub(1)?)?;
        code.contains(&address).then_some(*pad)
    }
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

/// The address that unwinders look up: one byte before the return address.
fn last_byte(call: &Instruction) -> u64 {
    call.next_ip().wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two calls of five bytes with a no-operation between them, then two pads of one byte.
    const CODE: [u8; 13] = [0xe8, 0, 0, 0, 0, 0x90, 0xe8, 0, 0, 0, 0, 0xc3, 0xc3];

    fn catching(sites: &[(Range<u64>, u64)]) -> (Vec<Option<usize>>, Vec<usize>) {
        let region = Region::of_code(&CODE, 0x1000);
        let sites: Vec<CallSite> = sites.iter().cloned().map(|(code, pad)| CallSite { code, pad }).collect();
        let found = Catching::of(&region, &sites);
        let calls = region.instructions.iter().filter(|instruction| is_call(instruction));
        (calls.map(|call| found.pad(call)).collect(), found.open)
    }

    #[test]
    fn a_call_leads_to_the_pad_of_its_own_site() {
        assert_eq!(catching(&[(0x1000..0x1005, 0x100b)]), (vec![Some(3), None], vec![]));
        let both = [(0x1006..0x100b, 0x100c), (0x1000..0x1005, 0x100b)];
        assert_eq!(catching(&both), (vec![Some(3), Some(4)], vec![]));
        // The last byte of a call counts.
        assert_eq!(catching(&[(0x1004..0x1006, 0x100b)]), (vec![Some(3), None], vec![]));
    }

    #[test]
    fn what_does_not_come_from_certain_calls_comes_from_anywhere() {
        assert_eq!(catching(&[(0x1005..0x1006, 0x100b)]), (vec![None, None], vec![3]));
        let overlapping = [(0x1000..0x1005, 0x100b), (0x1004..0x100b, 0x100c)];
        assert_eq!(catching(&overlapping), (vec![None, None], vec![3, 4]));
    }
}
