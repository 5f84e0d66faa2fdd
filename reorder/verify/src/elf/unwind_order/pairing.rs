//! A guess of which unwind entry of the new image is which of the old one.
//!
//! Two entries can only be the same if all agrees that does not depend on places, and if their functions have the same code. Where
//! several do, what leads to their functions tells them apart: symbols, which keep their order; words of data, which keep
//! their places; and instructions of functions that are known already. What is left after that is told apart by what it
//! leads to, and at last by the order of the entries.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use goblin::elf::section_header::{SHT_DYNSYM, SHT_SYMTAB};
use rayon::prelude::*;

use super::code::Code;
use super::described::Described;
use crate::elf::symbol_walk::symbols;
use crate::elf::view::ElfView;
use reorder_base::error::{Error, Result};

/// Rounds in which functions are told apart by what they lead to; each costs as much as reading them again.
const MAX_ROUNDS: usize = 16;

/// A function with its entries: more than one if the linker folded functions that are alike.
struct Function {
    start: u64,
    size: u64,
    /// By their digests, then in section order.
    entries: Vec<u32>,
    /// What two that may be the same have in common.
    key: u64,
}

/// Functions that are tried in turn for one where several are alike.
const MAX_TRIED: usize = 64;

/// A place in code: a function, and how many bytes after its start.
type Place = (u32, u64);

/// One image.
struct Side<'a> {
    image: &'a ElfView<'a>,
    entries: &'a [Described],
    /// In the order of their first entries.
    functions: Vec<Function>,
    /// Starts of functions, ascending, with their numbers.
    starts: Vec<(u64, u32)>,
}

/// What is known of two images.
pub(super) struct Pairing<'a> {
    old: Side<'a>,
    new: Side<'a>,
    /// By function of the old image: which one of the new image it is.
    partners: Vec<Option<u32>>,
    /// By function of the new image: which one of the old image it is.
    origins: Vec<Option<u32>>,
    /// Functions of the old image whose code was not followed yet.
    unread: Vec<u32>,
    /// What leads to functions in both images, as far as it is not known itself; once all that is alone is paired.
    callers: [Callers; 2],
}

/// By function: those that lead to it with a digest of what they are and how they do that, by this digest.
type Callers = Vec<Vec<(u64, u32)>>;

impl<'a> Side<'a> {
    fn new(image: &'a ElfView<'a>, entries: &'a [Described]) -> Self {
        let mut sorted: Vec<u32> = (0..entries.len() as u32).collect();
        sorted.sort_unstable_by_key(|&index| (entries[index as usize].start, index));
        let function = |same: &[u32]| {
            let of = |index: u32| &entries[index as usize];
            let mut same = same.to_vec();
            same.sort_unstable_by_key(|&index| (of(index).digest, index));
            let (start, size) =
                (of(same[0]).start, same.iter().map(|&index| of(index).size).max().unwrap_or(0));
            let digests: Vec<u64> = same.iter().map(|&index| of(index).digest).collect();
            let key = hash((digests, Code::of(image, start, size).digest));
            Function { start, size, entries: same, key }
        };
        let same: Vec<&[u32]> = sorted
            .chunk_by(|&one, &other| entries[one as usize].start == entries[other as usize].start)
            .collect();
        let mut functions: Vec<Function> = same.into_par_iter().map(function).collect();
        functions.sort_unstable_by_key(|function| function.entries.iter().min().copied());
        let numbered = functions.iter().zip(0..);
        let mut starts: Vec<(u64, u32)> =
            numbered.map(|(function, number)| (function.start, number)).collect();
        starts.sort_unstable();
        Self { image, entries, functions, starts }
    }

    /// Where `address` is, if a function contains it.
    fn containing(&self, address: u64) -> Option<Place> {
        let after = self.starts.partition_point(|&(start, _)| start <= address);
        let (start, index) = *self.starts.get(after.checked_sub(1)?)?;
        let offset = address - start;
        (offset < self.functions[index as usize].size).then_some((index, offset))
    }

    /// The function that starts at `address`.
    fn starting_at(&self, address: u64) -> Option<u32> {
        self.containing(address).filter(|&(_, offset)| offset == 0).map(|(index, _)| index)
    }

