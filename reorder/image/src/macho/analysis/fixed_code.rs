//! Code outside `__text`, which is left in place; its references to functions are updated.

use super::Decoder;
use super::units::Obligations;
use crate::code_reference::CodeReference;
use crate::macho::file::MachOFile;
use crate::macho::function_starts::function_starts;
use crate::macho::section::Section;
use crate::macho::symbol_table::symbols;
use crate::pins::PinReason;
use reorder_base::address::Address;
use reorder_base::error::Result;

/// References and constraints from the sections of stubs, helpers and other code.
pub(super) struct FixedCode {
    /// References into `__text`.
    pub(super) references: Vec<CodeReference>,
    must_stay: Vec<(Address, Address)>,
}

impl FixedCode {
    /// # Errors
    /// Damaged lists of functions.
    pub(super) fn collect(file: &MachOFile<'_>, decoder: &Decoder<'_>) -> Result<Self> {
        let mut starts = function_starts(file)?;
        starts.extend(symbols(file)?.filter_map(|symbol| symbol.address()));
        starts.sort_unstable();
        starts.dedup();
        let text = file.text().number;
        let mut all = Self { references: Vec::new(), must_stay: Vec::new() };
        let is_other_code =
            |section: &&Section<'_>| section.is_code() && section.number != text && section.has_bytes();
        for section in file.sections.iter().filter(is_other_code) {
            let (references, must_stay) = decoder.decode_fixed_section(section, &starts);
            all.references.extend(references);
            all.must_stay.extend(must_stay.into_iter().map(|target| (target, section.address)));
        }
        Ok(all)
    }

    pub(super) fn apply(&self, obligations: &mut Obligations<'_>) {
        for &(target, evidence) in &self.must_stay {
            obligations.pin_at(target, PinReason::ShortReference, evidence);
        }
    }
}
