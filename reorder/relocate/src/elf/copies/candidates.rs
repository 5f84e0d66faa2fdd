//! What could be copied of an image: pieces for the layout, each with its bytes.

use std::ops::Range;

use super::assumed::UnlistedPointers;
use super::bodies::{self, Body, Skipped};
use super::fragments::{self, Fragment};
use super::obstacle::Obstacle;
use super::places::Places;
use super::references::{self, Evident};
use super::tables::{self, Table};
use super::{placed, unwind};
use crate::RelocateOptions;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::FunctionIndex;

/// What could be copied of an image.
pub struct Candidates {
    pub(super) bodies: Vec<Body>,
    pub(super) fragments: Vec<Fragment>,
    /// Jump tables that get a copy, ascending by address; at least one fragment reads each.
    pub(super) tables: Vec<Table>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) unlisted: UnlistedPointers,
    pub(super) evident: Evident,
}

/// A piece of code that is copied as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where it is.
    pub range: Range<Address>,
    /// Bytes of the copy, with the jump tables that probably lie after it; an estimate from above.
    pub size: u64,
    /// What the copy is aligned to.
    pub alignment: u32,
}

/// Which parts of the wanted functions are copied.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'run> {
    /// All that control reaches.
    Whole,
    /// Instructions in these ranges, which ascend and do not overlap, and what is cheaper to copy along.
    Ran(&'run [Range<Address>]),
    /// About half of the basic blocks, chosen with this seed: to find what copies of any part could break.
    AtRandom(u64),
}

impl Candidates {
    /// Finds what of `wanted_functions`, in this order, can be copied; without jump tables, which take the verifier's proof.
    ///
    /// # Errors
    /// Refusals (R8, R13), malformed tables.
    pub fn find(
        file: &ElfFile<'_>,
        functions: &ElfFunctions<'_>,
        analysis: &Analysis<'_>,
        wanted_functions: &[FunctionIndex],
        (wanted, options): (Wanted<'_>, RelocateOptions),
    ) -> Result<Self> {
        super::check(file, options.relocations)?;
        let ran = match wanted {
            Wanted::Whole | Wanted::AtRandom(_) => &[],
            Wanted::Ran(ran) => ran,
        };
        let (mut bodies, mut skipped) = bodies::collect(file, functions, analysis, wanted_functions, ran);
        let unwind = unwind::OldTables::read(file)?;
        if let Some(unwind) = &unwind {
            bodies.retain(|body| match unwind.obstacle(body) {
                Some(obstacle) => {
                    skipped.push((body.block, obstacle, body.range.start));
                    false
                }
                None => true,
            });
        }
        let mut fragments = match wanted {
            Wanted::Whole => fragments::whole(&bodies),
            Wanted::Ran(ran) => fragments::executed(&bodies, ran, file.processor),
            Wanted::AtRandom(seed) => fragments::at_random(&bodies, seed),
        };
        if let Some(unwind) = &unwind {
            fragments.retain(|fragment| {
                unwind.describes_whole(bodies[fragment.body].range.start, &fragment.original(&bodies))
            });
        }
        let evident = Evident::of(file, functions, &bodies)?;
        Ok(Self { bodies, fragments, tables: Vec::new(), skipped, unlisted: options.unlisted, evident })
    }

    /// The same with the jump tables that can have copies.
    ///
    /// # Errors
    /// An image that the verifier cannot read.
    pub fn with_tables(
        self,
        file: &ElfFile<'_>,
        functions: &ElfFunctions<'_>,
        analysis: &Analysis<'_>,
    ) -> Result<Self> {
        let places = Places::new(&self.bodies, &self.fragments);
        let mut tables = tables::of_bodies(file, analysis, &self.bodies);
        tables.retain(|table| places.home_of(table).is_some());
        let (mut tables, guards) = tables::provable(file, &functions.found, tables)?;
        tables.sort_by_key(|table| table.base);
        Ok(Self { bodies: bodies::guarded(self.bodies, &guards), tables, ..self })
    }

    /// Functions that can be copied, whole or in part.
    #[must_use]
    pub fn function_count(&self) -> usize {
        self.bodies.len()
    }

    /// Why others cannot.
    pub fn obstacles(&self) -> impl Iterator<Item = Obstacle> + '_ {
        self.skipped.iter().map(|(_, obstacle, _)| *obstacle)
    }

    /// The pieces; a number stands for each in [`copy`].
    ///
    /// # Errors
    /// An image that the verifier cannot read.
    pub fn candidates(&self, file: &ElfFile<'_>, analysis: &Analysis<'_>) -> Result<Vec<Candidate>> {
        let (followed, _) = references::followed(file, analysis, &self.bodies, &self.evident, self.unlisted)?;
        let places = Places::new(&self.bodies, &self.fragments);
        let mut bytes_of_tables = vec![0_u64; self.fragments.len()];
        for table in &self.tables {
            if let Some(home) = places.home_of(table) {
                // At most an entry's bytes of traps come before it.
                bytes_of_tables[home] += (table.targets.len() as u64 + 1) * table.entry.size();
            }
        }
        let candidate = |(fragment, bytes_of_tables): (&Fragment, u64)| {
            let range = fragment.original(&self.bodies);
            let alignment = placed::alignment_of(range.start, &followed, &analysis.code);
            let size = u64::from(fragment.size(&self.bodies, file.processor)) + bytes_of_tables;
            Candidate { range, size, alignment }
        };
        Ok(self.fragments.iter().zip(bytes_of_tables).map(candidate).collect())
    }
}