    fn code(&self, index: u32) -> Code {
        let Function { start, size, .. } = self.functions[index as usize];
        let mut code = Code::of(self.image, start, size);
        if code.runs_on {
            let next = self.starts.partition_point(|&(other, _)| other < start.saturating_add(size.max(1)));
            code.targets.extend(self.starts.get(next).map(|&(next, _)| next));
        }
        code
    }

    /// The digests of a function's entries.
    fn digests(&self, index: u32) -> impl Iterator<Item = u64> {
        self.functions[index as usize].entries.iter().map(|&entry| self.entries[entry as usize].digest)
    }

    /// Where the functions that are not `known` lead, in the order of their instructions.
    fn leads(&self, known: &[Option<u32>]) -> Vec<(u32, Vec<Option<Place>>)> {
        let functions = (0..self.functions.len() as u32).into_par_iter();
        let open = functions.filter(|&index| known[index as usize].is_none());
        let led_to =
            |index: u32| self.code(index).targets.iter().map(|&target| self.containing(target)).collect();
        open.map(|index| (index, led_to(index))).collect()
    }

    /// What leads to each function, of all that is not `known`.
    fn callers(&self, kinds: &[u64], known: &[Option<u32>]) -> Callers {
        let mut callers = Callers::new();
        callers.resize_with(self.functions.len(), Vec::new);
        for (caller, targets) in self.leads(known) {
            for (position, target) in targets.into_iter().enumerate() {
                if let Some((target, offset)) = target {
                    let digest = hash((kinds[caller as usize], position, offset));
                    callers[target as usize].push((digest, caller));
                }
            }
        }
        callers.iter_mut().for_each(|row| row.sort_unstable());
        callers
    }

    /// Kinds that tell more functions apart: by the kinds of those that they lead to and that lead to them, or by which ones
    /// they are, as far as that is `known`. Functions that are known have no kind.
    fn refined(&self, kinds: &[u64], known: &[Option<u32>]) -> Vec<u64> {
        let name = |index: u32| match known[index as usize] {
            Some(pair) => (true, u64::from(pair)),
            None => (false, kinds[index as usize]),
        };
        let leads = self.leads(known);
        let mut led_to = vec![0u64; self.functions.len()];
        for (index, targets) in &leads {
            for (position, target) in targets.iter().enumerate() {
                if let &Some((target, offset)) = target {
                    // A sum, since those that lead to it have no order.
                    let sum = &mut led_to[target as usize];
                    *sum = sum.wrapping_add(hash((name(*index), position, offset)));
                }
            }
        }
        let mut refined = vec![0; self.functions.len()];
        for (index, targets) in leads {
            let names: Vec<_> = targets
                .into_iter()
                .map(|target| target.map(|(target, offset)| (name(target), offset)))
                .collect();
            refined[index as usize] = hash((kinds[index as usize], names, led_to[index as usize]));
        }
        refined
    }
}

