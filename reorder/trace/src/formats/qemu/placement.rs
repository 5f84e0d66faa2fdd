//! Where the program was loaded, found by its image: from the log's own words, or from blocks that start functions.

use std::collections::{BTreeMap, HashMap, HashSet};

use object::{Object as _, ObjectSymbol as _, SegmentFlags};

use super::{Block, Log};
use crate::{CompanionImage, Companions, Event, Location};
use reorder_base::address::{Address, RuntimeAddress};

/// A page of every processor starts at a multiple of this.
const MIN_PAGE: u64 = 4096;

/// An image and what was added to its addresses.
pub(super) struct Placement<'data> {
    pub(super) image: CompanionImage<'data>,
    bias: u64,
    /// Start and end of what is executable.
    code: Vec<(u64, u64)>,
}

impl<'data> Placement<'data> {
    /// The companion whose functions start where most of the log's symbols do; of a log without symbols, the only
    /// companion if the log says where the program was.
    pub(super) fn find(log: &Log<'_>, companions: &'data Companions) -> Option<Self> {
        let symbols: HashSet<&[u8]> = log.blocks.iter().filter_map(|block| block.symbol).collect();
        let mut placed: Vec<(usize, Self)> =
            companions.images().filter_map(|image| Self::of(image, log)).collect();
        placed.sort_by_key(|(votes, _)| std::cmp::Reverse(*votes));
        let is_only = placed.len() == 1;
        let (votes, best) = placed.into_iter().next()?;
        // Several functions may share a name, and then they have no vote.
        let is_convincing = if symbols.is_empty() { is_only } else { votes * 2 >= symbols.len() };
        is_convincing.then_some(best)
    }

    fn of(image: CompanionImage<'data>, log: &Log<'_>) -> Option<(usize, Self)> {
        let code: Vec<(u64, u64)> =
            image.object.segments().filter_map(|segment| executable(&segment)).collect();
        let lowest = code.iter().map(|(start, _)| *start).min()?;
        let stated = log.code.map(|(start, _)| (0, start.0.wrapping_sub(lowest)));
        let (votes, bias) = voted(&image, &log.blocks).or(stated)?;
        Some((votes, Self { image, bias, code }))
    }

    fn stated(&self, address: RuntimeAddress) -> Address {
        Address(address.0.wrapping_sub(self.bias))
    }

    /// One event for each block that lies in the image.
    pub(super) fn events(&self, blocks: &[Block<'_>]) -> Vec<Option<Event>> {
        blocks.iter().map(|block| self.event(block)).collect()
    }

    fn event(&self, block: &Block<'_>) -> Option<Event> {
        let address = self.stated(block.address?);
        self.code.iter().find(|(start, end)| (*start..*end).contains(&address.0))?;
        let (location, name) = match self.image.function_containing(address) {
            Some((start, name)) => (Location::Image(start), Some(name)),
            None => (Location::Inside(address), block.symbol.map(Into::into)),
        };
        Some(Event { name, ..Event::at(location) })
    }
}

/// The distance of most named blocks from their symbols, if it is one of whole pages: the first block of a function
/// starts where its symbol is.
fn voted(image: &CompanionImage<'_>, blocks: &[Block<'_>]) -> Option<(usize, u64)> {
    let mut symbols: HashMap<&[u8], Option<u64>> = HashMap::new();
    for symbol in image.object.symbols().filter(|symbol| symbol.is_definition()) {
        if let Ok(name) = symbol.name_bytes() {
            let address = symbol.address();
            // Local functions of one name have no vote.
            symbols
                .entry(name)
                .and_modify(|known| *known = known.filter(|known| *known == address))
                .or_insert(Some(address));
        }
    }
    let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
    for block in blocks {
        let stated = block.symbol.and_then(|symbol| symbols.get(symbol).copied().flatten());
        if let Some((address, stated)) = block.address.zip(stated) {
            let bias = address.0.wrapping_sub(stated);
            if bias.is_multiple_of(MIN_PAGE) {
                *votes.entry(bias).or_default() += 1;
            }
        }
    }
    votes.into_iter().map(|(bias, votes)| (votes, bias)).max_by_key(|(votes, _)| *votes)
}

fn executable<'data>(segment: &impl object::ObjectSegment<'data>) -> Option<(u64, u64)> {
    let is_executable = match segment.flags() {
        SegmentFlags::Elf { p_flags, .. } => p_flags.contains(object::elf::PF_X),
        _ => false,
    };
    let end = segment.address().checked_add(segment.size())?;
    is_executable.then(|| (segment.address(), end))
}