impl<'a> Pairing<'a> {
    pub(super) fn new(
        old: (&'a ElfView<'a>, &'a [Described]),
        new: (&'a ElfView<'a>, &'a [Described]),
    ) -> Self {
        let (old, new) = rayon::join(|| Side::new(old.0, old.1), || Side::new(new.0, new.1));
        let (partners, origins) = (vec![None; old.functions.len()], vec![None; new.functions.len()]);
        Self { old, new, partners, origins, unread: Vec::new(), callers: Default::default() }
    }

    /// By entry of the old image, the one of the new image.
    ///
    /// # Errors
    /// An entry that the new image does not have.
    pub(super) fn partners(mut self) -> Result<Vec<u32>> {
        let keys = |side: &Side<'_>| side.functions.iter().map(|function| function.key).collect();
        let (mut old, mut new): (Vec<u64>, Vec<u64>) = (keys(&self.old), keys(&self.new));
        self.pair_alone(&old, &new);
        self.pair_symbols();
        self.pair_words();
        self.follow();
        let mut kinds = 0;
        for _ in 0..MAX_ROUNDS {
            (old, new) = self.refined(&old, &new);
            let is_same = distinct(&old) == std::mem::replace(&mut kinds, distinct(&old));
            if self.pair_alone(&old, &new) == 0 && is_same {
                break;
            }
            self.follow();
        }
        self.callers = [self.old.callers(&old, &self.partners), self.new.callers(&new, &self.origins)];
        self.pair_in_place(&old, &new);
        self.pair_in_order(&old, &new);
        // Code that could not be read rightly, such as tables in it, tells nothing apart.
        let digests = |side: &Side<'_>| {
            (0..side.functions.len() as u32)
                .map(|index| hash(side.digests(index).collect::<Vec<_>>()))
                .collect()
        };
        let (old, new): (Vec<u64>, Vec<u64>) = (digests(&self.old), digests(&self.new));
        self.pair_in_order(&old, &new);
        self.entries()
    }

    /// By entry of the old image, the one of the new image.
    fn entries(&self) -> Result<Vec<u32>> {
        let mut entries = vec![0; self.old.entries.len()];
        for (index, partner) in self.partners.iter().enumerate() {
            let before = &self.old.functions[index];
            let same = |&partner: &u32| self.old.digests(index as u32).eq(self.new.digests(partner));
            let Some(partner) = partner.filter(same) else {
                let start = before.start;
                return Err(Error::verification(format!(
                    "the unwind entry of {start:#x} is gone or another one"
                )));
            };
            for (&entry, &other) in before.entries.iter().zip(&self.new.functions[partner as usize].entries) {
                entries[entry as usize] = other;
            }
        }
        Ok(entries)
    }

    /// Notes that two functions are the same, unless one of them is known already; gives whether that is new.
    fn pair(&mut self, old: u32, new: u32) -> bool {
        let (partner, origin) = (&mut self.partners[old as usize], &mut self.origins[new as usize]);
        if partner.is_some() || origin.is_some() {
            return false;
        }
        (*partner, *origin) = (Some(new), Some(old));
        self.unread.push(old);
        true
    }

    /// The same for functions that another place leads to, which must agree.
    fn pair_led_to(&mut self, old: Option<u32>, new: Option<u32>) {
        if let (Some(old), Some(new)) = (old, new)
            && self.old.functions[old as usize].key == self.new.functions[new as usize].key
        {
            self.pair(old, new);
        }
    }

    /// Pairs what is the only one of its kind among those that are not known; gives how many.
    fn pair_alone(&mut self, old: &[u64], new: &[u64]) -> usize {
        let alone = |kinds: &[u64], known: &[Option<u32>]| {
            let mut found: HashMap<u64, Option<u32>> = HashMap::new();
            for (index, &kind) in kinds.iter().enumerate().filter(|&(index, _)| known[index].is_none()) {
                found.entry(kind).and_modify(|one| *one = None).or_insert(Some(index as u32));
            }
            found
        };
        let (old, new) = (alone(old, &self.partners), alone(new, &self.origins));
        let mut pairs: Vec<(u32, u32)> =
            old.iter().filter_map(|(kind, &one)| Some((one?, (*new.get(kind)?)?))).collect();
        // The order of a hash table differs from run to run.
        pairs.sort_unstable();
        pairs.into_iter().filter(|&(old, new)| self.pair(old, new)).count()
    }

    /// Symbols keep their order.
    fn pair_symbols(&mut self) {
        for kind in [SHT_SYMTAB, SHT_DYNSYM] {
            let (old, new) = (symbols(self.old.image, kind), symbols(self.new.image, kind));
            let both = old.zip(new).filter(|(old, new)| old.is_sized_function() && new.is_sized_function());
            for (old, new) in both {
                self.pair_led_to(self.old.starting_at(old.value), self.new.starting_at(new.value));
            }
        }
    }

    /// Words of data keep their places: tables of relocations, and what they or the linker wrote.
    fn pair_words(&mut self) {
        let (old, new) = (self.old.image, self.new.image);
        for (before, after) in old.sections.iter().zip(&new.sections) {
            if !before.is_loaded() || before.is_code() {
                continue;
            }
            let words = |bytes: &'a [u8]| {
                bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes))
            };
            for (before, after) in words(before.bytes).zip(words(after.bytes)) {
                if before != 0 {
                    self.pair_led_to(self.old.starting_at(before), self.new.starting_at(after));
                }
            }
        }
    }

    /// Pairs what the functions lead to that are known.
    fn follow(&mut self) {
        while let Some(old) = self.unread.pop() {
            let Some(new) = self.partners[old as usize] else { continue };
            self.pair_callers(old, new);
            let (before, after) = (self.old.code(old), self.new.code(new));
            for (before, after) in before.targets.into_iter().zip(after.targets) {
                if let (Some((old, before)), Some((new, after))) =
                    (self.old.containing(before), self.new.containing(after))
                    && before == after
                {
                    self.pair_led_to(Some(old), Some(new));
                }
            }
        }
    }

    /// Pairs what leads to a pair where only one of its kind does so in the same way.
    fn pair_callers(&mut self, old: u32, new: u32) {
        let [before, after] = &mut self.callers;
        let row = |callers: &mut Callers, index: u32| callers.get_mut(index as usize).map(std::mem::take);
        let (Some(before), Some(after)) = (row(before, old), row(after, new)) else { return };
        let alone = |callers: &[(u64, u32)], known: &[Option<u32>]| {
            let mut open = callers.iter().filter(|&&(_, caller)| known[caller as usize].is_none());
            open.next().filter(|_| open.next().is_none()).map(|&(_, caller)| caller)
        };
        for same in before.chunk_by(|one, other| one.0 == other.0) {
            let first = after.partition_point(|&(digest, _)| digest < same[0].0);
            let end = after.partition_point(|&(digest, _)| digest <= same[0].0);
            let pair = (alone(same, &self.partners), alone(&after[first..end], &self.origins));
            if let (Some(old), Some(new)) = pair {
                self.pair(old, new);
            }
        }
    }

    /// More kinds of the functions that are not known.
    fn refined(&self, old: &[u64], new: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let numbered = self.partners.iter().zip(0..);
        let paired: Vec<Option<u32>> = numbered.map(|(partner, old)| partner.map(|_| old)).collect();
        rayon::join(|| self.old.refined(old, &paired), || self.new.refined(new, &self.origins))
    }

    /// Pairs those of the same kind that may have stayed: numbers in data, which tell nothing here, may lead to them.
    fn pair_in_place(&mut self, old: &[u64], new: &[u64]) {
        for index in 0..old.len() as u32 {
            let stayed = self.new.starting_at(self.old.functions[index as usize].start);
            if let Some(stayed) = stayed.filter(|&stayed| new[stayed as usize] == old[index as usize])
                && self.partners[index as usize].is_none()
                && self.origins[stayed as usize].is_none()
                && self.agree(index, stayed)
            {
                self.pair(index, stayed);
                self.follow();
            }
        }
    }

    /// Pairs all others of the same kind, if possible those that lead to the same: at the same position, else in the order
    /// of the entries.
    fn pair_in_order(&mut self, old: &[u64], new: &[u64]) {
        let mut of_kind: HashMap<u64, Vec<u32>> = HashMap::new();
        for index in (0..new.len() as u32).rev().filter(|&index| self.origins[index as usize].is_none()) {
            of_kind.entry(new[index as usize]).or_default().push(index);
        }
        for index in 0..old.len() as u32 {
            let Some(candidates) = of_kind.get_mut(&old[index as usize]) else { continue };
            if self.partners[index as usize].is_some() {
                continue;
            }
            while candidates.pop_if(|last| self.origins[*last as usize].is_some()).is_some() {}
            let same_position = candidates.iter().find(|&&candidate| candidate == index);
            let mut open = same_position
                .into_iter()
                .chain(candidates.iter().rev())
                .filter(|&&candidate| self.origins[candidate as usize].is_none())
                .copied();
            let first = open.clone().next();
            let agreeing = open.by_ref().take(MAX_TRIED).find(|&candidate| self.agree(index, candidate));
            if let Some(candidate) = agreeing.or(first) {
                self.pair(index, candidate);
                self.follow();
            }
        }
    }

    /// Whether two functions lead to the same ones, as far as these are known.
    fn agree(&self, old: u32, new: u32) -> bool {
        let (before, after) = (self.old.code(old), self.new.code(new));
        let mut targets = before.targets.into_iter().zip(after.targets);
        targets.all(|(before, after)| match (self.old.containing(before), self.new.containing(after)) {
            (Some((before, _)), Some((after, _))) => {
                self.partners[before as usize].is_none_or(|partner| partner == after)
                    && self.origins[after as usize].is_none_or(|origin| origin == before)
            }
            (None, None) => true,
            _ => false,
        })
    }
}

fn distinct(kinds: &[u64]) -> usize {
    kinds.iter().collect::<HashSet<_>>().len()
}

fn hash(value: impl Hash) -> u64 {
    let mut state = DefaultHasher::new();
    value.hash(&mut state);
    state.finish()
}
